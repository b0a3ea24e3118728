"""Somebody who may write to the remote: what he puts there, and what becomes of a program that reads from it.

Whole JAX programs, each in a fresh process, over a folder and over an S3 server. Nothing here shows what he can do who
also has a key that is trusted (`test_who_had_a_key.py`), or who answers in the server's place.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attackers import bare, bomb, client, name_of, remote, signed_by_the_public_half

from conftest import Program, Run, clean_environment, entries, execute, first
from rewarm.coordination import FleetLeases
from rewarm.envelope import open_entry, seal
from rewarm.remote.blobs import Blobs
from rewarm.remote.folder import FolderBlobs
from rewarm.remote.guard import Guarded
from rewarm.setting_values import as_namespace, as_namespaces
from rewarm.sharing import bundle, fleet
from rewarm.trust import Keyring, Posture, signed
from shared_remotes import Machine, a_key

KINDS = ("folder", "moto")

# Programs named jit_f0, jit_f1, ...; the last line of output is the digest of each section that was unpacked.
MANY = """
    import hashlib, sys
    import rewarm.envelope.codec as codec
    unpacked = set()
    def loud(unpack):
        def wrapped(packed, raw_length):
            unpacked.add(hashlib.sha256(packed).hexdigest())
            return unpack(packed, raw_length)
        return wrapped
    codec.CODECS = {name: (pack, loud(unpack)) for name, (pack, unpack) in codec.CODECS.items()}
    import jax, numpy as np
    def program(number):
        def f(x):
            return x * 2 + number
        f.__name__ = f"f{number}"
        return jax.jit(f)
    print([float(np.asarray(program(number)(np.ones(2, np.float32)))[0]) for number in range(int(sys.argv[1]))])
    print(*unpacked)
"""


class World:
    """A bucket that one fills, and that another reads from, who trusts him.

    Attributes:
      blobs: the attacker's client.
      keys: the key of each of one's programs, by its number.
      was: what lay in the remote before the attacker came, by number.
    """

    def __init__(self, address: str, folder: Path, program: Program) -> None:
        self.address = address
        self.program = program
        self.one = Machine.named("one", folder)
        self.other = Machine.named("other", folder, self.one)
        self.blobs: Blobs = client(address)
        self.keys: dict[int, str] = {}
        self.was: dict[int, bytes] = {}

    def filled(self, count: int) -> None:
        self.program(MANY, str(count), **self.one.env(self.address))
        named = self.one.keys()
        self.keys = {number: named[f"jit_f{number}"] for number in range(count)}
        for number, key in self.keys.items():
            blob = self.blobs.get(name_of(key), limit=1 << 20)
            assert blob is not None
            self.was[number] = blob

    def put(self, number: int, blob: bytes) -> None:
        self.blobs.put(name_of(self.keys[number]), blob)

    def bare(self, number: int) -> bytes:
        return bare(self.was[number], self.keys[number], self.one.key)

    def evil(self, number: int) -> bytes:
        """A sound entry of the right key with other code."""
        header = open_entry(self.bare(number), self.keys[number]).header
        return seal(header, {"executable": f"evil code {number} ".encode() * 500}, codec="zstd")

    def signed(self, number: int, namespace: str = "main", signer: str = "one") -> bytes:
        return signed(self.evil(number), self.keys[number], namespace, a_key(signer))

    def read(self, count: int, more: str = "", **env: str) -> Run:
        """What the other has of it, who writes nothing there."""
        address = self.address + ("&" if "?" in self.address else "?") + "write=no" + more
        return self.program(MANY, str(count), **self.other.env(address, **env))


@pytest.fixture(params=first(1, KINDS))
def world(request: pytest.FixtureRequest, tmp_path: Path, program: Program) -> Iterator[World]:
    with remote(request.param, tmp_path) as address:
        yield World(address, tmp_path, program)


@pytest.fixture
def folder(tmp_path: Path, program: Program) -> Iterator[World]:
    with remote("folder", tmp_path) as address:
        yield World(address, tmp_path, program)


def path_of(world: World, number: int) -> Path:
    """The file of an entry, where the remote is a folder."""
    assert isinstance(world.blobs, FolderBlobs)
    return world.blobs.root / name_of(world.keys[number])


def check(run: Run, count: int, machine: Machine) -> None:
    """The results are right, and nothing was unpacked or kept but what was compiled there or is one's own."""
    first, second = run.out.splitlines()
    assert json.loads(first) == [2.0 + number for number in range(count)]
    kept = [open_entry(path.read_bytes(), path.name) for path in entries(machine.cache)]
    assert set(second.split()) <= {section.sha256 for entry in kept for section in entry.header.sections}
    assert not any(b"evil code" in entry.section("executable") for entry in kept)


