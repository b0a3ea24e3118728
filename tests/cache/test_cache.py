"""The path of one request, with a real store and executables that are plain bytes (`desk.py`)."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from desk import OPEN, PATIENCE, BrokenExecutableError, CompileError, Desk, components_of, key_of

from rewarm import policy
from rewarm.cache import CANNOT_SERIALISE, COMPILE_FAILED, INTERRUPTED, CompileCache, Request
from rewarm.envelope import Header, open_entry, seal
from rewarm.errors import BadEntryError, ContentsDifferError, StoreError
from rewarm.ledger import ALREADY_STORED
from rewarm.policy import Thresholds
from rewarm.restart import Way
from rewarm.store import LocalStore


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "cache")


@pytest.fixture
def desk(store: LocalStore) -> Desk:
    return Desk(store)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    return [line.removeprefix("rewarm: ") for line in told]


@pytest.fixture
def unwritable(tmp_path: Path) -> LocalStore:
    """A store that has nothing and takes nothing, whoever asks: its root is a link to nowhere."""
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "deep")
    return LocalStore(tmp_path / "link")


@pytest.fixture
def unreadable(tmp_path: Path) -> LocalStore:
    """A store that cannot answer at all: its root is a file."""
    (tmp_path / "file").write_bytes(b"")
    return LocalStore(tmp_path / "file")


# ---------------------------------------------------------------------------------------------------------------
# Misses and hits


def test_the_first_request_compiles_and_stores(desk: Desk, store: LocalStore) -> None:
    assert desk.ask() == b"STEP"
    assert desk.compiler.did == {"compile": 1, "serialise": 1}
    assert desk.watcher.misses == [("step", key_of("step"), "not in the store")]
    event = desk.last
    assert (event.program, event.key, event.outcome, event.reason) == (
        "step",
        key_of("step"),
        "miss",
        "not in the store",
    )
    assert event.stored
    assert event.bytes_written == store.path(key_of("step")).stat().st_size
    assert event.seconds.key == 0.001


def test_the_next_process_loads_it(desk: Desk, store: LocalStore) -> None:
    desk.compiler.seconds = 0.05
    desk.ask()
    later = desk.again()
    assert later.ask() == b"STEP"
    assert later.compiler.did == {"load": 1}
    assert later.watcher.misses == []
    event = later.last
    assert (event.outcome, event.tier) == ("hit", "local")
    assert event.bytes_read == store.path(key_of("step")).stat().st_size
    spent = event.seconds.fetch + event.seconds.load
    assert event.seconds_saved == pytest.approx(desk.last.seconds.compile - spent)


def test_programs_do_not_get_each_others_executables(desk: Desk) -> None:
    programs = [f"program{number}" for number in range(20)]
    for _ in range(2):
        assert [desk.ask(program) for program in programs] == [program.upper().encode() for program in programs]
    assert (desk.stats.hits, desk.stats.misses, desk.stats.stored) == (20, 20, 20)


def test_the_entry_says_where_it_comes_from(desk: Desk, store: LocalStore) -> None:
    before = time.time()
    desk.ask()
    data = store.get(key_of("step"))
    assert data is not None
    header = open_entry(data, key_of("step")).header
    assert (header.kind, header.program, header.target) == ("executable", "step", "cpu x1")
    assert header.producer == {"jax": "0.10.2"}
    assert header.components == tuple(row.as_dict() for row in components_of("step").rows)
    assert before <= header.created <= time.time()
    assert header.compile_seconds == desk.last.seconds.compile


def test_a_large_executable_round_trips(desk: Desk) -> None:
    program = "p" * 3_000_000
    assert desk.ask(program) == desk.again().ask(program) == program.upper().encode()


@pytest.mark.parametrize("reason", [policy.SWITCHED_OFF, "the directory cannot be used"])
def test_without_a_store_programs_are_compiled(reason: str) -> None:
    desk = Desk(None, closed=reason)
    for _ in range(2):
        assert desk.ask() == b"STEP"
    assert desk.compiler.did == {"compile": 2}
    assert desk.stats.not_stored == {reason: 2}
    assert desk.watcher.misses == [("step", None, reason)] * 2


def test_a_program_without_a_key_is_compiled(desk: Desk, store: LocalStore) -> None:
    for _ in range(2):
        assert desk.ask(components=None, unkeyable="custom_partitioning") == b"STEP"
    assert desk.compiler.did == {"compile": 2}
    assert desk.stats.not_stored == {"custom_partitioning": 2}
    assert desk.last.key is None
    assert list(store.scan()) == []


# ---------------------------------------------------------------------------------------------------------------
# Thresholds


@pytest.mark.parametrize(
    ("thresholds", "reason", "serialised"),
    [
        (Thresholds(3600.0, 0), policy.TOO_QUICK, 0),
        (Thresholds(0.0, 1 << 30), policy.TOO_SMALL, 1),
        (Thresholds(0.0, 0, max_size=10), policy.TOO_LARGE, 1),
    ],
)
def test_what_the_thresholds_refuse_is_not_stored(
    store: LocalStore, thresholds: Thresholds, reason: str, serialised: int
) -> None:
    desk = Desk(store, thresholds=thresholds)
    for _ in range(2):
        assert desk.ask() == b"STEP"
    assert desk.stats.not_stored == {reason: 2}
    assert desk.compiler.did["serialise"] == 2 * serialised
    assert list(store.scan()) == []
    assert desk.stats.errors == 0


def test_thresholds_do_not_hide_what_is_stored(desk: Desk) -> None:
    desk.ask()
    later = desk.again(thresholds=Thresholds(3600.0, 1 << 30, max_size=1))
    assert later.ask() == b"STEP"
    assert later.last.outcome == "hit"


def test_the_size_that_counts_is_that_on_disk(desk: Desk, store: LocalStore) -> None:
    def large() -> bytes:
        return bytes(100_000)

    desk.ask(compile=large)
    size = desk.last.bytes_written
    assert size < 10_000
    for least, stored in ((size - 20, True), (size + 20, False)):
        again = Desk(LocalStore(store.root / str(least)), thresholds=Thresholds(0.0, least))
        again.ask(compile=large)
        assert again.last.stored is stored


# ---------------------------------------------------------------------------------------------------------------
# Compilers that fail


@pytest.mark.parametrize("error", [CompileError("bad program"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_what_the_compiler_raises_comes_through_as_it_is(desk: Desk, store: LocalStore, error: BaseException) -> None:
    def fail() -> bytes:
        raise error

    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            desk.ask(compile=fail)
        assert caught.value is error
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
    assert (desk.stats.misses, desk.stats.errors) == (2, 0)
    assert desk.stats.not_stored == {COMPILE_FAILED if isinstance(error, Exception) else INTERRUPTED: 2}
    assert list(store.scan()) == []
    assert desk.ask() == b"STEP", "the key is free again"


def test_an_error_of_rewarms_own_kind_from_the_compiler_comes_through(desk: Desk) -> None:
    """The compiler may itself use a cache; its errors are not ours to swallow."""
    for error in (StoreError(5, "of the compiler"), BadEntryError("of the compiler")):

        def fail(error: Exception = error) -> bytes:
            raise error

        with pytest.raises(type(error), match="of the compiler"):
            desk.ask(compile=fail)
    assert desk.stats.errors == 0


# ---------------------------------------------------------------------------------------------------------------
# Serialisers and loaders that fail


def broken(_: bytes) -> bytes:
    raise BrokenExecutableError("no\nsecond line")


def test_an_executable_that_cannot_be_serialised_is_used_and_not_stored(
    desk: Desk, store: LocalStore, caplog: pytest.LogCaptureFixture
) -> None:
    assert desk.ask(serialise=broken) == b"STEP"
    assert desk.stats.not_stored == {CANNOT_SERIALISE: 1}
    assert desk.stats.errors == 1
    assert list(store.scan()) == []
    (line,) = warnings_in(caplog)
    assert "step" in line
    assert "BrokenExecutableError: no" in line
    assert "\n" not in line


def test_an_entry_that_cannot_be_loaded_is_rebuilt_by_the_same_request(
    desk: Desk, store: LocalStore, caplog: pytest.LogCaptureFixture
) -> None:
    desk.ask()
    later = desk.again()
    assert later.ask(load=broken) == b"STEP"
    event = later.last
    why = "it cannot be loaded: BrokenExecutableError: no"
    assert (event.outcome, event.stored, event.quarantined) == ("miss", True, why)
    assert (later.stats.errors, later.stats.quarantined) == (1, 1)
    assert len(store.quarantined()) == 1
    assert event.seconds.load > 0.0
    (line,) = warnings_in(caplog)
    assert why in line
    assert later.ask() == b"STEP"
    assert later.last.outcome == "hit"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_while_loading_is_not_taken_for_a_bad_entry(
    desk: Desk, store: LocalStore, error: type[BaseException]
) -> None:
    desk.ask()

    def interrupted(_: bytes) -> bytes:
        raise error

    with pytest.raises(error):
        desk.ask(load=interrupted)
    assert store.quarantined() == []
    assert desk.ask() == b"STEP"
    assert desk.last.outcome == "hit"


# ---------------------------------------------------------------------------------------------------------------
# Damage


def test_a_flipped_entry_is_put_aside_and_rebuilt_by_the_same_request(
    desk: Desk, store: LocalStore, caplog: pytest.LogCaptureFixture
) -> None:
    desk.ask()
    path = store.path(key_of("step"))
    good = path.read_bytes()
    flips = range(0, len(good), max(1, len(good) // 25))
    for position in flips:
        path.write_bytes(good[:position] + bytes([good[position] ^ 0x10]) + good[position + 1 :])
        later = desk.again()
        assert later.ask() == later.ask() == b"STEP"
        miss, hit = later.ledger.events()
        assert (miss.outcome, miss.stored, hit.outcome) == ("miss", True, "hit"), f"byte {position}"
        assert miss.quarantined
        assert miss.reason == f"what was stored is not usable: {miss.quarantined}"
        assert later.compiler.did == {"compile": 1, "serialise": 1, "load": 1}, "damaged bytes are not loaded"
        assert (later.stats.quarantined, later.stats.errors) == (1, 0)
    assert len(store.quarantined()) == len(flips)
    assert len(warnings_in(caplog)) == len(flips)
    assert all("quarantined, compiling" in line for line in warnings_in(caplog))


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _foreign(path: Path) -> None:
    path.write_bytes(b"\x89PNG" * 100)


def _of_another_key(path: Path) -> None:
    header = Header("executable", "0" * 64, (), "other", 1.0, 1.0, {}, "cpu x1")
    path.write_bytes(seal(header, {"executable": b"serialised OTHER"}))


def _without_an_executable(path: Path) -> None:
    header = Header("executable", path.name, (), "step", 1.0, 1.0, {}, "cpu x1")
    path.write_bytes(seal(header, {"program": b"something else"}))


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("nothing")


DAMAGES = [_truncate, _empty, _foreign, _of_another_key, _without_an_executable, _folder, _dangling_link]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__.strip("_"))
def test_damage_of_any_kind_costs_one_rebuild(desk: Desk, store: LocalStore, damage: Callable[[Path], None]) -> None:
    desk.ask()
    damage(store.path(key_of("step")))
    later = desk.again()
    assert later.ask() == b"STEP"
    assert (later.last.outcome, later.last.stored) == ("miss", True)
    assert later.ask() == b"STEP"
    assert later.last.outcome == "hit"
    assert later.compiler.did == {"compile": 1, "serialise": 1, "load": 1}
    assert later.stats.quarantined == len(store.quarantined()) == (damage is not _dangling_link)


def test_a_store_cleared_while_in_use_costs_rebuilds(desk: Desk, store: LocalStore) -> None:
    desk.ask()
    shutil.rmtree(store.root)
    assert desk.ask() == b"STEP"
    assert (desk.last.outcome, desk.last.stored) == ("miss", True)
    assert desk.ask() == b"STEP"
    assert desk.last.outcome == "hit"


# ---------------------------------------------------------------------------------------------------------------
# Stores that fail


def test_a_store_that_cannot_be_written_is_said_once_and_the_program_goes_on(
    unwritable: LocalStore, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(unwritable)
    for number in range(5):
        assert desk.ask(f"step{number}") == b"STEP%d" % number
    assert desk.stats.errors == 5
    assert (desk.stats.misses, desk.stats.stored) == (5, 0)
    (reason,) = desk.stats.not_stored
    assert reason.startswith("the store cannot be written: ")
    assert str(unwritable.root) not in reason, "counts by reason stay few"
    (line,) = warnings_in(caplog)
    assert line.startswith("cannot write the store: ")
    assert str(unwritable.root) in line


def test_a_store_that_cannot_be_read_is_said_once_and_the_program_goes_on(
    unreadable: LocalStore, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(unreadable)
    for number in range(3):
        assert desk.ask(f"step{number}") == b"STEP%d" % number
        assert desk.last.reason is not None
        assert desk.last.reason.startswith("the store cannot be read: ")
    assert desk.stats.errors == 6
    assert [line.partition(":")[0] for line in warnings_in(caplog)] == [
        "cannot read the store",
        "cannot write the store",
    ]


class Faulty(LocalStore):
    """A third party's store that breaks the contract: it raises what it likes."""

    def get(self, key: str, *, use: bool = True) -> bytes | None:  # noqa: ARG002
        raise ZeroDivisionError(key)

    def put(self, key: str, data: bytes, *, seconds: float = 0.0) -> None:  # noqa: ARG002
        raise MemoryError(key, len(data))


