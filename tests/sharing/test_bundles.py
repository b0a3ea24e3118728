"""Bundles: what goes in comes out, and whatever else a file may be, nothing of it reaches a store unproved."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import shutil
import stat
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from sharing_world import OURS, STRANGER, THEIRS, entry_of, key_of, ring, store_at

from conftest import clean_environment
from rewarm.sharing import bundle
from rewarm.sharing.bundle import STORED, THERE, BadBundleError, Updated
from rewarm.sharing.made import Made
from rewarm.store import LocalStore
from rewarm.trust import Keyring, Posture, SigningKey, signed

NOBODY = Keyring(None, [OURS.public, THEIRS.public])


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """A store of three entries."""
    store = store_at(tmp_path / "from")
    for number in range(3):
        make(store, number, entry_of(number, program=f"jit_{number}"))
    return store


@pytest.fixture
def made(store: LocalStore, tmp_path: Path) -> Path:
    """A bundle of it."""
    path = tmp_path / "made.zip"
    assert len(save(path, store, [info.key for info in store.scan()], ring()).added) == 3
    return path


@pytest.fixture
def empty(tmp_path: Path) -> LocalStore:
    return store_at(tmp_path / "to")


def save(path: Path, store: LocalStore, keys: Iterable[str], keyring: Keyring, **more: Any) -> Updated:
    made = None if more.pop("others", False) else Made(store.root)
    return bundle.save(path, store, keys, keyring, made=made, **more)


def update(path: Path, store: LocalStore, keys: Iterable[str], keyring: Keyring, **more: Any) -> Updated:
    made = None if more.pop("others", False) else Made(store.root)
    return bundle.update(path, store, keys, keyring, made=made, **more)


def make(store: LocalStore, number: int, entry: bytes) -> None:
    """Have an entry in a store that was made there."""
    Made(store.root).add(entry)
    store.put(key_of(number), entry)


def outcomes(path: Path, store: LocalStore, posture: Posture = Posture.REQUIRE, keys: Keyring = NOBODY) -> list[str]:
    return [one.outcome for one in bundle.load(path, store, keys, posture)]


def holds(store: LocalStore) -> set[str]:
    """The keys in a store, each of which has the right bytes, and nothing else lies beside them."""
    found = set()
    for info in store.scan():
        numbers = [number for number in range(10) if key_of(number) == info.key]
        assert len(numbers) == 1
        assert store.get(info.key) in (entry_of(numbers[0]), entry_of(numbers[0], program=f"jit_{numbers[0]}"))
        found.add(info.key)
    return found


# -- as meant ------------------------------------------------------------------------------------------------------


def test_there_and_back(made: Path, empty: LocalStore, tmp_path: Path) -> None:
    assert {(one.key, one.program) for one in bundle.members(made)} == {
        (key_of(number), f"jit_{number}") for number in range(3)
    }
    assert outcomes(made, empty) == [STORED] * 3
    assert holds(empty) == {key_of(number) for number in range(3)}
    assert outcomes(made, empty) == [THERE] * 3
    empty.path(key_of(1)).write_bytes(b"damaged")
    assert sorted(outcomes(made, empty)) == sorted([STORED, THERE, THERE])
    assert holds(empty) == {key_of(number) for number in range(3)}
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")] == []


def test_adding_to_one_keeps_what_is_there_and_takes_nothing_twice(
    store: LocalStore, made: Path, empty: LocalStore
) -> None:
    make(store, 5, entry_of(5))
    done = update(made, store, [key_of(5), key_of(1), key_of(7), key_of(5)], ring())
    assert [one.key for one in done.added] == [key_of(5)]
    assert (done.replaced, done.refused, done.dropped, done.kept) == ([], {}, {}, 3)
    with zipfile.ZipFile(made) as archive:
        assert len(archive.namelist()) == len(set(archive.namelist())) == 5
    assert outcomes(made, empty) == [STORED] * 4


def test_what_cannot_be_written_leaves_what_was_there(store: LocalStore, made: Path, tmp_path: Path) -> None:
    before = made.read_bytes()

    def keys() -> object:
        yield key_of(0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        update(made, store, keys(), ring())  # type: ignore[arg-type]
    assert made.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["from", "made.zip"]
    made.write_bytes(b"no bundle")
    with pytest.raises(BadBundleError):
        update(made, store, [key_of(0)], ring())
    with pytest.raises(FileExistsError):
        save(made, store, [key_of(0)], ring(), only_new=True)
    assert made.read_bytes() == b"no bundle"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["from", "made.zip"]


def refusing(why: str, number: int, path: Path, store: LocalStore) -> Keyring:
    """Makes one entry of a bundle one that is refused, and returns the keys by which it is."""
    name, key, entry = f"entries/{key_of(number)}", key_of(number), entry_of(number, program=f"jit_{number}")
    if why == "unreadable":
        data = path.read_bytes()
        path.write_bytes(
            data.replace(signed(entry, key, "bundle", OURS), bytes(len(signed(entry, key, "bundle", OURS))))
        )
        return ring()
    blobs = {
        "not signed": entry,
        "signed by an unknown key": signed(entry, key, "bundle", STRANGER),
        "signed by a revoked key": signed(entry, key, "bundle", THEIRS),
        "the entry is damaged, or another's": signed(entry, key, "bundle", OURS)[:-40] + bytes(40),
        "the signature does not match": signed(entry, key, "main", OURS),
    }
    rewritten(path, {name: blobs[why]})
    return Keyring(OURS, [THEIRS.public], [THEIRS.id])


WHYS = [
    "unreadable",
    "not signed",
    "signed by an unknown key",
    "signed by a revoked key",
    "the signature does not match",
]


@pytest.mark.parametrize("why", WHYS)
def test_what_is_refused_here_is_replaced_by_what_is_here(
    store: LocalStore, made: Path, empty: LocalStore, why: str
) -> None:
    keys = refusing(why, 1, made, store)
    assert [outcome == STORED for outcome in outcomes(made, empty, keys=keys)].count(False) == 1
    done = update(made, store, [info.key for info in store.scan()], keys)
    assert ([one.key for one in done.replaced], done.added, done.kept) == ([key_of(1)], [], 2)
    assert (done.refused, done.dropped) == ({}, {})
    assert sorted(outcomes(made, empty)) == sorted([STORED, THERE, THERE])
    assert {(one.key, one.program) for one in bundle.members(made)} == {
        (key_of(number), f"jit_{number}") for number in range(3)
    }


@pytest.mark.parametrize("why", WHYS)
def test_what_is_refused_here_and_cannot_be_replaced_is_said(
    store: LocalStore, made: Path, empty: LocalStore, why: str
) -> None:
    keys = refusing(why, 1, made, store)
    done = update(made, store, [key_of(0), key_of(2)], keys)
    assert (done.added, done.replaced, done.kept) == ([], [], 2)
    if why == "unreadable":
        assert set(done.dropped) == {key_of(1)}
        assert len(bundle.members(made)) == 2
    else:
        assert (done.refused, done.dropped) == ({key_of(1): why}, {})
        assert len(bundle.members(made)) == 3


def test_who_has_no_key_takes_nobody_s_signature_off(store: LocalStore, made: Path, empty: LocalStore) -> None:
    rewritten(made, {f"entries/{key_of(0)}": signed(entry_of(0), key_of(0), "bundle", STRANGER)})
    nobody = Keyring(None, [OURS.public], [THEIRS.id])
    done = update(made, store, [key_of(0), key_of(1)], nobody)
    assert (done.added, done.replaced, done.refused, done.kept) == ([], [], {}, 3)
    assert sorted(outcomes(made, empty)) == sorted(
        [STORED, STORED, f"refused: signed by an unknown key (signer {STRANGER.id})"]
    )
    rewritten(made, {f"entries/{key_of(0)}": signed(entry_of(0), key_of(0), "bundle", THEIRS)})
    done = update(made, store, [key_of(0), key_of(1)], nobody)
    assert [one.key for one in done.replaced] == [key_of(0)], "nobody who revoked the key would take it"


# -- what others made ----------------------------------------------------------------------------------------------


def test_what_others_made_goes_in_only_where_that_is_asked_for(
    store: LocalStore, empty: LocalStore, tmp_path: Path
) -> None:
    store.put(key_of(7), entry_of(7))
    keys, path = [key_of(0), key_of(7)], tmp_path / "a.zip"
    for keyring in (ring(), Keyring(None)):
        done = save(path, store, keys, keyring)
        assert ([one.key for one in done.added], done.passed_over) == ([key_of(0)], (key_of(7),))
    done = update(path, store, keys, ring())
    assert ([one.key for one in done.added + done.replaced], done.passed_over) == ([key_of(0)], (key_of(7),))
    done = update(path, store, keys, ring(), others=True)
    assert ([one.key for one in done.added], done.passed_over, done.kept) == ([key_of(7)], (), 1)
    assert outcomes(path, empty) == [STORED] * 2
    done = save(tmp_path / "b.zip", store, keys, ring(), others=True)
    assert ([one.key for one in done.added], done.passed_over) == (keys, ())


@pytest.mark.parametrize("revoked", [False, True])
def test_in_a_bundle_it_keeps_the_signature_with_which_it_came(store: LocalStore, made: Path, revoked: bool) -> None:
    """Also where the same entry lies in the directory, to which it came from that bundle."""
    store.put(key_of(7), entry_of(7))
    theirs = signed(entry_of(7), key_of(7), "bundle", THEIRS)
    rewritten(made, {f"entries/{key_of(7)}": theirs})
    keyring = Keyring(OURS, [THEIRS.public], [THEIRS.id] if revoked else [])
    done = update(made, store, [key_of(7)], keyring)
    assert (done.added, done.replaced, done.kept) == ([], [], 3 if revoked else 4)
    assert done.refused == ({key_of(7): "signed by a revoked key"} if revoked else {})
    with zipfile.ZipFile(made) as archive:
        assert archive.read(f"entries/{key_of(7)}") == theirs


def test_members_of_no_bundle_are_left_out_and_named(store: LocalStore, made: Path) -> None:
    rewritten(made, {"README": b"by hand", "entries/short": b"x", "a\x1b[2Jb": b"y"})
    done = update(made, store, [key_of(0)], ring())
    assert (done.foreign, done.kept) == (("README", "entries/short", "a[2Jb"), 3)
    with zipfile.ZipFile(made) as archive:
        assert "README" not in archive.namelist()
    assert update(made, store, [key_of(0)], ring()).foreign == ()


# -- the file itself -----------------------------------------------------------------------------------------------

ADDING = """
import sys
from pathlib import Path
from typing import Any
from sharing_world import key_of, ring
from rewarm.sharing import bundle
from rewarm.sharing.made import Made
from rewarm.store import LocalStore

