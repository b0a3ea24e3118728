"""The merge rule: one result in any order and grouping, each rule by itself, and many writers at once."""

from __future__ import annotations

import functools
import itertools
import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuning_many import legacy_one, new_one, of_writer
from tuning_samples import NEW, json_of, legacy_entry, new_entry, target, triton_result

from conftest import clean_environment
from rewarm.autotune import merging
from rewarm.autotune.formats import (
    Device,
    Family,
    Format,
    Source,
    TuningEntry,
    Versions,
    build_of,
    fusion_path,
    read,
    with_keys,
    write,
)
from rewarm.autotune.formats.protobuf import message_class
from rewarm.autotune.locating import place_of, places
from rewarm.autotune.merging import Reader, better, is_sound, merge, slot
from rewarm.autotune.places import Place
from rewarm.autotune.selecting import codegens

BUILD = build_of("0.12.0.1")
UNSOUND = triton_result(num_warps=3)


def unnamed(entry: TuningEntry) -> TuningEntry:
    """As a file of a legacy directory has it."""
    digest = fusion_path(entry).removesuffix(".textproto")
    return replace(entry, device=None, fusion=None, versions=Versions(), digest=digest)


def some_entries() -> list[TuningEntry]:
    """Few places, and for each entries that every rule can tell apart."""
    made: list[TuningEntry] = []
    for number, choice in itertools.product(range(2), range(3)):
        made += [new_one(number, choice, "a"), new_one(number, choice, "b")]
        made += [legacy_one(number, choice, micros=micros) for micros in (0, 5, 9)]
        made.append(legacy_one(number, choice, version=0))
        made.append(unnamed(legacy_one(number, choice, micros=3)))
    bare = Versions(codegen="070b7c91256c4093")
    made += [replace(new_one(0, 1), versions=bare), replace(new_one(0, 1), run_time=-1.0)]
    made += [replace(new_one(0, 1), run_time=2e-6), replace(new_one(0, 2), run_time=1e-6), new_one(0, 5)]
    made += [legacy_entry(UNSOUND, fusion=legacy_one(0, 0).fusion), replace(new_one(1, 1), config=b"\xff")]
    return made


def of_builds() -> list[TuningEntry]:
    """New entries that one build finds strictly, loosely and not at all, or that nobody knows the maker of."""
    its = new_one(0, 1).versions.backend
    loose, unknown = Versions(codegen=OLDER, backend=its), Versions(codegen="0" * 16, backend=its)
    gone, nobody = Versions(codegen=OLDER, backend="0" * 40), Versions(codegen="1" * 16, backend="0" * 40)
    told = [new_one(0, 1).versions, loose, unknown, gone, nobody, Versions(backend=its), Versions(codegen="2" * 16)]
    found = [replace(new_one(0, choice), versions=versions) for versions in told for choice in (1, 2)]
    return [*found, *(replace(one, device=target("a100").fingerprint) for one in found[::2])]


OLDER = min(codegens(build_of("0.11.2"), target("h200")))  # type: ignore[arg-type]
SOME = [*some_entries(), *of_builds()]
# Who reads: nobody that is known, a build, a build on a device, and one whose own versions are known by what it wrote.
READERS = [
    Reader(),
    Reader(BUILD),
    Reader(BUILD, target("h200")),
    Reader(BUILD, Device(target("h200").text)),
    Reader(BUILD, target("h200"), frozenset({"0" * 16})),
    Reader(own=frozenset({OLDER})),
]
readers = st.sampled_from(READERS)
sets = st.lists(st.sampled_from(SOME), max_size=12)


def told(entries: tuple[TuningEntry, ...]) -> list[tuple[TuningEntry, float | None, Source]]:
    """Everything, also what equality passes over."""
    return [(entry, entry.run_time, entry.source) for entry in entries]


