"""Managed places: what XLA is given is there, private and sound, and nothing that anybody writes is lost."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tuning_many import fusion_of, legacy_one, new_one
from tuning_samples import BODY, legacy_entry, new_entry, target, triton_result

from conftest import clean_environment, execute
from rewarm.autotune import checked, kernels
from rewarm.autotune.build_ids import build_id, jax_of
from rewarm.autotune.formats import Family, TuningEntry, TuningFormatError, serialised
from rewarm.autotune.formats.keys import legacy_digest
from rewarm.autotune.formats.protobuf import message_class
from rewarm.autotune.locating import place_of, place_of_unknown, places
from rewarm.autotune.places import HeldError, Place

BUILD = build_id("jax-0.12.0.1", "ab" * 32)
H200 = target("h200")
FOLDER = H200.fingerprint


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir(mode=0o700)
    return tmp_path / "cache"


@pytest.fixture
def place(root: Path) -> Place:
    return place_of(root, BUILD, H200.text, Family.NEW)


@pytest.fixture
def old(root: Path) -> Place:
    """Of the same build, where it is told to use the legacy formats."""
    return place_of(root, BUILD, H200.text, Family.LEGACY)


def again(place: Place) -> Place:
    """As another process has it."""
    return place_of(place.cache_root, place.build, place.device, place.family)


def files_of(place: Place) -> dict[str, bytes]:
    found = (path for path in place.directory.rglob("*") if path.is_file())
    return {path.relative_to(place.directory).as_posix(): path.read_bytes() for path in found}


# ---------------------------------------------------------------------------------------------------------------
# What it is


def test_a_prepared_place_is_there_and_its_owners_alone(place: Place) -> None:
    old = os.umask(0)
    try:
        prepared = place.prepare()
    finally:
        os.umask(old)
    assert (prepared.directory, prepared.writes, prepared.why, prepared.entries) == (place.directory, True, "", 0)
    for folder in (place.root.parent, place.root, place.directory):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert place.root.name == f"{BUILD}-{FOLDER}" == "jax-0.12.0.1-abababababab-a4baa03864db7cfb"


def test_places_are_found_again_with_what_they_are_for(root: Path, place: Place) -> None:
    old = place_of(root, build_id("jax-0.10.2", "cd" * 32), H200.legacy, Family.LEGACY)
    unknown = place_of_unknown(root, build_id("tensorflow-2.20"), "some GPU", Family.NEW)
    for one in (place, old, unknown):
        assert one.prepare().directory == one.directory
    (root / "autotune" / "notes").mkdir()
    found = {one.build: one for one in places(root)}
    assert found == {one.build: one for one in (place, old, unknown)}
    assert found[old.build].device == H200.text  # without the version of cuDNN, which is in no place's name
    assert (unknown.build, unknown.device) == ("tensorflow-2.20", "")
    assert places(root / "nothing") == []


def test_another_build_and_another_device_have_places_of_their_own(root: Path, place: Place) -> None:
    others = [
        place_of(root, build_id("jax-0.12.0.1", "cd" * 32), H200.text, Family.NEW),
        place_of(root, BUILD, target("a100").text, Family.NEW),
        place_of(root, build_id("jax-0.11.2", "ab" * 32), H200.text, Family.NEW),
    ]
    place.add([new_entry()])
    for one in others:
        assert one.prepare().entries == 0
    assert len({one.root for one in (place, *others)}) == 4


def test_a_shared_cache_has_shared_places(root: Path, place: Place) -> None:
    root.chmod(0o2770)
    place.add([new_entry()])
    assert stat.S_IMODE(place.directory.stat().st_mode) & 0o777 == 0o770
    [path] = place.directory.glob("*/*.pb")
    assert stat.S_IMODE(path.stat().st_mode) == 0o660


@pytest.mark.parametrize(
    ("build", "jax"),
    [
        (BUILD, "0.12.0.1"),
        ("jax-0.9.2", "0.9.2"),
        ("jax-unknown-abababababab", ""),
        ("tensorflow-2.20", ""),
        ("my-jax-0.12.0.1", ""),
    ],
)
def test_a_build_says_which_jax_it_is_of(build: str, jax: str) -> None:
    assert jax_of(build) == jax


def test_a_build_has_a_name() -> None:
    assert build_id("jax-0.12.0.dev1+g0a1b", "ab" * 32) == "jax-0.12.0.dev1-g0a1b-abababababab"
    with pytest.raises(ValueError, match="device text"):
        place_of(Path("/nowhere"), BUILD, "", Family.NEW)


@pytest.mark.parametrize(
    "name", ["", "../..", "a/../../b", "tf 2.20", "tf/2.20", ".tf", "-tf", "t" * 65, "tf\n", "tf-é"]
)
def test_what_is_no_plain_name_is_no_build(name: str) -> None:
    """Made plain, two names could be one, and so would their places."""
    with pytest.raises(ValueError, match="expected a name of letters, digits"):
        build_id(name)


def test_what_a_build_does_not_use_by_default_has_a_place_of_its_own(root: Path, place: Place, old: Place) -> None:
    assert old.name == f"{BUILD}-legacy-{FOLDER}"
    assert (jax_of(old.build), old.known_build) == ("0.12.0.1", place.known_build)
    assert again(old) == old
    assert again(old).family is Family.LEGACY
    assert place_of(root, old.build, H200.text, Family.NEW) == place
    for one, other in ((place, legacy_entry()), (old, new_entry())):
        with pytest.raises(TuningFormatError, match="other-family"):
            one.add([other])
        assert files_of(one) == {}
    by_default = place_of(root, build_id("jax-0.10.2"), H200.text, Family.LEGACY)
    assert by_default.build == "jax-0.10.2"


def test_a_build_of_ones_own_name_may_use_either(root: Path) -> None:
    somebodys = place_of(root, build_id("tensorflow-2.20"), H200.text, Family.NEW)
    assert somebodys.add([new_entry(), legacy_entry()]) == 2


# ---------------------------------------------------------------------------------------------------------------
# What XLA must not see


def _junk(place: Place) -> None:
    (place.directory / FOLDER / f"{'0' * 32}.pb").write_bytes(b"junk")


def _empty(place: Place) -> None:
    (place.directory / FOLDER / f"{'0' * 32}.pb").write_bytes(b"")


def _torn(place: Place) -> None:
    whole = serialised(new_entry(fusion="1" * 32))
    (place.directory / FOLDER / f"{'1' * 32}.pb").write_bytes(whole[: len(whole) // 2])


def _text_in_the_new_tree(place: Place) -> None:
    (place.directory / FOLDER / f"{'0' * 32}.pb").write_text("triton { block_m: 64 }")


def _binary_in_the_old_one(place: Place) -> None:
    (place.directory / f"{'a' * 43}.textproto").write_bytes(triton_result().SerializeToString())


def _of_another_fusion(place: Place) -> None:
    (place.directory / FOLDER / f"{'0' * 32}.pb").write_bytes(serialised(new_entry()))


def _no_power_of_two(place: Place) -> None:
    config = message_class("xla.autotuner.BackendConfig")(triton=triton_result(num_warps=3).triton)
    entry = new_entry(config, fusion="2" * 32)
    (place.directory / FOLDER / f"{'2' * 32}.pb").write_bytes(serialised(entry))


def _a_link(place: Place) -> None:
    (place.directory / FOLDER / f"{'0' * 32}.pb").symlink_to("/etc/passwd")


def _a_link_for_a_device(place: Place) -> None:
    (place.directory / ("b" * 16)).symlink_to(place.directory / FOLDER)


def _a_fifo(place: Place) -> None:
    os.mkfifo(place.directory / FOLDER / f"{'0' * 32}.pb")


def _a_socket(place: Place) -> None:
    here = Path.cwd()
    os.chdir(place.directory)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(f"{'a' * 43}.textproto")
    finally:
        os.chdir(here)


def _a_folder(place: Place) -> None:
    (place.directory / FOLDER / f"{'0' * 32}.pb").mkdir()


def _a_file_for_xlas_folder(place: Place) -> None:
    (place.directory / "tmp").write_bytes(b"")


def _too_large(place: Place) -> None:
    with (place.directory / FOLDER / f"{'0' * 32}.pb").open("wb") as file:
        file.truncate(1 << 30)


BAD = [
    *(_junk, _empty, _torn, _text_in_the_new_tree, _binary_in_the_old_one, _of_another_fusion, _no_power_of_two),
    *(_a_link, _a_link_for_a_device, _a_fifo, _a_socket, _a_folder, _a_file_for_xlas_folder, _too_large),
]


@pytest.mark.parametrize("make", BAD, ids=lambda make: make.__name__.strip("_"))
def test_what_harms_is_moved_aside_and_named_once(
    make: Callable[[Place], None], place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.add([new_entry()])
    good = files_of(place)
    make(place)
    with caplog.at_level(logging.WARNING, logger="rewarm"):
        prepared = again(place).prepare()
        assert again(place).prepare().aside == ()
    assert prepared.directory is not None
    assert len(prepared.aside) == 1
    assert [record.getMessage() for record in caplog.records] == [f"rewarm: {prepared.aside[0]}"]
    assert files_of(place) == good
    [moved] = (place.root / "aside").iterdir()
    assert str(moved) in prepared.aside[0]


def test_nothing_that_was_moved_aside_is_lost(place: Place) -> None:
    place.prepare()
    for content in (b"first", b"second", b"third"):
        (place.directory / f"{'a' * 43}.textproto").write_bytes(content)
        place.prepare()
    assert {path.read_bytes() for path in (place.root / "aside").iterdir()} == {b"first", b"second", b"third"}


def test_a_result_for_another_kind_of_fusion_is_caught_where_the_fusion_is_known(place: Place) -> None:
    """XLA takes it in silence, and what it compiles is not what is meant."""
    gemm = message_class("xla.autotuner.BackendConfig")()
    gemm.gemm.SetInParent()
    wrong = new_entry(gemm, backend="CUBLASLT")
    place.add([wrong])
    assert place.prepare().entries == 1  # the file alone does not say what its fusion is
    instruction = f"f32[8,8]{{1,0}} fusion(f32[8,8]{{1,0}}), kind=kCustom, calls=\n{BODY}"
    place.learn({str(wrong.fusion): instruction})
    prepared = again(place).prepare()
    assert prepared.entries == 0
    assert "backend-of-other-fusion" in prepared.aside[0]
    with pytest.raises(TuningFormatError, match="backend-of-other-fusion"):
        again(place).add([wrong])


def test_a_legacy_result_for_another_kind_of_fusion_is_caught_by_the_key_that_was_given_with_one(old: Place) -> None:
    sound, place = legacy_entry(), old
    place.add([sound])
    path = place.directory / f"{legacy_digest(H200.legacy, BODY, 56)}.textproto"
    path.write_text("gemm { algorithm: 1 }")
    prepared = again(place).prepare()
    # A gemm on a fusion is cuBLASLt's fission, which XLA takes for a dot.
    assert (prepared.aside, prepared.entries) == ((), 1)
    path.write_text(
        'other { name: "CUBLASLT" config { [type.googleapis.com/xla.autotuner.BackendConfig] { gemm {} } } }'
    )
    prepared = again(place).prepare()
    assert "backend-of-other-fusion" in prepared.aside[0]


def test_what_a_build_may_have_that_is_not_known_stays(root: Path) -> None:
    entry = new_entry(backend="99")
    unknown = place_of(root, build_id("somebodys-xla"), H200.text, Family.NEW)
    known = place_of(root, BUILD, H200.text, Family.NEW)
    for place in (unknown, known):
        place.prepare()
        (place.directory / FOLDER).mkdir()
        (place.directory / FOLDER / f"{entry.fusion}.pb").write_bytes(serialised(entry))
    assert unknown.prepare().entries == 1
    assert known.prepare().entries == 0


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
def test_what_is_another_users_is_moved_aside(place: Place) -> None:
    place.add([new_entry()])
    [path] = place.directory.glob("*/*.pb")
    os.chown(path, 12345, 12345)
    assert "one of uid 12345" in again(place).prepare().aside[0]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give folders away")
@pytest.mark.parametrize("name", [FOLDER, "tmp", f"{FOLDER}/mine"])
def test_a_folder_of_another_users_is_moved_aside_whatever_is_in_it(name: str, place: Place) -> None:
    """Its owner can swap its files between the look and XLA's."""
    place.add([new_entry()])
    folder = place.directory / name
    folder.mkdir(exist_ok=True)
    seen = again(place)
    assert seen.prepare().aside == ()
    os.chown(folder, 12345, 12345)
    for one in (seen, again(place)):  # also one that has looked before
        prepared = one.prepare()
        assert not folder.exists()
    assert prepared.directory is not None
    assert prepared.entries == (0 if name == FOLDER else 1)
    assert [path.name for path in (place.root / "aside").iterdir()] == [name.replace("/", "+")]


