"""Metrics and spans for OpenTelemetry, through the real SDK with exporters in memory, in fresh processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from metrics_programs import TWO, parsed, value

from conftest import Program
from rewarm.metrics.catalogue import METRICS

pytest.importorskip("opentelemetry.sdk")

PROGRAM = """
    import json, sys, jax, numpy as np, rewarm
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    def provide():
        reader, exporter = InMemoryMetricReader(), InMemorySpanExporter()
        metrics.set_meter_provider(MeterProvider([reader]))
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        return reader, exporter

    when = sys.argv[1]
    if when == "before":
        reader, exporter = provide()
    rewarm.enable()                     # REWARM_OPENTELEMETRY=1
    if when == "after":
        reader, exporter = provide()

    def step(x):
        return x @ x + 1

    with trace.get_tracer("program").start_as_current_span("train") as train:
        jax.jit(step)(np.ones((4, 4), np.float32)).block_until_ready()
    mine = train.get_span_context()

    spans = [
        {
            "name": span.name,
            "parent": span.parent and format(span.parent.span_id, "x"),
            "id": format(span.context.span_id, "x"),
            "trace": format(span.context.trace_id, "x"),
            "start": span.start_time, "end": span.end_time,
            "attributes": dict(span.attributes), "scope": span.instrumentation_scope.name,
            "status": span.status.status_code.name,
        }
        for span in exporter.get_finished_spans()
    ]
    points = [
        {"name": metric.name, "unit": metric.unit, "help": metric.description, "scope": scope.scope.version,
         "kind": type(metric.data).__name__, "monotonic": getattr(metric.data, "is_monotonic", None),
         "attributes": dict(point.attributes), "value": point.value}
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics if scope.scope.name == "rewarm"
        for metric in scope.metrics for point in metric.data.data_points
    ]
    print(json.dumps({"spans": spans, "points": points, "train": format(mine.span_id, "x"),
                      "stats": rewarm.stats().as_dict()}))
"""


def points(told: dict[str, Any], name: str) -> dict[tuple[str, ...], float]:
    return {tuple(one["attributes"].values()): one["value"] for one in told["points"] if one["name"] == name}


@pytest.mark.parametrize("when", ["before", "after"])
def test_metrics_and_spans(program: Program, cache: Path, when: str) -> None:
    asked = {"REWARM_DIR": str(cache), "REWARM_OPENTELEMETRY": "1"}
    cold, warm = (program(PROGRAM, when, **asked).json for _ in range(2))
    for told, outcome, name in ((cold, "miss", "rewarm.compile"), (warm, "hit", "rewarm.load")):
        stats = told["stats"]
        found = points(told, "rewarm.requests")
        assert found == {("hit",): stats["hits"], ("miss",): stats["misses"]}
        assert found[outcome,] == stats["requests"] > 0
        assert points(told, "rewarm.phase")["compile",] == stats["seconds_compiling"]
        (span,) = [
            one for one in told["spans"] if one["name"] == name and "step" in one["attributes"]["rewarm.program"]
        ]
        assert span["scope"] == "rewarm"
        assert span["attributes"]["rewarm.outcome"] == outcome
        assert len(span["attributes"]["rewarm.key"]) == 64
        (train,) = [one for one in told["spans"] if one["name"] == "train"]
        assert span["parent"] == train["id"] == told["train"]
        assert span["trace"] == train["trace"]
        assert train["start"] - 10**7 <= span["start"] < span["end"] <= train["end"] + 10**7  # clocks of two kinds
        steps = [one for one in told["spans"] if one["parent"] == span["id"]]
        assert {one["name"] for one in steps} <= {f"rewarm.step.{step}" for step in STEPS}
        assert all(span["start"] <= one["start"] <= one["end"] for one in steps)
    assert cold["spans"][-1]["name"] == "train"
    compile_ = next(one["attributes"] for one in cold["spans"] if one["name"] == "rewarm.compile")
    assert compile_["rewarm.cause"] == "new"
    assert compile_["rewarm.stored"] is True
    assert compile_["rewarm.seconds.compile"] > 0
    load = next(one["attributes"] for one in warm["spans"] if one["name"] == "rewarm.load")
    assert load["rewarm.tier"] == "local"
    assert load["rewarm.bytes_read"] > 0


STEPS = ("key", "fetch", "load", "compile", "store", "explain", "wait")


def test_units_and_kinds_are_the_catalogues(program: Program, cache: Path) -> None:
    told = program(PROGRAM, "before", REWARM_DIR=str(cache), REWARM_OPENTELEMETRY="1").json
    catalogue = {metric.name: metric for metric in METRICS}
    assert {"rewarm.requests", "rewarm.saved", "rewarm.read"} <= {one["name"] for one in told["points"]}
    for one in told["points"]:
        metric = catalogue[one["name"]]
        assert (one["unit"], one["help"]) == (metric.unit, metric.help)
        assert set(one["attributes"]) == set(metric.labels)
        assert one["monotonic"] is (True if metric.kind == "counter" else None)
        assert one["scope"]


FAILING = """
    import sys, json, jax, numpy as np, rewarm
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from rewarm.metrics import opentelemetry

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    first = opentelemetry.instrument(tracer_provider=provider)
    again = opentelemetry.instrument(tracer_provider=provider)      # in the first one's place
    rewarm.enable(sys.argv[1])
    x = np.ones(2, np.float32)
    def bad(x):
        return jax.ffi.ffi_call("no_such_target", jax.ShapeDtypeStruct((2,), np.float32))(x)
    try:
        jax.jit(bad)(x)
    except Exception as error:
        print(type(error).__name__, file=sys.stderr)
    def two(x):
        return x + 2
    def three(x):
        return x + 3
    jax.jit(two)(x)
    again.stop()
    jax.jit(three)(x)
    print(json.dumps([[span.attributes["rewarm.program"], span.status.status_code.name]
                      for span in exporter.get_finished_spans() if span.name == "rewarm.compile"]))