def about(run: Run) -> dict[str, object]:
    """What the run had of the remote."""
    found = run.stats["remotes"][0]
    assert isinstance(found, dict)
    return found


def flipped(blob: bytes, at: int) -> bytes:
    return blob[:at] + bytes([blob[at] ^ 1]) + blob[at + 1 :]


# Each by what it does with an entry, and why it is refused.
FORGERIES: dict[str, tuple[Callable[[World, int], bytes], str]] = {
    "nobody signed it": (lambda w, n: w.bare(n), "not signed"),
    "nothing": (lambda _, __: b"", "not signed"),
    "garbage": (lambda _, __: os.urandom(5000), "not signed"),
    "a bomb": (lambda w, n: bomb(w.bare(n), w.keys[n]), "not signed"),
    "a stranger signed it": (lambda w, n: w.signed(n, signer="stranger"), "signed by an unknown key"),
    "a stranger signed a bomb": (
        lambda w, n: signed(bomb(w.bare(n), w.keys[n]), w.keys[n], "main", a_key("stranger")),
        "signed by an unknown key",
    ),
    "signed for a pull request": (lambda w, n: w.signed(n, namespace="pr-1"), "the signature does not match"),
    "another's entry": (lambda w, n: w.was[(n + 1) % len(w.was)], "the signature does not match"),
    "cut off": (lambda w, n: w.was[n][:-100], "the signature does not match"),
    "more behind it": (lambda w, n: w.was[n] + b"\0", "the signature does not match"),
    "a bit of the code": (lambda w, n: flipped(w.was[n], -60), "the entry is damaged, or another's"),
    "a bit of the digest": (lambda w, n: flipped(w.was[n], -1), "the signature does not match"),
    "a bit of the signature": (lambda w, n: flipped(w.was[n], 30), "the signature does not match"),
    "its own name for the signer": (
        lambda w, n: w.signed(n, signer="stranger")[:6] + w.was[n][6:22] + w.signed(n, signer="stranger")[22:],
        "the signature does not match",
    ),
    "a bomb under a good signature": (
        lambda w, n: w.was[n][:88] + bomb(w.bare(n), w.keys[n]),
        "the signature does not match",
    ),
    "an older version": (lambda w, n: w.was[n][:4] + b"\0" + w.was[n][5:], "the signed frame is of another version"),
    "a newer version": (lambda w, n: w.was[n][:4] + b"\2" + w.was[n][5:], "the signed frame is of another version"),
    "no algorithm": (lambda w, n: w.was[n][:5] + b"\0" + w.was[n][6:], "the signed frame is malformed"),
    "the other algorithm": (lambda w, n: w.was[n][:5] + b"\2" + w.was[n][6:], "the signed frame is malformed"),
    "the public key as a secret": (
        lambda w, n: signed_by_the_public_half(w.bare(n), w.keys[n], w.one.key),
        "signed by another algorithm than the key's",
    ),
    "no more than a frame": (lambda w, n: w.was[n][:88], "the signed frame is malformed"),
}


@pytest.mark.contract
def test_a_program_refuses_every_forgery_and_compiles(world: World) -> None:
    count = len(FORGERIES) + 1
    world.filled(count)
    wanted: dict[str, int] = {}
    for number, (forge, reason) in enumerate(FORGERIES.values()):
        world.put(number, forge(world, number))
        wanted[reason] = wanted.get(reason, 0) + 1
    run = world.read(count)
    check(run, count, world.other)
    assert (run.stats["hits"], run.stats["misses"], about(run)["hits"]) == (1, len(FORGERIES), 1)
    assert about(run)["refused"] == wanted
    told = run.warnings()
    assert all("is refused: " in line and "only counted" in line for line in told), run.err
    assert len(told) == len({line.partition("refused: ")[2] for line in told}) <= 10
    again = world.program(MANY, str(count), **world.other.env())
    check(again, count, world.other)
    assert again.stats["hits"] == count, "what is here now was compiled here"


