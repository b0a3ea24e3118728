"""Metrics for Prometheus: scraped over HTTP, and as text files, of real programs in fresh processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from metrics_programs import TWO, parsed, value

from conftest import Program, clean_environment, first
from rewarm import settings

pytest.importorskip("prometheus_client")

SERVED = """
    import sys, urllib.request, jax, numpy as np, rewarm
    import prometheus_client
    from rewarm.metrics import prometheus

    prometheus.register()
    assert prometheus.register() is prometheus.register(prometheus_client.REGISTRY)
    own = prometheus_client.Counter("own_things", "The program's own.")
    server, _ = prometheus_client.start_http_server(0, addr="127.0.0.1")[:2]
    own.inc()
    rewarm.enable(sys.argv[1])

    def scrape():
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain")
            return answer.read().decode()

    before = scrape()
    step = jax.jit(lambda x: x @ x + 1)
    step(np.ones((4, 4), np.float32)).block_until_ready()
    after = scrape()
    stats = rewarm.stats()
    print(before, after, f"{stats.requests} {stats.hits} {stats.seconds_compiling}", sep="=====")
    prometheus.unregister()
    prometheus.unregister()
    assert "rewarm_" not in scrape() and "own_things_total 1.0" in scrape()
"""


def test_a_real_endpoint_is_scraped(program: Program, cache: Path) -> None:
    for start in ("cold", "warm"):
        done = program(SERVED, str(cache))
        *texts, told = done.out.split("=====")
        before, after = map(parsed, texts)
        requests, hits, compiling = told.split()
        assert value(before, "rewarm_requests_total") == 0
        assert value(after, "rewarm_requests_total") == float(requests) > 0
        assert value(after, "rewarm_requests_total", outcome="hit") == float(hits)
        assert value(after, "rewarm_phase_seconds_total", phase="compile") == float(compiling)
        assert value(after, "own_things_total") == 1
        if start == "cold":
            assert value(after, "rewarm_misses_total", cause="new") == float(requests)
            assert value(after, "rewarm_entries_stored_total") > 0
            assert value(after, "rewarm_written_bytes_total") > 0
        else:
            assert value(after, "rewarm_hits_total", tier="local") == float(hits) == float(requests)
            assert value(after, "rewarm_saved_seconds_total") > 0


def test_a_text_file_at_the_end(program: Program, tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "prom"
    folder.mkdir()
    asked = {"REWARM_DIR": str(cache), "REWARM_METRICS_TEXTFILE": f"{folder}/%h-%p-%r.prom"}
    launched = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_NTASKS": "4"}
    cold = program(TWO, **asked, **launched)
    warm = program(TWO, **asked, **launched)
    files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
    assert len(files) == 2  # and nothing half written
    for path, done in zip(files, (cold, warm), strict=True):
        assert path.stat().st_mode & 0o777 == 0o644
        series = parsed(path.read_text())
        host, pid, rank = path.stem.rsplit("-", 2)
        assert rank == "3"
        assert all({"host", "pid", "rank"} <= {name for name, _ in labels} for _, labels in series)
        own = {"host": host, "pid": pid, "rank": rank}
        assert value(series, "rewarm_requests_total", outcome="miss", **own) == done.stats["misses"]
        assert value(series, "rewarm_requests_total", outcome="hit", **own) == done.stats["hits"]
        assert value(series, "rewarm_build_info", **own) == 1
    # What node_exporter reads together: no series twice.
    both = [series for path in files for series in parsed(path.read_text())]
    assert len(set(both)) == len(both)


def test_a_miss_that_is_explained_and_one_that_is_not_stored(program: Program, tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "one.prom"
    asked = {"REWARM_DIR": str(cache), "REWARM_METRICS_TEXTFILE": str(path)}
    program(TWO, "2", **asked)
    program(TWO, "3", REWARM_MIN_COMPILE_SECONDS="1000", **asked)
    series = parsed(path.read_text())
    assert value(series, "rewarm_misses_total", cause="constants") == 1
    assert value(series, "rewarm_not_stored_total", reason="too_quick") == 1
    took = value(series, "rewarm_not_stored_compile_seconds_total", reason="too_quick")
    assert 0 < took <= value(series, "rewarm_phase_seconds_total", phase="compile")
    assert not any("pid" in dict(labels) for _, labels in series)


def test_what_is_evicted_is_counted(program: Program, tmp_path: Path, cache: Path) -> None:
    many = """
        import sys, jax, numpy as np
        for number in range(int(sys.argv[1])):
            exec(f"def f{number}(x): return x * {number} + 1")
            print(float(np.asarray(jax.jit(globals()[f"f{number}"])(np.ones(2, np.float32)))[0]))
    """
    path = tmp_path / "one.prom"
    done = program(many, "9", REWARM_DIR=str(cache), REWARM_MAX_ENTRIES="4", REWARM_METRICS_TEXTFILE=str(path))
    series = parsed(path.read_text())
    kept = len([one for one in cache.glob("[0-9a-f][0-9a-f]/*") if len(one.name) == 64])
    assert value(series, "rewarm_entries_evicted_total") == done.stats["evicted"] == done.stats["stored"] - kept > 0


def test_a_remote_and_its_state(program: Program, tmp_path: Path) -> None:
    remote = tmp_path / "remote"
    remote.mkdir()
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    for host in ("a", "b"):
        path = tmp_path / f"{host}.prom"
        asked = {"REWARM_DIR": str(tmp_path / host), "REWARM_METRICS_TEXTFILE": str(path), **home}
        program(TWO, REWARM_REMOTE=f"file://{remote}?trust=store", **asked)
    first, second = (parsed((tmp_path / f"{host}.prom").read_text()) for host in ("a", "b"))
    places = {dict(labels)["remote"] for name, labels in first if name == "rewarm_remote_state"}
    assert len(places) == 1
    (place,) = places
    assert value(first, "rewarm_remote_state", remote=place, state="ok") == 1
    assert value(first, "rewarm_remote_state", remote=place) == 1
    assert value(first, "rewarm_remote_lookups_total", remote=place, outcome="miss") > 0
    stored = value(first, "rewarm_remote_stored_total", remote=place)
    assert stored > 0
    assert value(first, "rewarm_remote_written_bytes_total", remote=place) > 0
    assert value(second, "rewarm_hits_total", tier="remote") > 0
    assert value(second, "rewarm_remote_lookups_total", remote=place, outcome="hit") > 0
    assert value(second, "rewarm_remote_read_bytes_total", remote=place) > 0


RUNNING = """
    import sys, time, jax, numpy as np
    jax.jit(lambda x: x + 1)(np.ones(2, np.float32)).block_until_ready()
    print("ready", flush=True)
    sys.stdin.readline()
    jax.jit(lambda x: x * 3)(np.ones(2, np.float32)).block_until_ready()
    print("again", flush=True)
    time.sleep(600)
