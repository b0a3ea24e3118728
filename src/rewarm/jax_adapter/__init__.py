"""Where rewarm meets JAX. `seam/` alone touches JAX's private modules; the rest sees plain values.

Not promised: anything about a JAX outside 0.9 to 0.12. The seam is probed when rewarm turns on, and where it does not
look as it should, JAX runs as if rewarm were not there and one log line says so.
"""
