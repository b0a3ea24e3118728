"""What happened: one event per request, the numbers they add up to, and runs on disk.

The records of explanations are in `explanation.py`, and those of runs that were read in `runs.py`.
"""

from rewarm.ledger.costs import LoadCosts
from rewarm.ledger.events import ALREADY_STORED, Event, Seconds
from rewarm.ledger.journal import RunWriter
from rewarm.ledger.ledger import Ledger, of_this_process
from rewarm.ledger.stats import Stats

__all__ = ["ALREADY_STORED", "Event", "Ledger", "LoadCosts", "RunWriter", "Seconds", "Stats", "of_this_process"]
