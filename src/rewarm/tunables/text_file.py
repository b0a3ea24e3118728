"""Records as text for version control: the section "tuned" of the lock file (`lock_sections.py`).

Not promised: that the section can be edited. It is made: what is not as it is written is an error with its line, and
nothing of it is used then.

    section tuned 1
    # Winners that `rewarm.tune` found. ...

    kernel kernels:attention
      arguments f32[1024,512], n=4
      default {"block":32}
      winner {"block":64}
      comparison faster 1.512 1.471 1.553 0.95 64    verdict, how many times as fast, from, to, confidence, rounds
      about device NVIDIA H200                       what the digests stand for, a line for each name
      content 5f0c...                                64 hexadecimal digits, as the three others
      target ...
      toolchain ...
      libraries ...
      flag not isolated                              what to mistrust, a line for each
      when 1700000000.0                              with timings alone, as all that follows
      inputs generated, seed 0
      tolerance {"float32":1e-05}
      environment {"load":0.25}
      trial {"config":{"block":64},"outcome":"timed",...}

Records are in the order of kernel, arguments and digests. Lines that begin with "#" and empty lines say nothing.
Backslashes and what cannot be printed are escaped as in Python. Bump the number when a line changes its meaning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

from rewarm import lock_sections, small_files
from rewarm.errors import BadEntryError, RewarmError
from rewarm.tunables import records
from rewarm.tunables.merging import is_decided, merged
from rewarm.tunables.records import Case, Comparison, Record
from rewarm.tunables.spaces import canonical

NAME, VERSION = "tuned", 1
_FIRST = f"section {NAME} {VERSION}"
_NOTE = (
    "# Winners that `rewarm.tune` found, made by `rewarm tune export`. Review it like code; to change it, make it anew."
)
_MODE = 0o644  # it is for a repository
_DIGESTS = ("content", "target", "toolchain", "libraries")
_MANY = ("about", "flag", "trial")
_WORDS = (
    *("arguments", "default", "winner", "comparison", "about", *_DIGESTS),
    *("flag", "when", "inputs", "tolerance", "environment", "trial"),
)
_NEEDED = ("default", "winner", "comparison", *_DIGESTS)
_ESCAPE = re.compile(r"\\(?:[\\nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")


class LockFileError(RewarmError, ValueError):
    """A lock file's records cannot be used; the message has file, line, what was expected and found."""


# Writing.


def written(found: Iterable[Record], *, timings: bool = False) -> str:
    """The section's text. Of records without a final comparison nothing is written.

    Args:
      found: records, in any order; those of one case are merged.
      timings: with every trial, dates and conditions; else what decides alone, so that measuring once more changes
        little.
    """
    by_key: dict[str, list[Record]] = {}
    for one in found:
        by_key.setdefault(one.case.key, []).append(one)
    kept = sorted(filter(is_decided, map(merged, by_key.values())), key=_order)
    lines = [_FIRST, _NOTE]
    for record in kept:
        lines += ["", _line("kernel", record.case.kernel)]
        lines += [f"  {_line(word, value)}" for word, value in _block(record if timings else _bare(record))]
    return "\n".join(lines) + "\n"


def _order(record: Record) -> tuple[str, ...]:
    case = record.case
    return (case.kernel, case.arguments, *(getattr(case, name) for name in _DIGESTS))


def _bare(record: Record) -> Record:
    """What decides, with three digits: the rest of them is noise."""
    found = record.comparison
    assert found is not None
    rounded = replace(found, ratio=round(found.ratio, 3), low=round(found.low, 3), high=round(found.high, 3))
    empty: dict[str, str] = {}
    return replace(record, comparison=rounded, trials=(), when=0.0, inputs="", tolerance=empty, environment=empty)


def _block(record: Record) -> Iterator[tuple[str, str]]:
    assert record.winner is not None
    assert record.comparison is not None
    case, sure = asdict(record.case), record.comparison
    numbers = " ".join(repr(one) for one in (sure.ratio, sure.low, sure.high, sure.confidence, sure.rounds))
    yield "arguments", case["arguments"]
    yield "default", canonical(record.default)
    yield "winner", canonical(record.winner)
    yield "comparison", f"{sure.verdict} {numbers}"
    yield from (("about", f"{name} {value}") for name, value in sorted(record.about.items()))
    yield from ((name, case[name]) for name in _DIGESTS)
    yield from (("flag", one) for one in record.flags)
    if record.when:
        yield "when", repr(record.when)
    if record.inputs:
        yield "inputs", record.inputs
    for name in ("tolerance", "environment"):
        if getattr(record, name):
            yield name, canonical(getattr(record, name))
    yield from (("trial", text) for text in sorted(one.text for one in record.trials))


def _line(word: str, value: str) -> str:
    return f"{word} {_escaped(value)}" if value else word


def _escaped(value: str) -> str:
    return "".join(
        letter if letter.isprintable() and letter != "\\" else letter.encode("unicode_escape").decode()
        for letter in value
    )


def dump(path: Path, found: Iterable[Record], *, timings: bool = False, add: bool = False) -> int:
    """Write records into a lock file, which is made where there is none; all else in it stays. Returns how many.

    Args:
      path: the file.
      found: the records.
      timings: see `written`.
      add: to those that are there; else in their place.

    Raises:
      LockFileError: what is there is no lock file, or, with `add`, its records cannot be read.
      OSError: it cannot be written.
    """
    parts = lock_sections.split("")
    if path.exists():
        parts = _parts(path)
    known = parsed(parts, path) if add else []
    text = written([*known, *found], timings=timings)
    whole = lock_sections.joined(parts.main, {**parts.sections, NAME: text})
    small_files.replace(path, whole.encode(), _MODE, durable=True)
    return sum(line.startswith("kernel ") for line in text.split("\n"))


