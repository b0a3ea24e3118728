"""A program that several processes compile together is loaded where they agree to, and by no thread before that."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from desk import PATIENCE, Desk, key_of

from rewarm.cache import COMPILED_TOGETHER, NOT_EVERYWHERE
from rewarm.envelope import content_of, open_entry
from rewarm.store import LocalStore


class Others:
    """The other processes, as a test has them answer (`cache.Agreement`)."""

    def __init__(self, answer: Callable[[], bool], compilation: str = "") -> None:
        self.answer = answer
        self.compilation = lambda: compilation
        self.asked: list[str] = []

    def loads(self, compilation: str) -> bool:
        self.asked.append(compilation)
        return self.answer()


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path / "store")
    store.prepare()
    return store


def stored(store: LocalStore) -> bytes:
    data = store.get(key_of("step"), use=False)
    assert data is not None
    return data


def test_an_entry_is_known_by_its_compilation_or_else_by_its_digest(store: LocalStore) -> None:
    first, others = Desk(store), Others(lambda: True, "of all")
    first.ask()
    assert first.again().ask(agreement=others) == b"STEP"
    assert others.asked == [content_of(stored(store))]
    store.delete(key_of("step"))
    first.again().ask(agreement=others)
    assert len(others.asked) == 1
    assert open_entry(stored(store), key_of("step")).header.producer == {"jax": "0.10.2", COMPILED_TOGETHER: "of all"}
    warm = first.again()
    warm.ask(agreement=others)
    assert others.asked[1:] == ["of all"]
    assert warm.stats.hits == 1


def test_what_not_all_have_is_compiled_and_stored_anew(store: LocalStore) -> None:
    Desk(store).ask()
    before, desk = stored(store), Desk(store)
    assert desk.ask(agreement=Others(lambda: False, "anew")) == b"STEP"
    assert (desk.last.outcome, desk.last.reason, desk.last.stored) == ("miss", NOT_EVERYWHERE, True)
    assert desk.last.quarantined is None
    assert stored(store) != before
    assert desk.compiler.did == {"load": 1, "compile": 1, "serialise": 1}


def test_other_threads_wait_for_the_agreement_too(store: LocalStore) -> None:
    """And get what was compiled, not the entry that was not agreed on."""
    Desk(store).ask()
    desk, may_answer, loaded_before = Desk(store), threading.Event(), []

    def disagree() -> bool:
        assert may_answer.wait(PATIENCE)
        loaded_before.append(desk.compiler.did["load"])
        return False

    request = desk.compiler.request("step", agreement=Others(disagree, "anew"))
    results: list[bytes] = []
    threads = [threading.Thread(target=lambda: results.append(desk.cache.resolve(request))) for _ in range(4)]
    for thread in threads:
        thread.start()
    desk.flights.wait_for(4)
    threading.Timer(0.3, may_answer.set).start()
    for thread in threads:
        thread.join(PATIENCE)
    assert results == [b"STEP"] * 4
    assert loaded_before == [1]
    assert desk.compiler.did["compile"] == 1


def test_programs_that_are_compiled_together_take_no_turns(store: LocalStore) -> None:
    """One that held the lease would wait for those that wait for the lease."""

    class NoLeases:
        def lead(self, *_: object) -> object:
            raise AssertionError("a lease was asked for")

    desk = Desk(store, leases=NoLeases())
    assert desk.ask(turns=False) == b"STEP"
    with pytest.raises(AssertionError, match="a lease was asked for"):
        desk.ask("other")
