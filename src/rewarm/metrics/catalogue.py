"""Every metric, once: its name, unit and labels, and where in the ledger's numbers it stands.

Not promised: that values of labels stay the same in later versions, where docs/metrics.md does not list them. Names do.

One rule makes both names, which is the one by which OpenTelemetry's exporters make Prometheus names (OpenTelemetry
specification, "Prometheus and OpenMetrics compatibility"; Prometheus, "Metric and label naming"): dots become
underscores, the unit is spelt out ("s": seconds, "By": bytes, one in braces: nothing), counters end in "_total". So a
dashboard that fits one fits the other. For the same reason the attributes of metrics have no prefix.

No label names a program or a key: their number grows with the code that is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from rewarm.ledger import Stats
from rewarm.metrics.reasons import by_label, cause, in_short, not_stored, tier

Labels = tuple[str, ...]
Reading = Iterable[tuple[Labels, float]]

_UNITS = {"s": "_seconds", "By": "_bytes"}
STATES = ("ok", "dead", "throttled", "read-only", "off")


class Metric(NamedTuple):
    """One metric.

    Attributes:
      name: as OpenTelemetry has it.
      unit: as UCUM has it: "s", "By", or what is counted, in braces.
      help: one sentence without a full stop.
      read: from the numbers of the ledger to values by their labels.
      labels: the names of the labels.
      kind: counters only grow while a process lives.
    """

    name: str
    unit: str
    help: str
    read: Callable[[Stats], Reading]
    labels: Labels = ()
    kind: Literal["counter", "gauge"] = "counter"

    @property
    def family(self) -> str:
        """The name of the family in Prometheus; a counter's samples have "_total" behind it."""
        return self.name.replace(".", "_") + _UNITS.get(self.unit, "")

    @property
    def series(self) -> str:
        """The name of the series in Prometheus."""
        return self.family + ("_total" if self.kind == "counter" else "")


def _number(field: str) -> Callable[[Stats], Reading]:
    return lambda stats: [((), getattr(stats, field))]


def _numbers(**fields: str) -> Callable[[Stats], Reading]:
    """One value for each field, under the label that is its name here."""
    return lambda stats: [((label,), getattr(stats, field)) for label, field in fields.items()]


def _table(field: str, label_of: Callable[[str], str]) -> Callable[[Stats], Reading]:
    return lambda stats: [((label,), number) for label, number in by_label(getattr(stats, field), label_of).items()]


def _counted(field: str, *good: str, strip: str = "") -> Callable[[Stats], Reading]:
    """The counts of a table whose names are known, 0 where there is none yet."""
    return lambda stats: [((name.removeprefix(strip),), getattr(stats, field).get(name, 0)) for name in good]


def _of_remotes(read: Callable[[Mapping[str, Any]], Reading]) -> Callable[[Stats], Reading]:
    return lambda stats: [
        ((str(remote["place"]), *labels), number) for remote in stats.remotes for labels, number in read(remote)
    ]


def _of_remote(field: str) -> Callable[[Stats], Reading]:
    return _of_remotes(lambda remote: [((), remote[field])])


def _by_reason(field: str) -> Callable[[Stats], Reading]:
    return _of_remotes(lambda remote: [((why,), number) for why, number in by_label(remote[field], in_short).items()])


def _saved(stats: Stats) -> Reading:
    # `seconds_saved` may fall, which a counter must not.
    return [((), stats.seconds_saved + stats.seconds_lost)]