@pytest.mark.parametrize("name", [FOLDER, "tmp", f"{FOLDER}/mine"])
def test_a_folder_inside_that_others_may_write_to_is_made_private(name: str, place: Place) -> None:
    place.add([new_entry()])
    folder = place.directory / name
    folder.mkdir(exist_ok=True)
    seen = again(place)
    seen.prepare()
    folder.chmod(0o777)
    assert seen.prepare().entries == 1
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


# ---------------------------------------------------------------------------------------------------------------
# Where nothing can be had


def _a_file(root: Path) -> None:
    (root / "autotune").write_bytes(b"mine")


def _a_link_elsewhere(root: Path) -> None:
    (root.parent / "elsewhere").mkdir()
    (root / "autotune").symlink_to(root.parent / "elsewhere")


@pytest.mark.parametrize("make", [_a_file, _a_link_elsewhere])
def test_a_place_that_cannot_be_made_is_none_and_says_why(
    make: Callable[[Path], None], root: Path, place: Place
) -> None:
    make(root)
    prepared = place.prepare()
    assert prepared.directory is None
    assert str(root / "autotune") in prepared.why
    assert not place.make()
    assert not (root.parent / "elsewhere" / place.name).exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give folders away")
def test_a_place_of_another_user_is_none(place: Place) -> None:
    place.prepare()
    os.chown(place.root, 12345, 12345)
    prepared = again(place).prepare()
    assert prepared.directory is None
    assert "belongs to uid 12345" in prepared.why


