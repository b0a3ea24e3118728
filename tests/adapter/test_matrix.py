"""Each row of `matrix.py` in a fresh process: hit or miss as it says, and the explanation names what was changed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from matrix import BASES, BYPASSED, HIT, MISS, NO_KEY, ROWS, Base, Edits, Row, Variables

from conftest import Run, clean_environment, entries, execute, first

pytestmark = pytest.mark.contract

_ROOT = Path(__file__).parents[2]
_TELL = """
import json
import rewarm
print(json.dumps([event.as_dict() for event in rewarm.events()]))
"""
_OUTCOMES = {HIT: "hit", MISS: "miss", NO_KEY: "miss", BYPASSED: "miss"}

_MACHINE_HAS = {
    "x86": platform.machine().lower() in ("x86_64", "amd64"),
    "affinity": hasattr(os, "sched_setaffinity"),
}


class Told(NamedTuple):
    """One run: the event of the program that is looked at, what the run printed, and where its file was."""

    event: Mapping[str, Any]
    printed: str
    source: str
    file: Path


class Bench:
    """Runs bases, each once, and rows, each against a copy of what its base left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cold: dict[str, tuple[Path, list[Mapping[str, Any]]]] = {}

    def cold(self, name: str) -> tuple[Path, Mapping[str, Any]]:
        """The cache directory that a base left, and the event of its program."""
        base = BASES[name]
        same = next(other for other, row in BASES.items() if row._replace(program=base.program) == base)
        if same not in self._cold:
            cache = self._folder / "cold" / same
            self._cold[same] = (cache, self._run(self._place(same), base, cache).json)
        cache, events = self._cold[same]
        return cache, _event(events, base.program)

    def warm(self, row: Row) -> Told:
        """One row, after its base."""
        cold, event = self.cold(row.base)
        cache = self._folder / "warm"
        shutil.rmtree(cache, ignore_errors=True)
        shutil.copytree(cold, cache)
        base, path = BASES[row.of or row.base], self._place(row.base)
        for edits in row.earlier:
            self._run(path, base._replace(source=_edited(base.source, edits)), cache)
        for entry in entries(cache):
            if entry.name == event["key"]:
                _spoil(entry, row.to_entry)
        changed = Base(
            row.program or base.program,
            _edited(base.source, row.edits),
            {**base.env, **row.env, **self._site(row.site)},
            base.argv if row.argv is None else row.argv,
            {**base.files, **row.files},
        )
        place = self._place(row.base, row.where)
        done = self._run(place, changed, cache, row.processes)
        lines = sorted(done.out.splitlines()[:-1], key=_first_word)
        return Told(_event(done.json, changed.program), ", ".join(lines), changed.source, place)

    def library(self) -> str:
        """The library of jaxlib that the row about another toolchain changes: the smallest."""
        return min(_jaxlib().glob("*.so"), key=lambda path: path.stat().st_size).name

    # -- inside ------------------------------------------------------------------------------------------------

    def _place(self, name: str, where: str = "") -> Path:
        return self._folder / "programs" / name / (where or "program.py")

    def _run(self, path: Path, base: Base, cache: Path, processes: int = 1) -> Run:
        """The run of a program, or that of the last of several that run together."""
        here = self._folder / "programs" / path.relative_to(self._folder / "programs").parts[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(base.source + _TELL)
        for file, text in base.files.items():
            (here / file).write_text(text)
        said = {"REWARM_DIR": str(cache), **base.env}
        given = {variable: value.replace("{here}", str(here)) for variable, value in said.items() if value is not None}
        port = _free_port()
        argvs = [base.argv] if processes == 1 else [(port, str(number)) for number in range(processes)]
        commands = [[sys.executable, str(path), *argv] for argv in argvs]
        with ThreadPoolExecutor(processes) as pool:
            runs = list(pool.map(lambda command: execute(command, env=clean_environment(**given), cwd=here), commands))
        assert [done.code for done in runs] == [0] * processes, runs[-1].err[-4000:]
        return runs[-1]

    def _site(self, kind: str) -> Variables:
        """A copy of jaxlib made of links, in front of the installed one; "rebuilt": one library is another."""
        if not kind:
            return {}
        folder = self._folder / kind / "jaxlib"
        if not folder.exists():
            shutil.copytree(_jaxlib(), folder, copy_function=os.symlink)
            if kind == "rebuilt":
                library = folder / self.library()
                content = library.read_bytes()
                library.unlink()
                library.write_bytes(content + b"\0")
        return {"PYTHONPATH": str(folder.parent)}


def _free_port() -> str:
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return str(one.getsockname()[1])


def _jaxlib() -> Path:
    spec = importlib.util.find_spec("jaxlib")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _edited(source: str, edits: Edits) -> str:
    for old, new in edits:
        assert source.count(old) == 1, f"{old!r} is in the program {source.count(old)} times"
        source = source.replace(old, new)
    return source


def _first_word(line: str) -> str:
    return line.split(maxsplit=1)[0]


def _event(events: list[Mapping[str, Any]], program: str) -> Mapping[str, Any]:
    found = [event for event in events if event["program"] == program]
    assert len(found) == 1, [event["program"] for event in events]
    return found[0]


def _spoil(path: Path, how: str) -> None:
    if how == "remove":
        path.unlink()
    elif how == "damage":
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("matrix"))


