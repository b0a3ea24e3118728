"""The starts of a row, each in a process of its own, and the verdict."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
import textwrap
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from soundness_case import PROOF, REFUSED, SKIPPED, TRACED, Case

from conftest import Run, clean_environment, execute

_HEAD = "import os\nimport sys\n\nimport jax\nimport jax.numpy as jnp\nimport numpy as np\n\n"
_TAIL = "\n\nif __name__ == '__main__':\n    import soundness_start\n\n    soundness_start.start(globals())\n"
_HERE = str(Path(__file__).parent)
WRONG, UNFIT = "WRONG", "unfit"


class Verdict(NamedTuple):
    """What became of a row.

    Attributes:
      found: one of the words of `Case.expect`; `WRONG`; or `UNFIT`: the row itself is no good.
      told: everything, for whoever looks into it.
    """

    found: str
    told: str


class Recorded(NamedTuple):
    """What two starts of A left.

    Attributes:
      place: where the program lies.
      cache: the cache directory.
      truth: of A: key and result of each call.
      ways: what became of each call in the first and in the second start.
      lines: what was said.
    """

    place: Path
    cache: Path
    truth: list[list[str]]
    ways: tuple[list[str], list[str]]
    lines: list[str]


def missing(case: Case) -> str:
    """The first library that is not installed, or ""."""
    for name in case.needs:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return name
    return ""


def source_of(case: Case) -> dict[str, str]:
    """The files of A."""
    return _finished(_plain(case))


def changed(case: Case) -> dict[str, str]:
    """The files of B."""
    files = _plain(case)
    for old, new in case.edits:
        holders = [name for name, text in files.items() if old in text]
        if len(holders) != 1 or files[holders[0]].count(old) != 1:
            raise ValueError(f"{case.change}: {old!r} must stand in the program once")
        files[holders[0]] = files[holders[0]].replace(old, new)
    more = {name: textwrap.dedent(text) for name, text in case.more.items()}
    return {name: text for name, text in _finished({**files, **more}).items() if text}


def _plain(case: Case) -> dict[str, str]:
    files = {"main.py": case.program, **case.files}
    return {name: textwrap.dedent(text).lstrip("\n") for name, text in files.items()}


def _finished(files: Mapping[str, str]) -> dict[str, str]:
    return {**files, "main.py": _HEAD + files["main.py"] + _TAIL}


class Runner:
    """Runs rows; two starts of one A serve all rows that have it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[Any, Recorded] = {}
        self._count = 0
        self._pool = ThreadPoolExecutor(2)

    def close(self) -> None:
        """Ends the threads."""
        self._pool.shutdown()

    def verdict(self, case: Case) -> Verdict:
        """What becomes of a row."""
        a = self._recorded(case)
        self._count += 1
        cache = self._folder / f"cache_{self._count}"
        shutil.copytree(a.cache, cache)
        place = a.place if not case.moved else self._folder / f"another_folder_{self._count}" / "name"
        _write(place, changed(case))
        cwd = place / case.cwd
        cwd.mkdir(exist_ok=True)
        variables = {name: value for name, value in ({**case.env, **case.env_b}).items() if value}
        command = [*case.flags, str(place / "main.py"), *case.argv[1]]
        truth = self._pool.submit(_run, command, cwd, variables, "truth", cache)
        start = self._pool.submit(_run, command, cwd, variables, "start", cache)
        return _judged(case, a, truth.result().json["calls"], start.result())

    def _recorded(self, case: Case) -> Recorded:
        key = (case.program, *sorted(case.files.items()), *sorted(case.env.items()), case.argv[0])
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._record(case)
        return known

    def _record(self, case: Case) -> Recorded:
        self._count += 1
        place, cache = self._folder / f"program_{self._count}", self._folder / f"cache_{self._count}"
        _write(place, source_of(case))
        command = [str(place / "main.py"), *case.argv[0]]
        truth = self._pool.submit(_run, command, place, case.env, "truth", cache)
        first = _run(command, place, case.env, "start", cache)
        ways = [way for way, _ in first.json["calls"]]
        # Where nothing was recorded, there is nothing to be proved.
        second = _run(command, place, case.env, "start", cache) if ways.count("traced") < len(ways) else first
        then = [way for way, _ in second.json["calls"]]
        return Recorded(place, cache, truth.result().json["calls"], (ways, then), first.warnings() + second.warnings())


def _write(place: Path, files: Mapping[str, str]) -> None:
    """The files, and nothing else."""
    if place.exists():
        shutil.rmtree(place)
    for name, text in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _run(command: list[str], cwd: Path, variables: Mapping[str, str], what: str, cache: Path) -> Run:
    how = {"SOUNDNESS": what, "REWARM_DIR": str(cache)} if what == "start" else {"SOUNDNESS": what, "REWARM": "0"}
    path = _HERE + (f":{variables['PYTHONPATH']}" if "PYTHONPATH" in variables else "")
    env = clean_environment(**{**variables, **how, "PYTHONPATH": path})
    done = execute([sys.executable, *command], env=env, cwd=cwd)
    assert done.code == 0, done.err[-4000:]
    return done


def _judged(case: Case, a: Recorded, truth: list[list[str]], start: Run) -> Verdict:
    now = start.json
    told = "\n".join(
        [
            f"A: {a.truth}",
            f"B: {truth}",
            f"starts 1 and 2: {a.ways}",
            f"start 3: {now}",
            *a.lines,
            *start.warnings(),
        ]
    )
    others = [index for index, (then, one) in enumerate(zip(a.truth, truth, strict=True)) if then != one]
    if case.expect == SKIPPED:
        if others:
            return Verdict(UNFIT, f"the program of B is another one\n{told}")
        ways = {way for way, _ in now["calls"]}
        return Verdict(SKIPPED if ways == {"skipped"} and not now["error"] else " ".join(sorted(ways)), told)
    if not others:
        return Verdict(UNFIT, f"the program of B is the one of A\n{told}")
    return Verdict(max((_of_call(index, case, a, truth, now) for index in others), key=_badness), told)


def _badness(word: str) -> int:
    return (TRACED, REFUSED, PROOF, UNFIT, WRONG).index(word)


def _of_call(index: int, case: Case, a: Recorded, truth: list[list[str]], now: Any) -> str:
    way, result = now["calls"][index]
    is_right = case.varies or result == truth[index][1]
    if way == "skipped":
        return PROOF if now["error"] and (case.varies or now["again"][index] == truth[index][1]) else WRONG
    if not is_right:
        return WRONG
    if "traced" in (a.ways[0][index], a.ways[1][index]):  # the second: its trace came to another program
        return REFUSED
    # Only where the second start of A skipped the doubt, a trace of B is the guards' doing.
    return TRACED if a.ways[1][index] == "proved" else UNFIT
