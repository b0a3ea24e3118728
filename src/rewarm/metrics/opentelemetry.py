"""Metrics and spans for OpenTelemetry, through its API alone: who exports what, and where to, is the program's SDK.

Not promised: spans while a request is under way. A request's spans are made when it has ended, with the times that it
had, so what other instrumentation does within it (an HTTP client that fetches an entry) is beside it and not in it.

    from rewarm.metrics import opentelemetry

    opentelemetry.instrument()      # before or after the providers are set, before or after rewarm.enable

A span "rewarm.compile" for each miss, and "rewarm.load" for each hit, is a child of the span that is current in the
thread that wanted the program. Each step of it is a child of its own ("rewarm.step.fetch", and so on).
Where JAX told of it, its tracing and lowering are "rewarm.trace" and "rewarm.lower", before the request and beside it.

Needs opentelemetry-api (`pip install 'rewarm[opentelemetry]'`). Without an SDK its objects do nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import rewarm
from rewarm.cache.requests import COMPILE_FAILED
from rewarm.ledger import Event, of_this_process
from rewarm.metrics.catalogue import METRICS, Metric
from rewarm.metrics.numbers import Numbers, Sample

try:
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
    from opentelemetry.trace import Span, StatusCode, Tracer, TracerProvider
except ImportError as missing:
    words = "metrics for OpenTelemetry need opentelemetry-api: pip install 'rewarm[opentelemetry]'"
    raise ImportError(words) from missing

logger = logging.getLogger("rewarm")

# Numbers that are younger than this, in seconds, are those of one export, which asks for each metric by itself.
_ONE_EXPORT = 0.05

_STEPS = frozenset({"key", "fetch", "load", "compile", "store", "explain", "wait"})
_BEFORE = frozenset({"trace", "lower"})

Attributes = dict[str, str | bool | int | float]


class Instrumentation:
    """What `instrument` began.

    Args:
      meter: makes the metrics.
      tracer: makes the spans.
    """

    def __init__(self, meter: Meter, tracer: Tracer) -> None:
        self._numbers = Numbers(of_this_process().stats)
        self._samples: tuple[float, list[Sample]] = (-1.0, [])
        self._on = True
        self._tracer = tracer
        for metric in METRICS:
            make = meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
            make(metric.name, callbacks=[self._callback(metric)], unit=metric.unit, description=metric.help)
        of_this_process().listen(self._heard)

    def stop(self) -> None:
        """No more values and spans. OpenTelemetry has no way to take instruments away, so they stay, without values."""
        self._on = False
        of_this_process().unlisten(self._heard)

    # -- metrics -----------------------------------------------------------------------------------------------

    def _callback(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            try:
                return [
                    Observation(one.value, dict(zip(metric.labels, one.labels, strict=True)))
                    for one in self._now()
                    if one.metric is metric
                ]
            except Exception:  # no failure of metrics stops a program
                logger.debug("rewarm: no values of %s", metric.name, exc_info=True)
                return []

        return observe

    def _now(self) -> list[Sample]:
        if not self._on:
            return []
        when, samples = self._samples
        if not 0 <= time.monotonic() - when < _ONE_EXPORT:
            samples = self._numbers.samples()
            self._samples = time.monotonic(), samples
        return samples

    # -- spans -------------------------------------------------------------------------------------------------

    def _heard(self, event: Event) -> None:
        began = min([event.time, *(event.time + begin for name, begin, _ in event.spans if name in _STEPS)])
        ended = max(time.time(), began)
        for name, begin, seconds in event.spans:
            if name in _BEFORE:
                self._span(f"rewarm.{name}", event.time + begin, seconds, None, {"rewarm.program": event.program})
        span = self._tracer.start_span(
            "rewarm.load" if event.outcome == "hit" else "rewarm.compile",
            start_time=_nanoseconds(began),
            attributes=attributes_of(event),
        )
        if event.not_stored == COMPILE_FAILED:
            span.set_status(StatusCode.ERROR, COMPILE_FAILED)
        for name, begin, seconds in event.spans:
            if name in _STEPS:
                self._span(f"rewarm.step.{name}", event.time + begin, seconds, span, {})
        span.end(_nanoseconds(ended))

    def _span(self, name: str, began: float, seconds: float, parent: Span | None, attributes: Attributes) -> None:
        context = None if parent is None else trace.set_span_in_context(parent)
        span = self._tracer.start_span(name, context=context, start_time=_nanoseconds(began), attributes=attributes)
        span.end(_nanoseconds(began + seconds))


def attributes_of(event: Event) -> Attributes:
    """An event as the attributes of its span; what it has not is left out."""
    given: dict[str, Any] = {
        "rewarm.program": event.program,
        "rewarm.key": event.key,
        "rewarm.outcome": event.outcome,
        "rewarm.tier": event.tier,
        "rewarm.cause": event.cause or None,
        "rewarm.reason": event.reason,
        "rewarm.explanation": event.explanation.summary if event.explanation is not None else None,
        "rewarm.stored": event.stored if event.outcome == "miss" else None,
        "rewarm.not_stored": event.not_stored,
        "rewarm.ahead": event.ahead or None,
        "rewarm.options": event.options or None,
        "rewarm.quarantined": event.quarantined,
        "rewarm.bytes_read": event.bytes_read or None,
        "rewarm.bytes_written": event.bytes_written or None,
        "rewarm.saved": event.seconds_saved if event.outcome == "hit" else None,
    }
    seconds = {f"rewarm.seconds.{name}": getattr(event.seconds, name) or None for name in sorted(_STEPS)}
    return {name: value for name, value in {**given, **seconds}.items() if value is not None}


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


_instrumentation: Instrumentation | None = None


def instrument(
    meter_provider: MeterProvider | None = None, tracer_provider: TracerProvider | None = None
) -> Instrumentation:
    """Begin to give metrics and spans; what was begun before ends.

    Args:
      meter_provider: by default the program's, also one that it sets later.
      tracer_provider: the same.
    """
    global _instrumentation  # noqa: PLW0603 - a program counted twice would be wrong
    if _instrumentation is not None:
        _instrumentation.stop()
    meter = metrics.get_meter("rewarm", rewarm.__version__, meter_provider)
    tracer = trace.get_tracer("rewarm", rewarm.__version__, tracer_provider)
    _instrumentation = Instrumentation(meter, tracer)
    return _instrumentation
