"""Programs for GPUs that are not here, by XLA's real compiler: their keys, their tuning, their executables."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import serialised
from prewarm_command import Filled

import cuda_compilers
from conftest import execute
from rewarm.envelope import Entry, open_entry
from rewarm.store import LocalStore

TESTS = Path(__file__).parents[1]
PROGRAMS = Path(__file__).with_name("prewarm_plans.py")
PLANS = TESTS / "autotune" / "coverage_plans.py"
NEW = TESTS / "autotune" / "samples" / "jax_0_12_0_1" / "mlp_128x128" / "new_load.pb"
OLD = TESTS / "autotune" / "samples" / "jax_0_10_2" / "mlp_128x128" / "legacy_load.pb"


@pytest.fixture
def compiler() -> cuda_compilers.Compiler:
    return cuda_compilers.wanted()


def prewarm(
    compiler: cuda_compilers.Compiler, cache: Path, plan: str, *options: str, cwd: Path | None = None
) -> Filled:
    words = [*("-W", "ignore", "-m", "rewarm", "prewarm", f"{PLANS}:{plan}", "--json", "--dir", str(cache)), *options]
    target = () if "--target" in options else ("--target", "h200")
    done = execute([sys.executable, *words, *target], env=compiler.environment(), cwd=cwd or cache.parent)
    assert done.out.startswith("{"), done.err[-3000:]
    return Filled(done, json.loads(done.out))


def executables(cache: Path) -> list[Entry]:
    store = LocalStore(cache)
    opened = [open_entry(data, info.key) for info in store.scan() if (data := store.get(info.key)) is not None]
    return [one for one in opened if one.header.kind == "executable"]


def tuned(filled: Filled) -> list[dict[str, Any]]:
    return [one["tuning"] for one in filled.told["programs"]]


def test_callbacks_memories_and_questions(compiler: cuda_compilers.Compiler, cache: Path) -> None:
    def made(plan: str, *options: str) -> Filled:
        words = ["-W", "ignore", "-m", "rewarm", "prewarm", f"{PROGRAMS}:{plan}", "--json", "--dir", str(cache)]
        done = execute(
            [sys.executable, *words, "--target", "h200", *options], env=compiler.environment(), cwd=cache.parent
        )
        return Filled(done, json.loads(done.out))

    calling = made("calling")
    assert calling.outcomes == dict.fromkeys(("debug.print", "io_callback", "pure_callback"), "stored"), calling.run.err
    offloading = made("offloading", "--topology", "1x1x2", "--check")
    assert set(offloading.outcomes.values()) == {"missing"}
    assert len({one["key"] for one in offloading.told["programs"]}) == 5, "none is taken for the plain one"
    put = made("offloading", "--topology", "1x1x2", "--only", "put")
    assert put.outcomes == {"put": "stored"}, put.run.err
    notes = {one["program"]: one["notes"] for one in made("deciding", "--check").told["programs"]}
    assert notes["does not"] == []
    assert [note.startswith("asks for jax.default_backend() while it is traced [") for note in notes["decides"]] == [
        True
    ]
    [line] = put.told["targets"]["h200"]
    assert "is from a data sheet, which does not tell platform_version, " in line


def test_tuning_decides_what_an_entry_is(compiler: cuda_compilers.Compiler, cache: Path) -> None:
    refused = prewarm(compiler, cache, "small", "--require-tuned")
    assert (refused.run.code, refused.outcomes) == (1, {"mlp": "untuned"})
    assert "2 of its 2 fusions have no tuning result" in refused.why("mlp")
    assert executables(cache) == []

    plain = prewarm(compiler, cache, "small")
    assert (plain.run.code, plain.outcomes) == (0, {"mlp": "stored"})
    assert tuned(plain) == [{"state": "incomplete", "fusions": 2, "untuned": 2}]
    [entry] = executables(cache)
    cubins = serialised.objects(entry.section("executable"))
    assert {(one.machine, one.processor) for one in cubins} == {(serialised.CUDA, 90)}, "kernels of an H200's"
    assert entry.header.tuning is not None
    assert len(entry.header.tuning["missing"]) == 2
    assert prewarm(compiler, cache, "small", "--check", "--require-tuned").outcomes == {"mlp": "untuned"}

    samples, more = (NEW, ()) if tuple(map(int, compiler.jax.split(".")[:2])) >= (0, 11) else (OLD, ())
    words = [sys.executable, "-W", "ignore", "-m", "rewarm", "autotune", "import", str(samples), *more]
    taken = execute([*words, "--dir", str(cache)], env=compiler.environment(), cwd=cache.parent)
    if compiler.jax not in ("0.12.0.1", "0.10.2"):
        return  # the samples' legacy results are for one build alone
    assert taken.code == 0, taken.err
    outdated = prewarm(compiler, cache, "small", "--check")
    assert outdated.outcomes == {"mlp": "missing"}
    assert "compiled without 2 tuning results that are there now" in outdated.why("mlp")
    again = prewarm(compiler, cache, "small", "--require-tuned")
    assert again.outcomes == {"mlp": "stored"}
    assert tuned(again)[0]["state"] == "complete"
    [better] = executables(cache)
    assert better.header.key == entry.header.key
    assert better.section("executable") != entry.section("executable")