def test_a_store_that_raises_anything_stops_no_program(tmp_path: Path) -> None:
    desk = Desk(Faulty(tmp_path))
    assert desk.ask() == b"STEP"
    assert desk.last.reason == "the store cannot be read: ZeroDivisionError"
    assert desk.last.not_stored == "the store cannot be written: MemoryError"
    assert desk.stats.errors == 2


# ---------------------------------------------------------------------------------------------------------------
# Strict


def test_strict_raises_where_the_store_cannot_be_read(unreadable: LocalStore) -> None:
    desk = Desk(unreadable, strict=True)
    with pytest.raises(StoreError):
        desk.ask()
    assert desk.compiler.did == {}
    assert desk.stats.errors == 1


def test_strict_raises_where_the_store_cannot_be_written(unwritable: LocalStore) -> None:
    desk = Desk(unwritable, strict=True)
    with pytest.raises(StoreError):
        desk.ask()
    assert desk.stats.errors == 1


def test_strict_raises_on_a_bad_entry_and_the_next_request_rebuilds(desk: Desk, store: LocalStore) -> None:
    desk.ask()
    _truncate(store.path(key_of("step")))
    strict = desk.again(strict=True)
    with pytest.raises(BadEntryError, match="digest does not match"):
        strict.ask()
    assert len(store.quarantined()) == 1
    assert strict.ask() == b"STEP"
    assert strict.last.stored


