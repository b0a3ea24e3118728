"""What is said of a target whatever comes of its programs: keys that no machine asks for, versions, architectures."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
from pathlib import Path

import pytest
from prewarm_command import prewarm

from rewarm import targets
from rewarm.prewarm.target_notes import of_jobs
from rewarm.prewarm.work import Job
from rewarm.targets.data_sheets import untold

JAX = importlib.metadata.version("jax")


def about(name: str) -> list[str]:
    return of_jobs([Job("own:plan", name, targets.named(name).platform, "", {})]).get(name, [])


def captured(path: Path, name: str, **versions: str) -> str:
    target = targets.named(name)
    told = targets.Reported("said", ("kind",), None, None, target.topology().text.rpartition(":")[2], versions)
    triple = targets.Processor("x86_64-unknown-linux-gnu", "znver4", "+avx2")
    processor = {"processor": triple} if target.platform == "cpu" else {}
    targets.write(dataclasses.replace(target, reported=told, **processor), path, force=True)
    return str(path)


@pytest.mark.parametrize("name", targets.names())
def test_a_data_sheet_does_not_tell_everything(name: str) -> None:
    target = targets.named(name)
    fields = untold(target)
    lines = about(name)
    if target.platform == "tpu" or name == "host":
        assert (fields, lines) == ((), [])
        return
    [line] = lines
    assert line.startswith(f"{name} is from a data sheet, which does not tell ")
    assert all(field in line for field in fields)
    assert "rewarm target capture FILE" in line


def test_versions_that_are_not_those_of_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "theirs.json"
    assert about(captured(path, "h200", jax=JAX)) == []
    assert about(captured(path, "host", jax=JAX, libtpu="0.0.1")) == [], "no CPU's code comes from there"
    [line] = about(captured(path, "h200", **{"jax": "0.9.2.9", "nvidia-cuda-nvcc": "13.0.1"}))
    assert f"captured with jax 0.9.2.9 (here {JAX}), nvidia-cuda-nvcc 13.0.1 (here " in line


def test_the_report_has_them(cache: Path, tmp_path: Path) -> None:
    path = captured(tmp_path / "theirs.json", "host", jax="0.9.2.9", jaxlib="0.9.2.9")
    told = prewarm(cache, "alone", "--check", target=path).told
    assert list(told["targets"]) == [path]
    assert "captured with jax 0.9.2.9" in told["targets"][path][0]


def test_code_for_another_architecture_is_refused_before_the_work(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "arm.json"
    captured(path, "host", jax=JAX)
    whole = json.loads(path.read_text())
    whole["cpu"] |= {"triple": "riscv64-unknown-linux-gnu", "features": "+v"}
    path.write_text(json.dumps(whole))
    done = prewarm(cache, "alone", target=str(path)).run
    assert done.code == 2
    assert "a CPU of the architecture riscv64, and the compiler in this jaxlib makes code for" in done.err
    assert not cache.exists()
