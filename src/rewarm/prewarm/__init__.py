"""Pre-warming: the cache is filled with the programs of a plan, for machines that need not be here.

Not promised: that a plan is all that a program compiles, or that a compile here is as good as one where XLA can tune
on the device; the report says which fusions had no tuning result.

    jobs.py      from names of plans, targets and topologies to what there is to do
    work.py      what there is to do, and what came of it
    child.py     the worker process: one target, one topology; lowers, identifies, compiles and stores
    worker.py    a worker process, seen from here
    pool.py      several of them, as far as memory allows
    failures.py  what does not compile, remembered for a while
    module_settings.py   what the plan's module says to rewarm and to JAX's cache
    target_notes.py      what is to be said of a target, whatever comes of its programs
    remotes_there.py     whether the remotes are there, before the work
    still_there.py       whether the entries are, after it
    shared_failures.py   failures of a fleet
    ahead_notes.py       for machines that miss what was pushed: in what they are others
    whose.py             whose code a line of an error is
    report.py    the sums, for people and as JSON
    pushing.py   where entries go besides the local store
"""

from rewarm.prewarm.pool import fill
from rewarm.prewarm.report import Report
from rewarm.prewarm.work import Job, Outcome, Result

__all__ = ["Job", "Outcome", "Report", "Result", "fill"]