"""


def test_a_file_is_kept_up_to_date_and_survives_a_kill(tmp_path: Path, cache: Path) -> None:
    source, path = tmp_path / "running.py", tmp_path / "one.prom"
    source.write_text(textwrap.dedent(RUNNING))
    env = clean_environment(REWARM_DIR=str(cache), REWARM_METRICS_TEXTFILE=str(path), REWARM_METRICS_SECONDS="0.05")
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, str(source)], env=env, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            until(lambda: path.exists() and value(parsed(path.read_text()), "rewarm_requests_total") >= 1)
            before = value(parsed(path.read_text()), "rewarm_requests_total")
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "again\n"
            until(lambda: value(parsed(path.read_text()), "rewarm_requests_total") > before)
        finally:
            process.kill()
    assert value(parsed(path.read_text()), "rewarm_requests_total") > before


def until(holds: object, patience: float = 60.0) -> None:
    end = time.monotonic() + patience
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)


FORKED = """
    import os, sys, warnings, jax, numpy as np
    warnings.simplefilter("ignore")
    import rewarm
    from rewarm.metrics import prometheus
    rewarm.enable(sys.argv[1])
    # Traced, lowered and served before the fork; XLA's threads are not in a child, so that compiles nothing itself.
    jax.jit(lambda x: x + 1)(np.ones(2, np.float32)).block_until_ready()
    child = os.fork()
    if child == 0:
        from rewarm.ledger import Event, Seconds, of_this_process
        miss = Event("jit_child", None, "miss", None, "r", False, None, Seconds(), 0.0, 0, 0, None, 1.0)
        of_this_process().record(miss)
        sys.exit(0)
    os.waitpid(child, 0)
    print(os.getpid(), child)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("name", ["%p.prom", "one.prom"])
