# ruff: noqa: N999 - the command is a word of Python's, so the module is imported by its name in a string
"""`rewarm autotune import`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import click

from rewarm import settings
from rewarm.autotune import batches, checked, describing, selecting, targets
from rewarm.autotune.build_ids import build_id, family_of, jax_of
from rewarm.autotune.formats import (
    BUILDS,
    Conversion,
    Device,
    Family,
    Format,
    TuningEntry,
    convert,
    device_of_legacy,
    with_keys,
)
from rewarm.autotune.formats import build_of as known_build
from rewarm.autotune.formats.writing import lost
from rewarm.autotune.locating import place_of, place_of_unknown
from rewarm.autotune.places import Place
from rewarm.autotune.sources import Loaded
from rewarm.cli.autotune.inputs import chosen_entries, loaded, wrong_usage
from rewarm.cli.autotune.options import filter_options, paths_argument, target_option
from rewarm.cli.autotune.output import fingerprints, is_named, lost_of_headers
from rewarm.cli.common import directory_option, json_option, made_store, print_json, table
from rewarm.sharing.made import made_by
from rewarm.store import LocalStore

_SHOWN = 20


class _Taken(NamedTuple):
    """What went into one place: how many results of how many were new, or better; the entry of the store, if any."""

    place: Place
    given: int
    new: int
    key: str


@click.command()
@paths_argument
@click.option(
    "--for-build",
    "build",
    metavar="NAME",
    help="Whose results these are: a build as `rewarm autotune env` has it, such as tensorflow-2.20. By default the "
    "XLA of the JAX that is installed beside rewarm.",
)
@target_option("The GPU of legacy entries that do not say theirs, as those of a folder")
@click.option("--lossy", is_flag=True, help="Leave out, and tell, what cannot be taken; without it nothing is, then.")
@directory_option
@filter_options
@json_option
@wrong_usage
def command(
    paths: tuple[Path, ...],
    build: str | None,
    target: str | None,
    lossy: bool,
    directory: str | None,
    devices: tuple[str, ...],
    builds: tuple[str, ...],
    backends: tuple[str, ...],
    fusions: tuple[str, ...],
    as_json: bool,
) -> None:
    """Take the results of files, folders and lock files into the cache directory, each into its GPU's place.

    Results of the formats that the build does not use are converted, as `rewarm autotune convert` does it.
    They are merged with what is there, by the rule of `rewarm autotune merge`. They also become an entry of the store,
    which goes to remotes and into bundles as all entries do.
    """
    if not paths:
        raise click.UsageError("expected the PATH of a tuning file or folder")
    wanted = selecting.selection(devices=devices, builds=builds, backends=backends, fusions=fusions)
    found = loaded(paths, None)
    name = _build(build)
    entries = _named(chosen_entries(found, wanted))
    good, left_out = _sound(found, entries, name, targets.device(target) if target is not None else None)
    left_out += _lost(found, good)
    _refuse(left_out, lossy)
    if not good:
        raise click.ClickException("there are no results to take; nothing was changed")
    store = made_store(settings.of_command(directory=directory))
    taken = _take(good, name, store, _texts(found))
    if as_json:
        print_json({"taken": [_plain(one) for one in taken], "left_out": left_out})
    else:
        _print(taken, left_out)


def _build(name: str | None) -> str:
    """The build id that is meant.

    Raises:
      click.ClickException: none was named, and there is no JAX with an XLA for GPUs.
    """
    if name is not None:
        try:
            return build_id(name)
        except ValueError as wrong:
            raise click.UsageError(f"--for-build: {wrong}") from None
    from rewarm.jax_adapter.tuning_places import installed_build

    try:
        return installed_build()
    except FileNotFoundError as wrong:
        raise click.ClickException(
            f"no build was named, and there is none beside rewarm ({wrong}); name it with --for-build, as the "
            "cache directory has it (rewarm autotune ls)"
        ) from None


def _sound(
    found: Iterable[Loaded], entries: Iterable[TuningEntry], build: str, device: Device | None
) -> tuple[list[tuple[Device, TuningEntry]], list[str]]:
    """What can be taken, each with its device and in a format that the build uses, and why the rest cannot."""
    left_out = [str(finding) for one in found for finding in one.broken]
    means = checked.Means(build=known_build(jax_of(build)))
    listed = list(entries)
    fusions = fingerprints(entry for entry in listed if is_named(entry))
    good = []
    for given in listed:
        known = _device_of(given, device)
        if known is None:
            left_out.append(f"{_where(given)}: nothing says its GPU: name it with --target")
            continue
        done = _as_used(given, build, device, fusions)
        left_out += [f"{finding}; {build} uses the {family_of(build)} formats" for finding in done.findings]
        for entry in done.entries:
            if why := checked.first_error((entry,), means):
                left_out.append(f"{_where(entry)}: {why}")
            else:
                good.append((known, entry))
    return good, left_out


def _where(entry: TuningEntry) -> str:
    return f"{entry.source.path}, entry {entry.source.index}"


def _as_used(entry: TuningEntry, build: str, device: Device | None, fusions: Mapping[str, str]) -> Conversion:
    """An entry in the family that a build uses; what it does not look at would serve nothing in its place."""
    family = family_of(build)
    if family in (None, entry.family):
        return Conversion((entry,), ())
    form = Format.NEW_DIRECTORY if family is Family.NEW else Format.LEGACY_DIRECTORY
    return convert((entry,), form, build=known_build(jax_of(build)), device=device, fusions=fusions)


def _lost(found: Iterable[Loaded], good: Iterable[tuple[Device, TuningEntry]]) -> list[str]:
    """What the cache directory has no room for, of files and of entries that are taken."""
    listed = [entry for _, entry in good]
    legacy = [entry for entry in listed if entry.family is Family.LEGACY]
    form = Format.LEGACY_DIRECTORY if legacy else Format.NEW_DIRECTORY
    return [str(one) for one in (*lost_of_headers(found, None, form), *lost(legacy, Format.LEGACY_DIRECTORY))]


def _device_of(entry: TuningEntry, device: Device | None) -> Device | None:
    """The device of an entry; one that has a fingerprint alone stands for itself."""
    if entry.device is None:
        return device
    if entry.family is Family.LEGACY:
        return device_of_legacy(entry.device)
    if device is not None and device.fingerprint == entry.device:
        return device
    told = describing.described(entry.device)
    return told[1] if told is not None else Device(f"fingerprint {entry.device}")


def _refuse(left_out: list[str], lossy: bool) -> None:
    for line in left_out[:_SHOWN]:
        click.echo(line, err=True)
    if len(left_out) > _SHOWN:
        click.echo(f"and {len(left_out) - _SHOWN} more", err=True)
    if left_out and not lossy:
        raise click.ClickException(
            f"{len(left_out)} cannot be taken, so nothing was; --lossy leaves them out, and rewarm autotune validate "
            "says more"
        )


def _texts(found: Iterable[Loaded]) -> dict[str, str]:
    return {name: text for one in found for name, text in one.fusions.items()}


def _take(
    good: Iterable[tuple[Device, TuningEntry]], build: str, store: LocalStore, texts: dict[str, str]
) -> list[_Taken]:
    by_place: dict[str, tuple[Place, list[TuningEntry]]] = {}
    for device, entry in good:
        place = _place(store.root, build, device, entry)
        by_place.setdefault(place.name, (place, []))[1].append(entry)
    return [_into(store, place, entries, texts) for place, entries in by_place.values()]


def _place(root: Path, build: str, device: Device, entry: TuningEntry) -> Place:
    family = family_of(build) or entry.family
    prefix, _, fingerprint = device.text.partition(" ")
    if prefix == "fingerprint":
        return place_of_unknown(root, build, "", family, fingerprint=fingerprint)
    return place_of(root, build, device.text, family)


def _into(store: LocalStore, place: Place, entries: list[TuningEntry], texts: dict[str, str]) -> _Taken:
    from rewarm import __version__

    asked = settings.of_command(directory=str(store.root))
    prepared = place.prepare()
    if prepared.directory is None or not prepared.writes:
        raise click.ClickException(f"{place.root} cannot be written to: {prepared.why or 'it is read-only'}")
    place.learn({name: texts[name] for entry in entries if (name := entry.fusion or "") in texts})
    new = place.add(entries)
    key = ""

    def keep(fresh: tuple[TuningEntry, ...]) -> None:
        nonlocal key
        key, data = batches.sealed(place, fresh, producer={"rewarm": __version__}, program="rewarm autotune import")
        batches.keep(store, place, key, data, made=made_by(asked, store).add)

    place.collect(keep)
    return _Taken(place, len(entries), new, key)


def _named(entries: list[TuningEntry]) -> tuple[TuningEntry, ...]:
    """With the device and fusion of those that are known by their files' names, where another one says them."""
    versions = {build.entry_version for build in BUILDS}
    known = {(one.device, one.fusion) for one in entries if one.family is Family.LEGACY}
    keys = ((device, fusion, number) for device, fusion in known if device and fusion for number in versions)
    return with_keys(tuple(entries), keys)


def _plain(taken: _Taken) -> dict[str, object]:
    place = taken.place
    return {
        "place": place.name,
        "build": place.build,
        "device": place.device,
        "fingerprint": place.fingerprint,
        "given": taken.given,
        "new": taken.new,
        "entry": taken.key or None,
    }


def _print(taken: list[_Taken], left_out: list[str]) -> None:
    rows = [
        [
            one.place.build,
            describing.device_in_words(one.place.device or one.place.fingerprint),
            str(one.given),
            str(one.new),
            one.key[:12] or "-",
        ]
        for one in taken
    ]
    table(("build", "device", "given", "new", "entry"), rows, numeric=("given", "new"))
    given, new = sum(one.given for one in taken), sum(one.new for one in taken)
    more = f"; {len(left_out)} were left out" if left_out else ""
    click.echo(f"{given} results were given, {new} of them are new or better than what was here{more}")
