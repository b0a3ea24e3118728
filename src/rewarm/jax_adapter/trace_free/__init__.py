"""`rewarm.jit`: a start that does not trace what earlier starts have traced and proved.

Not promised: that a trace is skipped; whatever cannot be followed is traced as by `jax.jit`.

    call ─► asked.py      what kind of call: arguments, options, surroundings       ─► a folder of records
         ─► records.py    what was recorded for this kind, and how far it is trusted
         ─► guards        is all that tracing depended on as it was?
         ─► serving.py    the executable of the record, from the cache, with JAX's own dispatch around it
         ─► proving.py    the same call, traced beside the program, must come to the same key

`tracing.py` records a call that has to be traced; `jit.py` is the function around all of it.
"""