def test_a_folder_of_ones_own_that_others_may_write_to_is_made_private(place: Place) -> None:
    place.prepare()
    place.directory.chmod(0o777)
    assert again(place).prepare().directory is not None
    assert stat.S_IMODE(place.directory.stat().st_mode) == 0o755


CHILD = """
import os, sys, tempfile
from pathlib import Path
from rewarm.autotune.formats import Family
from rewarm.autotune.locating import place_of
place = place_of(Path(sys.argv[1]), sys.argv[2], sys.argv[3], Family.NEW)
with tempfile.TemporaryDirectory() as other:  # imports all that is needed, while there is a right to
    place_of(Path(other), sys.argv[2], sys.argv[3], Family.NEW).add(place.entries().entries)
    place_of(Path(other), sys.argv[2], sys.argv[3], Family.NEW).prepare()
if os.geteuid() == 0:
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
prepared = place.prepare()
print(prepared.directory is not None, prepared.writes, prepared.entries, prepared.why)
"""


def as_somebody(place: Place) -> str:
    """What a user finds who is not root."""
    command = [sys.executable, "-c", CHILD, str(place.cache_root), place.build, place.device]
    done = execute(command, env=clean_environment(), cwd=Path("/"))
    assert done.code == 0, done.err
    return done.out


def test_a_place_that_can_only_be_read_is_read() -> None:
    uid = 65534 if os.geteuid() == 0 else os.geteuid()
    with tempfile.TemporaryDirectory() as name:  # not pytest's, where nobody else may look
        root = Path(name)
        root.chmod(0o755)
        place = place_of(root, BUILD, H200.text, Family.NEW)
        place.add([new_entry()])
        inside = [root / "autotune", *(root / "autotune").rglob("*")]
        for path in inside:
            os.chown(path, uid, -1)
            path.chmod(0o500 if path.is_dir() else 0o400)
        try:
            assert as_somebody(place).split() == ["True", "False", "1"]
            [path] = place.directory.glob("*/*.pb")
            path.chmod(0o600)
            path.write_bytes(b"junk")
            assert "cannot be moved aside" in as_somebody(place)
        finally:
            for path in inside:
                path.chmod(0o700)