@pytest.mark.parametrize(("posture", "passed"), [("verify", 1), ("store", 2)])
def test_where_less_is_asked_a_wrong_signature_and_damage_are_refused_all_the_same(
    folder: World, posture: str, passed: int
) -> None:
    """What nobody signed passes there, and under `store` a stranger's: it is loaded, which is what they mean."""
    forgeries = [forge for name, (forge, _) in FORGERIES.items() if name not in ("a bomb", "a stranger signed a bomb")]
    count = len(forgeries)
    folder.filled(count)
    for number, forge in enumerate(forgeries):
        folder.put(number, folder.evil(number) if number == 0 else forge(folder, number))
    run = folder.read(count, more=f"&trust={posture}")
    assert json.loads(run.out.splitlines()[0]) == [2.0 + number for number in range(count)]
    refused = about(run)["refused"]
    assert isinstance(refused, dict)
    assert (about(run)["hits"], sum(refused.values())) == (passed, count - passed)
    assert sum("cannot be loaded" in line for line in run.warnings()) == passed, run.err


def test_a_bomb_of_somebody_whom_the_store_trusts_is_unpacked_to_its_promised_length_alone(folder: World) -> None:
    """A header that promises less than what the section unpacks to: one byte more is produced, and no more."""
    folder.filled(1)
    large = bomb(folder.bare(0), folder.keys[0])
    (length,) = struct.unpack_from("<I", large, 5)
    header = large[9 : 9 + length].replace(b'"raw_length":268435456', b'"raw_length":1000')
    assert len(header) < length
    body = large[:5] + struct.pack("<I", len(header)) + header + large[9 + length : -32]
    folder.put(0, body + hashlib.sha256(body).digest())
    run = folder.read(1, more="&trust=store")
    assert (json.loads(run.out.splitlines()[0]), run.stats["misses"]) == ([2.0], 1)
    assert [line.partition("not usable")[2] for line in run.warnings()] != [""], run.err


def test_an_old_entry_of_a_trusted_key_is_accepted(world: World) -> None:
    """Put back after a newer one: all entries of a key are equally good."""
    world.filled(1)
    old = open_entry(world.bare(0), world.keys[0])
    newer = seal(old.header._replace(created=time.time() + 60), {"executable": old.section("executable")}, codec="zstd")
    world.put(0, signed(newer, world.keys[0], "main", world.one.key))
    world.put(0, world.was[0])
    run = world.read(1)
    check(run, 1, world.other)
    [kept] = entries(world.other.cache)
    assert kept.read_bytes() == world.bare(0)
    assert (run.stats["hits"], run.stats["misses"], run.warnings()) == (1, 0, [])


def test_whatever_he_deletes_programs_compile(world: World) -> None:
    world.filled(2)
    world.blobs.delete(name_of(world.keys[0]))
    run = world.read(2)
    check(run, 2, world.other)
    assert (run.stats["hits"], run.stats["misses"], run.warnings()) == (1, 1, [])
    for blob in list(world.blobs.scan("main")):
        world.blobs.delete(blob.name)
    world.other = Machine.named("third", world.other.home.parent, world.one)
    run = world.read(2)
    check(run, 2, world.other)
    assert (run.stats["hits"], run.stats["misses"], run.warnings()) == (0, 2, [])


# -- what is no entry ----------------------------------------------------------------------------------------------

LARGE = 2 << 30


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(LARGE)


def linked(path: Path) -> None:
    path.parent.rmdir()
    path.parent.symlink_to("/")


IN_THE_WAY: dict[str, Callable[[Path], object]] = {
    "two gigabytes": sparse,
    "a FIFO": os.mkfifo,
    "a folder": Path.mkdir,
    "a link to a secret": lambda path: path.symlink_to(path.parent.parent.parent / "secret"),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a folder that is a link": linked,
}


def test_things_in_a_shared_folder_that_are_no_files(folder: World, tmp_path: Path) -> None:
    """Gigabytes, FIFOs, devices and links: none is read, none holds the program up, and no link is followed."""
    count = len(IN_THE_WAY)
    folder.filled(count)
    (tmp_path / "remote-folder" / "secret").write_bytes(folder.was[3])
    for number, make in enumerate(IN_THE_WAY.values()):
        path = path_of(folder, number)
        path.unlink()
        make(path)
    begin = time.monotonic()
    run = folder.read(count)
    took = time.monotonic() - begin
    check(run, count, folder.other)
    assert (about(run)["hits"], run.stats["misses"]) == (0, count)
    (line,) = run.warnings()
    assert line.endswith("is refused: larger than 1 GiB; more of this kind are only counted")
    assert took < 60.0
    failures = about(run)["failures"]
    assert isinstance(failures, dict)
    assert sum(failures.values()) == count
    assert "larger than the reader wants" in failures


