"""Processes for the tests of leases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from leasing import Processes


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Fresh processes that share a folder."""
    some = Processes(tmp_path)
    yield some
    some.end()
