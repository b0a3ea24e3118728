"""`rewarm stats`."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import click

from rewarm.cli.common import (
    ago,
    directory_option,
    json_option,
    moment,
    open_store,
    print_json,
    seconds,
    size,
    surveyed,
    table,
)
from rewarm.ledger.savings import Savings, Totals, all_time
from rewarm.store import LocalStore

_SHOWN = 20


@click.command()
@click.option("--all-time", "since_ever", is_flag=True, help="What all runs saved since the beginning, by program.")
@directory_option
@json_option
def command(since_ever: bool, directory: str | None, as_json: bool) -> None:
    """Sum up a cache directory: entries, bytes, the compile time they stand for, by target and by JAX version.

    With --all-time: requests, hits, the seconds saved and those spent compiling, of all runs since the directory was
    made, those too whose record is gone. What one process did is `rewarm.stats()` inside it, or REWARM_STATS=1.
    """
    store = open_store(directory)
    if since_ever:
        savings = all_time(store.root)
        if as_json:
            print_json(_plain(store, savings))
        else:
            _print_savings(store, savings)
        return
    summary = _summary(store)
    if as_json:
        print_json(summary)
    else:
        _print(summary)


def _summary(store: LocalStore) -> dict[str, Any]:
    items = surveyed(store, store.scan())
    sound = [(item.info, item.header) for item in items if item.header is not None]
    targets = Counter(header.target for _, header in sound)
    makers = Counter(header.producer.get("jax", "unknown") for _, header in sound)
    return {
        "directory": str(store.root),
        "entries": len(items),
        "bytes": sum(item.info.size for item in items),
        "compile_seconds": sum(header.compile_seconds for _, header in sound),
        "unreadable": len(items) - len(sound),
        "quarantined": len(store.quarantined()),
        "oldest_use": min((item.info.used for item in items), default=None),
        "newest_use": max((item.info.used for item in items), default=None),
        "by_target": dict(sorted(targets.items())),
        "by_jax": dict(sorted(makers.items())),
    }


def _print(summary: dict[str, Any]) -> None:
    lines = [
        ("directory", summary["directory"]),
        ("entries", f"{summary['entries']}, {size(summary['bytes'])}"),
        ("compiling", f"{seconds(summary['compile_seconds'])} to make them all again"),
        ("unreadable", summary["unreadable"]),
        ("quarantined", summary["quarantined"]),
    ]
    if summary["newest_use"] is not None:
        lines.append(("used", f"latest {ago(summary['newest_use'])}, oldest {ago(summary['oldest_use'])}"))
    lines += [("target", f"{name}: {count}") for name, count in summary["by_target"].items()]
    lines += [("made by", f"JAX {name}: {count}") for name, count in summary["by_jax"].items()]
    for name, text in lines:
        click.echo(f"{name:<12} {text}")


# -- since the beginning -------------------------------------------------------------------------------------------


def _plain(store: LocalStore, savings: Savings) -> dict[str, Any]:
    told = dataclasses.asdict(savings)
    del told["folded"]
    return {
        **told,
        "directory": str(store.root),
        "total": savings.total()._asdict(),
        "others": savings.others._asdict(),
        "programs": {name: totals._asdict() for name, totals in savings.programs.items()},
    }


def _print_savings(store: LocalStore, savings: Savings) -> None:
    if savings.since is None:
        click.echo(f"no run is recorded in {store.root}: a program leaves one when it compiles while rewarm is on")
        return
    total = savings.total()
    click.echo(f"{store.root} since {moment(savings.since)}, {savings.runs} runs")
    click.echo(f"{seconds(total.seconds_saved)} saved by {total.hits} hits of {total.requests} requests")
    click.echo(f"{seconds(total.seconds_compiling)} spent compiling the rest")
    missing = savings.lost + savings.uncounted
    if missing:
        click.echo(f"not in these numbers: {savings.lost} events that runs lost, {savings.uncounted} unreadable runs")
    click.echo()
    ranked = sorted(savings.programs.items(), key=lambda row: -row[1].seconds_saved)
    rest = [totals for _, totals in ranked[_SHOWN:]]
    rows = [_cells(name, totals) for name, totals in ranked[:_SHOWN]]
    if rest or savings.other_programs:
        others = savings.others
        for totals in rest:
            others = others.plus(totals)
        rows.append(_cells(f"{len(rest) + savings.other_programs} others", others))
    columns = ("program", "requests", "hits", "saved", "compiling")
    table(columns, rows, numeric=columns[1:])


def _cells(name: str, totals: Totals) -> list[str]:
    numbers = [str(totals.requests), str(totals.hits)]
    return [name, *numbers, seconds(totals.seconds_saved), seconds(totals.seconds_compiling)]
