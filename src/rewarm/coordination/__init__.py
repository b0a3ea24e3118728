"""Who compiles: one thread per key inside a process, one process on a host, one host of a fleet."""

from rewarm.coordination.fleet import FleetLeases, seat_of
from rewarm.coordination.host import HostLeases
from rewarm.coordination.lead import Lead
from rewarm.coordination.single_flight import Flight, SingleFlight

__all__ = ["FleetLeases", "Flight", "HostLeases", "Lead", "SingleFlight", "seat_of"]
