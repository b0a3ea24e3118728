"""The catalogue: what it finds, what bounds it, and what it survives."""

from __future__ import annotations

import json
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import catalogue_children
import pytest
from catalogue_children import run, run_unprivileged
from records import components, digest, remembered

from rewarm.explain import Catalogue, Remembered
from rewarm.explain import catalogue as module
from rewarm.explain.catalogue import NOT_STORED, shortened

NOWHERE = components(program="nothing has this")
FILE_BYTES = 64 * 1024


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "cache"
    directory.mkdir()
    return directory


@pytest.fixture
def catalogue(root: Path) -> Catalogue:
    return Catalogue(root)


def named(catalogue: Catalogue, program: str) -> list[Remembered]:
    return catalogue.alike(program, NOWHERE, "nothing has this")


def files(root: Path) -> list[Path]:
    return sorted((root / "explain").glob("*.jsonl"))


def file_of(root: Path, program: str) -> Path:
    """The file in which a program of this name is looked for."""
    return root / "explain" / module._file_of(f"name {program}")


# ---------------------------------------------------------------------------------------------------------------
# What is found


def test_nothing_is_found_where_nothing_was_kept(catalogue: Catalogue, root: Path) -> None:
    assert named(catalogue, "jit_step") == []
    assert catalogue.value(digest("x")) is None
    assert list(root.iterdir()) == [], "looking makes nothing"


def test_it_is_found_by_program_by_name_and_by_structure(root: Path) -> None:
    one = remembered()
    Catalogue(root).remember(one, {})
    later = Catalogue(root)
    assert later.alike("jit_other", one.components, "other") == [one]
    assert later.alike("jit_step", NOWHERE, "other") == [one]
    assert later.alike("jit_other", NOWHERE, "structure") == [one]
    assert later.alike("jit_other", NOWHERE, "other") == []


def test_what_shares_only_a_file_is_not_found(catalogue: Catalogue, root: Path) -> None:
    place = file_of(root, "jit_step")
    other = next(name for number in range(10_000) if file_of(root, name := f"jit_{number}") == place)
    catalogue.remember(remembered(program=other, structure="another", like={"program": "another"}), {})
    assert place.exists()
    assert named(catalogue, "jit_step") == []
    assert len(named(catalogue, other)) == 1


def test_the_newest_comes_first_and_each_once(catalogue: Catalogue) -> None:
    for moment in (3.0, 1.0, 2.0):
        catalogue.remember(remembered(time=moment), {})
    found = catalogue.alike("jit_step", remembered().components, "structure")
    assert [one.time for one in found] == [3.0, 2.0, 1.0]


def test_all_fields_come_back(catalogue: Catalogue) -> None:
    one = remembered(
        outcome=NOT_STORED, why="compiled faster than min_compile_seconds", operations=12345, time=1795978700.25
    )
    catalogue.remember(one, {})
    assert named(catalogue, "jit_step") == [one]


@pytest.mark.parametrize(
    "program",
    ["jit_größe", "jit_\u4f8b\U0001f600", "", "a/b\0\n", f"jit_{chr(0xDC80)}", f"jit_{chr(0xD800)}", "n" * 10_000],
    ids=["latin", "wide", "empty", "controls", "surrogate escape", "surrogate", "long"],
)
def test_any_name_is_kept(catalogue: Catalogue, program: str) -> None:
    one = remembered(program=program)
    catalogue.remember(one, {})
    assert named(catalogue, program) == [one]


def test_what_is_made_is_the_users_alone(catalogue: Catalogue, root: Path) -> None:
    mask = os.umask(0)
    try:
        catalogue.remember(remembered(), {digest("x"): "x"})
    finally:
        os.umask(mask)
    for path in (root / "explain").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


# ---------------------------------------------------------------------------------------------------------------
# Values


