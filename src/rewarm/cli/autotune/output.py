"""What `merge` and `convert` share: entries into the format that is wanted, written whole, or a refusal.

Not promised: that XLA takes what was written; errors of entries are told on standard error (`validate` with the build
and the GPU says more).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from rewarm.autotune import outputs, sources
from rewarm.autotune.formats import (
    BUILDS,
    Family,
    Finding,
    Format,
    Header,
    Place,
    Severity,
    TuningEntry,
    convert,
    validate,
    with_keys,
)
from rewarm.autotune.formats.builds import FILE_VERSION
from rewarm.autotune.formats.findings import error
from rewarm.autotune.formats.keys import TRITON_GEMM_CONFIG, fusion_fingerprint
from rewarm.autotune.formats.writing import lost, unknown_in_header
from rewarm.autotune.sources import Loaded
from rewarm.cli.autotune.inputs import Means

_SHOWN = 20
_HINT = "--keys, --jax and --target may say what is missing, and "


@dataclass(frozen=True, slots=True)
class Wish:
    """How something is to be written: `options.output_options`."""

    out: str
    to: str | None
    means: Means
    keys: tuple[Path, ...]
    lossy: bool
    force: bool


@dataclass(frozen=True, slots=True)
class Written:
    """What was written, and what was left out, with the reasons."""

    format: Format
    count: int
    left_out: tuple[Finding, ...]


def refuse_broken(found: Sequence[Loaded], wish: Wish) -> list[Finding]:
    """What could not be read, which is left out.

    Raises:
      click.ClickException: there is some, and nothing may be left out.
    """
    broken = [finding for one in found for finding in one.broken]
    _refuse(broken, wish, "of the input cannot be read")
    return broken


def write(
    entries: Sequence[TuningEntry], wish: Wish, found: Sequence[Loaded], broken: Iterable[Finding] = ()
) -> Written:
    """Write entries as it is wished.

    Args:
      entries: those that are meant.
      found: the files and folders that they are of, whose headers are kept where they can be.
      broken: what was left out already.

    Raises:
      click.ClickException: there are none, or some, or a part of one, cannot be in the format and nothing may be left
        out.
      OutputError, TuningFormatError, OSError: see `outputs.write_whole`.
    """
    if not wish.out:  # which would be the working directory
        raise click.UsageError("-o: expected a file or folder to write, found an empty value")
    if not entries:
        raise click.ClickException("there are no entries to write; nothing was written")
    named, fusions = _with_keys(entries, wish)
    form = outputs.format_of(wish.out, (entry.family for entry in named), Format(wish.to) if wish.to else None)
    outputs.refuse_place(Path(wish.out), form, force=wish.force)
    done = convert(named, form, build=wish.means.build, device=wish.means.device, fusions=fusions)
    _refuse(done.findings, wish, f"cannot be written as {form.value}", _HINT)
    if not done.entries:
        raise click.ClickException("no entry is left to write; nothing was written")
    header = _header(found, done.entries, form)
    without = [*lost_of_headers(found, header, form), *lost(done.entries, form)]
    _refuse(without, wish, f"would be lost in {form.value}")
    count = outputs.write_whole(done.entries, Path(wish.out), form, header=header, force=wish.force, lossy=wish.lossy)
    _warn(done.entries, wish)
    return Written(form, count, (*broken, *done.findings, *without))


def _refuse(findings: Sequence[Finding], wish: Wish, what: str, hint: str = "") -> None:
    for finding in findings[:_SHOWN]:
        click.echo(str(finding), err=True)
    if len(findings) > _SHOWN:
        click.echo(f"and {len(findings) - _SHOWN} more", err=True)
    if findings and not wish.lossy:
        raise click.ClickException(f"{len(findings)} {what}, so nothing was written; {hint}--lossy leaves them out")


def _with_keys(entries: Sequence[TuningEntry], wish: Wish) -> tuple[list[TuningEntry], Mapping[str, str]]:
    """Entries with the names that other files know, and the fingerprints of those files' fusions.

    Raises:
      click.ClickException: one of those cannot be read, or none of them says a device and a fusion.
    """
    found = list(sources.load(wish.keys))
    _refuse([finding for one in found for finding in one.broken], wish, "of --keys cannot be read")
    known = [entry for one in found for entry in one.entries if is_named(entry)]
    if found and not known:
        named = ", ".join(map(str, wish.keys))
        raise click.ClickException(
            "--keys: expected entries that say device and fusion (a results file of the legacy formats), found none "
            f"in {named}; nothing was written"
        )
    versions = {build.entry_version for build in BUILDS} | {entry.versions.entry for entry in known}
    keys = {(entry.device or "", entry.fusion or "") for entry in known}
    unnamed = any(not is_named(entry) for entry in entries)
    triples = ((device, fusion, version) for device, fusion in keys for version in versions if version and unnamed)
    return list(with_keys(tuple(entries), triples)), fingerprints(known)


def is_named(entry: TuningEntry) -> bool:
    """Whether a legacy entry says its device and fusion."""
    return entry.family is Family.LEGACY and entry.device is not None and entry.fusion is not None


def fingerprints(known: Iterable[TuningEntry]) -> dict[str, str]:
    """HLO texts to fingerprints, of Triton's gemm fusions: of others the text does not say enough."""
    found = {}
    for entry in known:
        if entry.backend == "TRITON" and entry.fusion is not None:
            try:
                found[entry.fusion] = fusion_fingerprint(entry.fusion, "kCustom", TRITON_GEMM_CONFIG)
            except ValueError:
                continue
    return found


