"""Which files of a folder are tuning files beyond doubt: what a command may remove, and no other.

Not promised: that such a file was written by XLA or rewarm. Its name is of XLA's own form, which nobody gives to notes,
or its content was read as a result that has a configuration. A first word is no proof: text formats of other programs
begin with "version", "key" or "algorithm" as well, and what cannot be read may be anybody's.
"""

from __future__ import annotations

from pathlib import Path

from rewarm.autotune.formats import Family, Reading, TuningEntry, chosen, keys


def tuning_files(reading: Reading) -> frozenset[str]:
    """The paths, as the reading of a folder has them, of the files that were read as results; see also `is_named`."""
    return frozenset(entry.source.path for entry in reading.entries if _is_result(entry))


def is_named(path: Path, folder: Path) -> bool:
    """Whether a file below a folder of results has a name that XLA itself would give to one, there."""
    try:
        *above, name = path.relative_to(folder).parts
    except ValueError:
        return False
    if not above:
        return name.endswith(".textproto") and keys.is_legacy_digest(name.removesuffix(".textproto"))
    is_device = keys.is_device(above[0]) and len(above) <= 2
    return is_device and name.endswith(".pb") and keys.is_fusion(name.removesuffix(".pb"))


def _is_result(entry: TuningEntry) -> bool:
    """Whether it says how to compile something; a new one also says for what, which a few bytes do by no chance."""
    named = entry.family is Family.LEGACY or (keys.is_device(entry.device or "") and keys.is_fusion(entry.fusion or ""))
    return named and bool(chosen(entry)[0])