# ---------------------------------------------------------------------------------------------------------------
# Looking once


def test_what_was_looked_at_is_not_read_again(place: Place) -> None:
    place.add([new_one(number, 0) for number in range(50)])
    again(place).prepare()
    path = place.directory / FOLDER / f"{fusion_of(7)}.pb"
    status, whole = path.stat(), path.read_bytes()
    path.write_bytes(b"\xff" * len(whole))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    # Neither its size nor its mtime changed, and its ctime did.
    assert len(again(place).prepare().aside) == 1


def test_what_did_not_change_is_not_read(place: Place) -> None:
    place.add([new_one(number, 0) for number in range(50)])
    again(place).prepare()
    found = checked.look(place.directory, checked.load(place.root), checked.Means())
    assert (found.fresh, found.changed, len(found.files)) == ({}, False, 50)


def test_a_digest_stands_for_a_set_whatever_order_it_came_in(root: Path, place: Place) -> None:
    entries = [new_one(number, number % 3) for number in range(9)]
    place.add(entries)
    other = place_of(root, build_id("jax-0.12.0.1", "cd" * 32), H200.text, Family.NEW)
    for entry in reversed(entries):
        other.add([entry])
    assert place.prepare().digest == other.prepare().digest != ""
    assert place.prepare().digest == place.set_at_hand()[0]
    other.add([new_one(9, 0)])
    assert place.prepare().digest != other.prepare().digest


