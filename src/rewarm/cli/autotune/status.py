"""`rewarm autotune status`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import click

from rewarm.autotune import states
from rewarm.autotune.locating import places
from rewarm.autotune.places import Place
from rewarm.cli.common import ago, directory_option, json_option, open_store, print_json, surveyed, table
from rewarm.sharing.tuning import KIND
from rewarm.store import LocalStore
from rewarm.store.inventory import Item

_STATES = (*(state.value for state in states.State), states.UNSAID)


class _Row(NamedTuple):
    """One executable: its entry, its state, and why it would be compiled better now."""

    item: Item
    state: str
    outdated: str | None

    @property
    def tuning(self) -> Any:
        return (self.item.header.tuning if self.item.header else None) or {}


@click.command()
@click.option("--state", "wanted", type=click.Choice(_STATES), multiple=True, help="Only these.")
@click.option("--outdated", "only_outdated", is_flag=True, help="Only those that would be compiled better now.")
@directory_option
@json_option
def command(wanted: tuple[str, ...], only_outdated: bool, directory: str | None, as_json: bool) -> None:
    """List executables by the tuning that they were compiled with.

    complete: each fusion had a result, or XLA tuned it. incomplete: not so. deterministic: XLA was to be, and tuned
    nothing. unknown: nobody can say. none: results came from a file or folder of the user's own. unsaid: an executable
    for a GPU from before rewarm wrote this down. One is outdated where results are here that it was compiled without;
    programs compile it anew, or as autotune_incomplete says.
    """
    store = open_store(directory)
    rows = list(_rows(store))
    shown = [
        row for row in rows if (not wanted or row.state in wanted) and (row.outdated is not None or not only_outdated)
    ]
    counts = {state: sum(row.state == state for row in rows) for state in _STATES}
    outdated = sum(row.outdated is not None for row in rows)
    if as_json:
        told = {"counts": counts, "outdated": outdated, "executables": [_plain(row) for row in shown]}
        print_json({"directory": str(store.root), **told})
    else:
        _print(store, shown, counts, outdated)


def _rows(store: LocalStore) -> Iterable[_Row]:
    known: dict[str, tuple[str, frozenset[str]]] = {}
    here = {place.name: place for place in places(store.root)}
    for item in surveyed(store, store.scan()):
        header = item.header
        if header is None or header.kind == KIND:
            continue
        state = states.state_said(header.tuning)
        if state == states.UNSAID and not header.target.startswith("gpu"):
            continue
        digest, present = _at_hand(here.get(str((header.tuning or {}).get("place"))), known)
        yield _Row(item, state, states.is_outdated(header.tuning, digest, present) if present else None)


def _at_hand(place: Place | None, known: dict[str, tuple[str, frozenset[str]]]) -> tuple[str, frozenset[str]]:
    """The results of a place as of the last look at it."""
    if place is None:
        return "", frozenset()
    if place.name not in known:
        known[place.name] = place.set_at_hand()[0], place.names()
    return known[place.name]


def _plain(row: _Row) -> dict[str, Any]:
    header = row.item.header
    return {
        "key": row.item.info.key,
        "program": header.program if header else None,
        "target": header.target if header else None,
        "created": header.created if header else None,
        "state": row.state,
        "outdated": row.outdated,
        "results": _number(row.tuning.get("entries")),
        "new": _number(row.tuning.get("new")),
        "missing": [str(name) for name in row.tuning.get("missing", ())] if row.state != states.UNSAID else [],
        "set": str(row.tuning.get("set", "")),
        "place": str(row.tuning.get("place", "")),
        "lock": str(row.tuning.get("lock", "")),
    }


def _number(said: Any) -> int | None:
    return said if isinstance(said, int) else None


def _print(store: LocalStore, rows: list[_Row], counts: dict[str, int], outdated: int) -> None:
    if not any(counts.values()):
        click.echo(f"no executables for GPUs in {store.root}")
        return
    cells = [
        [
            row.item.info.key[:12],
            row.item.header.program if row.item.header else "-",
            row.state + (", outdated" if row.outdated else ""),
            _text(row.tuning.get("entries")),
            _text(row.tuning.get("new")),
            ago(row.item.header.created) if row.item.header else "-",
            row.item.header.target if row.item.header else "-",
        ]
        for row in sorted(rows, key=_order)
    ]
    if cells:
        table(("key", "program", "tuning", "results", "new", "made", "target"), cells, numeric=("results", "new"))
    said = ", ".join(f"{number} {state}" for state, number in counts.items() if number)
    click.echo(f"{sum(counts.values())} executables: {said}; {outdated} would be compiled better now")


def _text(said: Any) -> str:
    return str(said) if isinstance(said, int) else "-"


def _order(row: _Row) -> tuple[bool, int, float]:
    return row.outdated is None, _STATES.index(row.state), -(row.item.header.created if row.item.header else 0.0)
