"""`rewarm autotune check`."""

from __future__ import annotations

import itertools
import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import click

from rewarm import settings
from rewarm.autotune import describing, xla_errors, xla_flags
from rewarm.autotune.coverage import Coverage, Reason, State, Surplus, Verdict
from rewarm.autotune.formats import Family
from rewarm.autotune.sources import is_cache, is_lock, of_xla
from rewarm.cli.autotune.inputs import loaded, wrong_usage
from rewarm.cli.autotune.options import plan_options, target_option
from rewarm.cli.common import FOUND_BAD, directory_option, json_option, print_json, table
from rewarm.jax_adapter.plan_coverage import Checked, check

_SHOWN = 20
_SHORT = 12


@click.command()
@click.argument("plan")
@target_option("The GPU to compile for", required=True)
@click.option(
    "--cache",
    "caches",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="What is to cover the plan: a file or folder of XLA's, a lock file, or a cache directory. May be repeated. "
    "Default: the cache directory of a program here.",
)
@plan_options
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
    if caches and is_lock(caches[0]):
        again = lock_command(plan, done, caches[0], lock_options(target, topology, only), None)
    else:
        again = regenerating(plan, done, caches, directory)
    if as_json:
        told = {"plan": plan, "target": target, "topology": topology}
        print_json({**told, **plain(done), "command": again.line, "command_does": again.does})
    else:
        show(plan, done, again, show_all=show_all)
    if not done.is_complete:
        raise SystemExit(FOUND_BAD)


class Again(NamedTuple):
    """A command line, for a machine with such a GPU, and what it does; "" where there is nothing to do."""

    line: str = ""
    does: str = ""


_MISSING = "tunes what is missing"
# What XLA would fail with, or take: nobody can tune beside it.
_IN_THE_WAY = (Reason.CORRUPT, Reason.OTHER_FORMAT)


def regenerating(plan: str, done: Checked, caches: Iterable[Path], directory: str | None) -> Again:
    """The command that tunes what is missing, and no more.

    XLA serves what is there and tunes the rest, of the programs that need it. A file that it cannot load is left alone,
    and the whole plan tuned into another; corrupt files of a folder are moved out of it first. `XLA_FLAGS` are those of
    the check, but for what says where results lie, or turns tuning off: fusions are then the same.
    """
    judged = done.coverage
    if judged.is_complete or all(
        one.reason is Reason.LINK for one in judged.verdicts if one.state is not State.COVERED
    ):
        return Again()
    if on := xla_errors.deterministic(xla_flags.switches(settings.xla_flags())):
        return Again("", f"tunes what is missing: with {on} in XLA_FLAGS XLA times nothing")
    program = shlex.join([*_PROGRAM, plan, *_only(judged.programs)])
    cache = next(iter(caches), None)
    if cache is None or is_cache(cache):
        root = settings.directory_of_command(directory) if cache is None else cache
        return Again(f"{_flags(done)}rewarm autotune run --dir {shlex.quote(str(root))} -- {program}", _MISSING)
    cache = of_xla(cache)
    if os.path.isdir(cache):  # noqa: PTH112 - unlike Path.is_dir it never raises
        line = f"{_flags(done, {xla_flags.DIRECTORY: str(cache)})}{program}"
        bad = _in_the_way(judged, cache)
        return (
            Again(f"{_moved(bad, cache)} && {line}", f"moves what is corrupt aside and {_MISSING}")
            if bad
            else (Again(line, _MISSING))
        )
    tuned = _free(cache.with_name(f"{cache.stem}.tuned.pb"))
    if judged.broken or any(one.reason in _IN_THE_WAY for one in judged.verdicts):
        every = shlex.join([*_PROGRAM, plan, *_only(one.name for one in done.programs)])
        does = f"tunes these programs anew, into {tuned}, since XLA cannot be given {cache}"
        return Again(f"{_flags(done, {xla_flags.DUMP: str(tuned)})}{every}", does)
    named = {xla_flags.LOAD: str(cache), xla_flags.DUMP: str(tuned)}
    merge = shlex.join(["rewarm", "autotune", "merge", str(cache), str(tuned), "-o", str(cache), "--force"])
    return Again(f"{_flags(done, named)}{program} && {merge}", _MISSING)


