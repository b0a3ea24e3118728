"""The real TPU compiler for the tests, without a TPU: who gets it, and what is said where it is not there.

`tools/tpu-compiler` puts it into a folder that is in no environment. A test gives its children the environment of what
`wanted()` gives it. Without the folder (and with no libtpu installed) the test is skipped, saying so; with
REWARM_TEST_TPU=1 it fails.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from conftest import clean_environment
from cuda_compilers import ROOT, jax_version


class Compiler(NamedTuple):
    """The compiler for the JAX that runs the tests."""

    folder: Path

    def environment(self, **extra: str) -> dict[str, str]:
        """The environment of a child that is to have it."""
        # Without these libtpu asks a metadata server that is not there, and lets one process at a time load it.
        said = {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
        return clean_environment(**{"PYTHONPATH": str(self.folder), **said, **extra})


def find() -> Compiler | None:
    """The compiler that `tools/tpu-compiler` made for this Python and JAX, or one that is installed."""
    folder = ROOT / ".venv" / "tpu" / f"{jax_version()}-py{sys.version_info[0]}.{sys.version_info[1]}"
    if (folder / "ready").exists():
        return Compiler(folder)
    spec = importlib.util.find_spec("libtpu")
    places = spec.submodule_search_locations if spec is not None else None
    return Compiler(Path(places[0]).parent) if places else None


def wanted() -> Compiler:
    """The compiler; without it the test that asks is skipped, or fails where it must be there."""
    found = find()
    if found is None:
        said = f"libtpu for JAX {jax_version()} is not here; make it: tools/tpu-compiler {sys.executable}"
        if os.environ.get("REWARM_TEST_TPU") == "1":
            pytest.fail(said)
        pytest.skip(said)
    return found
