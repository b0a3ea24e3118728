"""What the subcommands share: paths and filters, what is read of them, and an entry as JSON and as a row.

Not promised: that everything could be read. What is broken is told on standard error, one line for each, and the
command ends with 1 where it was asked to look at it.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from rewarm import settings
from rewarm.autotune import describing, selecting, sources, targets
from rewarm.autotune.formats import Build, Device, Family, TuningEntry, chosen
from rewarm.autotune.selecting import Selection
from rewarm.autotune.sources import Loaded
from rewarm.targets.wrong import TopologyError

F = TypeVar("F", bound=Callable[..., Any])
_SHOWN = 20


def wrong_usage(function: F) -> F:
    """A filter, a target, a topology or a JAX that is not known is wrong usage."""

    @functools.wraps(function)
    def made(*args: Any, **more: Any) -> Any:
        try:
            return function(*args, **more)
        except (selecting.SelectionError, targets.UnknownTargetError, TopologyError) as wrong:
            raise click.UsageError(str(wrong)) from None

    return made  # type: ignore[return-value]


class Means(NamedTuple):
    """Who is to read results, and for what device, as far as it was said."""

    build: Build | None
    device: Device | None


def means(jax: str | None, target: str | None) -> Means:
    """The build and the device that were named.

    Raises:
      SelectionError, UnknownTargetError, TuningFormatError: they are not known.
    """
    wanted = selecting.build_wanted(jax) if jax is not None else None
    if wanted is not None and wanted.build is None:
        raise selecting.SelectionError(f"--jax {jax}: the version of a JAX that is known is needed here")
    return Means(wanted.build if wanted else None, targets.device(target) if target is not None else None)


def loaded(paths: Iterable[Path], directory: str | None) -> list[Loaded]:
    """What is at the paths; without any, what is in the cache directory.

    Raises:
      click.ClickException: there is no cache directory.
      SourceError: there is nothing at a path.
    """
    named = list(paths)
    if named:
        if directory is not None:
            raise click.UsageError("--dir is for the cache directory; paths are given too")
        return list(sources.load(named))
    root = settings.directory_of_command(directory)
    if not os.path.isdir(root):  # noqa: PTH112 - unlike Path.is_dir it never raises
        raise click.ClickException(
            f"the cache directory {root} does not exist; name a file or folder of XLA's, or another with --dir"
        )
    return list(sources.of_cache(root))


def tell_broken(found: Iterable[Loaded]) -> bool:
    """Say what could not be read, on standard error; returns whether there was anything."""
    broken = [finding for one in found for finding in one.broken]
    for finding in broken[:_SHOWN]:
        click.echo(str(finding), err=True)
    if len(broken) > _SHOWN:
        click.echo(f"and {len(broken) - _SHOWN} more; see rewarm autotune validate", err=True)
    return bool(broken)


def chosen_entries(found: Iterable[Loaded], wanted: Selection) -> list[TuningEntry]:
    """The entries that the filters mean, in their order."""
    return [entry for one in found for entry in wanted.of(one.entries, one.fusions)]


class Texts(NamedTuple):
    """What the places of a cache directory know, by fingerprint: the texts of devices and of fusions."""

    devices: dict[str, str]
    fusions: dict[str, str]


def texts_of(found: Iterable[Loaded]) -> Texts:
    """The texts that come with what was read."""
    devices: dict[str, str] = {}
    fusions: dict[str, str] = {}
    for one in found:
        if one.device:
            devices[describing.fingerprint_of(one.device)] = one.device
        fusions.update(one.fusions)
        for entry in one.entries:
            if entry.family is Family.LEGACY and entry.device is not None:
                devices.setdefault(describing.fingerprint_of(entry.device), entry.device)
    return Texts(devices, fusions)


def modified(entry: TuningEntry, known: dict[str, float | None]) -> float | None:
    """When an entry's file was written; `known` remembers that of each file."""
    path = entry.source.path
    if path not in known:
        try:
            known[path] = Path(path).stat().st_mtime
        except (OSError, ValueError):
            known[path] = None
    return known[path]


def plain(entry: TuningEntry, known: dict[str, float | None], texts: Texts) -> dict[str, Any]:
    """An entry for `--json`."""
    name, message = chosen(entry)
    told = entry.versions
    return {
        "name": describing.name_of(entry),
        "family": entry.family.value,
        "device": entry.device,
        "device_name": describing.device_in_words(entry.device, texts.devices),
        "fusion": entry.fusion,
        "instruction": texts.fusions.get(entry.fusion or ""),
        "backend": entry.backend,
        "configuration": {"kind": name, "fields": describing.fields_of(message) if message is not None else {}},
        "versions": {
            "entry": told.entry,
            "explicit": told.explicit,
            "codegen": told.codegen,
            "codegen_options": told.codegen_options,
            "backend": told.backend,
        },
        "builds": [build.jax for build in selecting.builds_of(entry)],
        "run_time": entry.run_time,
        "source": {"path": entry.source.path, "entry": entry.source.index, "note": entry.source.note},
        "modified": modified(entry, known),
    }


def age(when: float | None) -> str:
    """How old, in a word: "5 min"."""
    if when is None:
        return "-"
    passed = max(0.0, time.time() - when)
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if passed < limit:
            return f"{passed / unit:.0f} {name}"
    return f"{passed / 86400:.0f} days"
