"""`rewarm target`: its lists, what it shows, its exit codes, and a captured file used in a name's place."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from conftest import Run, clean_environment, execute
from rewarm import targets


def rewarm(*arguments: str, **env: str) -> Run:
    command = [sys.executable, "-m", "rewarm", "target", *arguments]
    return execute(command, env=clean_environment(**{"NPROC": "3", **env}), cwd=Path.cwd())


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What this host says of itself."""
    path = tmp_path_factory.mktemp("captured") / "host-3.json"
    done = rewarm("capture", str(path))
    assert done.code == 0, done.err
    assert done.out.startswith(f"{path}: captured: ")
    assert ", 3 threads, 1x1x1, jax " in done.out
    return path


def test_ls_has_every_name() -> None:
    done = rewarm("ls")
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()[1:]] == list(targets.names())
    told = json.loads(rewarm("ls", "--json").out)["targets"]
    assert [one["name"] for one in told] == list(targets.names())
    assert {one["platform"] for one in told} == {"cuda", "tpu", "cpu"}


def test_show_says_what_compilers_read() -> None:
    told = json.loads(rewarm("show", "H200", "--topology", "4x8x1", "--json").out)
    assert told["fields"]["gpu.gpu_device_info.core_count"] == "132"
    assert told["topology"] == {"text": "4x8x1", "processes": 32, "devices": 32}
    text = rewarm("show", "v5e", "--topology", "2x4").out
    assert "topology v5e:2x4: 8 devices in 2 processes" in text
    assert "cpu.threads" in rewarm("show", "host:5").out


def test_wrong_words_are_one_line(tmp_path: Path) -> None:
    for arguments, said in (
        (("show", "h900"), "no target is called 'h900'"),
        (("show", "h200", "--topology", "2x4"), "nodes x processes x devices, such as 1x2x4"),
        (("capture", str(tmp_path / "no" / "file")), "cannot be written"),
        (("capture", str(tmp_path / "file"), "--platform", "tpu"), "JAX finds no device of the platform tpu"),
    ):
        done = rewarm(*arguments)
        assert (done.code, done.out) == (1, "")
        assert said in done.err
        assert done.err.strip().splitlines()[-1].startswith("Error: ")
        assert "Traceback" not in done.err
    assert rewarm("show").code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_captured_host_is_this_host(captured: Path) -> None:
    told = json.loads(rewarm("show", str(captured), "--json").out)
    assert (told["name"], told["platform"], told["fields"]["cpu.threads"]) == ("host-3", "cpu", "3")
    same = rewarm("show", "host", "--against", str(captured))
    assert (same.code, same.out.strip()) == (0, "host and host-3 say the same")
    other = rewarm("show", "host:8", "--against", str(captured), "--json")
    assert other.code == 1
    assert json.loads(other.out)["differences"] == [
        {"field": "cpu.threads", "first": "8", "second": "3", "keyed": True}
    ]


def test_nothing_is_overwritten_unasked(captured: Path) -> None:
    before = captured.read_bytes()
    done = rewarm("capture", str(captured))
    assert (done.code, captured.read_bytes()) == (1, before)
    assert "not overwritten; name another file, or --force" in done.err
    assert rewarm("capture", str(captured), "--force", "--name", "host-3").code == 0
    assert captured.read_bytes() == before, "the same host says the same"