path, root, number = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
sys.stdin.readline()
bundle.update(path, LocalStore(root), [key_of(number)], ring(), made=Made(root))
"""


def adding(path: Path, store: LocalStore, number: int) -> subprocess.Popen[bytes]:
    """A process that adds one entry, once it hears a line."""
    return subprocess.Popen(
        [sys.executable, "-c", ADDING, str(path), str(store.root), str(number)],
        env={**clean_environment(), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
    )


@pytest.mark.parametrize("first", [True, False])
def test_what_several_add_at_once_is_all_there(store: LocalStore, made: Path, empty: LocalStore, first: bool) -> None:
    numbers = range(3, 9)
    for number in numbers:
        make(store, number, entry_of(number))
    if first:
        made.unlink()
    processes = [adding(made, store, number) for number in numbers]
    try:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()  # which all of them wait for
        assert [process.wait(60) for process in processes] == [0] * 6
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert {one.key for one in bundle.members(made)} == {key_of(number) for number in range(3 if first else 0, 9)}
    assert set(outcomes(made, empty)) == {STORED}


def test_who_holds_the_folder_for_ever_is_not_waited_for(
    store: LocalStore, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "_PATIENCE", 0.3)
    before, told = made.read_bytes(), list[str]()
    descriptor = os.open(made.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match="another has been writing"):
            update(made, store, [key_of(0)], ring(), tell=told.append)
    finally:
        os.close(descriptor)
    assert told == [f"waiting for another that writes a bundle in {made.parent}"]
    assert made.read_bytes() == before


def test_a_link_stays_and_so_does_the_mode(store: LocalStore, made: Path, tmp_path: Path) -> None:
    make(store, 5, entry_of(5))
    link = tmp_path / "links" / "to.zip"
    link.parent.mkdir()
    link.symlink_to("../made.zip")
    for mode in (0o600, 0o664, 0o444):
        made.chmod(mode)
        update(link, store, [key_of(5)], ring())
        assert link.is_symlink()
        assert stat.S_IMODE(made.stat().st_mode) == mode
    assert len(bundle.members(made)) == 4
    dangling = tmp_path / "links" / "dangling"
    dangling.symlink_to(tmp_path / "new.zip")
    save(dangling, store, [key_of(5)], ring())
    assert dangling.is_symlink()
    assert len(bundle.members(tmp_path / "new.zip")) == 1


def test_what_a_writer_left_that_was_killed_goes_after_an_hour(store: LocalStore, made: Path, tmp_path: Path) -> None:
    names = [".made.zip.17.00ff00ff.tmp", ".made.zip.18.00ff00ff.tmp", ".other.zip.17.00ff00ff.tmp", ".made.zip.tmp"]
    for name in names:
        (tmp_path / name).write_bytes(b"half")
        if "18" not in name:
            os.utime(tmp_path / name, (0, 0))
    update(made, store, [key_of(0)], ring())
    assert [name for name in names if (tmp_path / name).exists()] == names[1:]


@pytest.mark.parametrize(
    ("signer", "posture", "passes"),
    [
        (OURS, Posture.REQUIRE, True),
        (STRANGER, Posture.REQUIRE, False),
        (STRANGER, Posture.VERIFY, False),
        (STRANGER, Posture.STORE, True),
        (None, Posture.REQUIRE, False),
        (None, Posture.VERIFY, True),
        (None, Posture.STORE, True),
    ],
)
def test_who_made_it(
    store: LocalStore, empty: LocalStore, tmp_path: Path, signer: SigningKey | None, posture: Posture, passes: bool
) -> None:
    path = tmp_path / "a.zip"
    save(path, store, [key_of(0)], Keyring(signer))
    found = outcomes(path, empty, posture)
    assert (found == [STORED]) is passes
    assert (holds(empty) == {key_of(0)}) is passes


def test_a_revoked_key_and_an_entry_of_a_remote(store: LocalStore, made: Path, empty: LocalStore) -> None:
    revoked = Keyring(None, [OURS.public], [OURS.id])
    assert all("revoked" in outcome for outcome in outcomes(made, empty, keys=revoked))
    name = f"entries/{key_of(0)}"
    rewritten(made, {name: signed(entry_of(0), key_of(0), "main", OURS)})
    assert sum("signature does not match" in outcome for outcome in outcomes(made, empty)) == 1


# -- whatever else it may be ---------------------------------------------------------------------------------------


def rewritten(path: Path, changes: dict[str, bytes | None], *, compress: int = zipfile.ZIP_STORED) -> None:
    """The archive with other members."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members |= {name: data for name, data in changes.items() if data is not None}
    with zipfile.ZipFile(path, "w", compress) as archive:
        for name, data in members.items():
            if name not in changes or changes[name] is not None:
                archive.writestr(name, data)