def test_who_writes_there_beside_such_things_writes_nowhere_else(folder: World, tmp_path: Path) -> None:
    """An upload to a name that is a link replaces the link; one below a folder that is a link does not follow it."""
    folder.filled(2)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"mine")
    first, second = path_of(folder, 0), path_of(folder, 1)
    first.unlink()
    first.symlink_to(outside / "file")
    second.unlink()
    second.parent.rmdir()
    second.parent.symlink_to(outside)
    run = folder.program(MANY, "2", **folder.other.env(folder.address))
    check(run, 2, folder.other)
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert (outside / "file").read_bytes() == b"mine"
    assert not first.is_symlink()


# -- plans and leases ----------------------------------------------------------------------------------------------

PLANS: dict[str, bytes] = {
    "garbage": os.urandom(3000),
    "deep": b"[" * 100_000,
    "too large": b" " * (2 << 20),
    "names that lead out": json.dumps({"version": 1, "keys": ["../../../etc/passwd", None, 7, "A" * 64, ""]}).encode(),
    "what is not there": json.dumps({"version": 1, "keys": [f"{n:064x}" for n in range(1500)]}).encode(),
    "another version": json.dumps({"version": 2, "keys": ["a" * 64]}).encode(),
}


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_of_a_stranger_fetches_what_is_checked_and_stores_nothing_else(folder: World, plan: str) -> None:
    """Plans are not signed. One that is his names what he likes; a forgery that it names is refused as ever."""
    folder.filled(2)
    folder.put(0, folder.signed(0, signer="stranger"))
    said = PLANS[plan]
    if plan == "what is not there":
        said = said.replace(f"{1:064x}".encode(), folder.keys[0].encode())
    root = folder.blobs.root  # type: ignore[attr-defined]
    plans = list((root / "main" / "plans").iterdir())
    for path in plans:
        path.write_bytes(said)
    run = folder.read(2)
    check(run, 2, folder.other)
    assert (run.stats["hits"], run.stats["misses"]) == (1, 1)
    assert {path.name for path in entries(folder.other.cache)} == set(folder.keys.values())


def test_whoever_may_write_keeps_others_waiting_for_their_patience_at_most(tmp_path: Path) -> None:
    """Leases are not signed: he claims one and beats for ever. Who waits compiles when its patience ends."""
    assert fleet._PATIENCE == 900.0, "what the page says"
    blobs = FolderBlobs(tmp_path)
    key, over = "a" * 64, threading.Event()

    def beat() -> None:
        while not over.wait(0.1):
            blobs.put(f"main/leases/{key}", f"rewarm lease 1 me {time.monotonic_ns()} 0.1\n".encode())

    blobs.put(f"main/leases/{key}", b"rewarm lease 1 me 0 0.1\n")
    thread = threading.Thread(target=beat)
    thread.start()
    leases = FleetLeases(Guarded(blobs), "main", enforces=True, beat=0.2, silence=1.0, patience=3.0)
    try:
        with leases.lead(key, lambda: False) as lead:
            assert lead.outcome == "alone"
            assert 3.0 <= lead.seconds < 7.0
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("data", [b"", b"\xff" * 400, b"x" * 5000, b"rewarm lease 1 " + b"9" * 400])
def test_a_lease_that_is_garbage_delays_by_its_silence(tmp_path: Path, data: bytes) -> None:
    """Of what it says nothing counts; one that is too large is as none at all."""
    blobs = FolderBlobs(tmp_path)
    key = "a" * 64
    blobs.put(f"main/leases/{key}", data)
    leases = FleetLeases(Guarded(blobs), "main", enforces=True, beat=0.2, silence=1.0, patience=30.0)
    with leases.lead(key, lambda: False) as lead:
        assert lead.outcome in ("leads", "alone")
        assert lead.seconds < 5.0


def test_a_lease_never_blocks_a_hit(folder: World) -> None:
    """He claims the lease of every program: who has an entry does not ask for one."""
    folder.filled(3)
    for key in folder.keys.values():
        folder.blobs.put(f"main/leases/{key}", b"rewarm lease 1 me 1 2\n")
    run = folder.program(MANY, "3", **folder.other.env(folder.address))
    check(run, 3, folder.other)
    assert run.stats["hits"] == 3
    assert run.stats["seconds_waiting"] < 0.5


# -- names and namespaces ------------------------------------------------------------------------------------------

