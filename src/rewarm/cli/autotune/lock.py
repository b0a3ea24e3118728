"""`rewarm autotune lock`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import click

from rewarm import lock_sections, small_files
from rewarm.autotune import lock, lock_file, merging, outputs, targets
from rewarm.autotune.coverage import Reader, usable
from rewarm.autotune.formats import Device, TuningEntry
from rewarm.autotune.formats.findings import Place, error
from rewarm.autotune.sources import Loaded
from rewarm.cli.autotune import check as checking
from rewarm.cli.autotune.inputs import loaded, means, wrong_usage
from rewarm.cli.autotune.options import GPUS, plan_options, target_option
from rewarm.cli.common import FOUND_BAD, directory_option, json_option, print_json
from rewarm.jax_adapter.plan_coverage import Checked, check, family_to_lock, installed

_MODE = 0o644  # it is for a repository


@click.command()
@click.argument("sources", nargs=-1, metavar="[PLAN] [CACHE]...")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="The lock file to write.")
@click.option(
    "--check", "held", type=click.Path(path_type=Path), metavar="FILE", help="A lock file to check PLAN with."
)
@target_option("The GPU that it is for, which --check knows")
@click.option("--jax", metavar="VERSION", help="Whose compiler reads it. Default: the one that is installed here.")
@plan_options
@click.option("--partial", is_flag=True, help="Write it although fusions of the plan are not covered.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@directory_option
@json_option
@wrong_usage
def command(
    sources: tuple[str, ...],
    output: Path | None,
    held: Path | None,
    target: str | None,
    jax: str | None,
    topology: str,
    only: tuple[str, ...],
    partial: bool,
    force: bool,
    directory: str | None,
    as_json: bool,
) -> None:
    """Pin a program's tuning in one text file for review, or say whether such a file still covers it.

    PLAN is module:function or path/file.py:function, as for `check`: the lock has the results that its fusions need.
    Without one it has all results for the target and the build. CACHE is a file or folder of XLA's, a lock file or a
    cache directory; by default it is the cache directory of a program here.

    With a plan the command ends with 1, and nothing is written without --partial, if a fusion is not covered.
    """
    plan, paths = _plan_and_caches(sources)
    if (output is None) == (held is None):
        raise click.UsageError("name the file to write with -o, or the one to check with --check")
    if held is not None:
        if plan is None:
            raise click.UsageError(
                "--check needs the plan that the lock file is to cover: rewarm autotune lock PLAN --check FILE, with "
                "PLAN module:function or path/file.py:function"
            )
        if paths:
            raise click.UsageError(f"--check looks at the lock file alone, and not at {paths[0]}")
        _check(plan, held, target, _More(topology, only, directory), as_json=as_json)
        return
    assert output is not None
    if target is None:
        raise click.UsageError(f"--target is needed: {GPUS}")
    if os.path.lexists(output) and not force:
        raise click.ClickException(f"{output} is there; --force replaces it")
    found = loaded(paths, directory)
    if plan is None:
        made, done = _of_caches(found, target, jax), None
    else:
        if jax is not None:
            raise click.UsageError("--jax is for caches alone: a plan is compiled by the JAX that is installed here")
        done = check(plan, target, found, topology=topology, only=only or None, tell=_tell, to_lock=True)
        made = _of_plan(plan, done, partial=partial)
    place = outputs.followed(output)
    small_files.replace(place, lock_sections.beside(place, lock_file.written(made)).encode(), _MODE, durable=True)
    _say(made, output, done, as_json=as_json)
    if done is not None and not done.is_complete:
        raise SystemExit(FOUND_BAD)


def _tell(name: str) -> None:
    click.echo(f"compiling {name}", err=True)


def _plan_and_caches(sources: Iterable[str]) -> tuple[str | None, list[Path]]:
    """What lies there is a cache; what does not, and has a colon, is a plan."""
    plans = [one for one in sources if ":" in one and not os.path.lexists(one)]
    if len(plans) > 1:
        raise click.UsageError(f"one plan is expected, found {', '.join(plans)}")
    return (plans[0] if plans else None), [Path(one) for one in sources if one not in plans]


def _of_caches(found: list[Loaded], target: str, jax: str | None) -> lock.Lock:
    if jax is not None:
        build, place = means(jax, None).build, ""
        assert build is not None
    else:
        build, place = installed()
    reader = Reader(build, targets.device(target), family_to_lock(build, found), place)
    serving = usable(found, reader)
    entries = [one for one in serving if one.fusion is not None]
    if serving and not entries:
        raise click.ClickException("the files of a legacy folder do not say their fusions; name the plan, too")
    if not entries:
        device = reader.device.name or reader.device.text
        raise click.ClickException(f"no lock was written: no result there serves {device} and JAX {build.jax}")
    return lock.pinned(
        _one_each(entries, reader), reader.device, build.jax, {k: lock.saying(v) for k, v in _texts(found).items()}
    )


def _one_each(entries: Iterable[TuningEntry], reader: Reader) -> list[TuningEntry]:
    nearest = merging.Reader(reader.build, reader.device)
    kept: dict[str | None, TuningEntry] = {}
    for entry in entries:
        known = kept.get(entry.fusion)
        kept[entry.fusion] = entry if known is None else merging.better(known, entry, nearest)
    return list(kept.values())


def _texts(found: Iterable[Loaded]) -> Mapping[str, str]:
    return {name: text for one in found for name, text in one.fusions.items()}


def _of_plan(plan: str, done: Checked, *, partial: bool) -> lock.Lock:
    judged = done.coverage
    reader = judged.reader
    if not done.is_complete and not partial:
        checking.show(plan, done)
        raise click.ClickException("no lock was written: it would not cover the plan; --partial writes it")
    if not judged.entries:
        raise click.ClickException(f"no lock was written: there is no fusion of {plan} with a result to pin")
    says = {one.needed.fusion(reader.family): one.needed.says for one in judged.verdicts}
    return lock.pinned(_one_each(judged.entries, reader), reader.device, reader.build.jax, says)


def _say(made: lock.Lock, output: Path, done: Checked | None, *, as_json: bool) -> None:
    told = {"path": str(output), "fusions": len(made.entries), "build": made.build, "family": made.family.value}
    if as_json:
        complete = done.is_complete if done is not None else None
        print_json({**told, "device": made.device.text, "digest": made.digest, "complete": complete})
        return
    device = made.device.name or made.device.text
    click.echo(f"{output}: {len(made.entries)} fusions for {device}, JAX {made.build}, {made.family} formats")


class _More(NamedTuple):
    """Options that are as for writing."""

    topology: str
    only: tuple[str, ...]
    directory: str | None


def _check(plan: str, held: Path, target: str | None, more: _More, *, as_json: bool) -> None:
    known = lock_file.read(held)
    build = installed().build
    if known.build != build.jax:
        click.echo(f"{held} is for JAX {known.build}, and JAX {build.jax} is installed here", err=True)
    target = target or _target_of(known.device, held)
    done = check(plan, target, loaded([held], None), topology=more.topology, only=more.only or None)
    options = checking.lock_options(target, more.topology, more.only)
    again = checking.lock_command(plan, done, held, options, more.directory)
    if as_json:
        told = {"plan": plan, "lock": str(held), "digest": known.digest}
        print_json({**told, **checking.plain(done), "command": again.line, "command_does": again.does})
    else:
        checking.show(plan, done, again)
    if not done.is_complete or known.build != build.jax:
        raise SystemExit(FOUND_BAD)


def _target_of(device: Device, held: Path) -> str:
    for name, known in targets.devices().items():
        if (known.text, known.dnn_version) == (device.text, device.dnn_version):
            return name
    place, expected = Place(str(held)), f"a device that has a description here ({', '.join(targets.names())})"
    raise click.UsageError(f"{error('lock', place, expected, device.text)}; name its description with --target")
