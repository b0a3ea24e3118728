"""`rewarm.tunable`, `rewarm.tune` and `rewarm.tune_options`: what can be chosen is measured once, and kept.

Not promised: that a winner is faster elsewhere than where it was measured; so one is used for the same function,
arguments, device, compiler and libraries alone.

    call ─► arguments.py   what kind of call: shapes, types, values of Python        ─┐
         ─► kernels.py     which function, by content; which device, compiler, libraries ─► a case (`tunables.records`)
         ─► lookups.py     the winner of the case: from memory, the store, the remotes
         ─► tunable.py     the function is called with it; what decided goes into a trace of `rewarm.jit`

    tune ─► tuning.py      one session: search (`candidates.py`, `rounds.py`), final comparison (`finals.py`), record
         ─► worker.py      children (`candidate_child.py`) in which candidates compile and run, and may die
         ─► bench.py       what is done with a candidate there, or here where the function has no name
         ─► options.py     the same for XLA's options of one program, with the spaces of `option_spaces.py`
         ─► ranks.py       all processes of a job end with one choice
"""