# Every other row by default; all of them in the contract tests.
@pytest.mark.parametrize("row", first(60, [*ROWS[::2], *ROWS[1::2]], long=True), ids=lambda row: row.name)
def test_row(bench: Bench, row: Row) -> None:
    for version, reason in row.not_on.items():
        if importlib.metadata.version("jax").startswith(version):
            pytest.skip(reason)
    if row.needs and not _MACHINE_HAS[row.needs]:
        pytest.skip(f"needs {row.needs}")
    _, cold = bench.cold(row.base)
    assert cold["outcome"] == "miss"
    told = bench.warm(row)
    event, said = told.event, told.event["explanation"]
    assert event["outcome"] == _OUTCOMES[row.expect], said
    if row.prints:
        assert told.printed == row.prints
    if row.expect == HIT:
        assert (event["key"], said) == (cold["key"], None)
        return
    kinds = {finding["kind"]: finding["text"] for finding in said["findings"]}
    assert tuple(said["differs"]) == row.components, said
    if row.expect == NO_KEY:
        assert (event["key"], event["stored"]) == (None, False)
        assert event["not_stored"] in kinds["unkeyable"]
    elif row.expect == BYPASSED:
        assert (event["key"], event["stored"]) == (cold["key"], False)
        assert event["not_stored"] == kinds["bypassed"]
    elif row.components:
        assert event["key"] != cold["key"]
        assert {change["component"] for change in said["changes"]} <= set(row.components)
    if row.finding:
        assert row.finding in kinds, said
        assert row.says in kinds[row.finding]
    if row.item is not None:
        _assert_named(bench, row, told, said)


def _assert_named(bench: Bench, row: Row, told: Told, said: Mapping[str, Any]) -> None:
    """A change of the component names the item, and says before and after."""
    words = {"library": bench.library(), "jaxlib": importlib.metadata.version("jaxlib")}
    component = row.named or row.components[0]
    changes = [change for change in said["changes"] if change["component"] == component]
    if component == "program":
        lines = [number for number, line in enumerate(told.source.splitlines(), 1) if row.item and row.item in line]
        assert len(lines) == bool(row.item)
        wanted = f"{told.file}:{lines[0]}" if lines else ""
    else:
        wanted = str(row.item).replace("{library}", words["library"])
    before, after = (text.replace("{jaxlib}", words["jaxlib"]) for text in (row.before, row.after))
    found = [change for change in changes if change["item"] == wanted]
    assert any(before in change["before"] and after in change["after"] for change in found), (wanted, changes)
    assert all(change["before"] != change["after"] for change in found)


def test_rows_are_many_and_have_names_of_their_own() -> None:
    assert len(ROWS) >= 40
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert {row.base for row in ROWS} == set(BASES)


def test_each_component_has_rows_of_its_own() -> None:
    from rewarm.identity.components import TABLE

    alone = {row.components[0] for row in ROWS if len(row.components) == 1}
    assert alone == set(TABLE) - {"format"}


def test_the_page_shows_these_rows() -> None:
    page = subprocess.run(
        [sys.executable, str(_ROOT / "tools" / "matrix_table.py")], capture_output=True, text=True, check=True
    )
    assert (_ROOT / "docs" / "identity-matrix.md").read_text() == page.stdout
