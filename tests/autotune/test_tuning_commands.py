"""The commands over files, folders and the cache directory, as a person calls them: exit codes, words, JSON."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tuning_many import fusion_of, legacy_one, new_one
from tuning_samples import NEW, OLD, SAMPLES, legacy_entry, target, triton_result

from conftest import Run, clean_environment, execute
from rewarm.autotune import lock, lock_file, outputs, pruning
from rewarm.autotune.formats import (
    BUILDS,
    Family,
    Format,
    Header,
    Severity,
    TuningEntry,
    Versions,
    files,
    fusion_path,
    read,
    serialised,
    validate,
    with_keys,
    write,
)
from rewarm.autotune.formats.protobuf import message_class
from rewarm.autotune.locating import place_of
from rewarm.autotune.merging import merge
from rewarm.autotune.selecting import codegens
from rewarm.store.local import TAG_NAME

MLP, DOT = NEW / "mlp_128x128", NEW / "dot_tanh_64x64"
H200 = target("h200")
UNKNOWN = b"\xfa\x3e\x03abc"  # field 1007


def autotune(*arguments: object, cwd: Path | None = None, **env: str) -> Run:
    """Call the command; no call may end in a traceback."""
    words = [str(one) for one in arguments]
    done = execute(
        [sys.executable, "-m", "rewarm", "autotune", *words], env=clean_environment(**env), cwd=cwd or Path.cwd()
    )
    assert "Traceback" not in done.err, done.err
    return done


def told(*arguments: object, **more: Any) -> Any:
    done = autotune(*arguments, "--json", **more)
    assert done.code == 0, done.err
    return json.loads(done.out)


def put(path: Path, entries: list[TuningEntry], form: Format) -> Path:
    write(entries, path, form)
    return path


def test_ls_says_device_fusion_tiles_backend_build_and_age(tmp_path: Path) -> None:
    copy = tmp_path / "mlp.pb"
    shutil.copy(MLP / "legacy_load.pb", copy)
    os.utime(copy, (0, copy.stat().st_mtime - 3 * 86400))
    done = autotune("ls", copy)
    assert done.code == 0
    header, row, *_ = done.out.splitlines()
    assert header.split() == ["name", "device", "fusion", "configuration", "backend", "build", "run", "time", "age"]
    for said in (
        "NVIDIA H200 141GB HBM3e",
        "dot(",
        "128x128x64, 4 stages, 8 warps",
        "TRITON",
        "JAX 0.12.0.1",
        "3 days",
    ):
        assert said in row
    assert done.out.endswith("\n2 entries\n")
    (found,) = told("ls", copy, "--fusion", "dot(", "--backend", "triton")
    assert found["configuration"]["fields"]["block_m"] == "128"
    assert found["versions"]["entry"] == 56
    assert found["builds"] == ["0.12.0.1"]
    assert found["source"] == {"path": str(copy), "entry": 1, "note": ""}


def test_ls_filters_sources_of_every_kind(tmp_path: Path) -> None:
    both = [MLP / name for name in ("legacy_load.pb", "legacy_load.textproto", "legacy_dir", "new_dir", "new_load.pb")]
    assert len(told("ls", *both)) == 10
    assert len(told("ls", *both, "--device", "h200")) == 8  # a legacy folder says no device
    assert told("ls", *both, "--device", "h100") == []
    assert len(told("ls", *both, "--build", "0.12.0.1", "--limit", "3")) == 3
    assert len(told("ls", *both, "--fusion", "3e9a8b08")) == 2
    shutil.copytree(MLP / "new_dir", tmp_path / "jax/xla_gpu_per_fusion_autotune_cache_dir")
    assert len(told("ls", tmp_path / "jax")) == 2
    pinned = lock.pinned(read(MLP / "new_load.pb").entries, H200, "0.12.0.1")
    (tmp_path / "tuning.lock").write_text(lock_file.written(pinned))
    assert {row["name"] for row in told("ls", tmp_path / "tuning.lock")} == {
        row["name"] for row in told("ls", MLP / "new_dir")
    }


def cache_with(root: Path, entries: list[TuningEntry], build: str = "jax-0.12.0.1") -> Path:
    root.mkdir(exist_ok=True)
    (root / TAG_NAME).write_text("any")
    for family in Family:
        place_of(root, build, H200.text, family).add([entry for entry in entries if entry.family is family])
    return root


def test_ls_of_the_cache_directory_knows_what_fusions_are(tmp_path: Path) -> None:
    root = cache_with(tmp_path / "cache", [new_one(0, 1), legacy_one(1, 1)])
    place_of(root, "jax-0.12.0.1", H200.text, Family.NEW).learn({fusion_of(0): "bf16[9,9]{1,0} fusion(), calls=\n{\n}"})
    rows = told("ls", "--dir", root)
    assert [row["device_name"] for row in rows] == ["NVIDIA H200 141GB HBM3e"] * 2
    assert {row["family"] for row in rows} == {"new", "legacy"}
    assert [row["instruction"] for row in told("ls", root, "--fusion", "bf16[9,9]")] == [
        "bf16[9,9]{1,0} fusion(), calls=\n{\n}"
    ]
    empty = cache_with(tmp_path / "empty", [])
    done = autotune("ls", REWARM_DIR=str(empty))
    assert (done.code, done.out) == (0, "0 entries\n")
    done = autotune("ls", "--dir", tmp_path / "nowhere")
    assert (done.code, done.out) == (1, "")
    assert "does not exist" in done.err
    assert autotune("ls", MLP / "new_dir", "--dir", root).code == 2


def test_what_is_broken_is_told_and_the_rest_is_listed(tmp_path: Path) -> None:
    shutil.copytree(MLP / "new_dir", tmp_path / "new", copy_function=shutil.copyfile)
    device = tmp_path / "new" / H200.fingerprint
    (device / f"{'0' * 32}.pb").write_bytes(b"\x0a\xff")
    (device / f"{'1' * 32}.pb").touch()
    done = autotune("ls", tmp_path / "new")
    assert (done.code, done.out.splitlines()[-1]) == (1, "2 entries")
    first, second = done.err.splitlines()
    assert "000.pb, byte 1: error: binary: expected" in first
    assert "111.pb: error: empty: expected entries" in second
    done = autotune("ls", tmp_path / "none.pb")
    assert (done.code, done.err) == (1, f"Error: {tmp_path}/none.pb: there is no such file or folder\n")


def test_wrong_words_are_wrong_usage() -> None:
    for words in (["--device", "h300"], ["--build", "0.99"], ["--backend", "FAST"]):
        done = autotune("ls", MLP / "new_dir", *words)
        assert done.code == 2
        assert "Error: " in done.err


def test_show(tmp_path: Path) -> None:
    done = autotune("show", "3e9a8b", MLP / "new_load.pb", MLP / "new_dir")
    assert done.code == 0
    for said in ("a4baa03864db7cfb/3e9a8b0811cf954ce777a88d34867d06.pb", "block_m", "070b7c91256c4093", "JAX 0.12.0.1"):
        assert said in done.out
    shown = told("show", "dot(", MLP / "legacy_load.pb")
    assert shown["fusion"].startswith("{\n")
    assert shown["findings"] == []
    bad = put(tmp_path / "bad.pb", [legacy_entry(triton_result(num_warps=3))], Format.LEGACY_BINARY)
    assert "num-warps: expected num_warps as a power of two" in autotune("show", "dot", bad).out
    done = autotune("show", "tanh", MLP / "legacy_load.pb", DOT / "legacy_load.pb")
    assert done.code == 1
    assert "2 entries fit 'tanh'" in done.err
    assert "no entry" in autotune("show", "nothing", MLP / "new_dir").err
    done = autotune("show", "YpYB", MLP / "legacy_dir")
    assert "not said" in done.out


def test_validate_has_one_line_for_each_finding_and_ends_with_1(tmp_path: Path) -> None:
    done = autotune("validate", *(MLP / name for name in ("new_dir", "new_load.pb", "legacy_dir")), "--target", "h200")
    assert (done.code, done.out) == (0, "6 entries, no findings\n")
    (tmp_path / "torn.textproto").write_text('version: 3\nresults {\n  device: "x"\n  hlo "y\n}\n')
    (tmp_path / "torn.pb").write_bytes((MLP / "new_load.pb").read_bytes()[:-5])
    put(tmp_path / "bad.pb", [legacy_entry(triton_result(num_warps=3, block_m=48))], Format.LEGACY_BINARY)
    paths = [tmp_path / name for name in ("torn.textproto", "torn.pb", "bad.pb")]
    done = autotune("validate", *paths)
    assert done.code == 1
    text, binary, *unsound, total = done.out.splitlines()
    assert text.startswith(f"{paths[0]}:4:")
    assert binary.startswith(f"{paths[1]}, byte ")
    assert [line.split(": ")[2] for line in unsound] == ["block-size", "num-warps"]
    assert all("expected" in line and "found" in line for line in (text, binary, *unsound))
    assert total == "1 entries, 4 errors"
    found = json.loads(autotune("validate", *paths, "--json").out)
    assert not found["sound"]
    assert [one["place"]["line"] for one in found["findings"]][:1] == [4]


def test_validate_for_a_build_and_a_device() -> None:
    done = autotune("validate", MLP / "legacy_load.pb", "--jax", "0.11.2", "--target", "h100")
    assert done.code == 0  # warnings: they serve nothing there, and harm nothing
    assert done.out.count("warning: entry-version") == done.out.count("warning: other-device") == 2
    assert autotune("validate", MLP / "legacy_load.pb", "--jax", "0.11.2", "--strict").code == 1
    done = autotune("validate", MLP / "new_load.pb", "--jax", "0.10.2")
    assert (done.code, "format-unknown" in done.out) == (1, True)
    done = autotune("validate", MLP / "new_load.pb", "--as", "legacy-binary")
    assert (done.code, "other-format" in done.out) == (1, True)
    assert autotune("validate", MLP, "--jax", "57").code == 2


def test_validate_of_nothing_is_no_success(tmp_path: Path) -> None:
    assert autotune("validate", tmp_path).code == 1
    (tmp_path / "cache" / "autotune").mkdir(parents=True)
    (tmp_path / "cache" / TAG_NAME).touch()
    done = autotune("validate", "--dir", tmp_path / "cache")
    assert (done.code, done.out) == (1, "no entries: there is nothing to check, which is no success\n")
    (tmp_path / "head.textproto").write_text("version: 3\n")
    done = autotune("validate", tmp_path / "head.textproto")
    assert (done.code, "header-only" in done.out) == (1, True)


def test_diff_says_what_changed(tmp_path: Path) -> None:
    old = put(tmp_path / "a.pb", [legacy_one(0, 0, micros=9), legacy_one(1, 0), legacy_one(2, 0)], Format.LEGACY_BINARY)
    newer = [legacy_one(0, 1, micros=7), legacy_one(1, 0), legacy_one(3, 0), replace(legacy_one(4, 0), backend="")]
    other = put(tmp_path / "b.textproto", newer, Format.LEGACY_TEXT)
    done = autotune("diff", old, other)
    assert done.code == 0
    assert "    block_m 16 → 32\n    run time 9 µs → 7 µs\n" in done.out
    assert done.out.endswith("2 added, 1 removed, 1 changed, 1 the same\n")
    assert autotune("diff", old, other, "--exit-code").code == 1
    assert autotune("diff", old, old, "--exit-code").code == 0
    found = told("diff", old, other)
    assert [len(found[name]) for name in ("added", "removed", "changed")] == [2, 1, 1]
    assert found["changed"][0]["what"] == ["block_m 16 → 32", "run time 9 µs → 7 µs"]


def test_diff_takes_the_same_fusion_of_another_build_for_a_change(tmp_path: Path) -> None:
    older = put(tmp_path / "a.pb", [legacy_one(0, 0, version=52)], Format.LEGACY_BINARY)
    newer = put(tmp_path / "b.pb", [legacy_one(0, 0, version=56)], Format.LEGACY_BINARY)
    assert told("diff", older, newer)["changed"][0]["what"] == ["entry version 52 → 56"]
    assert told("diff", MLP / "legacy_dir", MLP / "legacy_load.pb") == {
        **{"added": [], "removed": [], "changed": []},
        "same": 2,
    }


def test_merge_of_all_formats_of_a_family(tmp_path: Path) -> None:
    out = tmp_path / "all.pb"
    done = autotune(
        "merge", *(program / f"new_{name}" for program in (MLP, DOT) for name in ("dir", "load.pb")), "-o", out
    )
    assert done.code == 0
    assert done.out == (
        f"wrote 3 entries to {out} (new-binary): 6 were given, 3 of them said nothing new, "
        "0 fusions had results that differ\n"
    )
    assert set(read(out).entries) == {*read(MLP / "new_dir").entries, *read(DOT / "new_dir").entries}
    done = autotune("merge", MLP / "new_dir", DOT / "new_dir", "-o", tmp_path / "folder")
    assert set(read(tmp_path / "folder").entries) == set(read(out).entries)
    assert read(tmp_path / "folder").format is Format.NEW_DIRECTORY


def test_merge_tells_what_lost_and_why(tmp_path: Path) -> None:
    sets = [
        put(tmp_path / f"{number}.pb", [legacy_one(0, number, micros=9 - number)], Format.LEGACY_BINARY)
        for number in range(3)
    ]
    bad = put(
        tmp_path / "bad.pb",
        [legacy_entry(triton_result(num_warps=3), fusion=legacy_one(0, 0).fusion)],
        Format.LEGACY_BINARY,
    )
    done = autotune("merge", bad, *sets, "-o", tmp_path / "out.textproto")
    assert done.code == 0
    assert f"kept TRITON 64x16x16, 3 stages, 4 warps ({sets[2]}, entry 1)\n" in done.out
    assert f"({sets[0]}, entry 1): slower: 9 µs, the other took 7 µs\n" in done.out
    assert f"({bad}, entry 1): unsound (num-warps: " in done.out
    (conflict,) = told("merge", bad, *sets, "-o", tmp_path / "again.textproto")["conflicts"]
    assert conflict["kept"]["source"]["path"] == str(sets[2])
    assert [one["source"]["path"] for one in conflict["lost"]] == [str(one) for one in (sets[1], sets[0], bad)]
    for number, order in enumerate([[*sets, bad], [sets[1], bad, sets[2], sets[0]]]):
        autotune("merge", *order, "-o", tmp_path / f"order-{number}.textproto")
        assert (tmp_path / f"order-{number}.textproto").read_bytes() == (tmp_path / "out.textproto").read_bytes()


def two_of_one_fusion(folder: Path) -> tuple[Path, Path]:
    """What this build made, and what it finds by the loose rule alone: by key and content that would come first."""
    own = new_one(0, 3)
    loose = replace(new_one(0, 0), versions=Versions(codegen="0" * 16, backend=own.versions.backend))
    return put(folder / "own.pb", [own], Format.NEW_BINARY), put(folder / "old.pb", [loose], Format.NEW_BINARY)


def test_merge_puts_what_a_build_finds_strictly_before_what_it_finds_loosely(tmp_path: Path) -> None:
    own, old = two_of_one_fusion(tmp_path)
    ours = read(own).entries
    for order in ((own, old), (old, own)):
        known = told("merge", *order, "-o", tmp_path / "a.pb", "--force", "--jax", "0.12.0.1", "--target", "h200")
        assert (known["entries"], known["ambiguous"]) == (1, 0)
        assert known["conflicts"][0]["lost"][0]["why"].startswith("made elsewhere")
        assert read(tmp_path / "a.pb").entries == ours
        done = autotune("merge", *order, "-o", tmp_path / "b.pb", "--force")
        assert "1 fusions have several entries" in done.out
        assert read(tmp_path / "b.pb").entries[:1] == ours
        lock_options = ("--jax", "0.12.0.1", "--target", "h200", "--force", "-o", tmp_path / "a.lock")
        assert autotune("lock", *order, *lock_options).code == 0
        assert lock_file.read(tmp_path / "a.lock").entries == ours
    known = told("merge", own, old, "-o", tmp_path / "folder", "--lossy", "--jax", "0.12.0.1")
    assert known["ambiguous"] == 0
    assert read(tmp_path / "folder").entries == ours


def test_import_puts_nothing_over_what_the_places_build_made(tmp_path: Path) -> None:
    own, old = two_of_one_fusion(tmp_path)
    for number, order in enumerate(((own, old), (old, own), (own, old, old))):
        root = tmp_path / f"cache{number}"
        for one in order:
            assert autotune("import", one, "--for-build", "jax-0.12.0.1", "--dir", root).code == 0
        (place,) = (root / "autotune").glob("jax-*")
        assert read(place / "xla").entries == read(own).entries


def test_prune_takes_out_what_a_build_never_comes_to(tmp_path: Path) -> None:
    own, old = two_of_one_fusion(tmp_path)
    gone = replace(new_one(0, 2), versions=Versions(codegen="1" * 16, backend="0" * 40))
    for first, second in ((own, old), (old, own)):
        file = put(tmp_path / "a.pb", [*read(first).entries, gone, *read(second).entries], Format.NEW_BINARY)
        assert len(told("prune", file, "--jax", "0.12.0.1", "--dry-run")[0]["dropped"]) == 1
        found = told("prune", file, "--jax", "0.12.0.1", "--target", "h200")
        assert {one["why"] for one in found[0]["dropped"]} == {
            *("of another build", "another entry for the fusion is nearer to the build that is served"),
        }
        assert read(file).entries == read(own).entries
        done = autotune("validate", file, "--jax", "0.12.0.1", "--target", "h200")
        assert done.out == "1 entries, no findings\n"


def test_prune_for_several_builds_keeps_what_each_of_them_takes(tmp_path: Path) -> None:
    new, other = new_one(0, 0), new_one(0, 1)
    of_011 = Versions(codegen=min(codegens(BUILDS[2], H200)), backend=BUILDS[2].backend_versions["TRITON"])
    loose = replace(new_one(0, 3), versions=Versions(codegen="0" * 16, backend=new.versions.backend))
    file = put(tmp_path / "a.pb", [replace(other, versions=of_011), loose, new], Format.NEW_BINARY)
    found = told("prune", file, "--jax", "0.12.0.1", "--jax", "0.11.2", "--target", "h200")
    assert [one["why"].split(" ")[0] for one in found[0]["dropped"]] == ["another"]
    assert read(file).entries == (replace(other, versions=of_011), new)


def test_a_link_is_followed_whatever_is_written(tmp_path: Path) -> None:
    """What is behind it is what XLA reads; a file that took its place would leave that as it was."""
    (tmp_path / "kept").mkdir()
    target_file, link = tmp_path / "kept" / "all.textproto", tmp_path / "link.textproto"
    entries = [legacy_one(0, 0), legacy_one(1, 0), legacy_entry(triton_result(num_warps=3))]
    put(target_file, entries, Format.LEGACY_TEXT)
    target_file.chmod(0o640)
    link.symlink_to("kept/all.textproto")
    assert autotune("prune", link).code == 0
    assert (link.is_symlink(), set(read(target_file).entries)) == (True, set(entries[:2]))
    assert stat.S_IMODE(target_file.stat().st_mode) == 0o640
    done = autotune("merge", MLP / "legacy_load.pb", "-o", link)
    assert (done.code, "--force replaces it" in done.err) == (1, True)
    assert autotune("merge", MLP / "legacy_load.pb", "-o", link, "--force").code == 0
    assert autotune("convert", MLP / "legacy_load.pb", "-o", link, "--force").code == 0
    assert (link.is_symlink(), read(target_file).entries) == (True, read(MLP / "legacy_load.pb").entries)
    lock_options = ("--jax", "0.12.0.1", "--target", "h200", "--force", "-o", link)
    assert autotune("lock", DOT / "new_dir", *lock_options).code == 0
    assert link.is_symlink()
    assert lock_file.read(target_file).entries
    assert sorted(one.name for one in tmp_path.iterdir()) == ["kept", "link.textproto"]


@pytest.mark.parametrize("name", ["a.pb", "folder"])
def test_what_a_link_leads_to_is_made_where_it_may_be(name: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link, behind = tmp_path / name, tmp_path / "there" / "x.pb"
    link.symlink_to("there/x.pb")
    done = autotune("merge", MLP / "new_dir", "-o", link)
    assert (done.code, "--force" in done.err, link.is_symlink()) == (1, True, True)
    assert autotune("merge", MLP / "new_dir", "-o", link, "--force").code == 0
    assert (link.is_symlink(), read(behind).entries) == (True, read(MLP / "new_dir").entries)
    assert behind.is_dir() == (name == "folder")
    assert autotune("merge", DOT / "new_dir", "-o", link, "--force").code == 0
    assert (link.is_symlink(), read(behind).entries) == (True, read(DOT / "new_dir").entries)
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted([name, "there"])


def test_an_output_without_a_name_is_wrong_usage(tmp_path: Path) -> None:
    shutil.copytree(DOT / "new_dir", tmp_path / "new", copy_function=shutil.copyfile)
    for command in ("merge", "convert"):
        done = autotune(command, MLP / "new_dir", "-o", "", "--force", cwd=tmp_path / "new")
        assert (done.code, "-o: expected a file or folder" in done.err) == (2, True)
    assert snapshot(tmp_path / "new") == snapshot(DOT / "new_dir")


def test_a_link_to_itself_is_no_place(tmp_path: Path) -> None:
    (tmp_path / "a.pb").symlink_to("a.pb")
    done = autotune("merge", MLP / "new_dir", "-o", tmp_path / "a.pb", "--force")
    assert (done.code, "leads back to itself" in done.err) == (1, True)
    assert (tmp_path / "a.pb").is_symlink()


def test_merge_needs_to_be_told_the_family_of_a_mixture(tmp_path: Path) -> None:
    out = tmp_path / "out.pb"
    done = autotune("merge", DOT / "new_dir", DOT / "legacy_load.pb", "-o", out)
    assert (done.code, out.exists()) == (1, False)
    assert "--to" in done.err
    done = autotune(
        "merge", DOT / "new_dir", DOT / "legacy_load.pb", "-o", out, "--to", "new-binary", "--target", "h200"
    )
    assert (done.code, len(read(out).entries)) == (0, 2)  # the one that is converted has no codegen version of its own


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    file, folder = tmp_path / "out.pb", tmp_path / "out"
    file.write_text("mine")
    file.chmod(0o640)
    shutil.copytree(DOT / "new_dir", folder, copy_function=shutil.copyfile)
    before = snapshot(tmp_path)
    for out in (file, folder):
        done = autotune("merge", MLP / "new_dir", "-o", out)
        assert (done.code, "--force replaces it" in done.err) == (1, True)
    assert snapshot(tmp_path) == before
    assert autotune("merge", MLP / "new_dir", "-o", file, "--force").code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert autotune("merge", MLP / "new_dir", "-o", folder, "--force").code == 0
    assert snapshot(folder) == snapshot(MLP / "new_dir")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out", "out.pb"]
    (folder / "notes.md").write_text("mine")
    done = autotune("merge", DOT / "new_dir", "-o", folder, "--force")
    assert (done.code, "notes.md is no tuning file" in done.err) == (1, True)
    done = autotune("merge", DOT / "new_dir", "-o", folder, "--to", "new-binary", "--force")
    assert (done.code, "is a folder" in done.err) == (1, True)
    done = autotune("merge", DOT / "new_dir", "-o", file, "--to", "new-dir", "--force")
    assert (done.code, "is no folder" in done.err) == (1, True)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out", "out.pb"]


# Anybody's files with XLA's ending, whose first words XLA's files have, too.
ANYBODYS = {
    "version.textproto": b'version: "1.2"\nlayers: 3\n',
    "optimizer.textproto": b'algorithm: "adam"\nlr: 0.1\n',
    "kv.textproto": b'key: "a"\nvalue: "b"\n',
    "model.textproto": b'model { name: "bert" }\n',
    "results.textproto": b"version: 3\n",
    "timing.textproto": b"run_time { seconds: 3 }\n",
    "note.textproto": b"",
    "json.textproto": b'{"a": 1}\n',
    "torn.textproto": b"triton { block_m: 64\n",
    f"{H200.fingerprint}/weights.pb": b"\x0a\x03abc",
    f"{H200.fingerprint}/empty.pb": b"",
}


def folder_with(path: Path, name: str) -> Path:
    """A folder of results, and one file of anybody's in it."""
    source = MLP / ("legacy_dir" if "/" not in name else "new_dir")
    shutil.copytree(source, path, copy_function=shutil.copyfile)
    (path / name).write_bytes(ANYBODYS[name])
    return path