def test_names_that_lead_out_are_no_names(made: Path, empty: LocalStore, tmp_path: Path) -> None:
    good = signed(entry_of(5), key_of(5), "bundle", OURS)
    names = [
        "../x",
        "/tmp/rewarm-absolute",
        f"entries/../../{key_of(5)}",
        f"entries/{key_of(5)}/",
        f"ENTRIES/{key_of(5)}",
    ]
    rewritten(made, dict.fromkeys(names, good))
    before = {path for path in tmp_path.rglob("*") if "to" not in path.parts}
    assert outcomes(made, empty) == [STORED] * 3
    assert {path for path in tmp_path.rglob("*") if "to" not in path.parts} == before
    assert not Path("/tmp/rewarm-absolute").exists()
    assert holds(empty) == {key_of(number) for number in range(3)}


def test_a_link_is_no_entry(made: Path, empty: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(signed(entry_of(5), key_of(5), "bundle", OURS))
    info = zipfile.ZipInfo(f"entries/{key_of(5)}")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(made, "a") as archive:
        archive.writestr(info, str(tmp_path / "secret"))
    assert [outcome for outcome in outcomes(made, empty) if outcome != STORED] == ["refused: not signed"]
    assert holds(empty) == {key_of(number) for number in range(3)}


@pytest.mark.parametrize("compress", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressed_members_are_not_unpacked(made: Path, empty: LocalStore, compress: int) -> None:
    table = json.loads(zipfile.ZipFile(made).read("rewarm-bundle.json"))
    rewritten(made, {}, compress=compress)
    with pytest.raises(BadBundleError):
        outcomes(made, empty)
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("rewarm-bundle.json", json.dumps(table))
        archive.writestr(f"entries/{key_of(0)}", bytes(50_000_000), compress)
    assert outcomes(made, empty) == ["refused: the bundle's member is compressed or encrypted"]
    assert holds(empty) == set()


def test_two_members_of_one_name(made: Path, empty: LocalStore) -> None:
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(made, "a") as archive:
        archive.writestr(f"entries/{key_of(0)}", entry_of(0))
    with pytest.raises(BadBundleError, match="one name"):
        outcomes(made, empty)
    with pytest.raises(BadBundleError):
        bundle.members(made)
    assert holds(empty) == set()


def claims(data: bytes, size: int) -> bytes:
    """The same archive, whose entries say that they have this many bytes."""
    changed = bytearray(data)
    at = -1
    while (at := changed.find(b"PK\x01\x02", at + 1)) >= 0:
        if changed[at + 46 :].startswith(b"entries/"):
            struct.pack_into("<II", changed, at + 20, size, size)
    return bytes(changed)


@pytest.mark.parametrize("size", [1 << 29, (1 << 31) - 1, (1 << 32) - 2])
def test_claims_of_gigabytes(made: Path, empty: LocalStore, size: int) -> None:
    made.write_bytes(claims(made.read_bytes(), size))
    with pytest.raises(BadBundleError, match="more bytes than it has"):
        outcomes(made, empty)
    assert holds(empty) == set()


@pytest.mark.parametrize(
    "table",
    [
        None, b"", b"{}", b"[]", b'{"version":2,"entries":{}}', b'{"version":1,"entries":[]}', b"[" * 100_000, b"\xff",
        b'{"version":{},"entries":{}}',
    ],
)  # fmt: skip
def test_what_the_table_may_be(made: Path, empty: LocalStore, table: bytes | None) -> None:
    rewritten(made, {"rewarm-bundle.json": table})
    with pytest.raises(BadBundleError):
        outcomes(made, empty)


def test_the_table_is_for_people_and_shows_nothing_that_moves_a_cursor(made: Path, empty: LocalStore) -> None:
    said = {"program": "\x1b[2Jx\r\n" + "y" * 5000, "target": ["no"]}
    table = {"version": 1, "created": 0, "entries": {key_of(0): said, key_of(1): "?", "../x": {}}}
    rewritten(made, {"rewarm-bundle.json": json.dumps(table).encode()})
    assert {one.program for one in bundle.members(made)} == {"[2Jx" + "y" * 193, ""}
    assert outcomes(made, empty) == [STORED] * 3


@pytest.mark.parametrize(
    "data", [b"", b"PK", b"\x7fELF" + bytes(1000), b"PK\x05\x06" + bytes(18), b"PK\x05\x06" + b"\xff" * 18]
)
def test_foreign_files(tmp_path: Path, empty: LocalStore, data: bytes) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(data)
    with pytest.raises(BadBundleError):
        outcomes(path, empty)
    with pytest.raises(BadBundleError):
        bundle.members(path)


def attempt(path: Path, to: Path) -> None:
    """Load what may be anything at all: nothing but a bundle's own errors, and nothing but right entries stored."""
    shutil.rmtree(to, ignore_errors=True)
    store = store_at(to)
    with contextlib.suppress(BadBundleError):
        outcomes(path, store)
    holds(store)


def test_cut_off_at_every_64th_byte(made: Path, tmp_path: Path) -> None:
    data, path = made.read_bytes(), tmp_path / "cut.zip"
    for end in range(0, len(data), 64):
        path.write_bytes(data[:end])
        attempt(path, tmp_path / "to")
    assert len(data) > 2_000


@pytest.mark.parametrize("rounds", [150, pytest.param(2_000, marks=pytest.mark.campaign)])
def test_damage_at_random(made: Path, tmp_path: Path, rounds: int) -> None:
    data, path, dice = made.read_bytes(), tmp_path / "damaged.zip", random.Random(7)
    tail = len(data) - 900  # where the structure is
    for _ in range(rounds):
        changed = bytearray(data)
        for _ in range(dice.choice((1, 1, 2, 8))):
            at = dice.randrange(tail, len(data)) if dice.random() < 0.7 else dice.randrange(len(data))
            changed[at] = dice.choice((0, 255, changed[at] ^ 1 << dice.randrange(8)))
        path.write_bytes(changed)
        attempt(path, tmp_path / "to")


def test_members_that_share_their_bytes(made: Path, empty: LocalStore) -> None:
    """Many members over one piece of the file: the small file that is large."""
    data = made.read_bytes()
    directory = data.index(b"PK\x01\x02")
    one, table = (data.index(name, directory) - 46 for name in (f"entries/{key_of(0)}".encode(), b"rewarm-bundle.json"))
    row = data[one : one + 46 + 72]
    rows = b"".join(row.replace(key_of(0).encode(), f"{number:064x}".encode()) for number in range(2_000))
    rows += data[table : table + 46 + len("rewarm-bundle.json")]
    end = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 2_001, 2_001, len(rows), directory, 0)
    made.write_bytes(data[:directory] + rows + end)
    with zipfile.ZipFile(made) as archive:
        assert len(archive.namelist()) == 2_001
    with pytest.raises(BadBundleError, match="more bytes than it has"):
        outcomes(made, empty)
