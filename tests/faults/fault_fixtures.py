"""The fixtures of this folder, as a plugin of its tests: one long-lived program for all of them.

Not a `conftest.py`: the tests import helpers from the one above by its name, and of two modules of one name there is
only the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fault_layer
import pytest
from served import Served, serving


@pytest.fixture(scope="session")
def _program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    yield from serving(tmp_path_factory.mktemp("served"))


@pytest.fixture
def served(_program: Served) -> Served:
    """The long-lived program, with every entry of its cache as it was made."""
    _program.restore()
    return _program


@pytest.fixture(scope="session")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fault layer to start processes under; skips where there is none."""
    reason = fault_layer.obstacle()
    if reason is not None:
        pytest.skip(reason)
    return fault_layer.build(tmp_path_factory.mktemp("layer"))


@pytest.fixture
def faulty(layer: Path, served: Served) -> Served:
    """As `served`, where the layer can be armed."""
    return served