# Reading.


def load(path: Path) -> list[Record]:
    """The records that a lock file has; none where it has no such section.

    Raises:
      LockFileError: it cannot be read, is no lock file, or a line is not as it should be.
    """
    return parsed(_parts(path), path)


def _parts(path: Path) -> lock_sections.Parts:
    try:
        parts = lock_sections.read(path)
    except OSError as wrong:
        raise LockFileError(f"{path}: {wrong.strerror or wrong}") from None
    except UnicodeDecodeError as wrong:
        raise LockFileError(f"{path}: expected UTF-8, found byte {wrong.object[wrong.start]:#04x}") from None
    if not parts.main.startswith(lock_sections.FIRST):
        found = parts.main.split("\n", 1)[0]
        raise LockFileError(f"{path}:1: expected {lock_sections.FIRST!r}, a lock file, found {found!r:.80}")
    return parts


def parsed(parts: lock_sections.Parts, path: Path) -> list[Record]:
    """The records of a lock file's section; `path` is for the errors.

    Raises:
      LockFileError: see `load`.
    """
    if NAME not in parts.sections:
        return []
    rows = [
        (number, line)
        for number, line in enumerate(parts.sections[NAME].split("\n"), parts.lines[NAME])
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if rows[0][1] != _FIRST:
        raise _wrong(path, rows[0], f"{_FIRST!r}: a section of a version that this rewarm reads")
    found = [_record(path, block) for block in _blocks(path, rows[1:])]
    _as_written(path, found, rows)
    return found


Row = tuple[int, str]


def _blocks(path: Path, rows: list[Row]) -> Iterator[list[Row]]:
    block: list[Row] = []
    for row in rows:
        is_inner = row[1].startswith("  ")
        if not is_inner and not row[1].startswith("kernel"):
            raise _wrong(path, row, "a line 'kernel ...', or the end of the section")
        if not is_inner and block:
            yield block
            block = []
        if is_inner and not block:
            raise _wrong(path, row, "a line 'kernel ...'")
        block.append(row)
    if block:
        yield block


def _record(path: Path, block: list[Row]) -> Record:
    said: dict[str, list[str]] = {}
    for row in block:
        word, _, value = row[1].removeprefix("  ").partition(" ")
        if word not in (("kernel",) if row is block[0] else _WORDS) or (word in said and word not in _MANY):
            raise _wrong(path, row, f"one of {', '.join(_WORDS)}, in this order and each once")
        said.setdefault(word, []).append(_unescaped(path, row, value))
    lacking = next((word for word in _NEEDED if word not in said), None)
    if lacking is not None:
        raise _wrong(path, block[0], f"a line {lacking!r} below it")
    try:
        return _made({word: values[0] for word, values in said.items()}, said)
    except (ValueError, TypeError, KeyError, RecursionError) as wrong:
        reason = wrong.reason if isinstance(wrong, BadEntryError) else f"{wrong}"
        raise _wrong(path, block[0], f"a record as it is written ({reason:.200})") from None


def _made(one: dict[str, str], many: dict[str, list[str]]) -> Record:
    verdict, *numbers = one["comparison"].split(" ")
    ratio, low, high, confidence = map(float, numbers[:4])
    told = {
        "about": {name: value for name, _, value in (line.partition(" ") for line in many.get("about", ()))},
        "case": asdict(
            Case(kernel=one["kernel"], arguments=one.get("arguments", ""), **{name: one[name] for name in _DIGESTS})
        ),
        "comparison": asdict(Comparison(ratio, low, high, verdict, confidence, int(numbers[4]))),
        "flags": many.get("flag", []),
        "inputs": one.get("inputs", ""),
        "trials": [json.loads(text) for text in many.get("trial", ())],
        "version": records.VERSION,
        "when": float(one.get("when", "0")),
        **{name: json.loads(one.get(name, "{}")) for name in ("default", "winner", "tolerance", "environment")},
    }
    return records.read(json.dumps(told).encode())


def _unescaped(path: Path, row: Row, value: str) -> str:
    made = _ESCAPE.sub(lambda found: found[0].encode().decode("unicode_escape"), value)
    if _escaped(made) != value:
        raise _wrong(path, row, "a value whose backslashes and unprintable letters are escaped")
    return made


def _as_written(path: Path, found: list[Record], rows: list[Row]) -> None:
    wanted = [line for line in written(found, timings=True).split("\n") if line.strip() and not line.startswith("#")]
    for line, row in zip(wanted, rows, strict=False):
        if line != row[1]:
            raise _wrong(path, row, f"{line.strip()!r:.200}, as it is written (records in their order, each once)")
    if len(wanted) != len(rows):
        raise _wrong(path, rows[-1], f"{len(wanted)} lines that say something, and there are {len(rows)}")


def _wrong(path: Path, row: Row, expected: str) -> LockFileError:
    number, line = row
    said = f"{path}:{number}: expected {expected}, found {line.strip()!r:.80}"
    return LockFileError(f"{said}; make it anew: rewarm tune export -o {path}")