"""


def test_each_compile_has_one_span_until_it_is_stopped(program: Program, cache: Path) -> None:
    found = program(FAILING, str(cache)).json
    own = [one for one in found if one[0] in ("jit_bad", "jit_two", "jit_three")]
    assert own == [["jit_bad", "ERROR"], ["jit_two", "UNSET"]]


def test_a_tracer_that_fails_stops_nothing(program: Program, cache: Path) -> None:
    source = """
        import sys, jax, numpy as np, rewarm
        from opentelemetry.sdk.trace import TracerProvider, SpanProcessor
        from rewarm.metrics import opentelemetry
        class Broken(SpanProcessor):
            def on_end(self, span):
                raise RuntimeError("broken")
            def on_start(self, span, parent_context=None):
                raise RuntimeError("broken")
        provider = TracerProvider()
        provider.add_span_processor(Broken())
        opentelemetry.instrument(tracer_provider=provider)
        rewarm.enable(sys.argv[1])
        print(float(jax.jit(lambda x: x + 1)(np.float32(1))))
    """
    done = program(source, str(cache))
    assert done.out == "2.0\n"
    assert done.stats["stored"] == done.stats["misses"] > 0


def test_without_an_sdk_nothing_is_said_and_nothing_costs(program: Program, cache: Path) -> None:
    done = program(TWO, REWARM_DIR=str(cache), REWARM_OPENTELEMETRY="1")
    assert done.warnings() == []
    assert done.stats["stored"] > 0


def test_the_sdks_prometheus_exporter_gives_the_names_of_the_dashboard(program: Program, cache: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.prometheus")
    source = """
        import sys, jax, numpy as np, rewarm, prometheus_client
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from opentelemetry.sdk.metrics import MeterProvider
        from rewarm.metrics import opentelemetry, prometheus
        opentelemetry.instrument(meter_provider=MeterProvider([PrometheusMetricReader()]))
        rewarm.enable(sys.argv[1])
        jax.jit(lambda x: x + 1)(np.float32(1))
        print(prometheus_client.generate_latest().decode(), prometheus.text().decode(), sep="=====")
    """
    by_sdk, own = map(parsed, program(source, str(cache)).out.split("====="))
    names = {name for name, _ in own} - {"rewarm_build_info"}
    assert {name for name, _ in by_sdk if name.startswith("rewarm_")} == names
    for outcome in ("hit", "miss"):
        assert value(by_sdk, "rewarm_requests_total", outcome=outcome) == value(
            own, "rewarm_requests_total", outcome=outcome
        )
