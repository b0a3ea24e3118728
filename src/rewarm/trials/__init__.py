"""Trials: an entry that ends the process when it is loaded or first run does so once.

Marks say what a process has in hand; a later start judges the marks of dead processes. No JAX here, and no store: who
makes `Trials` says how an entry is taken out of the way.
"""

from rewarm.trials.condemned import Refused
from rewarm.trials.judge import Verdict
from rewarm.trials.place import ELSEWHERE, FOLDER, place_of
from rewarm.trials.proved import Proved
from rewarm.trials.trials import Trial, Trials, drop, refused_keys

__all__ = ["ELSEWHERE", "FOLDER", "Proved", "Refused", "Trial", "Trials", "Verdict", "drop", "place_of", "refused_keys"]