def test_strict_raises_what_loader_and_serialiser_raise(desk: Desk) -> None:
    strict = desk.again(strict=True)
    with pytest.raises(BrokenExecutableError):
        strict.ask(serialise=broken)
    desk.ask()
    with pytest.raises(BrokenExecutableError):
        strict.ask(load=broken)
    assert strict.stats.errors == 2


def test_strict_does_not_mind_ordinary_misses_and_refusals(store: LocalStore) -> None:
    desk = Desk(store, strict=True, thresholds=Thresholds(3600.0, 0))
    assert desk.ask() == b"STEP"
    assert desk.ask(components=None, unkeyable="no key") == b"STEP"
    assert desk.stats.errors == 0


# ---------------------------------------------------------------------------------------------------------------
# Checking contents


def test_equal_contents_are_compared_once(desk: Desk) -> None:
    desk.ask()
    checking = desk.again(check_contents=True)
    assert checking.ask() == b"STEP"
    assert (checking.last.outcome, checking.last.reason) == ("miss", "contents are checked")
    assert checking.stats.not_stored == {ALREADY_STORED: 1}
    assert checking.ask() == b"STEP"
    assert checking.last.outcome == "hit"
    assert checking.compiler.did == {"compile": 1, "serialise": 1, "load": 1}


def test_what_this_process_stored_itself_needs_no_check(store: LocalStore) -> None:
    desk = Desk(store, check_contents=True)
    assert desk.ask() == desk.ask() == b"STEP"
    assert [event.outcome for event in desk.ledger.events()] == ["miss", "hit"]


