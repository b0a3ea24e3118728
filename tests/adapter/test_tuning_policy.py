"""What becomes of executables that were compiled with incomplete tuning, once complete tuning is at hand.

No GPU can load an executable here, so programs of the CPU stand for those of a GPU: the session is told to look after
their tuning, in a place that the test fills. Store, headers, policy and background compile are the real ones.
"""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Program, Run, entries
from rewarm.autotune.build_ids import build_id
from rewarm.autotune.formats import Family, read
from rewarm.autotune.locating import place_of, places
from rewarm.autotune.places import Place
from rewarm.store.files import header_of

SAMPLES = Path(__file__).parents[1] / "autotune" / "samples" / "jax_0_12_0_1" / "mlp_128x128" / "new_load.pb"
DEVICE = "CUDA: 9.0, Cores: 132, GPU clock: 1.98 GHz, Memory bandwidth: 4800 GB/s, L2 cache: 50 MB"
BUILD = build_id("jax-0.12.0.1", "ab" * 32)

PROGRAM = f"""
import json, os, sys
import jax, numpy as np
from rewarm.autotune.formats import Family
from rewarm.autotune.locating import place_of
from rewarm.jax_adapter import session, tuning
from rewarm.jax_adapter.managed import Managed

def of_cpu(self, call):
    if self._tuning is None:
        self._tuning = tuning.Tuning(self.settings, self._toolchain, self._results, self._teller)
    place = place_of(self.settings.directory, {BUILD!r}, {DEVICE!r}, Family.NEW)
    managed = Managed(place, self._results)
    self._tuning._places.setdefault(call.backend, dict.fromkeys((None, True, False), managed))
    return tuning.Compile(self._tuning, call, None)

session.Session._tuned = of_cpu
print(float(jax.jit(lambda x: (x @ x).sum())(np.ones((8, 8), np.float32))))
assert tuning.refreshed(30)
print(json.dumps([record for _, record in tuning.recorded()]))
"""
OFF = {"XLA_FLAGS": "--xla_gpu_autotune_level=0"}
DETERMINISTIC = {"XLA_FLAGS": "--xla_gpu_deterministic_ops=true"}
STATUS = """
import sys
from rewarm.cli import main
sys.argv = ["rewarm", "autotune", "status", "--dir", sys.argv[1], *sys.argv[2:]]
main()
"""


@pytest.fixture
def place(cache: Path) -> Place:
    cache.mkdir(mode=0o700)
    return place_of(cache, BUILD, DEVICE, Family.NEW)


def asked(run: Run) -> tuple[int, int, list[dict[str, Any]]]:
    assert run.out.splitlines()[0] == "512.0"
    return run.stats["hits"], run.stats["misses"], run.json


def tuning_of(cache: Path) -> dict[str, Any]:
    headers = [header_of(path) for path in entries(cache)]
    [found] = [header.tuning for header in headers if header is not None and header.kind == "executable"]
    assert found is not None
    return dict(found)


def test_a_header_says_how_the_tuning_was(program: Program, cache: Path, place: Place) -> None:
    place.add(read(SAMPLES).entries)
    hits, misses, recorded = asked(program(PROGRAM, REWARM_DIR=str(cache)))
    assert (hits, misses) == (0, 1)
    said = tuning_of(cache)
    assert recorded == [said]
    assert (said["state"], said["entries"], said["new"], said["place"]) == ("complete", 2, 0, place.name)
    assert said["set"] == place.prepare().digest
    assert asked(program(PROGRAM, REWARM_DIR=str(cache)))[:2] == (1, 0)


def test_results_that_nobody_kept_are_an_entry_after_the_compile(program: Program, cache: Path, place: Place) -> None:
    place.add(read(SAMPLES).entries)
    program(PROGRAM, REWARM_DIR=str(cache))
    kinds = sorted(header.kind for path in entries(cache) if (header := header_of(path)) is not None)
    assert kinds == ["executable", "tuning"]
    assert [path.name for path in entries(cache) if path.name in place.batches()]
    assert place.collect() == ()


