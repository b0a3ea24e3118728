"""A machine that shares only a remote with who pre-warmed is told in what it is another one than was compiled for."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from prewarm_command import DESCRIBES_CPUS, PLANS, command

from conftest import clean_environment, execute
from rewarm.prewarm import ahead_notes
from rewarm.prewarm.shared_failures import name_of
from rewarm.remote.folder import FolderBlobs
from rewarm.store import LocalStore
from shared_remotes import Machine

pytestmark = pytest.mark.skipif(not DESCRIBES_CPUS, reason="JAX 0.9 and 0.10 describe no CPU but this host's own")


def ran(machine: Machine, remote: Path, *words: str) -> Any:
    machine.home.mkdir(parents=True, exist_ok=True)
    env = clean_environment(**machine.env(f"file://{remote}"))
    done = execute([sys.executable, *words], env=env, cwd=machine.home)
    assert done.out, done.err[-3000:]
    return done.out


def explained(machine: Machine, remote: Path) -> dict[str, Any]:
    """What is said of the one program that it ran and had to compile."""
    assert json.loads(ran(machine, remote, str(PLANS), "alone"))["events"] == [["jit_scaled", "miss"]]
    [miss] = json.loads(ran(machine, remote, "-m", "rewarm", "explain", "--json"))["misses"]
    return dict(miss["explanation"])


def test_who_misses_hears_what_was_compiled_ahead(tmp_path: Path) -> None:
    remote = tmp_path / "remote"
    remote.mkdir()
    builder = Machine.named("builder", tmp_path)
    told = json.loads(ran(builder, remote, *command("alone", "--push", "--json", target="x86-64-v3")[1:]))
    assert [(one["sent"], one["problems"]) for one in told["pushed"]] == [(1, [])]

    known = explained(Machine.named("cluster", tmp_path, builder), remote)
    assert known["differs"] == ["target"]
    assert "features" in [change["item"] for change in known["changes"]]
    [finding] = known["findings"]
    assert finding["kind"] == "described"
    assert "compiled ahead for x86-64-v3 (built in)" in finding["text"]
    assert "rewarm target capture" in finding["text"]

    # Whoever is not trusted tells nothing, and nobody keeps a note.
    [finding] = explained(Machine.named("stranger", tmp_path), remote)["findings"]
    assert finding["kind"] == "new"
    other = Machine.named("other", tmp_path, builder)
    ran(other, remote, "-m", "rewarm", "sync", "pull")
    assert [info.key for info in LocalStore(other.cache).scan()] == [told["programs"][0]["key"]]


def test_a_note_that_lies_says_nothing(tmp_path: Path) -> None:
    """In the place of a note lies another entry: one that says a failure, signed by somebody who is trusted."""
    remote = tmp_path / "remote"
    remote.mkdir()
    builder = Machine.named("builder", tmp_path)
    ran(builder, remote, *command("alone", "--push", "--json", target="x86-64-v3")[1:])
    notes = {ahead_notes.name_of(digit * 64) for digit in "01"} | {name_of("0" * 64)}
    assert len(notes) == 3, "names of different things differ"
    blobs = FolderBlobs(remote)
    names = [path.relative_to(remote).as_posix() for path in remote.rglob("*") if len(path.name) == 64]
    entry, note = sorted(names, key=lambda name: len(blobs.get(name, limit=1 << 30) or b""), reverse=True)
    blobs.put(note, blobs.get(entry, limit=1 << 30) or b"", only_new=False)
    [finding] = explained(Machine.named("cluster", tmp_path, builder), remote)["findings"]
    assert finding["kind"] == "new"
