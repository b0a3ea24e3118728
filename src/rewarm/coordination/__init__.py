"""Who compiles: one thread per key inside a process."""

from rewarm.coordination.single_flight import Flight, SingleFlight

__all__ = ["Flight", "SingleFlight"]