def test_a_place_without_its_memory_is_read_anew(place: Place) -> None:
    place.add([new_entry()], kept=True)
    for content in (b"", b"[]", b"{}", b'{"version": 1, "files": {"x": [1]}}', b"\xff"):
        (place.root / "checked.json").write_bytes(content)
        assert again(place).prepare().entries == 1


# ---------------------------------------------------------------------------------------------------------------
# Adding and collecting


def test_what_is_added_is_read_back(place: Place) -> None:
    entries = [new_entry(), new_one(1, 2)]
    assert place.add(entries) == 2
    assert place.add(entries) == 0
    assert set(again(place).entries().entries) == set(entries)
    assert place.names() == {"ac8f0d4128d487c0959cd00e541162bd", fusion_of(1)}


def test_a_legacy_result_that_is_added_is_read_back_with_its_key(old: Place) -> None:
    assert (old.add([legacy_entry()]), old.add([legacy_entry()])) == (1, 0)
    assert again(old).entries().entries == (legacy_entry(),)
    assert old.names() == {legacy_digest(H200.legacy, BODY, 56)}


def test_a_legacy_result_of_whoever_reads_it_gets_the_builds_version(old: Place) -> None:
    entry = legacy_entry()
    old.add([replace(entry, versions=replace(entry.versions, entry=0))])
    assert old.entries().entries == (entry,)


def test_the_better_of_two_stays_in_any_order(old: Place, root: Path) -> None:
    slow, quick = legacy_one(3, 0, micros=900), legacy_one(3, 1, micros=100)
    other = place_of(root, build_id("jax-0.12.0.1", "cd" * 32), H200.text, Family.LEGACY)
    assert (old.add([slow]), old.add([quick])) == (1, 1)
    assert (other.add([quick]), other.add([slow])) == (1, 0)
    assert old.entries().entries == other.entries().entries == (quick,)


def test_an_unsound_result_is_refused_and_nothing_is_written(place: Place) -> None:
    bad = new_entry(message_class("xla.autotuner.BackendConfig")(triton=triton_result(num_warps=3).triton))
    with pytest.raises(TuningFormatError, match="num-warps"):
        place.add([new_one(1, 0), bad])
    assert files_of(place) == {}


def test_what_came_is_collected_once_whoever_wrote_it(place: Place) -> None:
    assert place.collect() == ()
    place.prepare()
    mine, xlas = new_one(1, 0), new_one(2, 0)
    place.add([mine])
    path = place.directory / FOLDER / f"{xlas.fusion}.pb"
    path.write_bytes(serialised(xlas))
    assert set(place.collect()) == {mine, xlas}
    assert place.collect() == again(place).collect() == ()
    place.add([new_one(3, 0)], kept=True)  # it is in the store already
    assert again(place).collect() == ()


def test_what_could_not_be_kept_is_collected_again(place: Place) -> None:
    place.add([new_entry()])

    def fails(_: tuple[TuningEntry, ...]) -> None:
        raise OSError(28, "no room")

    with pytest.raises(OSError, match="no room"):
        place.collect(fails)
    assert again(place).collect() == (new_entry(),)


def test_what_is_learnt_later_leaves_collected_results_collected(place: Place) -> None:
    place.add([new_entry()])
    assert place.collect()
    place.learn({str(new_entry().fusion): "a text that says nothing"})
    assert again(place).collect() == ()
    assert again(place).fusions() == {new_entry().fusion: "a text that says nothing"}


