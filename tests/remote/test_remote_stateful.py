"""Any order of verbs, on real servers, against a dictionary."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from servers import Server
from test_remote_conformance import KINDS, Kind

from rewarm.remote.address import parse
from rewarm.remote.blobs import RefusedError, TooLargeError
from rewarm.remote.opening import open_blobs

pytest_plugins = ["remote_fixtures"]
pytestmark = pytest.mark.usefixtures("clean_clients")

NAMES = strategies.sampled_from(["ns/ab/one", "ns/ab/two", "ns/cd/one", "other/x", "other/x-1", "n"])
DATA = strategies.one_of(strategies.binary(max_size=40), strategies.integers(0, 70_000).map(bytes))
PREFIXES = strategies.sampled_from(["ns", "ns/ab", "other", "other/x", "n", "nothing"])

_places = itertools.count()


def machine_of(server: Server, kind: Kind) -> type[RuleBasedStateMachine]:
    """A machine over two blobs objects in one new place for each run."""

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            place = server.address(f"state-{next(_places)}")
            self.blobs = [open_blobs(parse(place)) for _ in range(2)]
            self.model: dict[str, bytes] = {}

        @rule(which=strategies.integers(0, 1), name=NAMES, data=DATA)
        def put(self, which: int, name: str, data: bytes) -> None:
            assert self.blobs[which].put(name, data) is True
            self.model[name] = data

        @rule(which=strategies.integers(0, 1), name=NAMES, data=DATA)
        def put_only_new(self, which: int, name: str, data: bytes) -> None:
            written = self.blobs[which].put(name, data, only_new=True)
            assert written is (name not in self.model or not kind.only_new)
            if written:
                self.model[name] = data

        @rule(which=strategies.integers(0, 1), name=NAMES)
        def get(self, which: int, name: str) -> None:
            assert self.blobs[which].get(name, limit=1 << 20) == self.model.get(name)

        @rule(which=strategies.integers(0, 1), name=NAMES, limit=strategies.integers(0, 50))
        def get_a_little(self, which: int, name: str, limit: int) -> None:
            expected = self.model.get(name)
            if expected is not None and len(expected) > limit:
                with pytest.raises(TooLargeError):
                    self.blobs[which].get(name, limit=limit)
            else:
                assert self.blobs[which].get(name, limit=limit) == expected

        @rule(which=strategies.integers(0, 1), name=NAMES)
        def delete(self, which: int, name: str) -> None:
            self.blobs[which].delete(name)
            self.model.pop(name, None)

        @rule(which=strategies.integers(0, 1), prefix=PREFIXES)
        def scan(self, which: int, prefix: str) -> None:
            if not kind.lists:
                with pytest.raises(RefusedError):
                    list(self.blobs[which].scan(prefix))
                return
            found = {info.name: info.size for info in self.blobs[which].scan(prefix)}
            assert found == {name: len(data) for name, data in self.model.items() if name.startswith(f"{prefix}/")}

        @rule(which=strategies.integers(0, 1))
        def close(self, which: int) -> None:
            self.blobs[which].close()

        @invariant()
        def the_place_shows_nothing(self) -> None:
            assert "secret" not in repr(self.blobs[0])

    return Machine


def run(server: Server, kind: Kind, *, examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine_of(server, kind),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=examples < 50,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("name", KINDS)
def test_any_order(name: str, server: Callable[[str], Server]) -> None:
    run(server(name), KINDS[name], examples=8, steps=25)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", KINDS)
def test_any_order_at_length(name: str, server: Callable[[str], Server]) -> None:
    run(server(name), KINDS[name], examples=150, steps=60)
