"""Metrics for Prometheus: a collector for a registry, and a text file for node_exporter.

Not promised: anything in prometheus_client's multiprocess mode (`PROMETHEUS_MULTIPROC_DIR`), which merges files of its
own metric classes and knows no collectors: there each process can write a text file instead. Names and labels:
docs/metrics.md.

    from rewarm.metrics import prometheus

    prometheus.register()                             # beside your own metrics, at your own /metrics
    prometheus.textfile("/var/lib/node_exporter/rewarm-%p.prom")

Needs prometheus-client (`pip install 'rewarm[prometheus]'`).

Source of the format: Prometheus, "Exposition formats" (text, version 0.0.4), written by prometheus_client.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import rewarm
from rewarm.ledger import of_this_process
from rewarm.metrics.catalogue import METRICS, Metric
from rewarm.metrics.numbers import Numbers, Sample

try:
    from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector as _Collector
except ImportError as missing:
    raise ImportError("metrics for Prometheus need prometheus-client: pip install 'rewarm[prometheus]'") from missing

if TYPE_CHECKING:
    import os

    from rewarm.metrics.textfile import TextFile

logger = logging.getLogger("rewarm")

_Family = CounterMetricFamily | GaugeMetricFamily

EVERY_SECONDS = 15.0


class Collector(_Collector):
    """Gives the numbers of this process whenever it is asked; between that it costs nothing.

    Not promised: an error. Where the numbers cannot be read there are none, and one log line at DEBUG.

    Args:
      labels: labels that every series has beside its own.
      numbers: which; by default those of this process.
    """

    def __init__(self, labels: Mapping[str, str] | None = None, numbers: Numbers | None = None) -> None:
        self._labels = dict(labels or {})
        self._numbers = numbers or Numbers(of_this_process().stats)

    def describe(self) -> Iterable[_Family]:
        """The families without values, so that registering reads nothing."""
        return [self._family(metric) for metric in METRICS] + [self._info()]

    def collect(self) -> Iterable[_Family]:
        """The families with their values."""
        try:
            return self._collected(self._numbers.samples())
        except Exception:  # the metrics of others at the same endpoint must come
            logger.debug("rewarm: no metrics", exc_info=True)
            return []

    def _collected(self, samples: list[Sample]) -> list[_Family]:
        families = {metric.name: self._family(metric) for metric in METRICS}
        for sample in samples:
            families[sample.metric.name].add_metric([*self._labels.values(), *sample.labels], sample.value)
        info = self._info()
        info.add_metric([*self._labels.values(), rewarm.__version__], 1)
        return [*families.values(), info]

    def _family(self, metric: Metric) -> _Family:
        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        return kind(metric.family, metric.help + ".", labels=[*self._labels, *metric.labels])

    def _info(self) -> _Family:
        return GaugeMetricFamily("rewarm_build_info", "1, with the version.", labels=[*self._labels, "version"])


_registered: weakref.WeakKeyDictionary[CollectorRegistry, Collector] = weakref.WeakKeyDictionary()


def register(registry: CollectorRegistry | None = None) -> Collector:
    """Add rewarm's metrics to a registry, by default prometheus_client's own. Harmless when they are there.

    Works before and after `rewarm.enable`, and whether rewarm is on or off: what is counted is there.

    Raises:
      ValueError: the registry has other metrics of these names.
    """
    registry = REGISTRY if registry is None else registry
    collector = _registered.get(registry)
    if collector is None:
        collector = Collector()
        registry.register(collector)
        _registered[registry] = collector
    return collector


def unregister(registry: CollectorRegistry | None = None) -> None:
    """Take them out again. Harmless when they are not there."""
    registry = REGISTRY if registry is None else registry
    collector = _registered.pop(registry, None)
    if collector is not None:
        registry.unregister(collector)


def text(labels: Mapping[str, str] | None = None) -> bytes:
    """All metrics as text, with these labels on every series."""
    return exposition(Collector(labels))


def exposition(collector: Collector) -> bytes:
    """What a collector gives now, as text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry)


def textfile(path: str | os.PathLike[str], seconds: float = EVERY_SECONDS) -> TextFile:
    """Keep a text file of the metrics: from the first program on, every so many seconds, and at the end of the process.

    Args:
      path: of the file, in a folder that is there; `%h`, `%p`, `%r`: see `textfile.py`.
      seconds: between two writings.

    Raises:
      SettingError: the path has another placeholder, or `seconds` is not above 0.
    """
    from rewarm.metrics.textfile import TextFile

    file = TextFile(path, seconds)
    file.start()
    return file
