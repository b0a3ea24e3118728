"""The local store against a dictionary: any sequence of verbs, strays and reopenings leaves the two in agreement."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rewarm.store import LocalStore
from rewarm.store.conformance import key_of

# Few keys, so that verbs meet; two of them in one shard, so that entries have neighbours.
NEIGHBOUR = key_of(0)[:2] + key_of(9)[2:]
KEYS = (key_of(0), NEIGHBOUR, key_of(1), key_of(2))
STRAY_NAMES = ("notes.txt", ".hidden", "a" * 64, "A" * 64, ".x.1.2.tmp", ".leftover.tmp", "zz", "ff" * 31)

keys = st.sampled_from(KEYS)
values = st.binary(max_size=200) | st.sampled_from([b"", b"x" * 100_000])
which = st.integers(0, 1)


class LocalStoreAgainstDict(RuleBasedStateMachine):
    """Two stores over one directory, and what a dictionary says the directory must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="rewarm-stateful-"))
        self.root = self.place / "deep" / "cache"
        self.model: dict[str, bytes] = {}
        self.strays = 0

    @initialize()
    def open(self) -> None:
        self.stores = [LocalStore(self.root), LocalStore(self.root)]

    def teardown(self) -> None:
        shutil.rmtree(self.place)

    # -- the verbs ---------------------------------------------------------------------------------------------

    @rule(which=which, key=keys, value=values)
    def put(self, which: int, key: str, value: bytes) -> None:
        self.stores[which].put(key, value)
        self.model[key] = value

    @rule(which=which, key=keys)
    def get(self, which: int, key: str) -> None:
        assert self.stores[which].get(key) == self.model.get(key)

    @rule(which=which, key=keys)
    def delete(self, which: int, key: str) -> None:
        self.stores[which].delete(key)
        self.model.pop(key, None)

    @rule(which=which, key=keys)
    def quarantine_what_is_there(self, which: int, key: str) -> None:
        self.stores[which].quarantine(key, "found bad", self.model.get(key))
        self.model.pop(key, None)

    @rule(which=which, key=keys, seen=values | st.none())
    def quarantine_something_else(self, which: int, key: str, seen: bytes | None) -> None:
        self.stores[which].quarantine(key, "found bad", seen)
        if seen is not None and self.model.get(key) == seen:
            del self.model[key]

    @rule(which=which)
    def reopen(self, which: int) -> None:
        self.stores[which] = LocalStore(self.root)

    @rule(which=which)
    def prepare(self, which: int) -> None:
        assert self.stores[which].prepare() is None

    @rule(which=which)
    def remove_leftovers(self, which: int) -> None:
        self.stores[which].remove_leftovers()
        assert self.stores[which].quarantined() == []

    # -- what others do to the directory -----------------------------------------------------------------------

    @rule(name=st.sampled_from(STRAY_NAMES), inside=st.booleans(), folder=st.booleans(), content=values)
    def leave_a_stray(self, name: str, inside: bool, folder: bool, content: bytes) -> None:
        parent = self.root / key_of(0)[:2] if inside else self.root
        parent.mkdir(parents=True, exist_ok=True)
        stray = parent / name
        if stray.is_dir() or (folder and stray.exists()):
            return
        if folder:
            stray.mkdir()
        else:
            stray.write_bytes(content)

    @rule(key=keys, content=values)
    def another_writer_dies_at_work(self, key: str, content: bytes) -> None:
        shard = self.root / key[:2]
        shard.mkdir(parents=True, exist_ok=True)
        self.strays += 1
        (shard / f".{key}.1.{self.strays:08x}.tmp").write_bytes(content)

    @precondition(lambda self: self.root.exists())
    @rule()
    def remove_everything(self) -> None:
        shutil.rmtree(self.root)
        self.model.clear()

    # -- what holds after each step ----------------------------------------------------------------------------

    @invariant()
    def every_get_agrees(self) -> None:
        for store in self.stores:
            assert {key: store.get(key) for key in KEYS} == {key: self.model.get(key) for key in KEYS}

    @invariant()
    def every_scan_agrees(self) -> None:
        for store in self.stores:
            found = [(info.key, info.size) for info in store.scan()]
            assert sorted(found) == sorted((key, len(value)) for key, value in self.model.items())


LocalStoreAgainstDict.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
TestLocalStoreAgainstDict = LocalStoreAgainstDict.TestCase


@pytest.mark.campaign
def test_long_random_campaign() -> None:
    run_state_machine_as_test(
        LocalStoreAgainstDict,
        settings=settings(
            max_examples=150, stateful_step_count=60, deadline=None, suppress_health_check=[*HealthCheck]
        ),
    )
