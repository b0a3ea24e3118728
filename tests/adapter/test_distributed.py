"""Programs of several processes, in real jobs of `jax.distributed` on loopback."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jobs import each, in_its_own, in_one, job, run

from conftest import entries
from rewarm.cache import COMPILED_TOGETHER, NOT_EVERYWHERE, NOT_IN_STORE
from rewarm.sharing.markers import FOLDER as MARKERS
from rewarm.store.files import header_of

# Programs of all ranks, of each half of them, of one rank alone, and of every rank by itself.
PROGRAMS = """
    every, half = range(ranks), range(0, ranks // 2) if rank < ranks // 2 else range(ranks // 2, ranks)
    results = [float(over(every, f"all_{number}", number)(numbers(every))) for number in range(3)]
    results.append(float(over(half, "half", 7)(numbers(half))))
    results.append(float(np.asarray(local("each", 3)(np.ones(2, np.float32))).sum()))
    if rank == 1:
        local("alone", 5)(np.ones(2, np.float32))
    meet("end")
    said = {name.removeprefix("jit_"): what for name, what in outcomes().items()}
    say(results=results, outcomes={name: said[name] for name in said if name in NAMES}, hits=rewarm.stats().hits,
        misses=rewarm.stats().misses)
""".replace("NAMES", repr(("all_0", "all_1", "all_2", "half", "each", "alone")))

RESULTS = [140.0, 148.0, 156.0, 196.0, 6.0]


def missed(said: list[dict[str, Any]]) -> dict[str, list[int]]:
    """For each program, the ranks that compiled it."""
    found: dict[str, list[int]] = {}
    for rank, one in enumerate(said):
        for program, (outcome, stored, _) in one["outcomes"].items():
            found.setdefault(program, [])
            if outcome == "miss":
                assert stored
                found[program].append(rank)
    return found


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.campaign), 4])
def test_ranks_that_share_a_directory_compile_each_program_once(ranks: int, tmp_path: Path) -> None:
    """Also where two halves of them run one program, each on its own devices."""
    said = run(tmp_path, PROGRAMS, ranks, in_one(tmp_path / "cache"))
    assert each(said, "results") == [RESULTS] * ranks
    compiled = missed(said)
    assert {program: len(by) for program, by in compiled.items()} == dict.fromkeys(compiled, 1)
    assert compiled["alone"] == [1]
    warm = run(tmp_path, PROGRAMS, ranks, in_one(tmp_path / "cache"))
    assert each(warm, "results") == [RESULTS] * ranks
    assert each(warm, "misses") == [0] * ranks
    assert min(each(warm, "hits")) >= 5
    assert list((tmp_path / "cache" / "leases").iterdir()) == []


@pytest.mark.parametrize(
    "ranks", [pytest.param(2, marks=pytest.mark.contract), pytest.param(4, marks=pytest.mark.campaign)]
)
def test_ranks_with_directories_of_their_own_fill_each(ranks: int, tmp_path: Path) -> None:
    said = run(tmp_path, PROGRAMS, ranks, in_its_own(tmp_path))
    assert each(said, "results") == [RESULTS] * ranks
    every = list(range(ranks))
    assert missed(said) == {**dict.fromkeys(["all_0", "all_1", "all_2", "half", "each"], every), "alone": [1]}
    warm = run(tmp_path, PROGRAMS, ranks, in_its_own(tmp_path))
    assert each(warm, "results") == [RESULTS] * ranks
    assert each(warm, "misses") == [0] * ranks


def test_only_rank_0_writes_to_remotes(tmp_path: Path) -> None:
    """As JAX has it: what rank 1 alone compiled stays in its directory; what rank 0 ran too is there for a new host."""
    (tmp_path / "remote").mkdir()
    remote = f"{(tmp_path / 'remote').as_uri()}?trust=store"
    said = run(tmp_path, PROGRAMS, 2, in_its_own(tmp_path / "first", REWARM_REMOTE=remote))
    assert all(0 in by for program, by in missed(said).items() if program != "alone")
    new = run(tmp_path, PROGRAMS, 2, in_its_own(tmp_path / "second", REWARM_REMOTE=remote))
    assert each(new, "results") == [RESULTS] * 2
    assert {program: by for program, by in missed(new).items() if by} == {"alone": [1]}
    for name in ("first", "second"):
        has = [set(programs_in(tmp_path / name / f"of_rank_{rank}")) for rank in range(2)]
        assert has[1] - has[0] == {"alone"}


def keys_in(remote: Path) -> set[str]:
    """The entries of a folder remote."""
    return {path.name for path in (remote / "main").glob("??/*")}


def test_what_any_rank_stores_in_the_directory_of_rank_0_gets_to_the_remote(tmp_path: Path) -> None:
    """Rank 0 sends it, and nobody else writes: at its end, or, what came after that, at its next start."""
    remote, cache = tmp_path / "remote", tmp_path / "cache"
    remote.mkdir()
    source = """
        for number in range(8):
            local(f"one_{number}", number)(np.ones(2, np.float32))
        local(f"alone_{rank}", 50 + rank)(np.ones(2, np.float32))
        meet("compiled")
        said = {event.program for event in rewarm.events() if event.outcome == "miss"}
        say(written=sum(one["written"] for one in rewarm.stats().remotes), missed=len(said))
    """
    environment = in_one(cache, REWARM_REMOTE=f"{remote.as_uri()}?trust=store")
    said = run(tmp_path / "all", source, 3, environment)
    assert min(each(said, "missed")) > 0, "some are compiled by other ranks"
    assert each(said, "written")[1:] == [0, 0]
    assert keys_in(remote) == {path.name for path in entries(cache)}
    assert len(keys_in(remote)) == 11
    assert marked(cache) == []


@pytest.mark.campaign
def test_what_a_rank_could_not_leave_in_time_is_sent_by_the_next_start_of_rank_0(tmp_path: Path) -> None:
    """Here since the share was not mounted."""
    remote, cache = tmp_path / "remote", tmp_path / "cache"
    told = in_one(cache, REWARM_REMOTE=f"{remote.as_uri()}?trust=store")
    each_and_alone = """
        if rank == 1:
            local("alone", 5)(np.ones(2, np.float32))
        local("each", 3)(np.ones(2, np.float32))
        meet("end")
    """
    run(tmp_path / "away", each_and_alone, 2, told)
    assert len(marked(cache)) == len(entries(cache)) > 1
    remote.mkdir()
    run(tmp_path / "next", "local('each', 3)(np.ones(2, np.float32))\nmeet('end')", 2, told)
    assert keys_in(remote) == {path.name for path in entries(cache)}
    assert marked(cache) == []


@pytest.mark.campaign
def test_where_an_address_says_so_every_rank_writes(tmp_path: Path) -> None:
    (tmp_path / "remote").mkdir()
    remote = f"{(tmp_path / 'remote').as_uri()}?trust=store&ranks=all"
    said = run(tmp_path, PROGRAMS, 2, in_its_own(tmp_path / "first", REWARM_REMOTE=remote))
    assert missed(said)["alone"] == [1]
    new = run(tmp_path, PROGRAMS, 2, in_its_own(tmp_path / "second", REWARM_REMOTE=remote))
    assert {program: by for program, by in missed(new).items() if by} == {}


def marked(cache: Path) -> list[str]:
    """What is still to go to a remote."""
    return [path.name for path in (cache / MARKERS).glob("*/*/*")]


@pytest.mark.contract
def test_compiling_a_program_of_several_processes_waits_for_nobody(tmp_path: Path) -> None:
    """On CPU, so it may be under a lease: also while another program of both waits for the process that waits."""
    source = """
        both = range(ranks)
        held, wanted = over(both, "held", 1), over(both, "wanted", 2)
        if rank == 0:
            alone = over(both, "first", 3).lower(numbers(both)).compile()
            client.key_value_set("compiled without the other", "")
        else:
            client.blocking_key_value_get("compiled without the other", 60_000)
        results = []
        def ask():
            results.append(float(wanted(numbers(both))))
        compiled = held.lower(numbers(both)).compile()
        waits = threading.Thread(target=lambda: results.append(float(compiled(numbers(both)))))
        if rank == 0:
            waits.start()
            time.sleep(0.5)
            wanted.lower(numbers(both)).compile()
        else:
            client.key_value_set("asks", "")
            wanted.lower(numbers(both)).compile()
            waits.start()
        waits.join()
        ask()
        meet("end")
        say(results=results, misses=rewarm.stats().misses, waited=rewarm.stats().seconds_waiting)
    """
    said = run(tmp_path, source, 2, in_one(tmp_path / "cache"))
    assert each(said, "results") == [[148.0, 156.0]] * 2
    assert max(each(said, "waited")) < 10


SLOW = """
    import jax.numpy as jnp
    def slow(x):
        for i in range(25):
            x = jnp.tanh(x * x.sum()) * (1 + i)
        return jax.grad(lambda y: (y * y).sum())(x).sum()
    lowered = jax.jit(slow, out_shardings=sharding(range(ranks))).lower(numbers(range(ranks)))
    if rank == 0:
        client.blocking_key_value_get("begun", 60_000)
    else:
        client.key_value_set("begun", "")
    say(begins=True)
    compiled = lowered.compile()
    say(misses=rewarm.stats().misses, waited=rewarm.stats().seconds_waiting)
    compiled(numbers(range(ranks)))
    say(ends=True)
"""


def test_a_job_ends_as_without_rewarm_when_a_rank_is_killed(tmp_path: Path) -> None:
    """The one that is killed has the lease of a program of both."""
    codes = []
    for name, environment in (
        ("without", lambda _: {"HEARTBEAT": "4"}),
        ("with", in_one(tmp_path / "cache", HEARTBEAT="4")),
    ):
        with job(tmp_path / name, SLOW, 2, environment) as running:
            for rank in (1, 0):
                assert running.hears(rank) == {"begins": True}
            time.sleep(0.2)
            running.ranks[1].kill()
            ended = running.end(60)
        codes.append([one.code for one in ended])
        if name == "with":
            assert ended[0].said["misses"] == 1
            assert ended[0].said["waited"] < 3
        assert "ends" not in ended[0].said
    assert codes[0] == codes[1] == [codes[0][0], -signal.SIGKILL]
    assert codes[0][0] != 0


# -- agreeing ------------------------------------------------------------------------------------------------------

AGREE = """
    from rewarm.jax_adapter.distributed import Agreements
    from rewarm.jax_adapter.seam import JobStore

    agreements = Agreements(JobStore(client), patience=60.0)
    every = frozenset(range(ranks))

    def timed(key, have, deadline=10.0, ranks=every, by=agreements):
        since = time.monotonic()
        loads, compilation = by.agree(key, have, ranks, deadline)
        return [loads, compilation, round(time.monotonic() - since, 2)]
"""


def decisions(rows: list[Any]) -> tuple[bool, str]:
    """The one decision that all ranks came to."""
    assert len({(loads, compilation) for loads, compilation, _ in rows}) == 1, rows
    assert rows[0][1]
    return rows[0][0], rows[0][1]


def slowest(rows: list[Any]) -> float:
    """The longest that a rank took, in seconds."""
    return max(row[2] for row in rows)


@pytest.mark.contract
def test_ranks_agree(tmp_path: Path) -> None:
    source = (
        AGREE
        + """
    last = rank == ranks - 1
    meet("all have it")
    say(all_have=timed("all", "x"))
    say(again=timed("all", "x", 0.0), again_without=timed("all", None), again_other=timed("all", "y"))
    meet("one has not")
    say(one_has_not=timed("not", None if last else "x"))
    say(one_has_not_again=timed("not", "x"))
    meet("none has it")
    say(none_has=timed("none", None))
    meet("another compilation")
    say(another=timed("another", "y" if last else "x"))
    meet("late, within the deadline")
    time.sleep(1.0 if last else 0.0)
    say(late=timed("late", "x"))
    meet("too late")
    time.sleep(2.5 if last else 0.0)
    say(too_late=timed("too late", "x", 1.0))
    meet("one that never asks")
    say(never=[False, "", 0] if last else timed("never", "x", 1.0))
    meet("never, and no patience left")
    hasty = Agreements(agreements.store, patience=1.0)
    if not last:
        timed("impatient 1", "x", ranks=every, by=hasty)
        say(impatient=timed("impatient 2", "x", ranks=every, by=hasty))
    meet("two groups of one program")
    group = frozenset([rank, rank ^ 1])
    say(group=timed("group", "x" if rank < 2 else None, ranks=group))
    meet("threads")
    # Of forty programs, all have the even ones; asked for at once, in another order by each rank, each twice.
    order = np.random.default_rng(rank).permutation(40).tolist()
    answers = {}
    def ask(number):
        have = None if number % 2 and number % ranks == rank else "x"
        answers.setdefault(number, []).append(timed(f"thread {number}", have))
    threads = [threading.Thread(target=ask, args=(number,)) for number in order * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say(threads=[answers[number] for number in range(40)])
    meet("near the deadline")
    # Nobody knows who is in time.
    pauses = np.random.default_rng(rank).uniform(0.0, 0.2, 30)
    near = []
    for number, pause in enumerate(pauses):
        time.sleep(pause)
        near.append(timed(f"near {number}", "x", 0.1))
    say(near=near)
    meet("end")
    """
    )
    said = run(tmp_path, source, 4, lambda _: {})
    for name, loads in {"all_have": True, "late": True, "one_has_not": False, "none_has": False, "another": False,
                        "too_late": False}.items():  # fmt: skip
        assert decisions(each(said, name))[0] == loads, name
    for name in ("all_have", "one_has_not", "none_has", "another"):
        assert slowest(each(said, name)) < 5, name
    assert decisions(each(said, "all_have"))[1] == "x"
    for name in ("again", "again_without", "again_other"):
        assert [row[:2] for row in each(said, name)] == [row[:2] for row in each(said, "all_have")]
        assert slowest(each(said, name)) < 1
    assert decisions(each(said, "one_has_not_again")) == decisions(each(said, "one_has_not"))
    assert decisions(each(said[:3], "never"))[0] is False
    assert 1.0 <= slowest(each(said[:3], "never")) < 5
    assert decisions(each(said[:3], "impatient"))[0] is False
    assert slowest(each(said[:3], "impatient")) < 1
    assert decisions(each(said[:2], "group"))[0] is True
    assert decisions(each(said[2:], "group"))[0] is False
    for number in range(40):
        rows = [row for one in said for row in one["threads"][number]]
        assert len(rows) == 8
        assert decisions(rows)[0] == (number % 2 == 0)
        assert slowest(rows) < 8
    outcomes = {decisions([one["near"][number] for one in said])[0] for number in range(30)}
    assert outcomes == {True, False}


def test_dead_ranks_leave_the_others_to_jax(tmp_path: Path) -> None:
    """Nobody waits for a dead rank beyond the deadline, and where the service is dead JAX ends the process."""
    source = (
        AGREE
        + """
    say(ready=True)
    while not os.path.exists(f"{folder}/killed"):
        time.sleep(0.02)
    say(first=timed("one", "x", 1.0), second=timed("two", "x", 1.0))
    time.sleep(60)
    """
    )
    with job(tmp_path, source, 3, lambda _: {}) as running:
        for rank in range(3):
            assert running.hears(rank) == {"ready": True}
        running.ranks[2].kill()
        running.ranks[2].wait()
        (tmp_path / "killed").touch()
        rows = [running.hears(rank) for rank in range(2)]
        for name in ("first", "second"):
            assert decisions(each(rows, name))[0] is False
            assert slowest(each(rows, name)) < 4
        running.ranks[0].kill()
        assert running.end(40)[1].code not in (0, -signal.SIGKILL)


# Programs of several processes are compiled as on GPU: each waits for the shares of the others, by the program's name.
TOGETHER = """
    import functools
    from jax._src import compiler
    from rewarm.jax_adapter import distributed as several

    several.compile_together = lambda call: len(several.ranks_of(call)) > 1
    compile_it, alone = compiler.backend_compile_and_load, []

    @functools.wraps(compile_it)
    def tuned_together(backend, module, executable_devices, options, host_callbacks):
        name = module.operation.attributes["sym_name"].value
        processes = {device.process_index for device in executable_devices}
        if dict(options.env_option_overrides).get("xla_gpu_shard_autotuning", True) is False:
            alone.append(name)
        elif len(processes) > 1:
            try:
                client.key_value_set(f"share/{name}/{rank}", "")
            except RuntimeError:
                pass
            for other in processes - {rank}:
                client.blocking_key_value_get(f"share/{name}/{other}", 20_000)
        return compile_it(backend, module, executable_devices, options, host_callbacks)

    compiler.backend_compile_and_load = tuned_together
"""

ALL = """
    every = range(ranks)

    def compute(*programs):
        return [float(over(every, f"p{number}", number)(numbers(every))) for number in programs]

    say(results=compute(0, 1, 2, 3), outcomes=outcomes())
    meet("end")
"""

# On CPU the keys of JAX differ between the ranks, so its own way waits in vain; it is not ours to mend.
SHARED_BINARY = """
    jax.config.update("jax_share_binary_between_hosts", True)
    jax.config.update("jax_share_binary_between_hosts_timeout_ms", 500)
    compiler.backend_compile_and_load = compile_it
    try:
        over(every, "p4", 4).lower(numbers(every)).compile()
    except RuntimeError as error:
        assert "DEADLINE_EXCEEDED" in str(error), error
    say(left=list(rewarm.stats().left_to_jax))
    meet("end of all")
"""

ALONE = """
    # Later, and by one process alone: it waits for nobody.
    def again():
        since = time.monotonic()
        jax.clear_caches()
        over(every, "p3", 3).lower(numbers(every)).compile()
        event = rewarm.events()[-1]
        return [event.program, event.outcome, time.monotonic() - since]
    if rank == 0:
        say(had=again())
    else:
        from pathlib import Path
        from rewarm.store import LocalStore
        LocalStore(Path(os.environ["REWARM_DIR"])).delete(next(e.key for e in rewarm.events() if e.program == "jit_p3"))
        say(lost=again())
    say(alone=alone)
    meet("end of all")
"""


def programs_in(cache: Path) -> dict[str, Path]:
    """The entry of each program."""
    headers = {path: header_of(path) for path in entries(cache)}
    return {header.program.removeprefix("jit_"): path for path, header in headers.items() if header is not None}


def compilations(cache: Path) -> dict[str, str]:
    """Which compilation each of the programs of all came from."""
    found = {}
    for program, path in programs_in(cache).items():
        header = header_of(path)
        if program.startswith("p") and header is not None:
            found[program] = header.producer[COMPILED_TOGETHER]
    return found


def outcomes(said: list[dict[str, Any]], program: str) -> list[tuple[str, str | None]]:
    """What became of a program in each rank, and why."""
    return [(one["outcomes"][f"jit_{program}"][0], one["outcomes"][f"jit_{program}"][2]) for one in said]


HIT = [("hit", None)] * 2


def test_programs_compiled_together_are_all_loaded_or_all_compiled(tmp_path: Path) -> None:
    """With directories that come to differ."""
    own, of = in_its_own(tmp_path), [tmp_path / f"of_rank_{rank}" for rank in range(2)]
    programs = ["p0", "p1", "p2", "p3"]

    cold = run(tmp_path, TOGETHER + ALL, 2, own)
    assert each(cold, "results") == [[140.0, 148.0, 156.0, 164.0]] * 2
    for program in programs:
        assert outcomes(cold, program) == [("miss", NOT_IN_STORE)] * 2
    assert compilations(of[0]) == compilations(of[1])
    assert len(set(compilations(of[0]).values())) == 4

    old = programs_in(of[0])["p2"].read_bytes()
    for cache in of:
        programs_in(cache)["p2"].unlink()
    programs_in(of[1])["p0"].unlink()
    os.truncate(programs_in(of[1])["p1"], 100)
    torn = run(tmp_path, TOGETHER + ALL, 2, own)
    assert each(torn, "results") == each(cold, "results")
    assert outcomes(torn, "p0") == [("miss", NOT_EVERYWHERE), ("miss", NOT_IN_STORE)]
    assert outcomes(torn, "p1")[0] == ("miss", NOT_EVERYWHERE)
    assert outcomes(torn, "p1")[1][0] == "miss"
    assert outcomes(torn, "p2") == [("miss", NOT_IN_STORE)] * 2
    assert outcomes(torn, "p3") == HIT
    assert compilations(of[0]) == compilations(of[1])

    programs_in(of[0])["p2"].write_bytes(old)
    mixed = run(tmp_path, TOGETHER + ALL + ALONE, 2, own)
    assert each(mixed, "results") == each(cold, "results")
    assert outcomes(mixed, "p2") == [("miss", NOT_EVERYWHERE)] * 2
    for program in ("p0", "p1", "p3"):
        assert outcomes(mixed, program) == HIT
    assert mixed[0]["had"][:2] == ["jit_p3", "hit"]
    assert mixed[1]["lost"][:2] == ["jit_p3", "miss"]
    assert max(mixed[0]["had"][2], mixed[1]["lost"][2]) < 5
    assert each(mixed, "alone") == [[], ["jit_p3"]]
    assert COMPILED_TOGETHER not in producer_of(programs_in(of[1])["p3"])


def producer_of(path: Path) -> Mapping[str, str]:
    """What an entry says it was made by."""
    header = header_of(path)
    assert header is not None
    return header.producer


def test_programs_compiled_together_in_one_directory(tmp_path: Path) -> None:
    """Nobody waits for the lease of one who waits for him; and JAX's own way of sharing is left to it."""
    shared = in_one(tmp_path / "cache")
    cold = run(tmp_path, TOGETHER + ALL, 2, shared)
    assert each(cold, "results") == [[140.0, 148.0, 156.0, 164.0]] * 2
    for program in ("p0", "p1", "p2", "p3"):
        assert ("miss", NOT_IN_STORE) in outcomes(cold, program)
    warm = run(tmp_path, TOGETHER + ALL + SHARED_BINARY, 2, shared)
    assert [outcomes(warm, program) for program in ("p0", "p1", "p2", "p3")] == [HIT] * 4
    assert each(warm, "left") == [["jax_share_binary_between_hosts is on for a program of several processes"]] * 2
