"""The numbers of this process as samples of the metrics: what it did itself, since it began or since it was forked.

Not promised: that a child of fork begins at 0 beyond doubt. Its parent's numbers are read before the fork by a thread
that is waited for a second; where that does not end, the child counts from its parent's last reading.

The ledger of a forked child starts with its parent's numbers (`Ledger`), which would count twice in a sum over
processes: they are taken off.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable
from typing import NamedTuple

from rewarm.ledger import Stats
from rewarm.metrics.catalogue import METRICS, Labels, Metric

_PATIENCE = 1.0


class Sample(NamedTuple):
    """One value of one metric."""

    metric: Metric
    labels: Labels
    value: float


_Values = dict[tuple[str, Labels], float]


def read(stats: Stats) -> list[Sample]:
    """The samples of all metrics, in the order of the catalogue, each series once.

    Two remotes of one place are one series: counters add up, and of states each that is there counts.
    """
    samples = []
    for metric in METRICS:
        together: dict[Labels, float] = {}
        for labels, number in metric.read(stats):
            before = together.get(labels, 0.0)
            together[labels] = before + number if metric.kind == "counter" else max(before, number)
        samples += [Sample(metric, labels, value) for labels, value in together.items()]
    return samples


class Numbers:
    """Samples from a source of statistics. Safe for any number of threads, and across a fork."""

    def __init__(self, source: Callable[[], Stats]) -> None:
        self._source = source
        self._last: _Values = {}
        self._inherited: _Values = {}
        _all.add(self)

    def samples(self) -> list[Sample]:
        """All samples now."""
        samples = self._read()
        if not self._inherited:
            return samples
        return [one._replace(value=max(0.0, one.value - self._inherited.get(_key(one), 0.0))) for one in samples]

    def has_any(self) -> bool:
        """Whether JAX has asked for anything in this process yet."""
        return any(one.value for one in self.samples() if one.metric.name in ("rewarm.requests", "rewarm.left_to_jax"))

    def _read(self) -> list[Sample]:
        samples = read(self._source())
        self._last = {_key(one): one.value for one in samples if one.metric.kind == "counter"}
        return samples

    def before_fork(self) -> None:
        """Know what a child would start with."""
        with contextlib.suppress(Exception):
            self._read()

    def after_fork(self) -> None:
        """In the child: begin at 0."""
        self._inherited = self._last


def _key(sample: Sample) -> tuple[str, Labels]:
    return sample.metric.name, sample.labels


_all: weakref.WeakSet[Numbers] = weakref.WeakSet()


def _before_fork() -> None:
    # In a thread of its own: the one that forks may hold a lock of the ledger, in a signal handler.
    with contextlib.suppress(Exception):
        for numbers in list(_all):
            look = threading.Thread(target=numbers.before_fork, daemon=True)
            look.start()
            look.join(_PATIENCE)


def _after_fork() -> None:
    for numbers in list(_all):
        numbers.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
