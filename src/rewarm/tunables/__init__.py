"""What users tune themselves: spaces, records, what is timed next, what has won, and where that is kept, without JAX.

Not promised: that anything here measures. Seconds come from above (`jax_adapter/tuner/`), as numbers in rounds.
"""
