"""What happened: one event per request, and the numbers they add up to."""

from rewarm.ledger.events import Event, Seconds
from rewarm.ledger.ledger import Ledger
from rewarm.ledger.stats import Stats

__all__ = ["Event", "Ledger", "Seconds", "Stats"]
