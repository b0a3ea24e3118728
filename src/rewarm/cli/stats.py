"""`rewarm stats`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from rewarm.cli.common import ago, directory_option, json_option, open_store, print_json, seconds, size
from rewarm.store import LocalStore
from rewarm.store.inventory import survey


@click.command()
@directory_option
@json_option
def command(directory: str | None, as_json: bool) -> None:
    """Sum up a cache directory: entries, bytes, the compile time they stand for, by target and by JAX version.

    What one process did is `rewarm.stats()` inside it, or REWARM_STATS=1.
    """
    store = open_store(directory)
    summary = _summary(store)
    if as_json:
        print_json(summary)
    else:
        _print(summary)


def _summary(store: LocalStore) -> dict[str, Any]:
    items = list(survey(store))
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