@settings(deadline=None, max_examples=150)
@given(a=sets, b=sets, c=sets, reader=readers)
def test_order_and_grouping_change_nothing(
    a: list[TuningEntry], b: list[TuningEntry], c: list[TuningEntry], reader: Reader
) -> None:
    merge = functools.partial(merging.merge, **reader._asdict())
    whole = told(merge(a, b, c).entries)
    assert told(merge(merge(a, b).entries, c).entries) == whole
    assert told(merge(a, merge(b, c).entries).entries) == whole
    assert told(merge(c, a[::-1], b).entries) == whole
    assert told(merge(merge(a, b, c).entries, a, c).entries) == whole
    both = merge(a, b, c)
    assert both.conflicts == merge(c, b, a).conflicts
    assert both.given == len(a) + len(b) + len(c) >= len(both.entries)
    assert both.repeated >= 0


@settings(deadline=None, max_examples=300)
@given(a=st.sampled_from(SOME), b=st.sampled_from(SOME), c=st.sampled_from(SOME), reader=readers)
def test_better_is_a_total_order(a: TuningEntry, b: TuningEntry, c: TuningEntry, reader: Reader) -> None:
    better = functools.partial(merging.better, reader=reader)

    def one(x: TuningEntry, y: TuningEntry) -> tuple[TuningEntry, float | None, Source]:
        return told((better(x, y),))[0]

    assert one(a, b) == one(b, a)
    assert one(a, a) == told((a,))[0]
    assert one(better(a, b), c) == one(a, better(b, c))


@pytest.mark.parametrize("reader", READERS, ids=range(len(READERS)))
def test_merging_agrees_with_better(reader: Reader) -> None:
    for place in {slot(entry, reader.build, reader.device) for entry in SOME}:
        found = [entry for entry in SOME if slot(entry, reader.build, reader.device) == place]
        ((kept, *rest),) = [told(merge(found, **reader._asdict()).entries)]
        assert rest == []
        assert kept == told((functools.reduce(functools.partial(better, reader=reader), found),))[0]


RULES = [
    (legacy_one(0, 1), legacy_entry(UNSOUND, fusion=legacy_one(0, 0).fusion, run_time=1e-9), "unsound (num-warps"),
    (legacy_one(0, 1), unnamed(legacy_one(0, 2, micros=1)), "says neither"),
    (new_one(0, 1), replace(new_one(0, 2), versions=Versions(codegen="070b7c91256c4093")), "does not say the version"),
    (legacy_one(0, 1, micros=900), legacy_one(0, 2), "no measured run time"),
    (legacy_one(0, 1, micros=7), legacy_one(0, 2, micros=8), "slower: 8 µs, the other took 7 µs"),
    (legacy_one(0, 1), legacy_one(0, 2), "nothing tells which is better"),
]


@pytest.mark.parametrize(("kept", "lost", "why"), RULES, ids=[why.split()[0] for _, _, why in RULES])
def test_each_rule(kept: TuningEntry, lost: TuningEntry, why: str) -> None:
    kept, lost = replace(kept, source=Source("kept.pb", 4)), replace(lost, source=Source("lost.pb", 9))
    for order in ([kept, lost], [lost, kept]):
        done = merge(order)
        ((conflict,),) = (done.conflicts,)
        ((entry, said),) = conflict.lost
        if why.startswith("nothing"):  # which of the two is arbitrary, and always the same
            assert {conflict.kept.source, entry.source} == {kept.source, lost.source}
        else:
            assert (conflict.kept.source, entry.source) == (kept.source, lost.source)
        assert said.startswith(why)
        assert done.entries == (conflict.kept,)
        assert done.repeated == 0


def test_version_0_is_one_place_with_the_builds_own_only_where_the_build_is_known() -> None:
    pair = [legacy_one(0, 1), legacy_one(0, 2, version=0)]
    assert len(merge(pair).entries) == 2
    done = merge(pair, build=BUILD)
    assert done.entries == (pair[0],)
    assert done.conflicts[0].lost[0].why.startswith("of version 0")


