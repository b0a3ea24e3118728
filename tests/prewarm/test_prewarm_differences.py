"""Where a described target is not the machine on which its programs run, the reports say in which field."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from prewarm_command import DESCRIBES_CPUS, attached, prewarm

from conftest import clean_environment, execute

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(not DESCRIBES_CPUS, reason="JAX 0.9 and 0.10 describe no CPU but this host's own"),
]


def test_a_run_that_misses_is_told_of_the_description(cache: Path) -> None:
    made = prewarm(cache, "alone", target="x86-64-v3")
    assert made.outcomes == {"scaled": "stored"}, made.run.err
    assert attached(cache, 1, "alone")["events"] == [["jit_scaled", "miss"]]
    explained = execute(
        [sys.executable, "-m", "rewarm", "explain", "--dir", str(cache)], env=clean_environment(), cwd=cache.parent
    )
    assert "target differs" in explained.out
    assert "features:" in explained.out
    assert "it was compiled ahead for x86-64-v3 (built in), which is not this machine" in explained.out
    assert "rewarm target capture" in explained.out

    # And the other way round: who fills for the description hears what the machine said that ran it.
    looked = prewarm(cache, "alone", "--check", target="x86-64-v3")
    [program] = looked.told["programs"]
    assert [line.partition(":")[0] for line in program["differs"]] == ["features"]
    plain = execute(
        [*looked_words("x86-64-v3"), "--dir", str(cache), "--check"], env=clean_environment(), cwd=cache.parent
    )
    assert "x86-64-v3 1x1x1 is not the machine on which its programs ran, so their keys are others:" in plain.out
    same = prewarm(cache, "alone", "--check", target="host")
    assert [one["differs"] for one in same.told["programs"]] == [[]]
    more = prewarm(cache, "alone", "--check", target="host:64")
    assert more.told["programs"][0]["differs"] == [f"threads: {threads(cache)} there, 64 here"]


def looked_words(target: str) -> list[str]:
    from prewarm_command import command

    return command("alone", target=target)


def threads(cache: Path) -> str:
    done = execute(
        [sys.executable, "-c", "from rewarm import settings; print(settings.cpu_threads())"],
        env=clean_environment(),
        cwd=cache.parent,
    )
    return done.out.strip()


def test_a_target_is_compared_with_a_captured_one(cache: Path, tmp_path: Path) -> None:
    captured = tmp_path / "theirs.json"
    words = [sys.executable, "-m", "rewarm", "target", "capture", str(captured)]
    assert execute(words, env=clean_environment(), cwd=tmp_path).code == 0
    found = prewarm(cache, "alone", "--check", "--against", str(captured), target="x86-64-v4")
    fields = {row["field"]: row["keyed"] for row in found.told["against"]["x86-64-v4"]}
    assert fields["cpu.features"] is True
    assert fields["cpu.name"] is False
    same = prewarm(cache, "alone", "--check", "--against", str(captured), target="host")
    assert same.told["against"] == {"host": []}
    wrong = prewarm(cache, "alone", "--check", "--against", "nowhere.json").run
    assert (wrong.code, "no target is called 'nowhere.json'" in wrong.err) == (2, True)
