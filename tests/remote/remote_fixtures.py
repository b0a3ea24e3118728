"""The servers of a run, as a plugin: `pytest_plugins = ["remote_fixtures"]` in a test module.

A module of this name, not a conftest: the tests have one, and another of that name would take its place.

`REWARM_TEST_SERVERS=moto,redis` makes a server of that list that cannot start a failure; others are skipped by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from servers import MissingServerError, Server, Servers, do_without

# What the clients read by themselves: a developer's own credentials, endpoints and proxies.
_FOREIGN = ("AWS_", "GOOGLE_", "AZURE_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REDIS")


@pytest.fixture
def clean_clients(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """An environment in which a client finds nothing but what the test says."""
    for name in [name for name in os.environ if name.upper().startswith(_FOREIGN)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", f"{tmp_path_factory.getbasetemp()}")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Server]]:
    """Ask for a server by its name; see `servers.SERVERS`."""
    started = Servers(tmp_path_factory.mktemp("servers"))

    def ask(name: str) -> Server:
        try:
            return started.get(name)
        except MissingServerError as missing:
            do_without(name, missing)

    yield ask
    started.close()
