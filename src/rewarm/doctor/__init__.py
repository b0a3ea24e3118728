"""Whether caching would work here and now: checks that look, and name what to do next.

Not promised: that a program hits when all is well here. What a program does by itself (options that it sets after it
was started, programs that differ in each run) shows in its runs, which are looked at too, and in `rewarm explain`.

One file for each group of checks; what they are made from is gathered first, in `facts.py`, by child processes of the
Python that is meant.
"""

from rewarm.doctor.check import Check, Verdict
from rewarm.doctor.examination import examine
from rewarm.doctor.facts import Facts, gather

__all__ = ["Check", "Facts", "Verdict", "examine", "gather"]
