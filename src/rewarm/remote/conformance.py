"""What every remote does, as tests: hold blobs of your own against the contract.

Not promised: that a remote which passes is safe to trust, or fast. Two of the contract's freedoms are said by the
subclass, since remotes differ in them: whether `only_new` is enforced, and whether the remote can list.

    class TestMyBlobs(BlobsConformance):
        enforces_only_new = True

        def make_blobs(self, place: str) -> Blobs:
            return MyBlobs(f"my://bucket/{place}")

Nothing here needs pytest: each test is a method without arguments, and makes a place of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from rewarm.hammering import is_whole, run, whole
from rewarm.remote.blobs import Blobs, RefusedError, RemoteError, TooLargeError, UnreachableError

_T = TypeVar("_T")

_MEGABYTE = 1 << 20
_LIMIT = 64 * _MEGABYTE

# Each stands for one way of leaving the remote's place, or of meaning two blobs by one name.
BAD_NAMES: tuple[str, ...] = (
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "../a",
    "a/../b",
    "a/./b",
    ".a",
    "a/.b",
    "a b",
    "a\n",
    "a\0b",
    "a\\b",
    "a?b",
    "a#b",
    "a%2Fb",
    "a:b",
    "a*",
    "\N{LATIN SMALL LETTER E WITH ACUTE}",
    "a/" * 256 + "a",
)

# Names that are allowed and that something on the way may take for something else.
ODD_NAMES: tuple[str, ...] = (
    "a",
    "_",
    "-",
    "--help",
    "0",
    "A/a",
    "a.b/c..d/e.",
    "CON",
    "tmp.tmp",
    "x" * 200,
    f"name-space_1.0/{'ab'}/{'0123456789abcdef' * 4}",
    "/".join(["deep"] * 12),
)


def name_of(number: int) -> str:
    """A good name, as entries have; another one for each number."""
    digest = hashlib.sha256(str(number).encode("ascii")).hexdigest()
    return f"tests/{digest[:2]}/{digest}"


class BlobsConformance:
    """What every remote does. Subclass it, override `make_blobs`, and let pytest collect the subclass."""

    #: Whether a put with `only_new` leaves a blob that is there.
    enforces_only_new = False
    #: Whether of several such puts at the same moment one alone succeeds; a double of a server may look, and then put.
    one_winner = True
    #: Whether `scan` works.
    lists = True
    #: Whether a reader beside writers sees a whole blob or none. Not in the contract: blobs prove themselves.
    whole = True
    #: How long a put may answer that it cannot be done now, in seconds, while others put the same blob.
    patience = 20.0
    #: How many threads act at once, and how often each.
    threads = 16
    rounds = 12
    #: Bytes of the largest blob, and how many blobs a scan has to find.
    large = 2 * _MEGABYTE
    many = 60

    def make_blobs(self, place: str) -> Blobs:
        """The blobs in a place named `place` (letters, digits, "-"); the same one each time for one name."""
        raise NotImplementedError("override make_blobs")

    def _fresh(self) -> tuple[Blobs, str]:
        place = f"c-{uuid.uuid4().hex}"
        return self.make_blobs(place), place

    # -- get and put -------------------------------------------------------------------------------------------

    def test_get_of_an_unknown_name_is_none(self) -> None:
        blobs, _ = self._fresh()
        assert blobs.get(name_of(0), limit=_LIMIT) is None
        assert blobs.put(name_of(1), b"another") is True
        assert blobs.get(name_of(0), limit=_LIMIT) is None

    def test_what_was_put_is_got(self) -> None:
        blobs, _ = self._fresh()
        values = [b"", b"\0", bytes(range(256)), b"\r\n" * 9, b"\x1f\x8b\x08", random.Random(0).randbytes(_MEGABYTE)]
        for number, value in enumerate(values):
            assert blobs.put(name_of(number), value) is True
        for number, value in enumerate(values):
            got = blobs.get(name_of(number), limit=_LIMIT)
            assert type(got) is bytes
            assert got == value

    def test_large_blobs(self) -> None:
        blobs, _ = self._fresh()
        value = random.Random(1).randbytes(self.large)
        assert blobs.put(name_of(0), value) is True
        assert blobs.get(name_of(0), limit=_LIMIT) == value

    def test_the_last_writer_wins(self) -> None:
        blobs, _ = self._fresh()
        for value in (b"first", b"the second is longer", b"3rd", b""):
            assert blobs.put(name_of(0), value) is True
            assert blobs.get(name_of(0), limit=_LIMIT) == value

    def test_odd_names(self) -> None:
        blobs, _ = self._fresh()
        for number, name in enumerate(ODD_NAMES):
            assert blobs.put(f"odd/{name}" if name == "a" else name, b"%d" % number) is True
        for number, name in enumerate(ODD_NAMES):
            assert blobs.get(f"odd/{name}" if name == "a" else name, limit=9) == b"%d" % number, name

    def test_bad_names_are_refused(self) -> None:
        blobs, _ = self._fresh()
        for name in BAD_NAMES:
            assert _raises_value_error(partial(blobs.get, name, limit=9)), f"get({name!r})"
            assert _raises_value_error(partial(blobs.put, name, b"bad")), f"put({name!r})"
            assert _raises_value_error(partial(blobs.delete, name)), f"delete({name!r})"
            if self.lists:
                assert _raises_value_error(partial(self._listed_names, blobs, name)), f"scan({name!r})"

    def test_the_limit_is_of_the_blob(self) -> None:
        blobs, _ = self._fresh()
        blobs.put(name_of(0), b"x" * 1000)
        blobs.put(name_of(1), b"")
        assert blobs.get(name_of(0), limit=1000) == b"x" * 1000
        assert blobs.get(name_of(1), limit=0) == b""
        for limit in (0, 1, 999):
            assert _kind(partial(blobs.get, name_of(0), limit=limit)) is TooLargeError
        assert blobs.get(name_of(2), limit=0) is None
        assert blobs.get(name_of(0), limit=1000) == b"x" * 1000, "and the remote works on"

    # -- only_new ----------------------------------------------------------------------------------------------

    def test_only_new(self) -> None:
        blobs, place = self._fresh()
        assert blobs.put(name_of(0), b"first", only_new=True) is True
        assert blobs.get(name_of(0), limit=9) == b"first"
        stays = self.enforces_only_new
        for value in (b"second", b""):
            assert self.make_blobs(place).put(name_of(0), value, only_new=True) is not stays
            assert blobs.get(name_of(0), limit=9) == (b"first" if stays else value)
        assert blobs.put(name_of(0), b"third") is True, "a plain put overwrites"
        assert blobs.get(name_of(0), limit=9) == b"third"
        blobs.delete(name_of(0))
        assert blobs.put(name_of(0), b"fourth", only_new=True) is True
        assert blobs.get(name_of(0), limit=9) == b"fourth"

    def test_only_new_has_one_winner(self) -> None:
        blobs, _ = self._fresh()
        for number in range(4):
            barrier = threading.Barrier(8)

            def act(value: int, number: int = number, barrier: threading.Barrier = barrier) -> bool:
                barrier.wait()
                return self._patiently(lambda: blobs.put(name_of(number), b"%d" % value, only_new=True))

            with ThreadPoolExecutor(8) as pool:
                won = list(pool.map(act, range(8)))
            alone = self.enforces_only_new and self.one_winner
            assert won.count(True) == 1 if alone else won.count(True) >= 1, won
            got = blobs.get(name_of(number), limit=9)
            assert got is not None
            assert won[int(got)], "who won is who is there"

    # -- two of them -------------------------------------------------------------------------------------------

    def test_two_over_one_place_see_each_other(self) -> None:
        one, place = self._fresh()
        other = self.make_blobs(place)
        assert other.get(name_of(0), limit=99) is None
        one.put(name_of(0), b"by one")
        assert other.get(name_of(0), limit=99) == b"by one"
        other.put(name_of(0), b"by the other")
        assert one.get(name_of(0), limit=99) == b"by the other"
        one.delete(name_of(0))
        assert other.get(name_of(0), limit=99) is None

    def test_places_are_apart(self) -> None:
        one, place = self._fresh()
        other = self.make_blobs(f"{place}-2")
        one.put(name_of(0), b"one")
        assert other.get(name_of(0), limit=99) is None
        other.delete(name_of(0))
        assert one.get(name_of(0), limit=99) == b"one"
        if self.lists:
            assert list(other.scan("tests")) == []

    def test_after_close_it_works_on(self) -> None:
        blobs, _ = self._fresh()
        blobs.close()
        blobs.put(name_of(0), b"x")
        blobs.close()
        blobs.close()
        assert blobs.get(name_of(0), limit=9) == b"x"

    def test_the_place_is_for_logs(self) -> None:
        blobs, _ = self._fresh()
        assert blobs.place
        assert blobs.place.isprintable()
        assert "?" not in blobs.place
        assert "@" not in blobs.place

    # -- delete ------------------------------------------------------------------------------------------------

    def test_what_was_deleted_is_gone_and_nothing_else(self) -> None:
        blobs, _ = self._fresh()
        blobs.put(name_of(0), b"gone")
        blobs.put(name_of(1), b"stays")
        blobs.delete(name_of(0))
        assert blobs.get(name_of(0), limit=99) is None
        assert blobs.get(name_of(1), limit=99) == b"stays"
        blobs.put(name_of(0), b"again")
        assert blobs.get(name_of(0), limit=99) == b"again"

    def test_deleting_what_is_not_there_is_no_error(self) -> None:
        blobs, _ = self._fresh()
        blobs.delete(name_of(0))
        blobs.put(name_of(0), b"x")
        blobs.delete(name_of(0))
        blobs.delete(name_of(0))
        assert blobs.get(name_of(0), limit=9) is None

    # -- scan --------------------------------------------------------------------------------------------------

    def test_scan_agrees_with_what_was_put(self) -> None:
        blobs, _ = self._fresh()
        if not self.lists:
            assert issubclass(_kind(partial(self._listed_names, blobs, "tests")), RefusedError)
            return
        assert list(blobs.scan("tests")) == []
        expected = {f"tests/{number % 3}/{number}": number * 7 for number in range(20)}
        for name, size in expected.items():
            blobs.put(name, b"x" * size)
        assert _listed(blobs, "tests") == expected
        blobs.put("tests/0/3", b"rewritten, and longer")
        blobs.delete("tests/1/4")
        expected["tests/0/3"] = len(b"rewritten, and longer")
        del expected["tests/1/4"]
        assert _listed(blobs, "tests") == expected
        assert _listed(blobs, "tests/2") == {name: size for name, size in expected.items() if "/2/" in name}
        assert _listed(blobs, "tests/0/3") == {}, "a blob is not under itself"

    def test_a_prefix_ends_at_a_slash(self) -> None:
        if self.lists:
            blobs, _ = self._fresh()
            for name in ("ab/1", "a/1", "a-b/1", "a.b/1", "b/a/1"):
                blobs.put(name, b"x")
            assert _listed(blobs, "a") == {"a/1": 1}

    def test_scan_dates_blobs(self) -> None:
        if self.lists:
            blobs, _ = self._fresh()
            blobs.put(name_of(0), b"x")
            (info,) = blobs.scan("tests")
            assert abs(info.modified - time.time()) < 86400.0, "seconds since the epoch, by a clock of these days"

    def test_scan_of_many(self) -> None:
        if self.lists:
            blobs, _ = self._fresh()
            expected = {f"many/{number % 16:x}/{number}": number % 5 for number in range(self.many)}
            with ThreadPoolExecutor(self.threads) as pool:
                assert all(pool.map(lambda name: _put_patiently(blobs, name, b"x" * expected[name]), expected))
            assert _listed(blobs, "many") == expected

    # -- many at once ------------------------------------------------------------------------------------------

    def test_many_threads_see_whole_values_or_none(self) -> None:
        one, place = self._fresh()
        both = [one, self.make_blobs(place)]
        faults: list[str] = []
        workers = [
            threading.Thread(target=self._hammer, args=(both[seed % 2], seed, faults)) for seed in range(self.threads)
        ]
        run(workers)
        assert faults == []

    def _hammer(self, blobs: Blobs, seed: int, faults: list[str]) -> None:
        choice = random.Random(seed)
        try:
            for _ in range(self.rounds):
                self._act(blobs, choice, faults)
        except Exception as error:  # noqa: BLE001 - a thread's exception would be lost
            faults.append(f"{type(error).__name__}: {error}")

    def _act(self, blobs: Blobs, choice: random.Random, faults: list[str]) -> None:
        number = choice.randrange(4)
        verb = choice.choice(("get", "get", "get", "put", "put", "delete", "scan"))
        if verb == "put":
            value = whole(number, choice)
            self._patiently(lambda: blobs.put(name_of(number), value))
        elif verb == "delete":
            self._patiently(lambda: blobs.delete(name_of(number)))
        elif verb == "scan" and self.lists:
            found = self._patiently(partial(self._listed_names, blobs, "tests"))
            faults.extend(f"scan: {name}" for name in found if name not in _HAMMERED)
        else:
            got = self._patiently(lambda: blobs.get(name_of(number), limit=_LIMIT))
            if self.whole and got is not None and not is_whole(number, got):
                faults.append(f"get: {len(got)} bytes that nobody put there")

    @staticmethod
    def _listed_names(blobs: Blobs, prefix: str) -> list[str]:
        return [info.name for info in blobs.scan(prefix)]

    def _patiently(self, act: Callable[[], _T]) -> _T:
        """Do it again while the remote says "not now": what others do to the same blob at once may stand in the way."""
        end = time.monotonic() + self.patience
        while True:
            try:
                return act()
            except RefusedError:
                raise
            except RemoteError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)


_HAMMERED = frozenset(name_of(number) for number in range(4))


def _put_patiently(blobs: Blobs, name: str, data: bytes) -> bool:
    """Put, and again where the remote says "not now": some lock a folder while another blob of it is written."""
    for pause in (0.05, 0.2, 0.8, 2.0):
        try:
            return blobs.put(name, data)
        except UnreachableError:
            time.sleep(pause)
    return blobs.put(name, data)


def _listed(blobs: Blobs, prefix: str) -> dict[str, int]:
    found = [(info.name, info.size) for info in blobs.scan(prefix)]
    assert len(found) == len(dict(found)), "a blob shows once"
    return dict(found)


def _kind(act: Callable[[], object]) -> type[Exception]:
    """What kind of error it raises; `Exception` where none."""
    try:
        act()
    except Exception as error:  # noqa: BLE001 - the kind is what is asked for
        return type(error)
    return Exception


def _raises_value_error(act: Callable[[], object]) -> bool:
    with contextlib.suppress(RemoteError):
        try:
            act()
        except ValueError:
            return True
    return False