NAMES = [
    "..", ".", "", " ", "a/b", "../main", "/main", "main/", "main\\x", ".main", "m..n", "ma\u0131n", "m\u0430in",
    "main\u200b", "main\0", "main\nx", "main%2f..", "a" * 65, "\uff4dain", "main?x", "*", "-main", "_main",
    "mai\u0301n", "bundle", " bundle ",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_namespace_is_a_plain_name(name: str) -> None:
    """Nothing that leads to another place, and nothing that only looks like another name."""
    with pytest.raises(ValueError, match="at most 64"):
        as_namespace(name)
    if name.strip():
        with pytest.raises(ValueError, match="at most 64"):
            as_namespaces(f"main,{name}")


def test_a_program_with_such_a_namespace_says_so_and_reads_nothing(folder: World) -> None:
    folder.filled(1)
    run = folder.read(1, REWARM_READ_NAMESPACES="../main")
    assert (json.loads(run.out.splitlines()[0]), len(run.warnings())) == ([2.0], 1)
    assert "REWARM_READ_NAMESPACES" in run.warnings()[0]


def test_what_a_pull_request_writes_main_never_reads(folder: World) -> None:
    """Whatever key it has: it writes in its own namespace, and what it copies into main's is signed for its own."""
    folder.filled(2)
    folder.blobs.put(name_of(folder.keys[0], "pr-1"), folder.signed(0, namespace="pr-1"))
    folder.blobs.delete(name_of(folder.keys[0]))
    folder.put(1, folder.signed(1, namespace="pr-1"))
    main = folder.read(2)
    check(main, 2, folder.other)
    assert (main.stats["hits"], main.stats["misses"]) == (0, 2)
    assert about(main)["refused"] == {"the signature does not match": 1}
    folder.other = Machine.named("request", folder.other.home.parent, folder.one)
    request = folder.read(2, REWARM_NAMESPACE="pr-1", REWARM_READ_NAMESPACES="pr-1,main")
    assert (request.stats["hits"], about(request)["hits"]) == (0, 1), "its own, which cannot be loaded"


# -- bundles -------------------------------------------------------------------------------------------------------


def test_a_bundle_of_a_stranger_is_refused_entry_by_entry(folder: World, tmp_path: Path) -> None:
    folder.filled(2)
    path = tmp_path / "a.bundle"
    for signer, posture, stored in (
        (a_key("stranger"), Posture.REQUIRE, 0),
        (a_key("stranger"), Posture.VERIFY, 0),
        (None, Posture.REQUIRE, 0),
        (None, Posture.VERIFY, 2),
        (a_key("one"), Posture.REQUIRE, 2),
    ):
        path.unlink(missing_ok=True)
        bundle.save(path, folder.one.store(), folder.keys.values(), Keyring(signer), made=None)
        there = Machine.named(f"{signer}{posture}".replace("/", ""), tmp_path)
        trusting = Keyring(None, [a_key("one").public])
        outcomes = [one.outcome for one in bundle.load(path, there.store(), trusting, posture)]
        assert outcomes.count(bundle.STORED) == len(entries(there.cache)) == stored, outcomes


def test_what_a_job_only_reads_its_gc_leaves_alone(folder: World, tmp_path: Path) -> None:
    """A pull request's job reads main as well, and cleans up with the rights that it has."""
    folder.filled(2)
    request = Machine.named("request", tmp_path, folder.one)
    env = request.env(folder.address, REWARM_NAMESPACE="pr-1", REWARM_READ_NAMESPACES="pr-1,main")
    folder.program(MANY, "3", **env)
    there = {namespace: {blob.name for blob in folder.blobs.scan(namespace)} for namespace in ("main", "pr-1")}
    assert min(map(len, there.values())) > 0

    def gc(*more: str) -> Run:
        command = [sys.executable, "-m", "rewarm", "gc", "--remote", folder.address, "--max-age", "0s", *more]
        return execute(command, env=clean_environment(**env), cwd=tmp_path)

    assert "Default: REWARM_NAMESPACE" in " ".join(gc("--help").out.split())
    done = gc()
    assert done.code == 0, done.err
    assert {blob.name for blob in folder.blobs.scan("main")} == there["main"]
    assert list(folder.blobs.scan("pr-1")) == []
    assert gc("--namespace", "main").code == 0
    assert list(folder.blobs.scan("main")) == []


def test_signers_made_up_for_each_entry_are_one_line(folder: World) -> None:
    """Who signed is anybody's word until a key proves it: it makes no kind of its own."""
    folder.filled(12)
    for number in range(12):
        blob = folder.was[number]
        folder.put(number, blob[:6] + os.urandom(16) + blob[22:])
    run = folder.read(12)
    check(run, 12, folder.other)
    assert about(run)["refused"] == {"signed by an unknown key": 12}
    assert len(run.warnings()) == 1, run.err