def test_incomplete_tuning_is_never_served_where_complete_tuning_is_at_hand(
    program: Program, cache: Path, place: Place
) -> None:
    assert asked(program(PROGRAM, REWARM_DIR=str(cache), **OFF))[1] == 1
    assert (tuning_of(cache)["state"], tuning_of(cache)["entries"]) == ("incomplete", 0)
    assert asked(program(PROGRAM, REWARM_DIR=str(cache), **OFF))[:2] == (1, 0)  # there is nothing better
    place.add(read(SAMPLES).entries)
    assert asked(program(PROGRAM, REWARM_DIR=str(cache), **OFF))[:2] == (0, 1)
    told = "".join(path.read_text() for path in (cache / "runs").iterdir())
    assert told.count("compiled with 0 tuning results at hand, and there are 2 now") >= 1
    assert tuning_of(cache)["entries"] == 2
    assert asked(program(PROGRAM, REWARM_DIR=str(cache), **OFF))[:2] == (1, 0)
    assert list(cache.glob("quarantine/*")) == []


def test_more_results_are_no_reason_where_xla_would_not_take_them(program: Program, cache: Path, place: Place) -> None:
    """From JAX 0.11 on, where operations must be deterministic: it would be compiled for nothing at each start."""
    takes = tuple(map(int, importlib.metadata.version("jax").split(".")[:2])) < (0, 11)
    assert asked(program(PROGRAM, REWARM_DIR=str(cache), **DETERMINISTIC))[1] == 1
    assert tuning_of(cache)["state"] == ("incomplete" if takes else "deterministic")
    place.add(read(SAMPLES).entries)
    assert asked(program(PROGRAM, REWARM_DIR=str(cache), **DETERMINISTIC))[:2] == ((0, 1) if takes else (1, 0))
    if not takes:
        told = json.loads(program(STATUS, str(cache), "--json").out)
        assert (told["counts"]["deterministic"], told["outdated"]) == (1, 0)


def test_serve_serves_it(program: Program, cache: Path, place: Place) -> None:
    place.prepare()
    program(PROGRAM, REWARM_DIR=str(cache), **OFF)
    place.add(read(SAMPLES).entries)
    served = program(PROGRAM, REWARM_DIR=str(cache), REWARM_AUTOTUNE_INCOMPLETE="serve", **OFF)
    assert asked(served)[:2] == (1, 0)
    assert tuning_of(cache)["entries"] == 0


def test_refresh_serves_it_and_compiles_it_anew_beside_the_program(program: Program, cache: Path, place: Place) -> None:
    program(PROGRAM, REWARM_DIR=str(cache), **OFF)
    place.add(read(SAMPLES).entries)
    [path] = entries(cache)
    before = path.read_bytes()
    served = program(PROGRAM, REWARM_DIR=str(cache), REWARM_AUTOTUNE_INCOMPLETE="refresh", **OFF)
    assert asked(served)[:2] == (1, 0)
    assert tuning_of(cache)["entries"] == 2
    assert path.read_bytes() != before
    last = program(PROGRAM, REWARM_DIR=str(cache), **OFF)
    assert asked(last)[:2] == (1, 0)


def test_status_lists_executables_by_their_tuning(program: Program, cache: Path, place: Place) -> None:
    program(PROGRAM, REWARM_DIR=str(cache), **OFF)
    program(PROGRAM, REWARM_DIR=str(cache))
    place.add(read(SAMPLES).entries)
    told = json.loads(program(STATUS, str(cache), "--json").out)
    expected = {"complete": 1, "incomplete": 1, "deterministic": 0, "unknown": 0, "none": 0, "unsaid": 0}
    assert told["counts"] == expected
    assert told["outdated"] == 1
    rows = {row["state"]: row for row in told["executables"]}
    assert rows["complete"]["outdated"] is None
    assert "there are 2 now" in rows["incomplete"]["outdated"]
    only = json.loads(program(STATUS, str(cache), "--json", "--outdated").out)["executables"]
    assert [row["state"] for row in only] == ["incomplete"]
    text = program(STATUS, str(cache)).out
    assert "incomplete, outdated" in text
    assert text.splitlines()[-1] == "2 executables: 1 complete, 1 incomplete; 1 would be compiled better now"
    assert [one.name for one in places(cache)] == [place.name]
