"""What happened: one event per request, the numbers they add up to, and runs on disk."""

from rewarm.ledger.events import Change, Event, Explanation, Finding, Seconds
from rewarm.ledger.journal import RunWriter
from rewarm.ledger.ledger import Ledger
from rewarm.ledger.stats import Stats

__all__ = ["Change", "Event", "Explanation", "Finding", "Ledger", "RunWriter", "Seconds", "Stats"]
