"""Lock files against a model: whoever comes, ends, dies or falls silent, the next one is told what the model says."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rewarm.coordination import HostLeases, Lead
from rewarm.coordination.lease_file import LeaseFile
from rewarm.small_files import PRIVATE

ACTORS = range(4)
KEYS = ("ab" * 32, "cd" * 32)
SUFFIXES = (".lock", ".heir.lock")
DEAD = -1


class Actor:
    """A process, as far as locks know: a thread with leases of its own, that holds one at most."""

    def __init__(self, folder: Path) -> None:
        self._thread = ThreadPoolExecutor(1)
        # Nobody waits here: what would be waited for is told at once.
        self._leases = HostLeases(folder, PRIVATE, patience=0.0, silence=5.0)
        self._turn: contextlib.AbstractContextManager[Lead, Any] | None = None
        self.name = ""  # of the file it leads by

    def take(self, key: str) -> str:
        self._turn = self._leases.lead(key, lambda: False)
        return self._thread.submit(self._turn.__enter__).result().outcome

    def release(self) -> None:
        assert self._turn is not None
        self._thread.submit(self._turn.__exit__, None, None, None).result()
        self._turn, self.name = None, ""

    def file(self) -> LeaseFile:
        """The file that it has open."""
        assert self._turn is not None
        file = self._turn._held._ways[-1].__self__  # type: ignore[attr-defined]
        assert isinstance(file, LeaseFile)
        return file

    def fall_silent(self) -> None:
        file = self.file()
        self._leases.pulse.remove(file.beat)
        os.utime(file._path, (time.time() - 100, time.time() - 100))

    def die(self) -> None:
        """What the system does to the files of a process that is killed."""
        self.file()._file.close()
        self.release()

    def close(self) -> None:
        if self._turn is not None:
            self.release()
        self._thread.shutdown()


class LockFiles(RuleBasedStateMachine):
    """The model: by name of a file, who leads by it, or that its leader is dead; and who is silent."""

    def __init__(self) -> None:
        super().__init__()
        self._root = tempfile.TemporaryDirectory()
        self.folder = Path(self._root.name)
        self.actors = [Actor(self.folder) for _ in ACTORS]
        self.leaders: dict[str, int] = {}
        self.silent: set[int] = set()

    @rule(who=st.sampled_from(ACTORS), key=st.sampled_from(KEYS))
    def take(self, who: int, key: str) -> None:
        if self.actors[who].name:
            return
        names = [key + suffix for suffix in SUFFIXES]
        heard = [self.leaders.get(name) for name in names]
        expected: str | None = None
        for name, leader in zip(names, heard, strict=True):
            if leader is None or leader == DEAD:
                expected = name
            elif leader in self.silent:
                continue
            break
        outcome = self.actors[who].take(key)
        assert outcome == ("alone" if expected is None else "leads")
        if expected is None:
            self.actors[who].release()
        else:
            assert self.actors[who].file()._path.name == expected
            self.actors[who].name = expected
            self.leaders[expected] = who

    def _leading(self) -> list[int]:
        return sorted(set(self.leaders.values()) - {DEAD})

    @precondition(lambda self: self._leading())
    @rule(data=st.data(), how=st.sampled_from(["release", "die", "fall_silent"]))
    def end(self, data: st.DataObject, how: str) -> None:
        who = data.draw(st.sampled_from(self._leading()))
        name = self.actors[who].name
        getattr(self.actors[who], how)()
        if how == "fall_silent":
            self.silent.add(who)
            return
        self.silent.discard(who)
        if how == "die":
            self.leaders[name] = DEAD
        else:
            del self.leaders[name]

    @invariant()
    def files_are_those_of_leaders(self) -> None:
        assert {path.name for path in self.folder.iterdir()} == set(self.leaders)

    def teardown(self) -> None:
        for actor in self.actors:
            actor.close()
        self._root.cleanup()


LockFiles.TestCase.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestLockFiles = LockFiles.TestCase
