"""`rewarm explain`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from rewarm.cli.common import directory_option, json_option, open_store, print_json, seconds
from rewarm.cli.completion import complete_key, complete_run
from rewarm.cli.traces import tell_of_traces
from rewarm.explain.afterwards import completed, misses
from rewarm.explain.text import lines
from rewarm.ledger.explanation import Explanation
from rewarm.ledger.runs import RunInfo, find_run, iterate_events, runs
from rewarm.store import LocalStore

if TYPE_CHECKING:
    from rewarm.prewarm.ahead_notes import AheadNotes


@click.command()
@click.argument("key", required=False, shell_complete=complete_key)
@click.option(
    "--run",
    "run_id",
    metavar="ID",
    shell_complete=complete_run,
    help="The run to look at; a prefix is enough. Default: the last.",
)
@click.option("--program", metavar="NAME", help="Only programs whose name contains this.")
@click.option("--trace", "function", metavar="NAME", help="What the traces of a function of rewarm.jit depend on.")
@directory_option
@json_option
def command(
    key: str | None,
    run_id: str | None,
    program: str | None,
    function: str | None,
    directory: str | None,
    as_json: bool,
) -> None:
    """Say why programs were compiled: the misses of the last run, or the last miss of KEY (a prefix is enough).

    With --trace: what is known of the traces of a function of rewarm.jit whose name contains NAME: what is guarded, how
    often it was proved, and why it was traced last.
    """
    store = open_store(directory)
    if function is not None:
        _only_trace(key, run_id, program)
        tell_of_traces(store.root, function, as_json=as_json)
        return
    if key is not None:
        info, found = _last_of(store, key.lower(), run_id)
    else:
        info = find_run(store.root, run_id)
        events = list(iterate_events(info.path))
        found = list(misses(iter(events)))
        if program is not None and not any(program in str(event.get("program")) for event in events):
            raise click.ClickException(f"the run {info.id} has no program whose name contains {program!r}")
    if program is not None:
        found = [event for event in found if program in str(event.get("program"))]
    notes = _notes(directory)
    told = [(event, notes.added(event, completed(event, store))) for event in found]
    if as_json:
        print_json({"run": _plain(info), "misses": [_as_dict(event, said) for event, said in told]})
    else:
        _print(info, told)


def _notes(directory: str | None) -> AheadNotes:
    from rewarm import settings
    from rewarm.prewarm.ahead_notes import AheadNotes

    return AheadNotes(settings.of_command(directory=directory))


def _only_trace(key: str | None, run_id: str | None, program: str | None) -> None:
    others = {"KEY": key, "--run": run_id, "--program": program}
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise click.UsageError(f"--trace tells of functions, and goes without {given[0]}")


def _last_of(store: LocalStore, prefix: str, run_id: str | None) -> tuple[RunInfo, list[Mapping[str, Any]]]:
    for info in [find_run(store.root, run_id)] if run_id is not None else runs(store.root):
        found = [event for event in misses(iterate_events(info.path)) if str(event.get("key")).startswith(prefix)]
        if found:
            return info, found[-1:]
    raise click.ClickException(
        f"no run in {store.root} has a miss whose key starts with {prefix!r}: it hit, or its run is not kept any more; "
        f"see rewarm explain without a key, or compare two entries with rewarm diff"
    )


_Told = tuple[Mapping[str, Any], Explanation | None]


def _as_dict(event: Mapping[str, Any], said: Explanation | None) -> dict[str, Any]:
    return {**event, "explanation": dataclasses.asdict(said) if said is not None else None}


def _plain(info: RunInfo) -> dict[str, Any]:
    return {**dataclasses.asdict(info), "path": str(info.path), "about": dict(info.about)}


def _print(info: RunInfo, told: list[_Told]) -> None:
    for line in (*_head(info), *(line for event, said in told for line in _miss(event, said))):
        click.echo(line)
    if not told:
        click.echo("no misses")


def _head(info: RunInfo) -> Iterator[str]:
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(info.started))
    yield f"run {info.id}, {started}, {info.state}: {' '.join(info.argv)}"
    stats = info.stats or {}
    again = stats.get("traced_again") or {}
    if stats:
        yield f"{stats.get('requests')} requests, {stats.get('hits')} hits, {stats.get('misses')} misses"
    for program, times in sorted(again.items()):
        yield (
            f"traced again, {times} times: {program}. Nothing differed; JAX's own cache in memory missed, as for a "
            f"function that is made anew each time. This is no miss of the compilation cache"
        )


def _miss(event: Mapping[str, Any], said: Explanation | None) -> Iterator[str]:
    key = str(event.get("key") or "no key")[:12]
    took = (event.get("seconds") or {}).get("compile")
    kept = "stored" if event.get("stored") else f"not stored: {event.get('not_stored')}"
    yield ""
    yield f"{event.get('program')}  {key}  compiled in {seconds(took)}, {kept}"
    if said is None:
        yield f"  {event.get('reason')}"
        return
    yield f"  {_short(said.summary)}"
    for line in lines(said):
        yield f"    {line}"


def _short(summary: str) -> str:
    """The first part of a summary; the lines below it say the rest."""
    return summary.split(", but:", maxsplit=1)[0]
