"""Runs to reports: what a real program leaves, jobs of several processes, old and damaged records, and the writers."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import itertools
import json
import re
import socket
import subprocess
import sys
import textwrap
import time
import zlib
from array import array
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import report_world as world
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import MANY, Program, clean_environment, execute
from rewarm.explain.afterwards import explanation_of
from rewarm.ledger.journal import RUNS
from rewarm.ledger.runs import NoSuchRunError
from rewarm.report import Report, Sources, Start, build, chosen_starts, to_html, to_json, to_trace
from rewarm.report import html as page
from rewarm.report.schema import schema
from rewarm.report.starts import all_starts
from rewarm.small_files import PRIVATE
from rewarm.store import LocalStore, evicted
from rewarm.store.inventory import survey

STARTED = 1_796_000_000.0
SCHEMA_FILE = Path(page.__file__).parent / "schema.json"

TWO = """
    import jax, numpy as np
    @jax.jit
    def warm_up(x):
        return x - 1
    @jax.jit
    def step(x):
        return x @ x + 1
    warm_up(np.ones((2, 2), np.float32))
    print(step(np.ones((8, 8), np.float32)).sum())
"""


def report_of(root: Path, starts: list[Start] | None = None, against: Start | None = None) -> Report:
    store = LocalStore(root)
    sources = Sources(store, list(survey(store)), [], explanation_of)
    return build(sources, chosen_starts(root, None, 1) if starts is None else starts, against)


def checked(report: Report) -> dict[str, Any]:
    """The report as JSON, held against the schema."""
    told: dict[str, Any] = json.loads(to_json(report))
    jsonschema.validate(told, json.loads(SCHEMA_FILE.read_text()))
    return told


# -- real programs -------------------------------------------------------------------------------------------------


def test_a_cold_and_a_warm_start(program: Program, cache: Path) -> None:
    cold = program(TWO, REWARM_DIR=str(cache)).stats
    warm = program(TWO, REWARM_DIR=str(cache), REWARM_LOAD_AHEAD="no").stats
    later, earlier = all_starts(cache)
    report = report_of(cache, [later], earlier)
    told = checked(report)
    assert (report.totals.requests, report.totals.hits) == (warm["requests"], warm["hits"])
    assert report.totals.seconds_saved == pytest.approx(warm["seconds_saved"], abs=1e-4)
    assert report.store.entries == cold["stored"]
    assert [row.change for row in report.comparison.programs] == ["now hit"] * len(report.programs)  # type: ignore[union-attr]
    step = next(row for row in told["programs"] if row["program"] == "jit_step")
    # The first program of a process is traced before rewarm is asked to listen; the second one is not.
    assert {"trace", "lower", "key", "fetch", "load"} <= set(step["seconds"])
    assert all(value > 0 for value in step["seconds"].values())
    first = checked(report_of(cache, [earlier]))
    step = next(row for row in first["programs"] if row["program"] == "jit_step")
    assert {"trace", "lower", "key", "fetch", "compile", "store"} <= set(step["seconds"])
    assert first["misses"][step["miss"]]["program"] == "jit_step"
    assert first["misses"][step["miss"]]["findings"][0]["kind"] == "new"


@pytest.mark.contract
def test_steps_are_in_their_order_and_as_long_as_the_numbers_say(program: Program, cache: Path) -> None:
    program(TWO, REWARM_DIR=str(cache))
    report = report_of(cache)
    lane, names = report.spans[0], list(report.steps)
    row = next(number for number, one in enumerate(report.programs) if one.program == "jit_step")
    steps = [
        (names[step], at, took)
        for program_, step, at, took in zip(lane.program, lane.step, lane.at, lane.took, strict=True)
        if program_ == row
    ]
    order = [name for name, _, _ in steps if name in ("trace", "lower", "key", "compile", "store")]
    assert order == ["trace", "lower", "key", "compile", "store"]
    assert lane.at == sorted(lane.at)
    assert lane.at[0] >= 0
    event = json.loads(next((cache / RUNS).iterdir()).read_text().splitlines()[-2])["event"]
    spans = {name: took for name, _, took in event["spans"]}
    for name in ("key", "compile", "fetch"):
        assert spans[name] == pytest.approx(event["seconds"][name], abs=1e-4)


def test_what_is_loaded_ahead_is_in_the_timeline(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "train.py"  # one name: what is loaded ahead goes by it
    path.write_text(
        textwrap.dedent(TWO).replace(
            "@jax.jit\ndef warm", "jax.devices(); import time; time.sleep(2)\n@jax.jit\ndef warm"
        )
    )
    for _ in range(2):
        done = execute([sys.executable, str(path)], env=clean_environment(REWARM_DIR=str(cache)), cwd=tmp_path)
        assert done.code == 0, done.err
    report = report_of(cache)
    assert sum(row.ahead for row in report.programs) > 0
    ahead = [row.seconds for row in report.programs if row.ahead]
    assert all({"ahead_read", "ahead_load"} <= set(row) for row in ahead)


def test_a_miss_has_the_lines_that_differ(program: Program, cache: Path) -> None:
    program(TWO, REWARM_DIR=str(cache))
    program(TWO.replace("+ 1", "+ 2"), REWARM_DIR=str(cache))
    report = report_of(cache)
    miss = next(one for one in report.misses if one.program == "jit_step")
    assert any("2.0" in change["after"] for change in miss.changes)
    assert "2.000000e+00" in to_html(report)


_RANK = """
    import sys, jax, numpy as np
    jax.distributed.initialize(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    print(jax.jit(lambda x: x * 2)(np.ones(4, np.float32)).sum(), jax.process_index())
"""


@pytest.mark.contract
def test_the_ranks_of_a_job_are_one_start(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "rank.py"
    path.write_text(textwrap.dedent(_RANK))
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        env = clean_environment(REWARM_DIR=str(cache))
        ranks = [
            subprocess.Popen([sys.executable, str(path), address, "2", str(rank)], env=env, stdout=subprocess.PIPE)
            for rank in range(2)
        ]
        assert [one.wait(240) for one in ranks] == [0, 0]
        [one.communicate() for one in ranks]
    starts = all_starts(cache)
    assert [(start.ranks, len(start.runs)) for start in starts] == [(2, 2), (2, 2)]
    report = report_of(cache)
    assert [lane.rank for lane in report.lanes] == [0, 1]
    assert report.starts[0].ranks == 2
    assert report.totals.hits == report.totals.requests >= 2
    checked(report)


# -- records -------------------------------------------------------------------------------------------------------


def test_jobs_are_told_apart(tmp_path: Path) -> None:
    root = world.directory(tmp_path)
    job = {"id": "10.0.0.1:1234", "ranks": 2}

    def run(rank: int, started: float, number: int, **more: Any) -> None:
        events = [world.hit("jit_f", started)]
        world.write_run(root, events, started=started, job={**job, "rank": rank, **more}, number=number)

    run(0, STARTED, 0)
    run(1, STARTED + 2, 1)
    run(0, STARTED + 60, 2)  # the same address again, a minute later
    run(1, STARTED + 61, 3)
    run(1, STARTED + 5000, 4)  # rank 0 left no run here
    run(0, STARTED + 5001, 5, id="10.0.0.2:1234")  # another job
    found = [[(one.started - STARTED) for one in start.runs] for start in all_starts(root)]
    assert found == [[5001], [5000], [60, 61], [0, 2]]
    report = report_of(root, [all_starts(root)[1]])
    assert report.notes == ("1 of the 2 ranks of train.py --steps 10 have no run here",)


def test_which_start_is_meant(tmp_path: Path) -> None:
    root = world.directory(tmp_path)
    with pytest.raises(NoSuchRunError, match="no run is recorded"):
        chosen_starts(root, None, 1)
    with pytest.raises(NoSuchRunError, match="no run is recorded"):
        chosen_starts(root, None, 3)
    runs = [world.write_run(root, [world.hit("jit_f", STARTED)], started=STARTED + n, number=n) for n in range(3)]
    assert [start.id for start in chosen_starts(root, None, 1)] == [runs[2]]
    assert [start.id for start in chosen_starts(root, None, 2)] == [runs[2], runs[1]]
    assert [start.id for start in chosen_starts(root, None, 50)] == runs[::-1]
    assert [start.id for start in chosen_starts(root, runs[0], 1)] == [runs[0]]
    with pytest.raises(NoSuchRunError, match="there are: "):
        chosen_starts(root, "1999", 1)


def test_events_of_an_earlier_rewarm_are_drawn_by_how_long_they_took(tmp_path: Path) -> None:
    root = world.directory(tmp_path)
    old = world.miss("jit_f", STARTED + 1).as_dict()
    del old["spans"]
    world.write_run(root, [old], started=STARTED)
    report = report_of(root)
    lane, names = report.spans[0], list(report.steps)
    assert [names[step] for step in lane.step] == ["key", "fetch", "compile", "store"]
    assert lane.at == sorted(lane.at)
    checked(report)


def test_a_killed_start_is_reported_as_far_as_it_came(tmp_path: Path) -> None:
    root = world.directory(tmp_path)
    run = world.write_run(
        root, [world.hit("jit_f", STARTED), world.miss("jit_g", STARTED)], started=STARTED, ends=False
    )
    path = root / RUNS / f"{run}.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    report = report_of(root)
    assert report.totals.requests == 1
    assert report.lanes[0].damaged == 1
    assert "1 lines cannot be read" in report.notes[0]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = tuple(world.hit("jit_f", 1.0).as_dict())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(_FIELDS), _VALUES, max_size=6), max_size=4))
def test_whatever_is_in_a_run_a_report_is_made(tmp_path_factory: pytest.TempPathFactory, wrong: list[Any]) -> None:
    root = world.directory(tmp_path_factory.mktemp("cache"))
    good = world.miss("jit_f", STARTED).as_dict()
    world.write_run(root, [{**good, **changes} for changes in wrong] or [good], started=STARTED)
    report = report_of(root)
    checked(report)
    json.loads(to_trace(report))
    to_html(report)


def test_what_went_is_told(tmp_path: Path) -> None:
    root = world.directory(tmp_path / "cache")
    world.write_run(root, [world.hit("jit_f", STARTED)], started=STARTED)
    evicted.note(str(root), world.key_of("jit_f"), 77, evicted.AGE, PRIVATE)
    with (root / evicted.NAME).open("a") as file:
        file.write("nonsense\n12 short 5 age\n")
    store = LocalStore(root)
    store.put(world.key_of("jit_g"), b"junk")
    store.quarantine(world.key_of("jit_g"), "digest differs", b"junk")
    found = {one.what: one for one in report_of(root).history}
    assert found["evicted"].program == "jit_f"
    assert (found["evicted"].bytes, found["evicted"].why) == (77, "not used for longer than max_age")
    assert found["quarantined"].why == "digest differs"
    assert abs((found["evicted"].time or 0) - time.time()) < 3600


def test_a_bounded_store_writes_down_what_it_evicts(program: Program, cache: Path) -> None:
    program(MANY, "6", REWARM_DIR=str(cache), REWARM_MAX_ENTRIES="3")
    gone = report_of(cache).history
    assert len(gone) >= 3
    assert {one.what for one in gone} == {"evicted"}
    assert all(one.program.startswith("jit_") and one.bytes > 0 for one in gone)
    assert {one.why for one in gone} == {"the store was at max_entries, and this was worth least"}


# -- writers -------------------------------------------------------------------------------------------------------


def test_the_schema_in_the_package_is_that_of_the_records() -> None:
    assert json.loads(SCHEMA_FILE.read_text()) == schema()
    jsonschema.Draft202012Validator.check_schema(schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema": "rewarm-report 1"}, schema())


def test_the_trace_is_one_that_tools_read(tmp_path: Path) -> None:
    root = world.directory(tmp_path)
    world.large(root, 30, 3, started=STARTED)
    report = report_of(root)
    events = json.loads(to_trace(report))["traceEvents"]
    complete = [one for one in events if one["ph"] == "X"]
    assert len(complete) == sum(len(lane.at) for lane in report.spans)
    assert {one["ph"] for one in events} == {"X", "M"}
    names = {one["args"]["name"] for one in events if one["name"] == "process_name"}
    assert [name.partition(" on ")[0] for name in sorted(names)] == ["rank 0", "rank 1", "rank 2"]
    named = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"}
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for one in complete:
        place = one["pid"], one["tid"]
        assert named[place].partition(" (")[0] == one["cat"]
        tracks.setdefault(place, []).append((one["ts"], one["dur"]))
    for steps in tracks.values():  # none overlaps another on its track
        steps.sort()
        assert all(at + took <= later for (at, took), (later, _) in itertools.pairwise(steps))


def test_the_packed_steps_are_the_steps(tmp_path: Path) -> None:
    root = world.directory(tmp_path)
    world.large(root, 50, 2, started=STARTED)
    report = report_of(root)
    found = re.search(r'id="spans">([A-Za-z0-9+/=]*)<', to_html(report))
    assert found is not None
    numbers = array("i", zlib.decompress(base64.b64decode(found[1])))
    for lane in report.spans:
        length, numbers = numbers[0], numbers[1:]
        columns = [list(numbers[length * n : length * (n + 1)]) for n in range(4)]
        numbers = numbers[4 * length :]
        assert columns[:2] == [lane.program, lane.step]
        assert sum(columns[2]) == lane.at[-1] // 10
    assert not numbers


def test_hostile_names_end_no_script(tmp_path: Path) -> None:
    root = world.directory(tmp_path)
    world.write_run(root, [world.miss(name, STARTED, why=name) for name in world.HOSTILE], started=STARTED)
    written = to_html(report_of(root))
    plain = to_html(dataclasses.replace(report_of(root), programs=(), misses=()))
    assert written.count("<script") == plain.count("<script")
    assert written.count("</script") == plain.count("</script")
    data = re.search(r'id="data">(.*?)</script>', written, re.DOTALL)
    assert data is not None
    assert data[1].isascii()
    assert {row["program"] for row in json.loads(data[1])["programs"]} == set(world.HOSTILE)


def test_the_library_is_the_one_that_the_notice_names() -> None:
    folder = Path(page.__file__).parent / "page"
    notice = (folder / "NOTICE").read_text()
    digest = hashlib.sha256((folder / page.LIBRARY).read_bytes()).hexdigest()
    assert f"SHA-256 {digest}\n" in notice
    for name in re.findall(r"\((LICENSE-[a-z0-9]+)\)", notice):
        assert (folder / name).read_text()
    assert "</script" not in (folder / page.LIBRARY).read_text()


def test_the_page_weighs_little(tmp_path: Path) -> None:
    root = world.directory(tmp_path)
    world.write_run(root, [world.hit("jit_f", STARTED)], started=STARTED)
    assert len(to_html(report_of(root))) < 700_000


# -- what is written down for it -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_NTASKS": "8"}, ("7.0", 3, 8)),
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, None),
        ({"PMIX_NAMESPACE": "j1", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, ("j1", 1, 2)),
        ({"MASTER_ADDR": "a", "MASTER_PORT": "29500", "RANK": "5", "WORLD_SIZE": "6"}, ("a.29500", 5, 6)),
        ({"RANK": "5", "WORLD_SIZE": "6"}, None),
        ({"MASTER_ADDR": "a", "MASTER_PORT": "1", "RANK": "x", "WORLD_SIZE": "6"}, None),
        ({}, None),
    ],
)
def test_launchers_say_which_process_of_a_job_this_is(
    said: dict[str, str], place: tuple[str, int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rewarm.settings import launched_as

    for name in ("SLURM_JOB_ID", "PMIX_NAMESPACE", "MASTER_ADDR", "RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert launched_as() == place


def test_what_jax_did_before_a_request_is_kept_once_and_bounded() -> None:
    from rewarm.ledger import Ledger

    ledger = Ledger()
    since = time.perf_counter()
    ledger.traced("<lambda>", 0.25)
    ledger.lowered("jit(<lambda>)", 0.125)
    found = {step: (began, took) for step, began, took in ledger.take_stages("jit__lambda", since)}
    assert {step: took for step, (_, took) in found.items()} == {"trace": 0.25, "lower": 0.125}
    assert all(began < 0.1 for began, _ in found.values())
    assert ledger.take_stages("jit__lambda", since) == []
    for number in range(10_000):
        ledger.traced(f"inner_{number}", 0.0)
    assert len(ledger._stages) <= 4096