def test_different_contents_are_an_error_each_time(desk: Desk, store: LocalStore) -> None:
    desk.ask()
    before = store.path(key_of("step")).read_bytes()
    checking = desk.again(check_contents=True)
    for _ in range(2):
        with pytest.raises(ContentsDifferError) as caught:
            checking.ask(compile=lambda: b"ANOTHER")
        assert caught.value.key == key_of("step")
        assert caught.value.stored == b"serialised STEP"
        assert caught.value.compiled == b"serialised ANOTHER"
        assert key_of("step") in str(caught.value)
    assert store.path(key_of("step")).read_bytes() == before, "evidence stays"
    assert checking.stats.misses == 2


def test_the_platform_says_what_is_the_same(desk: Desk) -> None:
    desk.ask()
    checking = desk.again(check_contents=True)
    assert checking.ask(compile=lambda: b"ANOTHER", same=lambda *_: True) == b"ANOTHER"


def test_a_damaged_entry_is_rebuilt_while_contents_are_checked(desk: Desk, store: LocalStore) -> None:
    desk.ask()
    _truncate(store.path(key_of("step")))
    checking = desk.again(check_contents=True)
    assert checking.ask() == b"STEP"
    assert (checking.last.stored, checking.stats.quarantined) == (True, 1)
    assert checking.ask() == b"STEP"
    assert checking.last.outcome == "hit"


