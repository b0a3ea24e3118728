"""Errors point to the user's own line, wherever it is installed and whatever its folders are called."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from conftest import clean_environment, execute, first

MODULE = """
import contextlib, jax, numpy as np, rewarm

def step(x):
    with contextlib.nullcontext():
        return x @ np.ones((3, 3), np.float32)

def plan():
    yield rewarm.Program(jax.jit(step), jax.ShapeDtypeStruct((4,), np.float32))
"""


@pytest.mark.parametrize("folder", first(1, ["lib/python3/site-packages", "dist-packages/lib", "plain"]))
def test_a_plan_in_a_folder_of_any_name(tmp_path: Path, folder: str) -> None:
    package = tmp_path / folder / "ourmodel"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "train.py").write_text(MODULE)
    env = clean_environment(PYTHONPATH=str(package.parent))
    words = [sys.executable, "-m", "rewarm", "prewarm", "ourmodel.train:plan", "--target", "host", "--json"]
    done = execute([*words, "--dir", str(tmp_path / "cache")], env=env, cwd=tmp_path)
    [program] = json.loads(done.out)["programs"]
    assert program["outcome"] == "failed"
    assert program["why"].endswith(f"[{package / 'train.py'}:6]"), program["why"]
