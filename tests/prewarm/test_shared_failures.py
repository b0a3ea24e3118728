"""What does not compile on one machine is not tried by the others of a fleet; who is not trusted tells nobody."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from prewarm_command import Filled, command

from conftest import clean_environment, execute
from rewarm.errors import BadEntryError
from rewarm.prewarm import shared_failures
from rewarm.prewarm.failures import Failure
from rewarm.remote.folder import FolderBlobs
from rewarm.sharing import RemoteTier
from rewarm.store import LocalStore
from rewarm.trust import Keyring, Posture, signed
from shared_remotes import MAIN, Machine, a_key

KEY = "ab" * 32
BAD = "JaxRuntimeError: INVALID_ARGUMENT: bad"


def prewarm(machine: Machine, remote: Path, *options: str, **more: str) -> Filled:
    machine.home.mkdir(parents=True, exist_ok=True)
    words = command("failing", "--only", "no option", "--json", *options)
    env = clean_environment(**machine.env(f"file://{remote}", **more))
    done = execute(words, env=env, cwd=machine.home)
    assert done.out.startswith("{"), done.err[-3000:]
    return Filled(done, json.loads(done.out))


def only(filled: Filled, outcome: str = "failed") -> dict[str, Any]:
    [program] = filled.told["programs"]
    assert program["outcome"] == outcome, filled.run.err
    return dict(program)


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    (tmp_path / "remote").mkdir()
    return tmp_path / "remote"


def test_a_fleet_tries_once(tmp_path: Path, remote: Path) -> None:
    one = Machine.named("one", tmp_path)
    two, stranger = Machine.named("two", tmp_path, one), Machine.named("three", tmp_path)
    first = prewarm(one, remote, "--push", "--remember-failures", "5")
    assert only(first)["remembered"] is False
    assert [(at["sent"], at["failures"]) for at in first.told["pushed"]] == [(0, 1)]

    second = only(prewarm(two, remote))
    assert second["remembered"] is True
    assert "No such compile option" in second["why"]
    assert ".py:" not in second["why"], "the line of somebody else's plan"
    assert only(prewarm(stranger, remote))["remembered"] is False, "who is not trusted tells nobody"

    # Nobody keeps it as an entry, and it is over when it said so, wherever it was heard.
    pulled = execute(
        [sys.executable, "-m", "rewarm", "sync", "pull"],
        env=clean_environment(**two.env(f"file://{remote}")),
        cwd=two.home,
    )
    assert pulled.code == 0, pulled.err
    assert list(LocalStore(two.cache).scan()) == []
    [kept] = (two.cache / "prewarm").iterdir()
    told = json.loads(kept.read_text())
    assert 0 < told["expires"] - time.time() <= 5 * 3600
    assert only(prewarm(two, remote, "--retry"))["remembered"] is False


def test_a_failure_that_nobody_trusted_has_signed_is_not_believed(tmp_path: Path, remote: Path) -> None:
    """Put there by somebody who may write to the bucket: unsigned, or with a key of his own."""
    one = Machine.named("one", tmp_path)
    key = only(prewarm(one, remote, "--check"), "missing")["key"]
    now = time.time()
    entry = shared_failures.sealed(key, "no option", Failure(BAD, now, now + 9999), "host")
    place, his = FolderBlobs(remote), Keyring(a_key("his"))
    name = f"main/{shared_failures.name_of(key)[:2]}/{shared_failures.name_of(key)}"
    for blob in (entry, signed(entry, shared_failures.name_of(key), "main", his.signing_key()), b"", b"{}"):
        place.put(name, blob, only_new=False)
        assert only(prewarm(one, remote, "--remember-failures", "0"))["remembered"] is False
    ours = Keyring(a_key("one")).signing_key()
    place.put(name, signed(entry, shared_failures.name_of(key), "main", ours), only_new=False)
    assert only(prewarm(one, remote))["remembered"] is True, "and this one would have been"


def test_without_push_nobody_is_told(tmp_path: Path, remote: Path) -> None:
    only(prewarm(Machine.named("one", tmp_path), remote))
    assert [path for path in remote.rglob("*") if path.is_file()] == []


def test_of_one_that_was_mended_the_others_hear(tmp_path: Path, remote: Path) -> None:
    one = Machine.named("one", tmp_path)
    failed = only(prewarm(one, remote, "--push"))
    place = _tier(remote, one)
    assert shared_failures.opened(_entry(place, failed["key"]), failed["key"]) is not None
    over = Failure("it compiles", time.time(), time.time())
    place.put(shared_failures.name_of(failed["key"]), shared_failures.sealed(failed["key"], "no option", over, "host"))
    assert shared_failures.opened(_entry(place, failed["key"]), failed["key"]) is None


def _tier(remote: Path, machine: Machine) -> RemoteTier:
    return RemoteTier(
        FolderBlobs(remote),
        namespaces=MAIN,
        keyring=Keyring(a_key("one")),
        posture=Posture.REQUIRE,
        writes=True,
        tell=lambda _: None,
    )


def _entry(place: RemoteTier, key: str) -> bytes:
    data = place.get(shared_failures.name_of(key))
    assert data is not None
    return data


def test_what_may_pass_is_not_believed_and_nothing_for_ever() -> None:
    now = time.time()

    def known(error: str = BAD, at: float = now, expires: float = now + 60, key: str = KEY) -> Failure | None:
        return shared_failures.opened(shared_failures.sealed(key, "p", Failure(error, at, expires), "host"), KEY)

    assert known() == Failure(BAD, now, now + 60)
    for passing in (
        "RESOURCE_EXHAUSTED: too much",
        "MemoryError",
        "KeyboardInterrupt",
        "UNAVAILABLE: no answer",
        "bad",
        f"ended: {BAD}",
    ):
        assert known(passing) is None
    assert known(expires=now - 1) is None
    assert known(at=now + 86400, expires=now + 90000) is None, "of a clock that is wrong"
    ages = known(expires=now + 1e9)
    assert ages is not None
    assert ages.expires - now <= 7 * 86400
    with pytest.raises(BadEntryError):
        known(key="cd" * 32)