@pytest.mark.parametrize("name", ANYBODYS)
def test_what_is_not_a_tuning_file_beyond_doubt_is_never_removed(name: str, tmp_path: Path) -> None:
    """A folder that has such a file is not replaced, by any command, and pruning leaves the file alone."""
    folder = folder_with(tmp_path / "folder", name)
    before = snapshot(folder)
    plan = pruning.plan(read(folder), builds=[BUILDS[-1]], devices=[H200])
    assert not [one for one in plan.dropped if one.path.endswith(name)]
    assert {one.source.path for one in plan.kept}.isdisjoint({str(folder / name)})
    entries = list(read(MLP / "new_load.pb").entries)
    with pytest.raises(outputs.OutputError, match="is no tuning file"):
        outputs.write_whole(entries, folder, Format.NEW_DIRECTORY, force=True)
    assert snapshot(folder) == before


def test_the_commands_leave_such_files_alone(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(MLP / "legacy_dir", folder, copy_function=shutil.copyfile)
    for name, data in ANYBODYS.items():
        if "/" not in name:
            (folder / name).write_bytes(data)
    torn = folder / f"{'A' * 43}.textproto"
    torn.write_bytes(b"triton { block_m: 64")
    before = snapshot(folder)
    cache = cache_with(tmp_path / "cache", [new_one(0, 0)])
    for words in (
        ("merge", MLP / "new_dir"),
        ("convert", MLP / "new_load.pb"),
        ("export", "--dir", cache),
    ):
        done = autotune(*words, "-o", folder, "--to", "new-dir", "--force")
        assert (done.code, "is no tuning file" in done.err) == (1, True)
    assert snapshot(folder) == before
    done = autotune("prune", folder)
    assert (done.code, done.out.splitlines()[-1]) == (0, "removed 1 entries and files; 2 stay")
    assert snapshot(folder) == {name: data for name, data in before.items() if name != torn.name}


def test_a_torn_file_of_xlas_own_name_is_replaced_with_the_rest(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(MLP / "new_dir", folder, copy_function=shutil.copyfile)
    (folder / H200.fingerprint / f"{'7' * 32}.pb").write_bytes(b"\x0a\xff")
    (folder / f"{'A' * 43}.textproto").write_bytes(b"")
    assert autotune("merge", DOT / "new_dir", "-o", folder, "--force").code == 0
    assert snapshot(folder) == snapshot(DOT / "new_dir")


@pytest.mark.parametrize("name", ["a.json", "a.pb", f"{'A' * 43}.textproto"])
def test_a_json_file_is_said_to_be_foreign(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(json.dumps({"model": "words enough to look like anything at all", "b": [1, 2]}))
    in_folder = [tmp_path] if name.endswith(".textproto") else []  # of XLA's own name there
    for path in (tmp_path / name, *in_folder):
        done = autotune("validate", path)
        assert done.code == 1
        assert "foreign" in done.out
        assert "as JSON does" in done.out


def test_keys_that_cannot_be_read_or_say_nothing_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "torn.pb").write_bytes((MLP / "legacy_load.pb").read_bytes()[:-3])
    for keys, says in ((tmp_path / "torn.pb", "of --keys cannot be read"), (MLP / "legacy_dir", "found none in")):
        done = autotune("convert", MLP / "legacy_dir", "-o", tmp_path / "out.pb", "--keys", keys)
        assert (done.code, says in done.err) == (1, True), done.err
    assert not (tmp_path / "out.pb").exists()


@pytest.mark.parametrize("route", ["file", "place", "import", "lock", "written lock"])
def test_a_size_without_a_bound_comes_to_xla_by_no_route(route: str, tmp_path: Path) -> None:
    """It would end the process, or a compile would not end."""
    config = message_class("xla.autotuner.BackendConfig")(triton=triton_result(num_stages=1000).triton)
    entry = replace(new_one(0, 0), config=config.SerializeToString(deterministic=True))
    path = put(tmp_path / "all.pb", [entry], Format.NEW_BINARY)
    if route == "file":
        done = autotune("validate", path)
        assert (done.code, "num-stages" in done.out) == (1, True)
    elif route == "place":
        root = cache_with(tmp_path / "cache", [new_one(0, 0)])
        place = place_of(root, "jax-0.12.0.1", H200.text, Family.NEW)
        (file,) = place.directory.rglob("*.pb")
        file.write_bytes(serialised(entry))
        prepared = place.prepare()
        assert (prepared.entries, len(prepared.aside), "num-stages" in prepared.aside[0]) == (0, 1, True)
    elif route == "import":
        done = autotune("import", path, "--dir", tmp_path / "cache", "--for-build", "jax-0.12.0.1")
        assert done.code == 1
        assert "num-stages" in done.err + done.out
    elif route == "lock":
        done = autotune("lock", path, "--target", "h200", "--jax", "0.12.0.1", "-o", tmp_path / "a.lock")
        assert (done.code, (tmp_path / "a.lock").exists()) == (1, False)
    else:
        text = lock_file.written(lock.pinned([new_one(0, 0)], H200, "0.12.0.1"))
        changed = re.sub(r"num_stages: \d+", "num_stages: 1000", text)
        assert changed != text
        found = lock.findings(lock_file.parsed(changed.encode(), tmp_path / "a.lock"), BUILDS[-1])
        assert [one.code for one in found] == ["num-stages"]


def test_a_broken_input_writes_nothing_unless_it_may_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "torn.pb").write_bytes((DOT / "new_load.pb").read_bytes()[:-3])
    done = autotune("merge", tmp_path / "torn.pb", MLP / "new_dir", "-o", tmp_path / "out.pb")
    assert (done.code, (tmp_path / "out.pb").exists()) == (1, False)
    assert "--lossy" in done.err
    found = told("merge", tmp_path / "torn.pb", MLP / "new_dir", "-o", tmp_path / "out.pb", "--lossy")
    assert (found["entries"], len(found["left_out"])) == (2, 1)


@pytest.mark.parametrize("family", ["new", "legacy"])
def test_convert_round_all_formats_of_a_family(family: str, tmp_path: Path) -> None:
    names = [f"{family}.textproto", f"{family}.pb", family, f"{family}-2.pb"]
    source = MLP / f"{family}_load.pb"
    for name in names:
        keys = ["--keys", MLP / "legacy_load.pb"] if family == "legacy" else []
        done = autotune("convert", source, "-o", tmp_path / name, *keys)
        assert (done.code, done.out.startswith("wrote 2 entries")) == (0, True), done.err
        source = tmp_path / name
    assert set(read(source).entries) == set(read(MLP / f"{family}_load.pb").entries)
    assert validate(read(source)) == []


@pytest.mark.parametrize("out", ["folder", "out.textproto"])
def test_what_stands_beside_the_entries_is_kept_or_told(out: str, tmp_path: Path) -> None:
    source = tmp_path / "odd.pb"
    source.write_bytes((MLP / "new_load.pb").read_bytes() + UNKNOWN)
    kept = tmp_path / "kept.pb"
    assert autotune("convert", source, "-o", kept).code == 0
    assert kept.read_bytes().endswith(UNKNOWN)
    done = autotune("convert", source, "-o", out, cwd=tmp_path)
    assert (done.code, (tmp_path / out).exists()) == (1, False)
    assert "AutotuneCache: field 1007" in done.err
    lossy = told("convert", source, "-o", out, "--lossy", cwd=tmp_path)
    assert lossy["entries"] == 2
    assert "AutotuneCache: field 1007" in lossy["left_out"][0]
    assert autotune("merge", source, DOT / "new_load.pb", "-o", tmp_path / "merged.pb").code == 1  # they disagree
    assert not (tmp_path / "merged.pb").exists()


def test_a_scope_that_the_entries_do_not_say_is_kept_or_told(tmp_path: Path) -> None:
    source, entries = tmp_path / "odd.pb", [new_one(0, 0)]
    write(entries, source, Format.NEW_BINARY, header=Header(device_scope="0" * 16, explicit_version_scope="7"))
    assert autotune("convert", source, "-o", tmp_path / "kept.pb").code == 0
    assert read(tmp_path / "kept.pb").header == read(source).header
    done = autotune("convert", source, "-o", tmp_path / "folder")
    assert (done.code, (tmp_path / "folder").exists()) == (1, False)
    assert "device_scope" in done.err
    assert "explicit_version_scope" in done.err


def test_a_file_has_the_scope_of_its_entries_again_after_a_folder(tmp_path: Path) -> None:
    assert autotune("convert", MLP / "new_load.pb", "-o", tmp_path / "folder").code == 0
    assert autotune("convert", tmp_path / "folder", "-o", tmp_path / "back.pb").code == 0
    assert read(tmp_path / "back.pb").header == read(MLP / "new_load.pb").header
    assert read(tmp_path / "back.pb").header.device_scope == H200.fingerprint


def test_unknown_fields_of_a_legacy_record_are_not_lost_in_a_folder(tmp_path: Path) -> None:
    entry = replace(legacy_one(0, 0), rest=UNKNOWN)
    source = put(tmp_path / "odd.pb", [entry], Format.LEGACY_BINARY)
    done = autotune("convert", source, "-o", tmp_path / "folder")
    assert (done.code, "field 1007" in done.err, (tmp_path / "folder").exists()) == (1, True, False)
    assert "field 1007" in told("convert", source, "-o", tmp_path / "folder", "--lossy")["left_out"][0]


@pytest.mark.parametrize("more", [[], ["--force"]])
@pytest.mark.parametrize("out", ["/", "full", "deep"])
def test_a_folder_of_other_things_is_refused_at_once(out: str, more: list[str], tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").touch()
    (tmp_path / "deep" / H200.fingerprint / "1" / "2").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    done = autotune("convert", DOT / "new_load.pb", "-o", out, "--to", "new-dir", *more, cwd=tmp_path)
    assert (done.code, done.err.count("\n")) == (1, 1), done.err
    assert sorted(tmp_path.rglob("*")) == before


def test_no_more_is_listed_of_a_folder_than_is_ever_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        (tmp_path / str(number)).touch()
    monkeypatch.setattr(files, "MOST_NAMES", 5)
    [finding] = [one for one in read(tmp_path).findings if one.severity is Severity.ERROR]
    assert (finding.code, finding.expected) == ("too-many", "a folder of at most 5 files")


def test_convert_says_what_is_missing(tmp_path: Path) -> None:
    done = autotune("convert", MLP / "legacy_dir", "-o", tmp_path / "out.pb")
    assert done.code == 1
    assert "expected device and fusion" in done.err
    assert "--keys" in done.err
    any_version = put(tmp_path / "any.pb", [legacy_one(0, 0, version=0)], Format.LEGACY_BINARY)
    assert autotune("convert", any_version, "-o", tmp_path / "folder").code == 1
    assert autotune("convert", any_version, "-o", tmp_path / "folder", "--jax", "0.10.2").code == 0
    assert (tmp_path / "folder" / fusion_path(legacy_one(0, 0, version=45))).is_file()
    assert not (tmp_path / "out.pb").exists()


def test_convert_to_the_new_family(tmp_path: Path) -> None:
    words = ["--to", "new-dir", "--target", "h200", "-o", tmp_path / "new"]
    assert autotune("convert", DOT / "legacy_load.pb", *words).code == 0
    (made,), (real,) = read(tmp_path / "new").entries, read(DOT / "new_dir").entries
    assert (made.fusion, made.device, made.config) == (real.fusion, real.device, real.config)
    done = autotune("convert", MLP / "legacy_load.pb", *words, "--force")
    assert (done.code, "whole instruction" in done.err) == (1, True)
    back = ["--to", "legacy-binary", "--target", "h200", "--keys", DOT / "legacy_load.pb", "-o", tmp_path / "back.pb"]
    assert autotune("convert", tmp_path / "new", *back).code == 0
    assert read(tmp_path / "back.pb").entries == read(DOT / "legacy_load.pb").entries


def folder_to_prune(path: Path) -> Path:
    """Two good entries, and one of everything that serves nothing."""
    good = [new_one(0, 0), new_one(1, 0)]
    stale = replace(new_one(2, 0), versions=Versions(codegen="0" * 16, backend="old"))
    foreign = replace(new_one(3, 0), device=target("a100").fingerprint)
    write([*good, stale, foreign], path, Format.NEW_DIRECTORY)
    device = path / H200.fingerprint
    (device / f"{'7' * 32}.pb").write_bytes(b"\x0a\xff")
    shutil.copy(device / f"{fusion_of(0)}.pb", device / f"{'8' * 32}.pb")
    (path / "README").write_text("mine")
    return path


def test_prune_a_folder(tmp_path: Path) -> None:
    folder = folder_to_prune(tmp_path / "new")
    before = snapshot(folder)
    found = told("prune", folder, "--jax", "0.12.0.1", "--target", "h200", "--dry-run")
    assert snapshot(folder) == before
    why = {Path(one["path"]).stem: one["why"] for one in found[0]["dropped"]}
    assert why.pop("7" * 32).startswith("binary: ")
    assert why.pop("8" * 32).startswith("file-name: ")
    assert why == {fusion_of(2): "of another build", fusion_of(3): "of another device"}
    done = autotune("prune", folder, "--jax", "0.12.0.1", "--target", "h200")
    assert (done.code, done.out.splitlines()[-1]) == (0, "removed 4 entries and files; 2 stay")
    device = H200.fingerprint
    assert set(snapshot(folder)) == {"README", f"{device}/{fusion_of(0)}.pb", f"{device}/{fusion_of(1)}.pb"}


def test_prune_judges_builds_and_devices_only_where_asked(tmp_path: Path) -> None:
    folder = folder_to_prune(tmp_path / "new")
    assert len(told("prune", folder, "--dry-run")[0]["dropped"]) == 2
    assert len(told("prune", folder, "--jax", "0.12.0.1", "--dry-run")[0]["dropped"]) == 3
    assert len(told("prune", folder, "--target", "h200", "--target", "a100", "--dry-run")[0]["dropped"]) == 2
    assert told("prune", OLD / "mlp_128x128/legacy_dir", "--jax", "0.12.0.1", "--dry-run")[0]["dropped"] == []


def test_prune_a_file(tmp_path: Path) -> None:
    entries = [
        *(legacy_one(0, 0, micros=9), legacy_one(0, 1, micros=8), legacy_one(1, 0), legacy_one(2, 0, version=52)),
        legacy_entry(triton_result(num_warps=3), fusion=legacy_one(3, 0).fusion),
    ]
    file = put(tmp_path / "all.textproto", entries, Format.LEGACY_TEXT)
    file.chmod(0o644)
    found = told("prune", file, "--jax", "0.12.0.1")
    assert [one["why"].split(":")[0] for one in found[0]["dropped"]] == [
        *("of another build", "num-warps", "another entry has its place"),
    ]
    assert set(read(file).entries) == {entries[1], entries[2]}
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    before = file.read_bytes()
    done = autotune("prune", file, "--target", "b200")
    assert (done.code, "no entry would be left" in done.err) == (1, True)
    assert file.read_bytes() == before
    assert autotune("prune", file, "--jax", "57").code == 2


def test_prune_the_cache_directory(tmp_path: Path) -> None:
    root = cache_with(tmp_path / "cache", [new_one(0, 0), new_one(1, 0)])
    cache_with(root, [new_one(0, 0)], "jax-0.11.2")
    cache_with(root, [new_one(0, 0)], "tensorflow-2.20")
    done = autotune("prune", "--dir", root, "--jax", "0.12.0.1", "--target", "h200")
    assert (done.code, done.out.splitlines()[-1]) == (0, "removed 1 entries and files; 3 stay")
    assert len(told("ls", "--dir", root)) == 3
    assert place_of(root, "jax-0.11.2", H200.text, Family.NEW).prepare().entries == 0
    assert place_of(root, "jax-0.12.0.1", H200.text, Family.NEW).prepare().entries == 2


def test_sets_of_a_legacy_folder_and_their_file_agree_in_every_command(tmp_path: Path) -> None:
    known = [(entry.device, entry.fusion, 56) for entry in read(MLP / "legacy_load.pb").entries]
    named = with_keys(read(MLP / "legacy_dir").entries, iter(known))  # type: ignore[arg-type]
    assert merge(named).entries == merge(read(MLP / "legacy_load.pb").entries).entries
    found = told("merge", MLP / "legacy_dir", MLP / "legacy_load.pb", "-o", tmp_path / "out.pb")
    assert (found["entries"], found["repeated"], found["conflicts"]) == (2, 2, [])
    assert SAMPLES.is_dir()


def test_without_protobuf_each_command_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "google").mkdir()
    (tmp_path / "google/__init__.py").write_text("raise ImportError('not here')")
    for words in (["ls", MLP / "new_dir"], ["validate", MLP / "new_dir"], ["merge", MLP / "new_dir", "-o", "x.pb"]):
        done = autotune(*words, cwd=tmp_path, PYTHONPATH=str(tmp_path))
        assert done.code == 1
        assert 'pip install "rewarm[autotune]"' in done.err


def test_a_folder_that_is_written_by_a_killed_command_is_whole_or_not_there(tmp_path: Path) -> None:
    source = put(tmp_path / "many.pb", [new_one(number, number) for number in range(800)], Format.NEW_BINARY)
    left = 0
    for number in range(2):
        out = tmp_path / f"out-{number}"
        words = [sys.executable, "-m", "rewarm", "autotune", "convert", str(source), "-o", str(out)]
        with subprocess.Popen(words, env=clean_environment(), stdout=subprocess.DEVNULL) as process:
            # From the moment at which it writes, into a folder beside the place.
            while process.poll() is None and not any(tmp_path.glob(f".out-{number}.*.tmp/made/*/*.pb")):
                time.sleep(0.005)
            time.sleep(0.05 * number)
            process.send_signal(signal.SIGKILL)
            process.wait()
        left += not out.exists()
        assert not out.exists() or len(read(out).entries) == 800
    assert left