def test_values_come_back(catalogue: Catalogue, root: Path) -> None:
    values = {digest("a"): {"salt": "é", "flags": []}, digest("b"): 0, digest("c"): "none"}
    catalogue.remember(remembered(), values)
    assert {name: Catalogue(root).value(name) for name in values} == values


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000])
def test_a_value_that_is_damaged_is_not_kept(catalogue: Catalogue, root: Path, content: bytes) -> None:
    catalogue.remember(remembered(), {digest("a"): 1})
    (root / "explain" / "values" / f"{digest('a')}.json").write_bytes(content)
    assert catalogue.value(digest("a")) is None


def test_values_are_bounded_and_the_newest_stay(catalogue: Catalogue, root: Path) -> None:
    for number in range(600):
        catalogue.remember(remembered(), {digest(str(number)): number})
        os.utime(root / "explain" / "values" / f"{digest(str(number))}.json", (number, number))
    assert len(list((root / "explain" / "values").iterdir())) <= 512
    assert [catalogue.value(digest(str(number))) for number in range(400, 600)] == list(range(400, 600))


# ---------------------------------------------------------------------------------------------------------------
# Bounds


def test_files_are_bounded_and_the_newest_stay(catalogue: Catalogue, root: Path) -> None:
    for number in range(2000):
        catalogue.remember(remembered(time=float(number), like={"program": str(number)}), {})
        if number % 100 == 0:
            assert max(path.stat().st_size for path in files(root)) <= FILE_BYTES
    found = [one.time for one in named(catalogue, "jit_step")]
    assert found[:15] == [1999.0 - place for place in range(15)]
    assert sum(path.stat().st_size for path in files(root)) <= 256 * FILE_BYTES
    assert list((root / "explain").glob(".*")) == []


