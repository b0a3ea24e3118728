"""Programs for slices of TPUs that are not here, by the real libtpu: small ones; larger ones are in the campaigns."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from prewarm_command import PLANS

import tpu_compilers
from conftest import clean_environment, execute

pytestmark = pytest.mark.contract


def prewarm(cache: Path, *options: str) -> list[dict[str, Any]]:
    compiler = tpu_compilers.wanted()
    # Nothing but where libtpu is: what else it needs is for the command to say.
    env = clean_environment(PYTHONPATH=str(compiler.folder))
    words = ["-W", "ignore", "-m", "rewarm", "prewarm", f"{PLANS}:plan", "--only", "train step", "--json"]
    done = execute([sys.executable, *words, "--dir", str(cache), *options], env=env, cwd=cache.parent)
    assert done.code == 0, done.out[-2000:] + done.err[-2000:]
    return [dict(one) for one in json.loads(done.out)["programs"]]


def test_several_workers_have_libtpu_at_once(cache: Path) -> None:
    both = ("--target", "v5e", "--target", "v6e", "--topology", "2x2", "--topology", "2*2x2")
    made = prewarm(cache, *both, "--jobs", "2")
    assert [one["outcome"] for one in made] == ["stored"] * 4
    assert len({one["key"] for one in made}) == 4
    again = prewarm(cache, *both, "--check")
    assert [one["key"] for one in again] == [one["key"] for one in made]
