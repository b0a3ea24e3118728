"""XLA's persisted autotuning, managed. Nothing is imported here: each part costs only who uses it."""