METRICS: tuple[Metric, ...] = (
    Metric(
        "rewarm.requests",
        "{request}",
        "Programs that JAX wanted compiled: a hit was not compiled, a miss was",
        _numbers(hit="hits", miss="misses"),
        ("outcome",),
    ),
    Metric("rewarm.hits", "{hit}", "Hits by where the executable came from", _table("hits_from", tier), ("tier",)),
    Metric("rewarm.misses", "{miss}", "Misses by their explanation", _table("missed_for", cause), ("cause",)),
    Metric("rewarm.slow_hits", "{hit}", "Hits that took longer than compiling had", _number("slow_hits")),
    Metric(
        "rewarm.saved",
        "s",
        "Compile time that hits spared, less what they took themselves; slow hits count as 0",
        _saved,
    ),
    Metric("rewarm.lost", "s", "What slow hits took longer than compiling had", _number("seconds_lost")),
    Metric(
        "rewarm.phase",
        "s",
        "Where time went: compiling, loading, rewarm's own work, JAX's tracing, waiting for others' compiles",
        _numbers(
            compile="seconds_compiling",
            load="seconds_loading",
            overhead="seconds_overhead",
            trace="seconds_tracing",
            wait="seconds_waiting",
        ),
        ("phase",),
    ),
    Metric("rewarm.entries.stored", "{entry}", "Entries written", _number("stored")),
    Metric("rewarm.entries.dropped", "{entry}", "Entries removed since loading them was slower", _number("dropped")),
    Metric("rewarm.entries.quarantined", "{entry}", "Files put aside that were no sound entry", _number("quarantined")),
    Metric("rewarm.entries.evicted", "{entry}", "Entries let go since the store was at its bounds", _number("evicted")),
    Metric(
        "rewarm.not_stored",
        "{program}",
        "Misses that were not stored, by reason",
        _table("not_stored", not_stored),
        ("reason",),
    ),
    Metric(
        "rewarm.not_stored.compile",
        "s",
        "What programs took to compile that were not stored, by reason",
        _table("seconds_not_stored", not_stored),
        ("reason",),
    ),
    Metric("rewarm.read", "By", "Bytes of entries fetched", _number("bytes_read")),
    Metric("rewarm.written", "By", "Bytes of entries stored", _number("bytes_written")),
    Metric("rewarm.errors", "{error}", "Failures of stores, loaders and serialisers", _number("errors")),
    Metric(
        "rewarm.left_to_jax",
        "{program}",
        "Programs handed to JAX's own code, by reason; they are no requests",
        _table("left_to_jax", in_short),
        ("reason",),
    ),
    Metric("rewarm.traces", "{trace}", "Functions that JAX traced, inner ones included", _number("traces")),
    Metric(
        "rewarm.traced_again",
        "{trace}",
        "Programs that JAX traced again although nothing differed",
        lambda stats: [((), sum(stats.traced_again.values()))],
    ),
    Metric(
        "rewarm.jit.calls",
        "{call}",
        "Calls of functions of rewarm.jit that JAX would have traced, by what became of them",
        _counted("jitted", "skipped", "recorded", "proved", "traced"),
        ("outcome",),
    ),
    Metric(
        "rewarm.jit.proofs",
        "{proof}",
        "Proofs of traces that were skipped",
        _counted("jitted", "proof equal", "proof different", "proof void", strip="proof "),
        ("verdict",),
    ),
    Metric(
        "rewarm.tuned",
        "{choice}",
        "Choices made by what was tuned",
        _counted("tuned", "winner", "default", "options"),
        ("choice",),
    ),
    Metric(
        "rewarm.loads_ahead",
        "{entry}",
        "Executables read and loaded before they were asked for, and of these the used",
        _counted("loads_ahead", "read", "loaded", "used"),
        ("step",),
    ),
    Metric(
        "rewarm.remote.lookups",
        "{lookup}",
        "Look-ups in a remote: a hit gave an entry that was accepted",
        _of_remotes(lambda remote: [(("hit",), remote["hits"]), (("miss",), remote["misses"])]),
        ("remote", "outcome"),
    ),
    Metric(
        "rewarm.remote.refused",
        "{entry}",
        "Entries of a remote that were not accepted, by reason",
        _by_reason("refused"),
        ("remote", "reason"),
    ),
    Metric(
        "rewarm.remote.failures",
        "{request}",
        "Requests to a remote without an answer, by reason",
        _by_reason("failures"),
        ("remote", "reason"),
    ),
    Metric("rewarm.remote.stored", "{entry}", "Entries put into a remote", _of_remote("written"), ("remote",)),
    Metric("rewarm.remote.read", "By", "Bytes of accepted entries", _of_remote("bytes_read"), ("remote",)),
    Metric(
        "rewarm.remote.written", "By", "Bytes of entries put into a remote", _of_remote("bytes_written"), ("remote",)
    ),
    Metric(
        "rewarm.remote.state",
        "{state}",
        "1 for the state that a remote is in, 0 for the others",
        _of_remotes(lambda remote: [((state,), int(remote["state"] == state)) for state in STATES]),
        ("remote", "state"),
        "gauge",
    ),
)
