"""What rewarm does, for those who watch many processes: Prometheus, OpenTelemetry, structured logs.

Not promised: anything of another process. What is told is the ledger of this one, and nothing is imported, counted or
started before somebody asks: by a variable (`starting.py`) or by a call in `prometheus.py`, `opentelemetry.py` or
`logs.py`. A failure of metrics never stops a program.

`catalogue.py` has every metric, once, with its name in both worlds; docs/metrics.md is its text.
"""
