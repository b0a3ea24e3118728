"""The catalogue of metrics: names by convention, labels of few values, and numbers that only grow."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rewarm
from rewarm import policy
from rewarm.cache import requests
from rewarm.identity.components import TABLE
from rewarm.ledger import Event, Ledger, Seconds, Stats
from rewarm.ledger.explanation import KINDS, Change, Explanation, Finding
from rewarm.metrics import reasons
from rewarm.metrics.catalogue import METRICS
from rewarm.metrics.numbers import Numbers, read

ROOT = Path(rewarm.__file__).parent
DASHBOARD = ROOT / "metrics" / "grafana.json"
PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def event(outcome: Any = "miss", **fields: Any) -> Event:
    plain: dict[str, Any] = {
        "program": "jit_f",
        "key": "a" * 64,
        "tier": "local" if outcome == "hit" else None,
        "reason": None,
        "stored": False,
        "not_stored": None,
        "seconds": Seconds(),
        "seconds_saved": 0.0,
        "bytes_read": 0,
        "bytes_written": 0,
        "quarantined": None,
        "time": 1.0,
    }
    return Event(outcome=outcome, **{**plain, **fields})


def values(ledger: Ledger) -> dict[tuple[str, tuple[str, ...]], float]:
    return {(one.metric.series, one.labels): one.value for one in read(ledger.stats())}


def test_names_follow_the_conventions() -> None:
    names = [metric.series for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"rewarm(\.[a-z_]+)+", metric.name)
        assert metric.unit in ("s", "By") or re.fullmatch(r"\{[a-z]+\}", metric.unit)
        assert metric.series.endswith("_total") == (metric.kind == "counter")
        assert ("_seconds" in metric.series) == (metric.unit == "s")
        assert ("_bytes" in metric.series) == (metric.unit == "By")
        assert metric.help[0].isupper() or metric.help.startswith("1 for")
        assert not metric.help.endswith(".")
        assert not {"program", "key"} & set(metric.labels)


def test_every_number_of_the_ledger_is_a_metric() -> None:
    asked: set[str] = set()

    class Watched:
        def __getattr__(self, name: str) -> Any:
            asked.add(name)
            return getattr(Stats(), name)

    for metric in METRICS:
        list(metric.read(Watched()))  # type: ignore[arg-type]
    assert asked | {"requests"} == set(Stats.__dataclass_fields__)  # requests are hits and misses


def test_a_start_that_saw_nothing_has_zeros_to_begin_a_rate_from() -> None:
    found = values(Ledger())
    assert found["rewarm_requests_total", ("hit",)] == 0
    assert found["rewarm_requests_total", ("miss",)] == 0
    assert set(found.values()) == {0}


@pytest.mark.parametrize(
    ("explanation", "cause"),
    [
        (None, "unexplained"),
        (Explanation("s"), "unexplained"),
        (Explanation("s", findings=(Finding("new", "t"),)), "new"),
        (Explanation("s", "k", ("program",), (), (Finding("constants", "t"), Finding("names", "t"))), "constants"),
        (Explanation("s", "k", ("program",), (Change("program", "", "a", "b"),)), "program"),
        (Explanation("s", "k", ("program", "options"), (), (Finding("constants", "t"),)), "options"),
        (Explanation("s", "k", ("toolchain",), (), (Finding("described", "t"),)), "toolchain"),
    ],
)
def test_a_miss_has_one_cause_of_a_closed_list(explanation: Explanation | None, cause: str) -> None:
    ledger = Ledger()
    ledger.record(event(explanation=explanation))
    assert dict(ledger.stats().missed_for) == {cause: 1}
    assert cause in {*KINDS, *TABLE, "unexplained"}
    assert values(ledger)["rewarm_misses_total", (cause,)] == 1


def test_hits_are_counted_by_where_they_came_from() -> None:
    ledger = Ledger()
    for tier in ("local", "local", "process", "s3://bucket/a", "redis://host"):
        ledger.record(event("hit", tier=tier))
    found = values(ledger)
    assert [found["rewarm_hits_total", (tier,)] for tier in ("local", "process", "remote")] == [2, 1, 2]


def test_time_that_was_saved_never_falls() -> None:
    ledger = Ledger()
    ledger.record(event("hit", seconds_saved=2.0))
    before = values(ledger)["rewarm_saved_seconds_total", ()]
    ledger.record(event("hit", seconds_saved=-1.5))
    found = values(ledger)
    assert before == found["rewarm_saved_seconds_total", ()] == 2.0
    assert found["rewarm_lost_seconds_total", ()] == 1.5
    assert ledger.stats().seconds_saved == 0.5


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["hit", "miss"]), st.floats(-5, 5), st.text(max_size=8)), max_size=40))
def test_counters_only_grow_and_sums_agree(requests_: list[tuple[str, float, str]]) -> None:
    ledger = Ledger()
    before: dict[Any, float] = {}
    for outcome, saved, text in requests_:
        ledger.record(event(outcome, seconds_saved=saved, tier=text, not_stored=text if outcome == "miss" else None))
        now = values(ledger)
        assert all(now.get(series, -1) >= number - 1e-9 for series, number in before.items())
        before = now
    for total, part in (("hit", "rewarm_hits_total"), ("miss", "rewarm_misses_total")):
        parts = sum(number for (name, _), number in before.items() if name == part)
        assert parts == before.get(("rewarm_requests_total", (total,)), 0)


KNOWN = (
    policy.TOO_QUICK,
    policy.TOO_SMALL,
    policy.SWITCHED_OFF,
    policy.TOO_LARGE,
    policy.LOADS_SLOWER,
    requests.COMPILE_FAILED,
    requests.INTERRUPTED,
    requests.CANNOT_SERIALISE,
    f"{requests.STORE_FAILED}: No space left on device",
    "the directory is read-only",
    "the directory cannot be used: Permission denied",
    "the key cannot be built: ValueError: x",
    "custom_partitioning: partition → global CONFIG",
    "inspect_array_sharding",
    "the options ask the compiler to write: xla_dump_to",
)


def test_reasons_are_a_closed_list() -> None:
    assert reasons.OTHER not in {reasons.not_stored(reason) for reason in KNOWN}
    assert {reasons.not_stored(reason) for reason in (*KNOWN, "nobody knows")} <= set(reasons.NOT_STORED)
    assert reasons.in_short("ValueError: /a/b/c is 17") == "valueerror"
    assert reasons.in_short("no support for platform 'METAL'") == "no_support_for_platform_metal"


def test_a_label_has_few_values_whatever_happens() -> None:
    counts = {f"reason {number}": 1.0 for number in range(500)}
    found = reasons.by_label(counts, reasons.in_short)
    assert len(found) <= 25
    assert sum(found.values()) == 500
    more = reasons.by_label({**counts, "reason 500": 7.0}, reasons.in_short)
    assert all(more[label] >= number for label, number in found.items())


def test_two_remotes_of_one_place_are_one_series() -> None:
    remote = {"place": "s3://b", "hits": 2, "misses": 1, "refused": {"not signed": 1}, "failures": {}, "written": 1}
    remote |= {"bytes_read": 10, "bytes_written": 5, "state": "ok"}
    found = {(one.metric.series, one.labels): one.value for one in read(Stats(remotes=(remote, remote)))}
    assert found["rewarm_remote_lookups_total", ("s3://b", "hit")] == 4
    assert found["rewarm_remote_state", ("s3://b", "ok")] == 1
    assert found["rewarm_remote_state", ("s3://b", "off")] == 0
    assert found["rewarm_remote_refused_total", ("s3://b", "not_signed")] == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore:.*fork.*:RuntimeWarning")
def test_a_child_of_fork_begins_at_zero() -> None:
    ledger = Ledger()
    ledger.record(event())
    numbers = Numbers(ledger.stats)

    def misses() -> int:
        return int(next(one.value for one in numbers.samples() if one.labels == ("miss",)))

    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            first = misses()
            ledger.record(event())
            grandchild = os.fork()
            if grandchild == 0:
                os.write(writer, bytes([misses()]))
                os._exit(0)
            os.waitpid(grandchild, 0)
            os.write(writer, bytes([first, misses()]))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert list(os.read(reader, 9)) == [0, 0, 1]
    assert misses() == 1


# ---------------------------------------------------------------------------------------------------------------
# The dashboard and the page


def expressions(panel: Any) -> list[str]:
    own = [target["expr"] for target in panel.get("targets", [])]
    return own + [expr for inner in panel.get("panels", []) for expr in expressions(inner)]


def dashboard() -> Any:
    return json.loads(DASHBOARD.read_text("utf-8"))


def exported() -> set[str]:
    return {metric.series for metric in METRICS} | {"rewarm_build_info"}


def test_the_dashboard_uses_names_and_labels_that_exist() -> None:
    found = [expr for panel in dashboard()["panels"] for expr in expressions(panel)]
    variables = [one["query"] for one in dashboard()["templating"]["list"]]
    used = {name for expr in (*found, *variables) for name in re.findall(r"\brewarm_\w+", expr)}
    assert used == exported()
    labels = {label for metric in METRICS for label in metric.labels} | {"version", "job", "instance"}
    for expr in found:
        grouped = re.findall(r"by \(([^)]*)\)", expr)
        matched = re.findall(r"(\w+)=~?\"", expr)
        assert {one.strip() for group in grouped for one in group.split(",")} | set(matched) <= labels, expr


def test_the_dashboard_groups_by_labels_that_the_metric_has() -> None:
    by_name = {metric.series: set(metric.labels) for metric in METRICS} | {"rewarm_build_info": {"version"}}
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            for name in re.findall(r"\brewarm_\w+", target["expr"]):
                assert shown <= by_name[name], target["expr"]


def assert_kept(before: Any, after: Any) -> None:
    """What was read is written again; defaults may be beside it."""
    if isinstance(before, dict):
        for name in before:
            assert_kept(before[name], after[name])
    elif isinstance(before, list):
        assert len(before) == len(after)
        for one, other in zip(before, after, strict=True):
            assert_kept(one, other)
    else:
        assert before == after


def test_the_dashboard_is_one_of_grafanas_schema() -> None:
    """Read and written by Grafana's own model of schema version 36 (Grafana 10.1), nothing is lost or changed."""
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder

    data = dashboard()
    assert data["schemaVersion"] == models.Dashboard().schema_version == 36
    back = json.loads(JSONEncoder().encode(models.Dashboard.from_json(data)))
    assert_kept(data, back)
    ids = [panel["id"] for panel in data["panels"]]
    assert len(set(ids)) == len(ids)


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        squares = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not squares & taken, panel["title"]
        taken |= squares