def _header(found: Sequence[Loaded], entries: Sequence[TuningEntry], form: Format) -> Header | None:
    """What all files said beside their entries, where they agree and the new one is of their family; else what XLA
    itself would write: the device and the explicit version, where all entries have the same."""
    if form.is_directory:
        return None
    version = FILE_VERSION if form.family is Family.LEGACY else 0
    said = {one.reading.header if _is_file_of(one, form.family) else None for one in found}
    first = said.pop() if len(said) == 1 else None
    if first is not None:
        return replace(first, version=version, rest=b"" if form.is_text else first.rest)
    if form.family is Family.LEGACY:
        return Header(version=version)
    return Header(
        device_scope=_common(entry.device or "" for entry in entries),
        explicit_version_scope=_common(entry.versions.explicit for entry in entries),
    )


def _is_file_of(one: Loaded, family: Family) -> bool:
    told = one.reading.format
    return told is not None and not told.is_directory and told.family is family


def _common(texts: Iterable[str]) -> str:
    found = set(texts)
    return found.pop() if len(found) == 1 else ""


def lost_of_headers(found: Iterable[Loaded], header: Header | None, form: Format) -> Iterator[Finding]:
    """What files say beside their entries, and neither the header that is written nor the entries would say."""
    kept = header or Header()
    for one in found:
        said, place = one.reading.header, Place(str(one.path))
        if said.rest and said.rest != kept.rest and one.reading.format is not None:
            for name in unknown_in_header(said, one.reading.format.family):
                yield error(
                    "unknown-field", place, f"only fields that are known: {form.value} has none of others", name
                )
        for name, scope, of_result, of_entries in (
            ("device_scope", said.device_scope, kept.device_scope, {entry.device for entry in one.entries}),
            (
                "explicit_version_scope",
                said.explicit_version_scope,
                kept.explicit_version_scope,
                {entry.versions.explicit for entry in one.entries},
            ),
        ):
            if scope and scope != of_result and of_entries != {scope}:
                yield error("scope", place, f"a {name} that all entries have: {form.value} does not keep it", scope)


def _warn(entries: Sequence[TuningEntry], wish: Wish) -> None:
    """Say which of what was written is not sound: it was so before."""
    build, device = wish.means.build, wish.means.device
    found = [one for one in validate(entries, build=build, device=device) if one.severity is Severity.ERROR]
    for finding in found[:_SHOWN]:
        click.echo(str(finding), err=True)
    if found:
        click.echo(f"{len(found)} errors are in {wish.out}, as they were in what it was made of", err=True)
