"""`rewarm autotune check`."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from rewarm import settings
from rewarm.autotune import describing, targets, xla_flags
from rewarm.autotune.coverage import Coverage, State, Surplus, Verdict
from rewarm.autotune.formats import Family
from rewarm.autotune.sources import is_cache
from rewarm.cli.autotune.inputs import loaded, wrong_usage
from rewarm.cli.common import FOUND_BAD, directory_option, json_option, print_json, table
from rewarm.jax_adapter.plan_coverage import Checked, check

_SHOWN = 20
_SHORT = 12


@click.command()
@click.argument("plan")
@click.option(
    "--target", required=True, metavar="GPU", help=f"{', '.join(targets.names())}, or a file that describes a GPU."
)
@click.option(
    "--cache",
    "caches",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="What is to cover the plan: a file or folder of XLA's, a lock file, or a cache directory. May be repeated. "
    "Default: the cache directory of a program here.",
)
@click.option("--topology", default="1x1x1", metavar="PxHxD", help="Partitions, hosts of each, devices of each host.")
@click.option("--only", multiple=True, metavar="NAME", help="Only this program of the plan. May be repeated.")
@click.option("--all", "show_all", is_flag=True, help="List covered fusions, too, and every entry that serves nothing.")
@directory_option
@json_option
@wrong_usage
def command(
    plan: str,
    target: str,
    caches: tuple[Path, ...],
    topology: str,
    only: tuple[str, ...],
    show_all: bool,
    directory: str | None,
    as_json: bool,
) -> None:
    """Say whether tuning results cover a program, for a GPU that need not be here.

    PLAN is module:function or path/file.py:function. The function yields (jitted function, abstract arguments); with a
    parameter it is given the devices, for a mesh of its own. The programs are compiled for the described GPU by the
    CUDA compiler of the JAX that is installed here, in a process of their own, and nothing is run.

    Ends with 0 if every fusion is covered, with 1 if one is not or a program does not compile.
    """
    done = check(
        plan,
        target,
        loaded(caches, directory),
        topology=topology,
        only=only or None,
        tell=lambda name: click.echo(f"compiling {name}", err=True),
    )
    again = regenerating(plan, done, caches, directory)
    if as_json:
        print_json({"plan": plan, "target": target, "topology": topology, **plain(done), "command": again})
    else:
        show(plan, done, again, show_all=show_all)
    if not done.is_complete:
        raise SystemExit(FOUND_BAD)


def regenerating(plan: str, done: Checked, caches: Iterable[Path], directory: str | None) -> str:
    """The command that tunes what is missing, and no more, on a machine with such a GPU; "" where nothing is.

    XLA serves what is there and tunes the rest, of the programs that need it.
    """
    if done.coverage.is_complete:
        return ""
    wanted = [part for name in done.coverage.programs for part in ("--only", name)]
    program = shlex.join(["python", "-m", "rewarm.jax_adapter.plans", plan, *wanted])
    cache = next(iter(caches), None)
    if cache is None or is_cache(cache):
        root = settings.directory_of_command(directory) if cache is None else cache
        return f"rewarm autotune run --dir {shlex.quote(str(root))} -- {program}"
    flags = _format_flag(done)
    if os.path.isdir(cache):  # noqa: PTH112 - unlike Path.is_dir it never raises
        return f"{_flags({xla_flags.DIRECTORY: str(cache), **flags})} {program}"
    tuned = cache.with_name(f"{cache.stem}.tuned.pb")
    named = {xla_flags.LOAD: str(cache), xla_flags.DUMP: str(tuned), **flags}
    merge = shlex.join(["rewarm", "autotune", "merge", str(cache), str(tuned), "-o", str(cache), "--force"])
    return f"{_flags(named)} {program} && {merge}"


def _format_flag(done: Checked) -> dict[str, str]:
    reader = done.coverage.reader
    if reader.family is reader.build.default:
        return {}
    return {"xla_gpu_use_new_autotune_cache_format": str(reader.family is Family.NEW).lower()}


def _flags(named: dict[str, str]) -> str:
    return f"XLA_FLAGS={shlex.quote(' '.join(xla_flags.written(name, value) for name, value in named.items()))}"


def plain(done: Checked) -> dict[str, Any]:
    """The answer for `--json`."""
    judged = done.coverage
    reader = judged.reader
    return {
        "complete": done.is_complete,
        "build": reader.build.jax,
        "device": {"text": reader.device.text, "fingerprint": reader.device.fingerprint, "name": reader.device.name},
        "family": reader.family.value,
        "counts": {"needed": len(judged.verdicts), **{state.value: len(judged.of(state)) for state in State}},
        "programs": [
            {"name": one.name, "fusions": one.fusions, "seconds": one.seconds, "error": one.error or None}
            for one in done.programs
        ],
        "failures": [
            {"program": one.program, "error": one.error, "with_entries": one.with_entries} for one in done.failures
        ],
        "fusions": [_plain_verdict(one, reader.family) for one in judged.verdicts],
        "surplus": [_plain_surplus(one) for one in judged.surplus],
        "broken": [str(one) for one in judged.broken],
    }


def _plain_verdict(one: Verdict, family: Family) -> dict[str, Any]:
    entry = one.entry
    return {
        "fusion": one.needed.fusion(family),
        "fingerprint": one.needed.fingerprint,
        "name": one.needed.name,
        "says": one.needed.says,
        "programs": list(one.needed.programs),
        "state": one.state.value,
        "reason": one.reason.value or None,
        "words": one.words or None,
        "backend": entry.backend if entry is not None else None,
        "configuration": describing.config_in_words(entry) if entry is not None else None,
        "source": entry.source.path if entry is not None else None,
    }


def _plain_surplus(one: Surplus) -> dict[str, Any]:
    entry = one.entry
    source = {"path": entry.source.path, "entry": entry.source.index}
    name, reason = describing.name_of(entry), one.reason.value
    return {"name": name, "reason": reason, "words": one.words or None, "backend": entry.backend, "source": source}


def lock_command(plan: str, done: Checked, held: Path, target: str) -> str:
    """The commands that bring a lock up to date, where the cache directory of a machine with such a GPU is at hand."""
    if done.coverage.is_complete:
        return ""
    lock = shlex.join(["rewarm", "autotune", "lock", plan, "--target", target, "-o", str(held), "--force"])
    return f"{regenerating(plan, done, (), None)} && {lock}"


def show(plan: str, done: Checked, again: str = "", *, show_all: bool = False) -> None:
    """The answer for people."""
    judged = done.coverage
    for line in _head(plan, judged):
        click.echo(line)
    for failure in done.failures:
        why = "does not compile with these entries, and does without" if failure.with_entries else "does not compile"
        click.echo(f"{failure.program or 'a program'} {why}: {failure.error}")
    for finding in judged.broken[: None if show_all else _SHOWN]:
        click.echo(str(finding))
    rows = list(judged.verdicts if show_all else (one for one in judged.verdicts if one.state is not State.COVERED))
    if rows:
        click.echo()
        table(("state", "reason", "fusion", "program", "what", ""), (_row(one) for one in rows))
    for line in _surplus_lines(judged, show_all=show_all):
        click.echo(line)
    if again:
        click.echo(f"\nOn a machine with this GPU, this tunes what is missing:\n  {again}")


def _head(plan: str, judged: Coverage) -> Iterator[str]:
    reader = judged.reader
    default = "" if reader.family is reader.build.default else ", which this JAX must be told to use"
    device = reader.device.name or reader.device.text
    yield f"{plan} for {device}, JAX {reader.build.jax}, {reader.family} formats{default}"
    counts = ", ".join(f"{len(judged.of(state))} {state}" for state in (State.COVERED, State.MISSING, State.STALE))
    yield f"{len(judged.verdicts)} fusions needed: {counts}"


def _row(one: Verdict) -> tuple[str, ...]:
    programs = ", ".join(one.needed.programs)
    detail = one.words
    if one.state is State.COVERED and one.entry is not None:
        detail = f"{one.entry.backend} {describing.config_in_words(one.entry)}" + (
            f" ({one.words})" if one.words else ""
        )
    return one.state.value, one.reason.value, one.needed.fingerprint[:_SHORT], programs, one.needed.says, detail


def _surplus_lines(judged: Coverage, *, show_all: bool) -> Iterator[str]:
    if not judged.surplus:
        return
    counted = Counter(one.reason.value for one in judged.surplus)
    said = ", ".join(f"{number} {reason}" for reason, number in sorted(counted.items()))
    yield f"\n{len(judged.surplus)} entries serve nothing here: {said}"
    for one in judged.surplus[: None if show_all else _SHOWN]:
        words = f": {one.words}" if one.words else ""
        yield f"  {describing.name_of(one.entry)[:_SHORT]} {one.entry.backend} {one.reason}{words}"
    if len(judged.surplus) > _SHOWN and not show_all:
        yield f"  and {len(judged.surplus) - _SHOWN} more; see --all"
