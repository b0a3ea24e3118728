"""Keys that were given once are given again: a change must be deliberate, it puts all stored entries out of reach.

And nothing of the machine gets into what should not have it: the digests are the same in every process, at every place.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rewarm.identity import KEY_SCHEMA, component
from rewarm.identity.components import TABLE, derive_key

_SCRIPT = Path(__file__).resolve().parents[1] / "golden" / "make_keys.py"
COMMAND = "python tests/golden/make_keys.py"


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("make_keys", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_keys = _load()


@cache
def observed() -> dict[str, Any]:
    """The digests of this JAX, from a fresh process."""
    found: dict[str, Any] = make_keys.observe()
    return found


@pytest.mark.contract
def test_keys_are_those_that_were_given_before() -> None:
    found, known = observed(), make_keys.pinned()
    if found["versions"] not in known:
        pytest.skip(f"no golden keys of {found['versions']}; add them with this environment's {COMMAND}")
    before = known[found["versions"]]
    changed = make_keys.differences(before["programs"], found["programs"])
    if before["schema"] != KEY_SCHEMA:
        pytest.fail(f"KEY_SCHEMA is {KEY_SCHEMA}, the golden keys are of {before['schema']}: regenerate with {COMMAND}")
    if changed:
        pytest.fail(
            "these are not the keys that were given before, so no stored entry would be found again. A change of a "
            f"key must be deliberate: bump KEY_SCHEMA and regenerate with {COMMAND} in each environment of JAX. "
            f"Changed: {', '.join(changed)}"
        )


@pytest.mark.contract
def test_nothing_of_the_machine_or_the_place_is_in_them(tmp_path: Path) -> None:
    """Also not where a program stands, who runs it, how many devices it has beside its own, and what dumps would go."""
    script = tmp_path / "another place" / "moved.py"
    script.parent.mkdir()
    script.write_text("# one line more\n\n\n" + _SCRIPT.read_text(encoding="utf-8"), encoding="utf-8")
    for name in ("home", "xdg", "rewarm", "jax"):
        (tmp_path / name).mkdir()
    found = make_keys.observe(
        cwd=tmp_path,
        script=script,
        HOME=str(tmp_path / "home"),
        XDG_CACHE_HOME=str(tmp_path / "xdg"),
        REWARM_DIR=str(tmp_path / "rewarm"),
        JAX_COMPILATION_CACHE_DIR=str(tmp_path / "jax"),
        PYTHONHASHSEED="12345",
        USER="somebody",
        TZ="Pacific/Auckland",
        LC_ALL="C",
        XLA_FLAGS="--xla_force_host_platform_device_count=4",
    )
    assert make_keys.differences(observed()["programs"], found["programs"]) == []


@pytest.mark.contract
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs a choice of processors")
def test_neither_the_number_of_processors_nor_the_instruction_set_is_in_them() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        found = make_keys.observe(NPROC="16")
    finally:
        os.sched_setaffinity(0, before)
    assert make_keys.differences(observed()["programs"], found["programs"]) == []


@pytest.mark.contract
def test_each_program_has_a_key_of_its_own_and_what_it_is_to_show_shows() -> None:
    programs = observed()["programs"]
    assert len({rows["key"] for rows in programs.values()}) == len(programs) == len(make_keys.PROGRAMS)
    assert programs["compiler_options"]["program"] == programs["simple"]["program"]
    assert programs["compiler_options"]["options"] != programs["simple"]["options"]
    others = {name: rows["program"] for name, rows in programs.items() if name != "compiler_options"}
    assert len(set(others.values())) == len(others)
    for name in ("callbacks", "inputs", "salt", "format"):
        assert len({rows[name] for rows in programs.values()}) == 1


def test_a_change_of_one_digest_is_told_by_name() -> None:
    before = {"simple": {"program": "1", "key": "2"}, "scan": {"program": "3"}}
    assert make_keys.differences(before, before) == []
    assert make_keys.differences(before, {**before, "simple": {"program": "9", "key": "2"}}) == ["simple: program"]
    assert make_keys.differences(before, {"simple": before["simple"]}) == ["scan: program"]


def test_the_script_refuses_to_change_keys_under_one_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(make_keys, "FILE", tmp_path / "keys.json")
    monkeypatch.setattr(make_keys.sys, "argv", ["make_keys.py"])

    def seen(schema: int, digest: str) -> None:
        told = {"versions": "jax 1", "schema": schema, "programs": {"simple": {"program": digest}}}
        monkeypatch.setattr(make_keys, "observe", lambda: told)

    for schema, digest, code in ((1, "a", 0), (1, "a", 0), (1, "b", 1), (2, "b", 0), (2, "a", 1)):
        seen(schema, digest)
        assert make_keys.main() == code
    assert make_keys.pinned() == {"jax 1": {"schema": 2, "programs": {"simple": {"program": "b"}}}}
    assert "bump KEY_SCHEMA first:\nsimple: program\n" in capsys.readouterr().err


def test_how_components_become_a_key() -> None:
    """Without JAX: the framing of rows, and the text that stands for a value."""
    rows = [(name, hashlib.sha256(name.encode()).hexdigest()) for name in TABLE]
    assert TABLE == ("format", "program", "callbacks", "options", "inputs", "toolchain", "target", "salt")
    assert derive_key(rows) == "b338337b0e51d6d2c97bef2002bee478c65824bf11220129841da020b842c563"
    assert (
        component("x", {"b": [1, 2.5, None, True], "a": "Grüße"}).digest
        == "5a7b67bfc6be5f5837bed0e4690762852eb79c11e0a9aea51e5b72bcaf5eaf86"
    )
    assert component("x", b"bytes").digest == hashlib.sha256(b"bytes").hexdigest()
