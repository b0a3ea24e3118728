"""The cache directory's results by command: in, out, told of, and cleared away."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tuning_samples import NEW, OLD, target

from conftest import Run, clean_environment, execute
from rewarm.autotune import batches, kernels
from rewarm.autotune.formats import read
from rewarm.autotune.locating import places
from rewarm.autotune.places import Place
from rewarm.cli import layout
from rewarm.store import LocalStore

MLP, DOT = NEW / "mlp_128x128", NEW / "dot_tanh_64x64"
H200 = target("h200")
TARGET = NEW.parent / "targets" / "h200.txtpb"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def rewarm(cache: Path, *arguments: object, ok: int = 0, **env: str) -> Run:
    words = [sys.executable, "-m", "rewarm", *map(str, arguments), "--dir", str(cache)]
    run = execute(words, env=clean_environment(**env), cwd=Path("/"))
    assert run.code == ok, run.err
    return run


def taken(cache: Path, *arguments: object) -> list[dict[str, Any]]:
    build = () if "--for-build" in arguments else ("--for-build", "jax-0.12.0.1")
    run = rewarm(cache, "autotune", "import", *arguments, *build, "--json")
    told: list[dict[str, Any]] = json.loads(run.out)["taken"]
    return told


def place_in(cache: Path) -> Place:
    [place] = places(cache)
    return place


@pytest.mark.parametrize("name", ["new_load.pb", "new_load.textproto", "new_dir"])
def test_what_is_imported_lies_where_xla_looks(name: str, cache: Path) -> None:
    [one] = taken(cache, MLP / name)
    assert (one["given"], one["new"], one["build"], one["fingerprint"]) == (2, 2, "jax-0.12.0.1", H200.fingerprint)
    place = place_in(cache)
    # A file of the new formats says a fingerprint, which is that of a GPU that is known.
    assert place.device == H200.text
    assert set(place.entries().entries) == set(read(MLP / name).entries)
    folder = MLP / "new_dir"
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {path.relative_to(place.directory).as_posix() for path in place.directory.rglob("*.*")} == names


def test_legacy_results_are_converted_for_a_build_that_does_not_look_at_them(cache: Path) -> None:
    [one] = taken(cache, DOT / "legacy_load.pb", "--target", TARGET)
    assert (one["given"], one["new"], one["device"]) == (1, 1, H200.text)
    place = place_in(cache)
    assert set(place.entries().entries) == set(read(DOT / "new_load.pb").entries)
    assert list(place.directory.rglob("*.textproto")) == []


def test_without_the_target_they_serve_as_well(cache: Path) -> None:
    taken(cache, DOT / "legacy_load.pb")
    [entry] = place_in(cache).entries().entries
    [wanted] = read(DOT / "new_load.pb").entries
    assert (entry.device, entry.fusion, entry.config) == (wanted.device, wanted.fusion, wanted.config)
    assert entry.versions.backend == wanted.versions.backend


def test_what_cannot_be_converted_is_left_out_with_the_reason(cache: Path) -> None:
    words = ("autotune", "import", MLP / "legacy_load.pb", "--for-build", "jax-0.12.0.1")
    refused = rewarm(cache, *words, ok=1)
    assert "the whole instruction" in refused.err
    assert "jax-0.12.0.1 uses the new formats" in refused.err
    assert not (cache / "autotune").exists()
    rewarm(cache, *words, "--lossy")
    assert [entry.backend for entry in place_in(cache).entries().entries] == ["TRITON"]


def test_legacy_results_are_taken_as_they_are_where_the_build_is_told_to_use_them(cache: Path) -> None:
    [one] = taken(cache, MLP / "legacy_load.pb", "--for-build", "jax-0.12.0.1-legacy")
    assert (one["new"], one["build"]) == (2, "jax-0.12.0.1-legacy")
    assert set(place_in(cache).entries().entries) == set(read(MLP / "legacy_load.pb").entries)


def test_what_there_is_no_room_for_is_told(cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "odd.pb"
    file.write_bytes((MLP / "new_load.pb").read_bytes() + b"\xfa\x3e\x03abc")
    words = ("autotune", "import", file, "--for-build", "jax-0.12.0.1")
    assert "AutotuneCache: field 1007" in rewarm(cache, *words, ok=1).err
    assert not (cache / "autotune").exists()
    assert "1 were left out" in rewarm(cache, *words, "--lossy").out
    assert len(place_in(cache).entries().entries) == 2


def test_what_comes_out_has_the_scope_that_xla_writes(cache: Path, tmp_path: Path) -> None:
    taken(cache, MLP / "new_load.pb")
    rewarm(cache, "autotune", "export", "-o", tmp_path / "out.pb")
    assert read(tmp_path / "out.pb").header == read(MLP / "new_load.pb").header


def test_what_is_imported_is_an_entry_of_the_store(cache: Path) -> None:
    [one] = taken(cache, MLP / "new_load.pb")
    store = LocalStore(cache)
    data = store.get(one["entry"])
    assert data is not None
    assert set(batches.opened(data, one["entry"]).entries) == set(read(MLP / "new_load.pb").entries)
    [again] = taken(cache, MLP / "new_load.pb")
    assert (again["new"], again["entry"]) == (0, None)
    assert len(list(store.scan())) == 1


def test_a_legacy_folder_needs_to_be_told_its_gpu(cache: Path) -> None:
    folder = OLD / "mlp_128x128" / "legacy_dir"
    refused = rewarm(cache, "autotune", "import", folder, "--for-build", "jax-0.10.2", ok=1)
    assert refused.err.count("nothing says its GPU") == 2
    assert places(cache) == []
    told = rewarm(cache, "autotune", "import", folder, "--for-build", "jax-0.10.2", "--target", "h200", "--json")
    assert [one["new"] for one in json.loads(told.out)["taken"]] == [2]
    assert {entry.device for entry in place_in(cache).entries().entries} == {None}
    # A file that says the keys makes them known.
    file = OLD / "mlp_128x128" / "legacy_load.pb"
    rewarm(cache, "autotune", "import", file, "--for-build", "jax-0.10.2")
    assert {entry.device for entry in place_in(cache).entries().entries} == {H200.legacy}


def test_broken_input_is_named_and_nothing_is_taken_unless_it_may_be_left_out(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "torn.pb").write_bytes((MLP / "new_load.pb").read_bytes()[:-5])
    arguments = ("autotune", "import", tmp_path / "torn.pb", DOT / "new_load.pb", "--for-build", "jax-0.12.0.1")
    refused = rewarm(cache, *arguments, ok=1)
    assert "torn.pb" in refused.err
    assert places(cache) == []
    assert "1 were left out" in rewarm(cache, *arguments, "--lossy").out
    assert place_in(cache).entries().entries == read(DOT / "new_load.pb").entries


def test_usage_of_import(cache: Path) -> None:
    assert "expected the PATH" in rewarm(cache, "autotune", "import", ok=2).err
    assert "no such file" in rewarm(cache, "autotune", "import", "/nowhere/x.pb", ok=1).err
    assert "--for-build" in rewarm(cache, "autotune", "import", MLP / "new_load.pb", "--for-build", "//", ok=2).err


@pytest.mark.parametrize("name", ["out.pb", "out.textproto", "out"])
def test_what_is_exported_is_what_was_imported(name: str, cache: Path, tmp_path: Path) -> None:
    taken(cache, MLP / "new_load.pb")
    told = rewarm(cache, "autotune", "export", "-o", tmp_path / name, "--json")
    assert json.loads(told.out)["entries"] == 2
    assert set(read(tmp_path / name).entries) == set(read(MLP / "new_load.pb").entries)
    refused = rewarm(cache, "autotune", "export", "-o", tmp_path / name, ok=1).err
    assert str(tmp_path / name) in refused
    assert "--force" in refused


def test_places_can_be_exported_by_themselves(cache: Path, tmp_path: Path) -> None:
    taken(cache, MLP / "new_load.pb")
    rewarm(cache, "autotune", "import", DOT / "new_load.pb", "--for-build", "tensorflow-2.20")
    told = rewarm(cache, "autotune", "export", "-o", tmp_path / "tf.pb", "--place", "tensorflow", "--json")
    assert json.loads(told.out)["entries"] == 1
    assert read(tmp_path / "tf.pb").entries == read(DOT / "new_load.pb").entries
    nothing = rewarm(cache, "autotune", "export", "-o", tmp_path / "x.pb", "--place", "nobody", ok=1)
    assert "no such results" in nothing.err
    assert not (tmp_path / "x.pb").exists()


def test_status_of_a_cache_without_executables(cache: Path) -> None:
    taken(cache, MLP / "new_load.pb")
    assert rewarm(cache, "autotune", "status").out.startswith("no executables for GPUs")
    assert json.loads(rewarm(cache, "autotune", "status", "--json").out)["executables"] == []


def test_everything_of_a_place_is_known_and_cleared_away(cache: Path) -> None:
    taken(cache, MLP / "new_load.pb")
    place = place_in(cache)
    (place.directory / f"{'a' * 43}.textproto").write_text("junk")
    (place.directory / "tmp").mkdir()
    (place.directory / "tmp" / "tmp_per_fusion_cache_1.textproto").write_text("being written")
    (place.directory / ".x.pb.1.0123abcd.tmp").write_text("being written")
    kernels.prepare(place)
    place.kernels.write_bytes(b"\x0a\x03abc")
    kernels.note(place)
    (place.root / "locks").mkdir()
    (place.root / "locks" / f"lock-{'0' * 32}.pb").write_bytes(b"x")
    place.learn({"0" * 32: "text"})
    place.prepare()
    files = [path.relative_to(cache).as_posix() for path in cache.rglob("*") if path.is_file()]
    unknown = [name for name in files if layout.kind_of(name) == layout.OTHER]
    assert unknown == [], "add it to layout._PARTS"
    kinds = {row["name"]: row["files"] for row in json.loads(rewarm(cache, "du", "--json").out)["by_kind"]}
    assert kinds["autotune"] == sum(name.startswith("autotune/") for name in files) - 1
    assert rewarm(cache, "verify").code == 0
    assert "1 files were kept from XLA" in rewarm(cache, "doctor", "--quick").out
    rewarm(cache, "clear")
    assert not (cache / "autotune").exists()


def test_places_that_nobody_uses_go_by_their_age(cache: Path) -> None:
    taken(cache, MLP / "new_load.pb")
    place = place_in(cache)
    assert json.loads(rewarm(cache, "gc", "--max-age", "30d", "--json").out)["unused_places"] == []
    old = time.time() - 40 * 86400
    os.utime(place.root / "about.json", (old, old))
    dry = json.loads(rewarm(cache, "gc", "--max-age", "30d", "--json", "--dry-run").out)
    assert dry["unused_places"] == [place.name]
    assert place.directory.exists()
    rewarm(cache, "gc", "--max-age", "30d")
    assert places(cache) == []
    # Its results are in the store still, and come back.
    assert batches.absorb(LocalStore(cache), place, set()) == 0  # the hints went with the place
    assert len(list(LocalStore(cache).scan())) == 1


def test_a_use_shows(cache: Path) -> None:
    taken(cache, MLP / "new_load.pb")
    place = place_in(cache)
    os.utime(place.root / "about.json", (1, 1))
    place.prepare()
    assert time.time() - place.last_used() < 60
