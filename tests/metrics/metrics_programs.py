"""What the tests of metrics run: programs, and readers of what they leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

Series = tuple[str, frozenset[tuple[str, str]]]

# One program that is stored, and one whose constant changes with the argument.
TWO = """
    import sys, jax, numpy as np
    number = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    def same(x):
        return x @ x + 1
    def changes(x):
        return x * number
    print(float(np.asarray(jax.jit(same)(np.ones((4, 4), np.float32)))[0, 0]))
    print(float(np.asarray(jax.jit(changes)(np.ones(4, np.float32)))[0]))
"""


def parsed(text: str) -> dict[Series, float]:
    """The series of an exposition, by name and labels, read by Prometheus's own parser; none is there twice."""
    found: dict[Series, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series = sample.name, frozenset(sample.labels.items())
            assert series not in found, series
            found[series] = sample.value
    return found


def value(series: dict[Series, float], name: str, **labels: str) -> float:
    """The sum of all series of a name that have these labels."""
    wanted = set(labels.items())
    return sum(number for (one, has), number in series.items() if one == name and wanted <= has)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file, one on a line."""
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]