@pytest.mark.parametrize(
    ("lost", "why"),
    [
        (Versions(codegen="0" * 16, backend=new_one(0, 0).versions.backend), "made elsewhere"),
        (Versions(codegen=OLDER, backend=new_one(0, 0).versions.backend), "of another build"),
        (Versions(backend=new_one(0, 0).versions.backend), "of another build"),
    ],
)
def test_of_one_fusion_what_a_build_finds_strictly_stays(lost: Versions, why: str) -> None:
    """XLA takes the first that it finds, however it finds it; neither content nor key may decide that."""
    for choices in ((0, 3), (3, 0)):
        own, other = new_one(0, choices[0]), replace(new_one(0, choices[1]), versions=lost)
        done = merge([other, own], build=BUILD, device=target("h200"))
        assert (done.entries, done.ambiguous) == ((own,), 0)
        assert done.conflicts[0].lost[0].why.startswith(why)
        assert better(other, own, Reader(BUILD)) == own
        # Where nobody says who reads, nothing is lost, the newest build's comes first, and it is told.
        done = merge([other, own])
        assert (done.entries, done.conflicts, done.ambiguous) == ((own, other), (), 1)
        assert merge([other, own], build=BUILD).entries == (own, other)
        assert merge([other, own], own=frozenset({lost.codegen}) - {""}).entries[0] == (other if lost.codegen else own)


def test_what_a_build_does_not_find_is_no_rival() -> None:
    own, gone = new_one(0, 0), replace(new_one(0, 1), versions=Versions(codegen=OLDER, backend="0" * 40))
    assert merge([gone, own], build=BUILD, device=target("h200")).entries == (own, gone)
    assert merge([gone, own], build=BUILD).ambiguous == 0
    elsewhere = replace(new_one(0, 1), device=target("a100").fingerprint)
    assert len(merge([own, elsewhere], build=BUILD, device=target("h200")).entries) == 2


def test_results_that_decide_the_same_are_no_conflict() -> None:
    same = [legacy_one(0, 1), legacy_one(0, 1, micros=8), legacy_one(0, 1, micros=6), unnamed(legacy_one(0, 1))]
    done = merge(same)
    assert (done.entries, done.conflicts, done.repeated) == ((same[2],), (), 3)


def test_a_directory_and_a_results_file_of_the_same_program_are_the_same() -> None:
    program = NEW / "mlp_128x128"
    whole, folder = read(program / "legacy_load.pb"), read(program / "legacy_dir")
    known = [tuple(key) for key in json_of(program, "legacy_keys.json")]
    done = merge(folder.entries, whole.entries)
    assert set(done.entries) == set(whole.entries)
    assert done.conflicts == ()
    assert merge(with_keys(folder.entries, iter(known))).entries == done.entries


def test_what_is_sound() -> None:
    assert is_sound(legacy_one(0, 0))
    assert is_sound(unnamed(legacy_one(0, 0)))
    assert not is_sound(legacy_entry(UNSOUND))
    assert not is_sound(new_entry(message_class("xla.autotuner.BackendConfig")()))
    assert not is_sound(replace(new_one(0, 0), config=b"\xff"))


WRITER = """
import sys
sys.path[:0] = sys.argv[4:]
from pathlib import Path
from tuning_many import of_writer
from tuning_samples import target
from rewarm.autotune.formats import Family
from rewarm.autotune.locating import place_of
writer, count = int(sys.argv[2]), int(sys.argv[3])
place = place_of(Path(sys.argv[1]), "jax-0.12.0.1", target("h200").text, Family.NEW)
entries = of_writer(writer, count)
print("ready", flush=True)
sys.stdin.readline()
for at in range(0, count, count // 4):
    place.add(entries[at : at + count // 4])
"""