def promtool() -> str:
    found = os.environ.get("REWARM_TEST_PROMTOOL") or shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed")
    return found


def test_prometheus_parses_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    rules = []
    for panel in dashboard()["panels"]:
        for expr in expressions(panel):
            text = expr.replace("$__range", "1h").replace("$__rate_interval", "5m")
            rules.append({"record": f"rule:{len(rules)}", "expr": text})
    path = tmp_path / "rules.yml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))  # JSON is YAML
    done = subprocess.run([promtool(), "check", "rules", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def test_the_page_lists_what_is_exported() -> None:
    rows = re.findall(r"^\| `(rewarm_\w+)` \| `([\w.]+)` \| `([^`]+)` \|([^|]*)\|", PAGE.read_text("utf-8"), re.M)
    told = {(series, name, unit, tuple(re.findall(r"`(\w+)`", labels))) for series, name, unit, labels in rows}
    assert told == {(metric.series, metric.name, metric.unit, metric.labels) for metric in METRICS}
    for word in (*reasons.NOT_STORED, *map(reasons.cause, KINDS)):
        assert f"`{word}`" in PAGE.read_text("utf-8"), word


def test_the_page_lists_the_attributes_of_spans() -> None:
    opentelemetry = pytest.importorskip("rewarm.metrics.opentelemetry")
    told = PAGE.read_text("utf-8").split("Attributes of a request's span")[1].split("\n\n")[0]
    miss = event(
        tier="local",
        reason="r",
        explanation=Explanation("s"),
        not_stored="n",
        ahead="read",
        options="o",
        quarantined="q",
        bytes_read=1,
        bytes_written=1,
        seconds=Seconds(1, 1, 1, 1, 1, 1, 1),
    )
    found = {*opentelemetry.attributes_of(miss), *opentelemetry.attributes_of(event("hit"))}
    plain = {name for name in found if not name.startswith("rewarm.seconds.")}
    assert set(re.findall(r"`(rewarm\.\w+)`", told)) == plain
    assert {name.removeprefix("rewarm.seconds.") for name in found - plain} == set(Seconds.__dataclass_fields__)