def test_a_forked_child_has_its_own_numbers_or_no_file(
    program: Program, tmp_path: Path, cache: Path, name: str
) -> None:
    folder = tmp_path / "prom"
    folder.mkdir()
    done = program(FORKED, str(cache), REWARM_METRICS_TEXTFILE=f"{folder}/{name}")
    parent, child = done.out.split()
    found = {path.stem: parsed(path.read_text()) for path in folder.iterdir()}
    if name == "one.prom":
        assert value(found.pop("one"), "rewarm_requests_total") >= 1
        assert found == {}
        return
    assert set(found) == {parent, child}
    assert value(found[child], "rewarm_requests_total", pid=child) == 1
    assert value(found[parent], "rewarm_misses_total", pid=parent, cause="new") >= 1
    assert value(found[child], "rewarm_misses_total", cause="new") == 0


@pytest.mark.parametrize(
    "case",
    first(
        2,
        [
            (
                {"REWARM_METRICS_TEXTFILE": "/nowhere/at/all/x.prom"},
                "cannot write metrics to /nowhere/at/all/x.prom: No such",
            ),
            (
                {"REWARM_METRICS_TEXTFILE": "/tmp/%z.prom"},
                "expected a path, in which %h, %p, %r and %% may stand, found %z",
            ),
            ({"REWARM_METRICS_TEXTFILE": "x.prom", "REWARM_METRICS_SECONDS": "often"}, "expected seconds, more than 0"),
            ({"REWARM_METRICS_TEXTFILE": "x.prom", "REWARM_METRICS_SECONDS": "-1"}, "expected more than 0, found -1.0"),
            ({"REWARM_OPENTELEMETRY": "maybe"}, "REWARM_OPENTELEMETRY: expected true or false, found 'maybe'"),
            ({"REWARM_LOG": "xml"}, "REWARM_LOG: expected json, or json:PATH, found 'xml'"),
        ],
    ),
)
def test_what_cannot_be_is_said_once_and_stops_nothing(
    program: Program, cache: Path, case: tuple[dict[str, str], str]
) -> None:
    variables, said = case
    done = program(TWO, REWARM_DIR=str(cache), **variables)
    warnings = done.warnings()
    assert len(warnings) == 1, warnings
    assert said in warnings[0]
    assert done.out.splitlines() == ["5.0", "2.0"]
    assert done.stats["stored"] > 0


BLOCKED = """
    import sys
    class Blocker:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in ("prometheus_client", "opentelemetry"):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    sys.meta_path.insert(0, Blocker())
"""


def test_a_missing_library_is_said_with_its_extra(program: Program, cache: Path) -> None:
    source = textwrap.dedent(BLOCKED) + textwrap.dedent(TWO)
    asked = {"REWARM_METRICS_TEXTFILE": "x.prom", "REWARM_OPENTELEMETRY": "1"}
    done = program(source, REWARM_DIR=str(cache), **asked)
    assert [re.findall(r"pip install '([^']*)'", line) for line in done.warnings()] == [
        ["rewarm[prometheus]"],
        ["rewarm[opentelemetry]"],
    ]
    assert done.stats["stored"] > 0


def test_nothing_is_imported_unless_asked(program: Program, cache: Path) -> None:
    look = """
        import sys, rewarm
        watched = ("prometheus_client", "opentelemetry", "rewarm.metrics", "IPython", "rewarm.notebook")
        assert not set(watched) & set(sys.modules)
        import jax, numpy as np
        jax.jit(lambda x: x + 1)(np.ones(2, np.float32))
        assert rewarm.stats().requests
        assert not set(watched) & set(sys.modules)
    """
    program(look, REWARM_DIR=str(cache))


def test_children_of_rewarms_own_write_no_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("REWARM_METRICS_TEXTFILE", "REWARM_METRICS_SECONDS", "REWARM_OPENTELEMETRY", "REWARM_LOG")
    for name in asked:
        monkeypatch.setenv(name, "1")
    assert set(settings.watching()) == set(asked)
    for environment in (settings.tuning_environment(None), settings.load_check_environment()):
        assert not set(asked) & set(environment)


def test_promtool_finds_nothing_to_say(program: Program, tmp_path: Path, cache: Path) -> None:
    from test_metrics_catalogue import promtool

    tool = promtool()
    path = tmp_path / "one.prom"
    program(TWO, REWARM_DIR=str(cache), REWARM_METRICS_TEXTFILE=str(path))
    done = subprocess.run([tool, "check", "metrics"], input=path.read_bytes(), capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
