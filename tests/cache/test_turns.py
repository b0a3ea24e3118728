"""Several caches of one store, as several processes of a host have them: one compiles, the others take its entry."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from desk import Desk, key_of

from rewarm.cache import Evidence
from rewarm.coordination import HostLeases, Lead
from rewarm.errors import MissingTargetError
from rewarm.policy import Thresholds
from rewarm.small_files import PRIVATE
from rewarm.store import LocalStore


def desk(root: Path, **settings: object) -> Desk:
    """Each with leases of its own, as another process would have."""
    root.mkdir(exist_ok=True)
    return Desk(LocalStore(root), leases=HostLeases(root / "leases", PRIVATE), **settings)


def test_who_waited_loads_what_the_other_made(tmp_path: Path) -> None:
    one, other = desk(tmp_path / "cache"), desk(tmp_path / "cache")
    one.compiler.seconds = 0.5
    thread = threading.Thread(target=one.ask)
    thread.start()
    time.sleep(0.2)
    assert other.ask() == b"STEP"
    thread.join()
    assert (one.stats.misses, other.stats.hits, other.compiler.did["compile"]) == (1, 1, 0)
    assert other.last.seconds.wait > 0.1
    assert other.last.seconds_saved < 0.5, "waiting is not saving"


def test_a_miss_asks_once_and_an_entry_that_came_meanwhile_is_taken(tmp_path: Path) -> None:
    one, other = desk(tmp_path / "cache"), desk(tmp_path / "cache")
    looked: list[str] = []
    get = one.store.get

    def get_and_tell(key: str, *, use: bool = True) -> bytes | None:
        found = get(key, use=use)
        looked.append(key)
        if len(looked) == 1:
            other.ask()  # between the look and the lease
        return found

    one.store.get = get_and_tell  # type: ignore[method-assign]
    assert one.ask() == b"STEP"
    assert (one.stats.hits, one.compiler.did["compile"]) == (1, 0)
    looked.clear()
    assert one.ask("another") == b"ANOTHER"
    assert (one.compiler.did["compile"], set(looked)) == (1, {key_of("another")})


def test_a_good_entry_that_this_process_cannot_load_is_tried_once(tmp_path: Path) -> None:
    """Its function is not registered here: a second try would fail just so."""
    desk(tmp_path / "cache").ask()
    tries = []

    def load(raw: bytes) -> bytes:
        tries.append(raw)
        raise MissingTargetError("my_function")

    here = desk(tmp_path / "cache")
    assert here.ask(load=load) == b"STEP"
    assert len(tries) == 1
    assert "my_function" in (here.last.reason or "")


def test_what_is_not_going_to_be_stored_is_waited_for_by_nobody(tmp_path: Path) -> None:
    one, other = desk(tmp_path / "cache", unwritable="read-only"), desk(tmp_path / "cache", unwritable="read-only")
    one.compiler.seconds = 0.5
    thread = threading.Thread(target=one.ask)
    thread.start()
    time.sleep(0.1)
    other.ask()
    thread.join()
    assert other.last.seconds.wait == 0.0
    assert not (tmp_path / "cache" / "leases").exists()


class Asked:
    """Remotes, or leases, that write down what is asked of them, and have nothing."""

    def __init__(self) -> None:
        self.led: list[str] = []

    def lead(self, key: str, *_: object) -> AbstractContextManager[Lead]:
        self.led.append(key)
        return nullcontext(Lead("alone", 0.0, ""))

    def fetch(self, _: str) -> None:
        return None

    def announce(self, _: str) -> None:
        pass

    def publish(self, *_: object, **__: object) -> None:
        pass


@pytest.mark.parametrize(
    ("thresholds", "host", "fleet"),
    [
        (Thresholds(0.0, 0), True, True),
        (Thresholds(1.0, 0), True, True),
        (Thresholds(20.0, 0), True, False),
        (Thresholds(1000.0, 0), False, False),
        (Thresholds(0.0, 1 << 30), False, False),
    ],
)
def test_nobody_is_to_wait_for_what_is_not_going_to_be_kept(
    tmp_path: Path, thresholds: Thresholds, host: bool, fleet: bool
) -> None:
    """A program of 100 KB compiles for some ten seconds, or for minutes: nobody knows before."""
    evidence = Evidence(canonical=bytes(100_000), signature=str, source=bytes)
    leases, remotes = Asked(), Asked()
    Desk(LocalStore(tmp_path), leases=leases, remotes=remotes, thresholds=thresholds).ask(evidence=evidence)
    # Who asks for no lease of the host asks for none of the fleet.
    assert (len(leases.led), len(remotes.led)) == (host, fleet)
