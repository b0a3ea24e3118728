"""How two sets of entries differ, in words.

Not promised: which of two is better (`merging`). Entries are paired by the place in which XLA looks them up; what is
left over by device and fusion, where each side has exactly one: the same result for another build is a change, not a
removal beside an addition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from rewarm.autotune.describing import config_in_words, fields_of, run_time_in_words
from rewarm.autotune.formats import Family, TuningEntry, chosen
from rewarm.autotune.merging import merge, slot


class Change(NamedTuple):
    """One fusion whose result is another one, and what changed, one line for each."""

    before: TuningEntry
    after: TuningEntry
    what: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """Two sets, compared; each part sorted by key."""

    added: tuple[TuningEntry, ...]
    removed: tuple[TuningEntry, ...]
    changed: tuple[Change, ...]
    same: int

    @property
    def differs(self) -> bool:
        """Whether there is any difference."""
        return bool(self.added or self.removed or self.changed)


def compare(before: Iterable[TuningEntry], after: Iterable[TuningEntry]) -> Difference:
    """How the second set differs from the first. What a set says twice counts as the merge rule has it.

    Raises:
      MissingLibraryError: protobuf is not there.
    """
    old = {slot(entry): entry for entry in merge(before).entries}
    new = {slot(entry): entry for entry in merge(after).entries}
    pairs = [(old[place], new[place]) for place in old if place in new]
    removed = [entry for place, entry in old.items() if place not in new]
    added = [entry for place, entry in new.items() if place not in old]
    more = _paired(removed, added)
    gone = {id(entry) for pair in more for entry in pair}
    changes = [Change(one, other, what) for one, other in pairs + more if (what := what_changed(one, other))]
    return Difference(
        tuple(entry for entry in added if id(entry) not in gone),
        tuple(entry for entry in removed if id(entry) not in gone),
        tuple(sorted(changes, key=lambda change: change.after.key)),
        len(pairs) + len(more) - len(changes),
    )


def _paired(removed: list[TuningEntry], added: list[TuningEntry]) -> list[tuple[TuningEntry, TuningEntry]]:
    """Entries of one device and fusion that are alone on each side."""
    old, new = _by_fusion(removed), _by_fusion(added)
    return [(old[key][0], new[key][0]) for key in old if len(old[key]) == 1 and len(new.get(key, ())) == 1]


def _by_fusion(entries: list[TuningEntry]) -> dict[tuple[str, str, str], list[TuningEntry]]:
    found: dict[tuple[str, str, str], list[TuningEntry]] = {}
    for entry in entries:
        if entry.device is not None and entry.fusion is not None:
            found.setdefault((entry.family.value, entry.device, entry.fusion), []).append(entry)
    return found


def what_changed(before: TuningEntry, after: TuningEntry) -> tuple[str, ...]:
    """What is another one, one line for each; nothing for equal entries.

    Raises:
      MissingLibraryError: protobuf is not there.
    """
    if before == after:
        return ()
    lines = _config_lines(before, after)
    if _says_its_key(before) and _says_its_key(after):
        lines = [_line("backend", before.backend, after.backend), *lines]
        lines += [_line(name, one, other) for name, one, other in _versions(before, after)]
    if before.run_time != after.run_time:
        lines.append(_line("run time", run_time_in_words(before), run_time_in_words(after)))
    said = tuple(line for line in lines if line)
    if said or (before.config, before.rest) == (after.config, after.rest):
        return said
    return ("fields that are not known",)


def _says_its_key(entry: TuningEntry) -> bool:
    """A file of a legacy directory says neither version nor, of a library's product, which backend."""
    return entry.device is not None and entry.fusion is not None


def _line(name: str, one: str, other: str) -> str:
    return f"{name} {one or 'none'} → {other or 'none'}" if one != other else ""


def _config_lines(before: TuningEntry, after: TuningEntry) -> list[str]:
    (kind, old), (other_kind, new) = chosen(before), chosen(after)
    if kind != other_kind or old is None or new is None:
        return [_line("configuration", config_in_words(before), config_in_words(after))]
    one, other = fields_of(old), fields_of(new)
    return [_line(path, one.get(path, ""), other.get(path, "")) for path in dict.fromkeys((*one, *other))]


def _versions(before: TuningEntry, after: TuningEntry) -> list[tuple[str, str, str]]:
    one, other = before.versions, after.versions
    rows = [
        ("codegen version", one.codegen, other.codegen),
        ("codegen options", one.codegen_options, other.codegen_options),
        ("backend version", one.backend, other.backend),
        ("explicit version", one.explicit, other.explicit),
    ]
    if before.family is Family.LEGACY:
        rows.append(("entry version", str(one.entry), str(other.entry)))
    return rows