def test_a_serialiser_that_fails_stops_no_program_while_contents_are_checked(desk: Desk) -> None:
    desk.ask()
    checking = desk.again(check_contents=True)
    assert checking.ask(serialise=broken) == b"STEP"
    assert checking.stats.errors == 1


def test_a_comparison_that_fails_stops_no_program(desk: Desk) -> None:
    desk.ask()

    def same(one: bytes, other: bytes) -> bool:
        raise BrokenExecutableError

    checking = desk.again(check_contents=True)
    assert checking.ask(same=same) == b"STEP"
    assert checking.stats.errors == 1


# ---------------------------------------------------------------------------------------------------------------
# Many threads


class Crowd:
    """Threads that ask one desk for one program at once."""

    def __init__(self, desk: Desk, count: int = 8) -> None:
        self.desk = desk
        self.count = count
        self.answers: list[bytes] = []
        self.errors: list[BaseException] = []

    def compile_when_all_are_aboard(self) -> bytes:
        """A compiler that takes until everybody waits for it, the first time."""
        self.desk.compiler.count("compile")
        if self.desk.compiler.did["compile"] == 1:
            self.desk.flights.wait_for(self.count)
        return b"STEP"

    def ask(self, **changes: Any) -> list[bytes]:
        """Everybody's answers."""
        request = self.desk.compiler.request("step", **changes)
        threads = [threading.Thread(target=self._ask, args=(request,), daemon=True) for _ in range(self.count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a thread waits for ever"
        return self.answers

    def _ask(self, request: Request[bytes]) -> None:
        try:
            self.answers.append(self.desk.cache.resolve(request))
        except BaseException as error:
            self.errors.append(error)


def check_crowd(desk: Desk) -> None:
    """As `Desk.check`, once the threads are done; the order of events and of what was heard may differ."""
    desk.watcher.finishes.sort(key=lambda event: desk.ledger.events().index(event))
    desk.check()


def test_eight_threads_compile_one_program_once(desk: Desk) -> None:
    crowd = Crowd(desk)
    assert crowd.ask(compile=crowd.compile_when_all_are_aboard) == [b"STEP"] * 8
    assert desk.compiler.did == {"compile": 1, "serialise": 1, "load": 7}
    assert (desk.stats.misses, desk.stats.hits, desk.stats.stored) == (1, 7, 1)
    assert Counter(event.tier for event in desk.ledger.events()) == {None: 1, "process": 7}
    check_crowd(desk)


@pytest.mark.parametrize(
    "thresholds",
    [Thresholds(3600.0, 0), Thresholds(0.0, 1 << 30), Thresholds(0.0, 0, max_size=1)],
    ids=["too quick", "too small", "too large"],
)
def test_eight_threads_compile_once_what_is_not_stored(store: LocalStore, thresholds: Thresholds) -> None:
    desk = Desk(store, thresholds=thresholds)
    crowd = Crowd(desk)
    assert crowd.ask(compile=crowd.compile_when_all_are_aboard) == [b"STEP"] * 8
    assert desk.compiler.did == {"compile": 1, "serialise": 1, "load": 7}
    assert list(store.scan()) == []
    check_crowd(desk)


def test_eight_threads_compile_once_beside_a_broken_store(unwritable: LocalStore) -> None:
    desk = Desk(unwritable)
    crowd = Crowd(desk)
    assert crowd.ask(compile=crowd.compile_when_all_are_aboard) == [b"STEP"] * 8
    assert desk.compiler.did["compile"] == 1
    check_crowd(desk)


def test_eight_threads_all_get_what_is_stored(desk: Desk) -> None:
    desk.ask()
    later = desk.again()
    assert Crowd(later).ask() == [b"STEP"] * 8
    assert later.compiler.did == {"load": 8}
    assert later.stats.hits == 8
    check_crowd(later)


def test_when_the_compiler_fails_every_thread_tries_and_fails_for_itself(desk: Desk) -> None:
    crowd = Crowd(desk)

    def fail() -> bytes:
        crowd.compile_when_all_are_aboard()
        raise CompileError

    assert crowd.ask(compile=fail) == []
    assert [type(error) for error in crowd.errors] == [CompileError] * 8
    assert desk.stats.misses == 8
    check_crowd(desk)


def test_when_nothing_can_be_handed_over_every_thread_still_gets_it(desk: Desk) -> None:
    crowd = Crowd(desk)
    assert crowd.ask(compile=crowd.compile_when_all_are_aboard, serialise=broken) == [b"STEP"] * 8
    assert desk.stats.misses == 8
    check_crowd(desk)


def test_when_nobody_can_load_every_thread_still_gets_it(desk: Desk, store: LocalStore) -> None:
    desk.ask()
    later = desk.again()
    assert Crowd(later).ask(load=broken) == [b"STEP"] * 8
    check_crowd(later)
    assert later.again().ask() == b"STEP"
    assert store.get(key_of("step")) is not None


def test_a_compiler_that_asks_for_its_own_program_comes_home(desk: Desk) -> None:
    depth: list[int] = []

    def compile_again() -> bytes:
        depth.append(1)
        if len(depth) < 3:
            return desk.cache.resolve(desk.compiler.request("step", compile=compile_again))
        return b"STEP"

    assert desk.ask(compile=compile_again) == b"STEP"
    assert len(depth) == 3


def test_two_caches_of_one_process_compile_once(desk: Desk, store: LocalStore) -> None:
    """A change of settings in the middle of a compile must not compile the program twice."""
    other = Desk(store)
    other.cache = CompileCache(
        store, thresholds=OPEN, ledger=other.ledger, flights=desk.flights, observer=other.watcher
    )
    answers: list[bytes] = []
    joined = threading.Thread(target=lambda: answers.append(other.ask()), daemon=True)

    def compile_slowly() -> bytes:
        desk.flights.wait_for(1)
        joined.start()
        desk.flights.wait_for(1)
        return b"STEP"

    assert desk.ask(compile=compile_slowly) == b"STEP"
    joined.join(PATIENCE)
    assert answers == [b"STEP"]
    assert other.compiler.did == {"load": 1}
    assert other.last.tier == "process"


class Place(NamedTuple):
    """Where and how an executable is loaded."""

    platform: str = "gpu"
    devices: tuple[int, ...] = (0, 3)
    options: bytes = b"as the program asked"
    callbacks: int = 0


class Noted:
    """An `Ahead` that has nothing, and writes down what it is told."""

    def __init__(self) -> None:
        self.ways: list[Way | None] = []

    def take(self, key: str, request: Request[Any]) -> None:  # noqa: ARG002
        return None

    def note(self, key: str, way: Callable[[], Way | None], size: int) -> None:  # noqa: ARG002
        self.ways.append(way())


def test_an_entry_says_how_the_program_would_load_it(store: LocalStore) -> None:
    """Not what the compile adds to that, such as a directory of this machine."""
    noted = Noted()
    desk = Desk(store, ahead=noted)
    place = [Place()]
    compile_now = desk.compiler.request("step").compile

    def compile_with_more() -> bytes:
        place[0] = place[0]._replace(options=b"with a directory")
        return compile_now()

    wanted = Way("gpu", (0, 3), b"as the program asked")
    desk.ask("step", compile=compile_with_more, place=lambda: place[0])
    assert way_in(store, "step") == wanted
    place[0] = Place()
    desk.ask("step", place=lambda: place[0])
    assert noted.ways == [wanted, wanted]


@pytest.mark.parametrize("place", [None, lambda: Place(callbacks=1)])
def test_an_entry_that_only_its_program_can_load_does_not_say_how(store: LocalStore, place: Any) -> None:
    Desk(store).ask("step", place=place)
    assert way_in(store, "step") is None


def way_in(store: LocalStore, program: str) -> Way | None:
    data = store.get(key_of(program))
    assert data is not None
    entry = open_entry(data, key_of(program))
    said = [entry.section("way") for section in entry.header.sections if section.name == "way"]
    return Way.said(said[0]) if said else None