def test_a_bad_file_that_came_meanwhile_is_not_collected(place: Place) -> None:
    place.prepare()
    place.add([new_entry()])
    _junk(place)
    assert place.collect() == (new_entry(),)
    assert len(list((place.root / "aside").iterdir())) == 1


@contextlib.contextmanager
def held_by_another(place: Place) -> Iterator[None]:
    """Somebody has the place's lock, and does nothing with it."""
    with (place.root / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_one_who_hangs_with_the_lock_is_waited_for_once(place: Place) -> None:
    place.add([new_one(1, 0)])
    mine = again(place)
    mine.patience = 0.4
    with held_by_another(place):
        since = time.monotonic()
        for _ in range(5):
            with pytest.raises(HeldError, match="another process has held it"):
                mine.add([new_one(2, 0)])
            with pytest.raises(HeldError, match="another process has held it"):
                mine.collect()
            assert mine.prepare().entries == 1
        assert time.monotonic() - since < 4 * mine.patience
    assert mine.add([new_one(2, 0)]) == 1
    assert len(mine.collect()) == 2
    with held_by_another(place):
        assert mine.collect() == ()  # nothing is new, so nobody is waited for
        with pytest.raises(HeldError):
            mine.learn({"0" * 32: "text"})
    assert len(mine.entries().entries) == 2


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[4])
from tuning_many import new_one
from rewarm.autotune.formats import Family
from rewarm.autotune.locating import place_of
root, me, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
place = place_of(root, "jax-0.12.0.1-abababababab", sys.argv[5], Family.NEW)
collected = 0
for start in range(0, count, 25):
    # Half of the fusions are everybody's, with another result by each.
    place.add([new_one(number if number % 2 else number + 1000 * me, me) for number in range(start, start + 25)])
    collected += len(place.collect())
print(collected)
"""


def writers(root: Path, many: int, count: int) -> Iterator[subprocess.Popen[str]]:
    here = str(Path(__file__).parent)
    for me in range(many):
        command = [sys.executable, "-c", WRITER, str(root), str(me), str(count), here, H200.text]
        yield subprocess.Popen(command, env=clean_environment(), stdout=subprocess.PIPE, text=True, cwd=root)


def lose_nothing(root: Path, many: int, count: int) -> None:
    running = list(writers(root, many, count))
    counts = [int(one.communicate(timeout=300)[0]) for one in running]
    assert [one.returncode for one in running] == [0] * many
    place = place_of(root, BUILD, H200.text, Family.NEW)
    found = {entry.fusion: entry for entry in place.entries().entries}
    own = {fusion_of(number + 1000 * me) for me in range(many) for number in range(0, count, 2)}
    assert set(found) == own | {fusion_of(number) for number in range(1, count, 2)}
    # The same results in one process, in another order.
    shutil.rmtree(root / "autotune")
    for me in reversed(range(many)):
        place.add([new_one(number if number % 2 else number + 1000 * me, me) for number in reversed(range(count))])
    assert found == {entry.fusion: entry for entry in place_of(root, BUILD, H200.text, Family.NEW).entries().entries}
    assert sum(counts) >= len(found)


def test_writers_at_once_lose_nothing(root: Path) -> None:
    lose_nothing(root, 3, 50)


@pytest.mark.campaign
def test_eight_writers_of_a_thousand_fusions_lose_nothing(root: Path) -> None:
    lose_nothing(root, 8, 1000)


# ---------------------------------------------------------------------------------------------------------------
# The kernel cache


@pytest.mark.parametrize("content", [b"", b"junk", b"\x0a\x7fshort"])
def test_kernels_that_are_none_are_moved_aside(content: bytes, place: Place) -> None:
    assert kernels.prepare(place) == place.kernels
    place.kernels.write_bytes(content)
    assert kernels.prepare(place) == place.kernels
    assert not place.kernels.exists()
    assert [path.read_bytes() for path in (place.root / "aside").iterdir()] == [content]


def test_kernels_are_known_as_a_good_compile_left_them(place: Place) -> None:
    kernels.prepare(place)
    assert kernels.are_known(place)
    place.kernels.write_bytes(b"\x0a\x03abc")
    assert not kernels.are_known(place)
    kernels.note(place)
    assert kernels.are_known(again(place))
    assert kernels.prepare(place) == place.kernels
    assert place.kernels.exists()
    kernels.prepare(place, suspect=True)
    assert not place.kernels.exists()
