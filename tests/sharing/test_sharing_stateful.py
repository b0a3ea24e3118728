"""Two stores and one folder that anybody may write to: whatever happens, what is fetched was put by who is trusted."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sharing_world import OURS, STRANGER, THEIRS, entry_of, key_of, store_at

from rewarm.errors import StoreError
from rewarm.remote.folder import FolderBlobs
from rewarm.sharing import Remotes, RemoteTier, Uploads
from rewarm.store import LocalStore
from rewarm.trust import Keyring, Posture, signed
from shared_remotes import MAIN, blob_of

NUMBERS = st.integers(0, 3)
WHO = st.integers(0, 1)


class Sharing(RuleBasedStateMachine):
    """Two users who trust each other, and one whom nobody trusts."""

    @initialize()
    def begin(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="rewarm-sharing-"))
        self.remote = self.place / "remote"
        self.remote.mkdir()
        self.keys = [Keyring(OURS, [THEIRS.public]), Keyring(THEIRS, [OURS.public])]
        self.stores: list[LocalStore] = [store_at(self.place / name) for name in ("one", "other")]
        self.good: dict[int, set[bytes]] = {number: set() for number in range(4)}
        self.told: list[str] = []
        self.sharing: list[Remotes] = [self.opened(0), self.opened(1)]

    def opened(self, who: int) -> Remotes:
        tier = RemoteTier(
            FolderBlobs(self.remote), namespaces=MAIN, keyring=self.keys[who], posture=Posture.REQUIRE, writes=True,
            tell=self.told.append,
        )  # fmt: skip
        store = self.stores[who]
        uploads = Uploads(store.root, [tier], lambda key: store.get(key, use=False), self.told.append)
        uploads.resume()
        return Remotes([tier], uploads, store)

    def blob(self, number: int) -> Path:
        place = blob_of(self.remote, key_of(number))
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    @rule(who=WHO, number=NUMBERS, content=st.binary(max_size=40), wait=st.booleans())
    def publish(self, who: int, number: int, content: bytes, wait: bool) -> None:
        entry = entry_of(number, content)
        self.good[number].add(entry)
        self.sharing[who].announce(key_of(number))
        self.stores[who].put(key_of(number), entry)
        self.sharing[who].publish(key_of(number), entry, stored=True)
        if wait:
            self.sharing[who].uploads.drain(5.0)

    @invariant()
    def only_what_was_put_comes_back(self) -> None:
        for sharing in getattr(self, "sharing", ()):
            for number in range(4):
                found = sharing.fetch(key_of(number))
                assert found is None or found.data in self.good[number]

    @rule(who=WHO)
    def fetch_ahead(self, who: int) -> None:
        self.sharing[who].fetch_ahead([key_of(number) for number in range(4)])

    @rule(who=WHO)
    def start_anew(self, who: int) -> None:
        """As after a kill: the queue is lost, the markers are not."""
        self.sharing[who].close()
        self.sharing[who] = self.opened(who)

    @rule(who=WHO)
    def drain(self, who: int) -> None:
        self.sharing[who].uploads.drain(5.0)

    @rule(who=WHO, number=NUMBERS)
    def evict(self, who: int, number: int) -> None:
        with contextlib.suppress(StoreError):
            self.stores[who].delete(key_of(number))

    @rule(number=NUMBERS, at=st.floats(0, 1), bit=st.integers(0, 7), cut=st.booleans())
    def damage(self, number: int, at: float, bit: int, cut: bool) -> None:
        place = self.blob(number)
        if place.exists() and (data := bytearray(place.read_bytes())):
            index = int(at * (len(data) - 1))
            data[index] ^= 1 << bit
            place.write_bytes(data[:index] if cut else data)

    @rule(number=NUMBERS, content=st.binary(max_size=40), how=st.sampled_from(["unsigned", "stranger", "namespace"]))
    def replace(self, number: int, content: bytes, how: str) -> None:
        key, entry = key_of(number), entry_of(number, b"evil" + content)
        blob = {
            "unsigned": entry,
            "stranger": signed(entry, key, "main", STRANGER),
            "namespace": signed(entry, key, "ci", OURS),
        }[how]
        self.blob(number).write_bytes(blob)

    @rule(number=NUMBERS, other=NUMBERS)
    def swap(self, number: int, other: int) -> None:
        if self.blob(other).exists():
            shutil.copyfile(self.blob(other), self.place / "copy")
            shutil.copyfile(self.place / "copy", self.blob(number))

    @rule(number=NUMBERS)
    def lose(self, number: int) -> None:
        self.blob(number).unlink(missing_ok=True)

    def teardown(self) -> None:
        if not hasattr(self, "sharing"):
            return
        for who, sharing in enumerate(self.sharing):
            sharing.uploads.drain(5.0)
            sharing.close()
            for number in range(4):
                data = self.stores[who].get(key_of(number))
                assert data is None or data in self.good[number]
        shutil.rmtree(self.place, ignore_errors=True)


_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]
TestSharing = Sharing.TestCase
TestSharing.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=_QUIET, derandomize=True
)


@pytest.mark.campaign
class TestSharingAtLength(Sharing.TestCase):
    settings = settings(max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=_QUIET)