def write_at_once(root: Path, writers: int, count: int) -> Place:
    """Each writer is a process, and they begin together."""
    helpers = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(root), str(writer), str(count), *helpers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=clean_environment(),
            text=True,
        )
        for writer in range(writers)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", process.stderr and process.stderr.read()
        for process in started:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in started:
            _, complaints = process.communicate(timeout=200)
            assert (process.returncode, complaints) == (0, "")
    finally:
        for process in started:
            process.kill()
            process.communicate()
    (place,) = places(root)
    return place


def check_writers(root: Path, writers: int, count: int) -> None:
    done = write_at_once(root, writers, count).entries()
    assert done.findings == ()
    wanted = merge(*(of_writer(writer, count) for writer in range(writers)))
    assert len(wanted.conflicts) == count // 2
    assert len(done.entries) == writers * (count - count // 2) + count // 2
    assert set(done.entries) == set(wanted.entries)


def test_eight_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    check_writers(tmp_path, 8, 80)


@pytest.mark.campaign
def test_eight_writers_of_a_thousand_fusions_lose_nothing(tmp_path: Path) -> None:
    check_writers(tmp_path, 8, 1000)


def test_sets_of_eight_writers_of_a_thousand_fusions_merge_to_the_same_in_any_order() -> None:
    written = [of_writer(writer, 1000) for writer in range(8)]
    whole = told(merge(*written).entries)
    assert len(whole) == 8 * 500 + 500
    for seed in range(2):
        random.Random(seed).shuffle(written)
        halves = [merge(*written[:3]).entries, merge(*written[3:]).entries]
        assert told(merge(*halves).entries) == whole


def test_a_place_of_the_cache_takes_the_better_result(tmp_path: Path) -> None:
    place = place_of(tmp_path, "jax-0.12.0.1", "CUDA: 9.0", read(NEW / "mlp_128x128/new_dir").entries[0].family)
    one, other = new_one(0, 1), new_one(0, 2)
    best = better(one, other)
    assert place.add([one]) == 1
    place.add([other])
    place.add([one])
    assert place.entries().entries == (best,)


@pytest.mark.parametrize("choices", [(0, 3), (3, 0)])
def test_a_place_keeps_its_own_builds_result_before_one_that_it_finds_loosely(
    choices: tuple[int, int], tmp_path: Path
) -> None:
    own = new_one(0, choices[0])
    loose = Versions(codegen="0" * 16, backend=own.versions.backend)
    other = replace(new_one(0, choices[1]), versions=loose)
    for number, order in enumerate(([own, other], [other, own], [[own, other]])):
        (tmp_path / str(number)).mkdir()
        place = place_of(tmp_path / str(number), "jax-0.12.0.1", target("h200").text, Family.NEW)
        for one in order:
            place.add(one if isinstance(one, list) else [one])
        assert place.entries().entries == (own,)


def test_a_place_learns_what_its_own_build_writes(tmp_path: Path) -> None:
    """The codegen version has the host's libraries in it, which nothing else says."""
    place = place_of(tmp_path, "jax-0.12.0.1", target("h200").text, Family.NEW)
    assert place.prepare().directory is not None
    backend = new_one(0, 0).versions.backend
    for number, choices in enumerate([(0, 3), (3, 0)]):
        own = replace(new_one(number, choices[0]), versions=Versions(codegen="a" * 16, backend=backend))
        write([own], place.directory, Format.NEW_DIRECTORY)  # as XLA does
        for codegen in ("0" * 16, "f" * 16, new_one(0, 0).versions.codegen):
            other = replace(new_one(number, choices[1]), versions=Versions(codegen=codegen, backend=backend))
            assert place.add([other], kept=True) == 0
            assert place_of(tmp_path, "jax-0.12.0.1", target("h200").text, Family.NEW).add([other]) == 0
    assert [one.versions.codegen for one in place.entries().entries] == ["a" * 16] * 2
    assert json.loads((place.root / "own.json").read_text())["codegens"] == ["a" * 16]
