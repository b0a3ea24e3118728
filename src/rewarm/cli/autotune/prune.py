"""`rewarm autotune prune`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rewarm.autotune import describing, pruning, selecting, targets
from rewarm.autotune.build_ids import jax_of
from rewarm.autotune.formats import Build, Device
from rewarm.autotune.pruning import Dropped, Plan
from rewarm.autotune.sources import Loaded
from rewarm.cli.autotune.inputs import loaded, wrong_usage
from rewarm.cli.autotune.options import paths_argument, target_option
from rewarm.cli.common import directory_option, json_option, print_json, table

_SHOWN = 100


@click.command()
@paths_argument
@click.option(
    "--jax",
    "versions",
    multiple=True,
    metavar="VERSION",
    help="A JAX that is to be served (0.12.0.1); what none of them finds goes. Without it versions are not judged.",
)
@target_option(
    "A GPU that is to be served; results for others go, and without it devices are not judged", "gpus", multiple=True
)
@click.option("--dry-run", is_flag=True, help="Say what would go, and change nothing.")
@directory_option
@json_option
@wrong_usage
def command(
    paths: tuple[Path, ...],
    versions: tuple[str, ...],
    gpus: tuple[str, ...],
    dry_run: bool,
    directory: str | None,
    as_json: bool,
) -> None:
    """Take entries that no longer serve anything out of files and folders, or out of the cache directory, in place.

    That is: unsound ones, torn files of a folder, the lesser of several for one fusion, and with --jax and --target
    what is for other builds and GPUs. What an entry does not say is not held against it. A set of which nothing would
    be left stays as it is, but for a place in the cache directory. See --dry-run first: what goes is not kept.
    """
    builds, devices = _builds(versions), [targets.device(gpu) for gpu in gpus]
    plans = [(one, _plan(one, builds, devices)) for one in loaded(paths, directory)]
    if not dry_run:
        for one, plan in plans:
            pruning.apply(plan, may_be_empty=bool(one.build))
    if as_json:
        print_json([_plain(plan, dry_run) for _, plan in plans])
    else:
        _print([plan for _, plan in plans], dry_run)


def _builds(versions: tuple[str, ...]) -> list[Build]:
    wanted = [selecting.build_wanted(version).build for version in versions]
    unknown = next((version for version, build in zip(versions, wanted, strict=True) if build is None), None)
    if unknown is not None:
        raise selecting.SelectionError(f"--jax {unknown}: the version of a JAX that is known is needed here")
    return [build for build in wanted if build is not None]


def _plan(one: Loaded, builds: list[Build], devices: list[Device]) -> Plan:
    """A place of the cache directory says whose it is; a file or folder does not."""
    jax = jax_of(one.build)
    whole = "of another build" if jax and builds and all(build.jax != jax for build in builds) else ""
    if one.device and devices and all(device.text != one.device for device in devices):
        whole = "of another device"
    return pruning.plan(one.reading, builds=builds, devices=devices, whole=whole)


def _plain(plan: Plan, dry_run: bool) -> dict[str, Any]:
    return {
        "path": str(plan.reading.path),
        "dry_run": dry_run,
        "kept": len(plan.kept),
        "dropped": [{"name": _name(one), "path": one.path, "why": one.why} for one in plan.dropped],
    }


def _name(one: Dropped) -> str:
    return describing.name_of(one.entry) if one.entry is not None else ""


def _print(plans: list[Plan], dry_run: bool) -> None:
    rows = [(_name(one)[:12] or "-", one.why, one.path) for plan in plans for one in plan.dropped]
    if rows:
        table(("name", "why", "file"), rows[:_SHOWN])
    if len(rows) > _SHOWN:
        click.echo(f"and {len(rows) - _SHOWN} more, which --json shows")
    verb = "would remove" if dry_run else "removed"
    click.echo(f"{verb} {len(rows)} entries and files; {sum(len(plan.kept) for plan in plans)} stay")
