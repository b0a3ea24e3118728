"""What `rewarm explain --trace` tells: the records of `rewarm.jit`, by function.

Not promised: calls that nothing is known of, such as those inside of another trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from rewarm.cli.common import ago, counted, print_json
from rewarm.jax_adapter.trace_free.records import Record, Records, State


def tell_of_traces(root: Path, name: str, *, as_json: bool) -> None:
    """Print what is known of the functions whose name contains `name`.

    Raises:
      click.ClickException: none does (exit code 1).
    """
    records = Records(root)
    found = [one for kind in records.kinds() if name in (one := _known(records, kind))["function"]]
    if not found:
        raise click.ClickException(
            f"nothing is known of a function of rewarm.jit whose name contains {name!r} in {root}: it was not called "
            f"with rewarm on, or only inside of another trace"
        )
    if as_json:
        print_json(found)
        return
    for one in found:
        for line in _lines(one):
            click.echo(line)


def _known(records: Records, kind: str) -> dict[str, Any]:
    last = records.last(kind)
    told = [_record(record, records.state(record)) for record in records.of(kind)]
    function = str(last.get("function") or (told[0]["function"] if told else ""))
    return {
        "kind": kind,
        "function": function,
        "last": {"outcome": last.get("outcome"), "why": last.get("why") or [], "time": last.get("time")},
        "records": told,
    }


def _record(record: Record, state: State) -> dict[str, Any]:
    return {
        "function": record.told.get("function", record.name),
        "key": record.key,
        "recorded": record.created,
        "proved": state.proved,
        "last_proof": state.last or None,
        "starts_since": state.starts,
        "struck": state.struck,
        "guards": record.guards.summary(),
    }


def _lines(one: Mapping[str, Any]) -> Iterator[str]:
    last = one["last"]
    yield f"{one['function']}  call {one['kind'][:12]}"
    if last["outcome"] is not None:
        yield f"  last traced {_ago(last['time'])}: {_words(last)}"
        yield from (f"    {line}" for line in last["why"])
    for record in one["records"]:
        yield f"  recorded {_ago(record['recorded'])}, executable {record['key'][:12]}: {_trust(record)}"
        yield from (f"    {line}" for line in record["guards"])
    yield ""


def _words(last: Mapping[str, Any]) -> str:
    words = {
        "recorded": "and recorded",
        "proved": "and it came to the program that was recorded",
        "traced": "and not recorded",
    }
    return words.get(str(last["outcome"]), str(last["outcome"])) + (", since" if last["why"] else "")


def _trust(record: Mapping[str, Any]) -> str:
    if record["struck"]:
        return f"never believed again: {record['struck']}"
    if not record["proved"]:
        return "not proved yet, so the next start traces once more"
    return (
        f"proved {counted(record['proved'], 'time')}, last {_ago(record['last_proof'])}, "
        f"{counted(record['starts_since'], 'start')} without a proof since"
    )


def _ago(moment: Any) -> str:
    return ago(float(moment)) if moment else "never"
