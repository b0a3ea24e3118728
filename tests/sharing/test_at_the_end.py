"""What is owed to a remote whose client has not been imported yet, when the program ends at once."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from servers import Server
from sharing_world import OURS, key_of

from conftest import clean_environment
from rewarm.sharing.markers import FOLDER as MARKERS
from shared_remotes import HttpCache, http_cache

pytest_plugins = ["remote_fixtures"]
pytestmark = pytest.mark.usefixtures("clean_clients")

# A warm program: all that it asks for is here, and three entries are owed. It ends as soon as its remotes are opened.
PROGRAM = """
    import atexit, sys
    sys.path[:0] = PATHS
    from sharing_world import entry_of, key_of, store_at
    from rewarm import settings
    from rewarm.remote.address import parse
    from rewarm.sharing.made import Made
    from rewarm.sharing.markers import Markers
    from rewarm.sharing.opening import open_remotes

    asked = settings.of_command()
    store = store_at(asked.directory)
    for number in range(OWED):
        store.put(key_of(number), entry_of(number))
        Made(store.root).add(entry_of(number))
        Markers(store.root, f"{parse(asked.remote[0]).identity} main").add(key_of(number))

    def opened():
        return open_remotes(asked, store, lambda line: print(line, flush=True))

    def end(remotes):
        remotes.uploads.add_hint("plans/x", b"plan")
        remotes.uploads.drain(20)

    BODY
"""
AT_ONCE = "atexit.register(end, opened())"
TOO_LATE = "atexit.register(lambda: end(opened()))"


def ended(tmp_path: Path, remote: str, body: str = AT_ONCE, owed: int = 3) -> list[str]:
    """The lines that a program has to say which ends so."""
    here = Path(__file__).parent
    code = textwrap.dedent(PROGRAM).replace("PATHS", repr([str(here), str(here.parent)]))
    done = subprocess.run(
        [sys.executable, "-c", code.replace("OWED", str(owed)).replace("BODY", body)],
        env=clean_environment(
            REWARM_DIR=str(tmp_path / "cache"), REWARM_SIGNING_KEY=OURS.to_text(), REWARM_REMOTE=remote,
            HOME=str(tmp_path), XDG_CONFIG_HOME=str(tmp_path / "config"),
        ),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def marked(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "cache" / MARKERS).glob("*/*/*")}


@pytest.fixture
def http() -> Iterator[HttpCache]:
    with http_cache() as cache:
        yield cache


def with_a_profile(tmp_path: Path, http: HttpCache) -> str:
    """An S3 server, and a home with a profile for it."""
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = me\naws_secret_access_key = secret\n"
    )
    return f"s3://cache?endpoint=http://127.0.0.1:{http.port}"


@pytest.mark.parametrize("owed", [0, 3])
def test_what_is_owed_to_redis_arrives_and_so_does_what_comes_at_the_end(
    server: Callable[[str], Server], tmp_path: Path, owed: int
) -> None:
    redis = pytest.importorskip("redis")
    at = server("redis")
    assert ended(tmp_path, f"{at.url}?prefix=owed-{owed}", owed=owed) == []
    assert marked(tmp_path) == set()
    with redis.Redis(port=at.port) as client:
        found = {name.decode().rpartition("/")[2] for name in client.scan_iter(f"owed-{owed}:*")}
    assert found == {*map(key_of, range(owed)), "x"}


@pytest.mark.parametrize("owed", [0, 3])
def test_what_is_owed_to_s3_by_a_profile_arrives(tmp_path: Path, http: HttpCache, owed: int) -> None:
    pytest.importorskip("boto3")
    assert ended(tmp_path, with_a_profile(tmp_path, http), owed=owed) == []
    assert marked(tmp_path) == set()
    assert {path.rpartition("/")[2] for path in http.blobs} == {*map(key_of, range(owed)), "x"}


@pytest.mark.parametrize("kind", ["redis", "s3"])
def test_where_it_is_too_late_nothing_misleading_is_said_and_the_markers_stay(
    tmp_path: Path, http: HttpCache, kind: str
) -> None:
    pytest.importorskip("redis" if kind == "redis" else "boto3")
    remote = with_a_profile(tmp_path, http) if kind == "s3" else "redis://127.0.0.1:9"
    assert ended(tmp_path, remote, TOO_LATE) == []
    assert marked(tmp_path) == set(map(key_of, range(3)))
    if kind == "s3":
        assert ended(tmp_path, remote, AT_ONCE, 0) == []
        assert (marked(tmp_path), sorted(http.entries())) == (set(), sorted(map(key_of, range(3))))