_PROGRAM = ("python", "-m", "rewarm.jax_adapter.plans")


def _only(names: Iterable[str]) -> list[str]:
    return [part for name in names for part in ("--only", name)]


def _in_the_way(judged: Coverage, folder: Path) -> list[str]:
    """Files of a folder that are corrupt, the needed and the others: XLA may take any of them."""
    entries = [one.entry for one in judged.verdicts if one.reason is Reason.CORRUPT]
    entries += [one.entry for one in judged.surplus if one.reason is Reason.CORRUPT]
    paths = [entry.source.path for entry in entries if entry is not None]
    return sorted({path for path in paths if path.startswith(f"{folder}{os.sep}")})


def _moved(paths: Sequence[str], folder: Path) -> str:
    aside = str(_free(folder.with_name(f"{folder.name}.corrupt")))
    return shlex.join(["mkdir", aside]) + " && " + shlex.join(["mv", "--", *paths, aside])


def _free(path: Path) -> Path:
    """The path, or with a number where something is there already."""
    names = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in itertools.count(2))
    return next(one for one in itertools.chain([path], names) if not os.path.lexists(one))


def _format_flag(done: Checked) -> dict[str, str]:
    reader = done.coverage.reader
    if reader.family is reader.build.default:
        return {}
    return {xla_flags.NEW_FORMAT: str(reader.family is Family.NEW).lower()}


def _flags(done: Checked, places: Mapping[str, str] = MappingProxyType({})) -> str:
    """`XLA_FLAGS` of a command, before it: those of this check with these places; "" where there are none."""
    here = settings.xla_flags().strip()
    ours = (xla_flags.written(name, value) for name, value in {**places, **_format_flag(done)}.items())
    told = " ".join(part for part in (xla_flags.elsewhere(here), *ours) if part)
    return f"XLA_FLAGS={shlex.quote(told)} " if told or here else ""


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
        "unjudged": done.unjudged,
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


def lock_options(target: str, topology: str, only: Iterable[str]) -> list[str]:
    """Options of `lock` as they are typed, where they are not the defaults."""
    return ["--target", target, *([] if topology == "1x1x1" else ["--topology", topology]), *_only(only)]


def lock_command(plan: str, done: Checked, held: Path, options: Sequence[str], directory: str | None) -> Again:
    """The commands that bring a lock up to date, through the cache directory of a machine with such a GPU.

    What is pinned is brought into the directory, so XLA serves it and tunes the rest, unless the lock is corrupt or for
    another build; then all is tuned that is not in the directory.
    """
    tune = regenerating(plan, done, (), directory)
    if not tune.line:
        return tune
    root = str(settings.directory_of_command(directory))
    judged = done.coverage
    amiss = (Reason.CORRUPT, Reason.OTHER_BUILD, Reason.OTHER_GPU, Reason.OTHER_FORMAT)
    reasons = [*(one.reason for one in judged.verdicts), *(one.reason for one in judged.surplus)]
    is_sound = not judged.broken and not any(reason in amiss for reason in reasons)
    known = [str(held)] if is_sound else []
    flags = _flags(done)
    lines = [flags + shlex.join(["rewarm", "autotune", "import", *known, "--dir", root])] if known else []
    lines.append(tune.line)
    made = ["rewarm", "autotune", "lock", plan, *known, root, *options, "-o", str(held), "--force"]
    lines.append(flags + shlex.join(made))
    return Again(" && ".join(lines), "tunes what is missing and writes the lock anew")


def show(plan: str, done: Checked, again: Again = Again(), *, show_all: bool = False) -> None:  # noqa: B008 - a tuple
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
    if done.unjudged:
        click.echo(f"\n{done.unjudged} entries serve none of what was compiled, which was not the whole plan")
    if again.line:
        click.echo(f"\nOn a machine with this GPU, this {again.does}:\n  {again.line}")
    elif again.does:
        click.echo(f"\nNo command {again.does}")


def _head(plan: str, judged: Coverage) -> Iterator[str]:
    reader = judged.reader
    default = "" if reader.family is reader.build.default else ", which are not its default"
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