def test_a_look_up_is_flat(catalogue: Catalogue, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three files of a bounded size are read, whether ten programs or twenty thousand are remembered."""
    wanted = remembered(program="jit_wanted", structure="wanted", like={"program": "wanted"})

    def look_up() -> float:
        start = time.perf_counter()
        assert catalogue.alike(wanted.program, wanted.components, wanted.structure) == [wanted]
        return time.perf_counter() - start

    for number in range(10):
        catalogue.remember(remembered(program=f"jit_{number}", structure=f"{number}"), {})
    catalogue.remember(wanted, {})
    few = min(look_up() for _ in range(20))
    for place in range(256):  # as twenty thousand would fill them
        with (root / "explain" / f"{place:02x}.jsonl").open("ab") as file:
            for number in range(FILE_BYTES // 1400):
                other = remembered(program=f"jit_{place}_{number}", like={"program": f"{place} {number}"})
                file.write(json.dumps(other._asdict()).encode() + b"\n")
    catalogue.remember(wanted, {})
    opened: list[Any] = []
    real = os.open

    def note(path: Any, *rest: Any) -> int:
        opened.append(path)
        return real(path, *rest)

    monkeypatch.setattr(os, "open", note)
    many = min(look_up() for _ in range(20))
    assert len(opened) <= 20 * 3
    assert many < max(0.01, 100 * few)


def test_a_file_that_somebody_filled_is_not_read_whole(catalogue: Catalogue, root: Path) -> None:
    catalogue.remember(remembered(), {})
    place = file_of(root, "jit_step")
    line = place.read_bytes()
    with place.open("wb") as file:
        file.truncate(1 << 30)
    with place.open("ab") as file:
        file.write(b"\n" + line)
    start = time.perf_counter()
    assert named(catalogue, "jit_step") == [remembered()]
    assert time.perf_counter() - start < 2.0
    catalogue.remember(remembered(time=2.0), {})
    assert place.stat().st_size <= FILE_BYTES


def _lines(root: Path) -> list[bytes]:
    return [line for path in files(root) for line in path.read_bytes().splitlines() if line]


def test_a_line_is_short_whatever_the_program(catalogue: Catalogue, root: Path) -> None:
    ordinary = "(" + ", ".join(["tensor<1024x1024xf32>"] * 10_000) + ") -> tensor<f32>"
    catalogue.remember(remembered(signature=shortened(ordinary), program="jit_" + "n" * 200), {})
    assert {len(line) < 4096 for line in _lines(root)} == {True}


def test_long_signatures_that_differ_at_their_end_differ_when_shortened() -> None:
    long = [shortened("(" + "tensor<4xf32>, " * 1000 + end) for end in ("a", "b")]
    assert long[0] != long[1]
    assert all(len(one) < 700 for one in long)
    assert shortened("(tensor<4xf32>) -> ()") == "(tensor<4xf32>) -> ()"


def test_a_line_is_one_write(catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes lines of several writers whole."""
    written: list[bytes] = []
    real = os.write

    def write(descriptor: int, data: bytes) -> int:
        written.append(bytes(data))
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    catalogue.remember(remembered(), {})
    assert len(written) == 3
    assert all(json.loads(line)["program"] == "jit_step" for line in written)


# ---------------------------------------------------------------------------------------------------------------
# Lines that are none

_GOOD = remembered()._asdict()


def _with(**fields: Any) -> bytes:
    return json.dumps({**_GOOD, **fields}).encode()


BAD_LINES = {
    "torn": json.dumps(_GOOD).encode()[:200],
    "bytes": bytes(range(128, 256)),
    "zeros": b"\0" * 5000,
    "a list": b"[1, 2]",
    "a number": b"17",
    "null": b"null",
    "deep": b"[" * 10_000,
    "a long number": b"9" * 10_000,
    "of an older version": json.dumps({k: v for k, v in _GOOD.items() if k != "producer"}).encode(),
    "of a newer version": _with(tier="remote"),
    "a key that is a list": _with(key=["a"]),
    "a time that is text": _with(time="now"),
    "a time that is null": _with(time=None),
    "components that are null": _with(components=None),
    "components that are text": _with(components="program"),
    "a name that is a mapping": _with(program={}),
    "a producer that is null": _with(producer=None, time=5.0),
}


@pytest.mark.parametrize("bad", BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_line_costs_itself(catalogue: Catalogue, root: Path, bad: bytes) -> None:
    """Nothing is raised, and what lies before and behind it is found."""
    before, after = remembered(time=2.0), remembered(time=3.0)
    catalogue.remember(before, {})
    with file_of(root, "jit_step").open("ab") as file:
        file.write(bad + b"\n")
    catalogue.remember(after, {})
    found = named(catalogue, "jit_step")
    assert [one for one in found if one in (before, after)] == [after, before]
    for one in found:
        assert isinstance(one.time, float | int)
        assert isinstance(one.components, dict)
        assert isinstance(one.producer, dict)


# ---------------------------------------------------------------------------------------------------------------
# What lies where a file should


def _fifo(path: Path, _: Path) -> None:
    os.mkfifo(path)


def _directory(path: Path, _: Path) -> None:
    path.mkdir()


def _dangling(path: Path, mine: Path) -> None:
    path.symlink_to(mine / "nowhere" / "x")


def _circle(path: Path, _: Path) -> None:
    path.symlink_to(path.name)


def _device(path: Path, _: Path) -> None:
    path.symlink_to("/dev/full")


def _endless(path: Path, _: Path) -> None:
    path.symlink_to("/dev/zero")


OBSTACLES = [_fifo, _directory, _dangling, _circle, _device, _endless]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", OBSTACLES)
def test_what_is_no_file_holds_nobody_and_costs_itself(
    catalogue: Catalogue, root: Path, tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    """One of the three files of a program is none; the other two are written and read."""
    (root / "explain").mkdir()
    make(file_of(root, "jit_step"), tmp_path)
    for moment in range(8):
        catalogue.remember(remembered(time=float(moment), structure=str(moment)), {})
    assert isinstance(named(catalogue, "jit_step"), list)
    found = catalogue.alike("jit_step", remembered().components, "structure")
    assert [one.time for one in found] == [7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0]


@pytest.mark.timeout(20)
def test_a_fifo_that_somebody_holds_open_holds_nobody(catalogue: Catalogue, root: Path) -> None:
    (root / "explain" / "values").mkdir(parents=True)
    places = file_of(root, "jit_step"), root / "explain" / "values" / f"{digest('v')}.json"
    for place in places:
        os.mkfifo(place)
    held = [os.open(place, os.O_RDWR | os.O_NONBLOCK) for place in places]
    try:
        assert named(catalogue, "jit_step") == []
        assert catalogue.value(digest("v")) is None
        for _ in range(100):  # more than a pipe takes
            catalogue.remember(remembered(), {digest("v"): 1})
    finally:
        for descriptor in held:
            os.close(descriptor)


def test_a_link_to_somebodys_file_leaves_the_file_as_it_is(catalogue: Catalogue, root: Path, tmp_path: Path) -> None:
    (root / "explain").mkdir()
    (tmp_path / "notes.txt").write_text("mine\n")
    file_of(root, "jit_step").symlink_to(tmp_path / "notes.txt")
    catalogue.remember(remembered(), {})
    assert (tmp_path / "notes.txt").read_text() == "mine\n"


def test_a_stray_among_the_values_is_left_and_does_not_stop_the_bound(
    catalogue: Catalogue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_VALUES_KEPT", 20)
    folder = root / "explain" / "values"
    (folder / "stray").mkdir(parents=True)
    os.utime(folder / "stray", (0, 0))
    for number in range(50):
        catalogue.remember(remembered(), {digest(str(number)): number})
    assert len(list(folder.iterdir())) <= 21
    assert (folder / "stray").is_dir()


# ---------------------------------------------------------------------------------------------------------------
# Directories that are gone, shut or full


@pytest.mark.parametrize("place", ["gone", "a file", "explain is a file", "values is a file"])
def test_a_directory_that_is_none_is_quiet(tmp_path: Path, place: str) -> None:
    root = tmp_path / "cache"
    if place == "a file":
        root.write_text("mine")
    elif place != "gone":
        root.mkdir()
        if place == "values is a file":
            (root / "explain").mkdir()
        (root / ("explain/values" if place == "values is a file" else "explain")).write_text("mine")
    catalogue = Catalogue(root)
    catalogue.remember(remembered(), {digest("v"): 1})
    assert named(catalogue, "jit_step") == ([remembered()] if place == "values is a file" else [])
    assert catalogue.value(digest("v")) is None
    assert root.exists() == (place != "gone"), "the catalogue makes no cache directory"


def test_a_directory_that_goes_meanwhile_is_made_anew(catalogue: Catalogue, root: Path) -> None:
    catalogue.remember(remembered(), {})
    shutil.rmtree(root / "explain")
    assert named(catalogue, "jit_step") == []
    catalogue.remember(remembered(time=2.0), {})
    assert named(catalogue, "jit_step") == [remembered(time=2.0)]
    shutil.rmtree(root)
    catalogue.remember(remembered(), {digest("v"): 1})
    assert not root.exists()


def test_removal_beside_use_is_quiet(catalogue: Catalogue, root: Path) -> None:
    until, faults = time.monotonic() + 1.0, []

    def use(thread: int) -> None:
        number = 0
        while time.monotonic() < until:
            number += 1
            try:
                catalogue.remember(remembered(), {digest(f"{thread} {number}"): number})
                for one in named(catalogue, "jit_step"):
                    assert one == remembered()
            except BaseException as error:
                faults.append(repr(error))

    users = [threading.Thread(target=use, args=(number,)) for number in range(2)]
    for user in users:
        user.start()
    while time.monotonic() < until:
        shutil.rmtree(root / "explain", ignore_errors=True)
    for user in users:
        user.join()
    assert faults == []


def test_a_directory_that_may_not_be_written_to_is_quiet(root: Path) -> None:
    Catalogue(root).remember(remembered(), {})
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    for parent in root.parents:
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o111)
    printed = run_unprivileged(
        """
        catalogue.remember(remembered(time=2.0), {"a" * 64: 1})
        print(known("jit_step"), catalogue.value("a" * 64))
        """,
        root,
    )
    assert printed == ["1 None"]


def test_a_directory_that_may_not_be_read_is_quiet(root: Path) -> None:
    Catalogue(root).remember(remembered(), {})
    (root / "explain").chmod(0)
    try:
        assert run_unprivileged('print(known("jit_step")); catalogue.remember(remembered(), {})', root) == ["0"]
    finally:
        (root / "explain").chmod(0o700)


def test_a_full_disk_costs_one_line_and_no_more(root: Path) -> None:
    """A write that is cut short leaves half a line; the next one is whole again."""
    printed = run(
        """
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        catalogue.remember(remembered(time=1.0), {})
        size = max(path.stat().st_size for path in (root / "explain").glob("*.jsonl"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))
        catalogue.remember(remembered(time=2.0), {"a" * 64: "v" * 10000})
        print(known("jit_step"), catalogue.value("a" * 64))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        catalogue.remember(remembered(time=3.0), {})
        print([one.time for one in catalogue.alike("jit_step", components(), "structure")])
        """,
        root,
    )
    assert printed == ["1 None", "[3.0, 1.0]"]
    assert list((root / "explain").rglob(".*.tmp")) == []


def test_a_file_that_cannot_be_shortened_stays_bounded_for_readers(root: Path) -> None:
    """Above the limit nothing is added, and what is there is read."""
    printed = run(
        """
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
        for number in range(50):
            catalogue.remember(remembered(time=float(number)), {})
        print(known("jit_step") > 3)
        """,
        root,
    )
    assert printed == ["True"]


# ---------------------------------------------------------------------------------------------------------------
# Several writers


_WRITE = """
print("ready", flush=True)
sys.stdin.readline()
who = sys.argv[2]
for number in range(500):
    program = f"jit_{number % 24}"
    one = remembered(
        program=program, structure=f"structure of {program}", key=f"{who} {number}", time=float(number),
        components={"program": f"program of {program}"}, why=who * 20,
    )
    catalogue.remember(one, {})
"""


def write_together(root: Path, code: str = _WRITE) -> None:
    import subprocess
    import sys

    command = [sys.executable, "-B", "-c", catalogue_children._PRELUDE + code, str(root)]
    writers = [
        subprocess.Popen([*command, who], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for who in "abcd"
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.communicate("go\n", timeout=60)
        assert writer.returncode == 0


def test_processes_lose_and_tear_no_line(root: Path) -> None:
    write_together(root)
    assert max(path.stat().st_size for path in files(root)) < FILE_BYTES, "below the bound, as this test needs it"
    wanted = {(f"{who} {number}", float(number), who * 20) for who in "abcd" for number in range(500)}
    found = [json.loads(line) for line in _lines(root)]
    assert len(found) >= 2000
    assert {(one["key"], one["time"], one["why"]) for one in found} == wanted
    catalogue = Catalogue(root)
    assert sum(len(named(catalogue, f"jit_{number}")) for number in range(24)) == 2000


def test_processes_above_the_bound_tear_no_line(root: Path) -> None:
    write_together(root, _WRITE.replace("number % 24", "0"))
    assert all(json.loads(line)["program"] == "jit_0" for line in _lines(root))
    assert max(path.stat().st_size for path in files(root)) <= FILE_BYTES + 4 * 4096
    assert len(named(Catalogue(root), "jit_0")) > 50
    assert list((root / "explain").glob(".*")) == []


def test_threads_share_one_catalogue(catalogue: Catalogue, root: Path) -> None:
    def write(who: int) -> None:
        for number in range(20):
            one = remembered(program=f"jit_{number}", key=f"{who} {number}", time=float(number), components={})
            catalogue.remember(one, {digest(str(number)): number})

    writers = [threading.Thread(target=write, args=(who,)) for who in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert all(len(named(catalogue, f"jit_{number}")) == 4 for number in range(20))
    assert [catalogue.value(digest(str(number))) for number in range(20)] == list(range(20))
