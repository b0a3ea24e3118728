"""What the subcommands share: records of a directory or of lock files, chosen by name, and how they are told.

Not promised: that a record which is listed serves any program; see `rewarm tune check`.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from rewarm.cli.common import moment, open_store
from rewarm.cli.common import seconds as as_seconds
from rewarm.sharing.made import Made, made_by
from rewarm.store import LocalStore
from rewarm.tunables.keeping import Keeping
from rewarm.tunables.merging import is_decided
from rewarm.tunables.records import Record, Trial
from rewarm.tunables.spaces import canonical

F = TypeVar("F", bound=Callable[..., Any])


def kernel_option(function: F) -> F:
    """`--kernel`."""
    help_ = "Only kernels whose name contains this. May be repeated."
    return click.option("--kernel", "kernels", multiple=True, metavar="NAME", help=help_)(function)


def keeping_at(directory: str | None) -> Keeping:
    """The records of a cache directory.

    Raises:
      click.ClickException: there is no such directory (exit code 1).
    """
    return keeping_of(open_store(directory))


def keeping_of(store: LocalStore, made: Made | None = None) -> Keeping:
    """The records of a store. What is broken is told on standard error."""
    return Keeping(store, made=made, producer=_producer(), tell=lambda line: click.echo(line, err=True))


def made_in(store: LocalStore) -> Made:
    """What this user made there."""
    from rewarm import settings

    return made_by(settings.of_command(directory=str(store.root)), store)


def _producer() -> dict[str, str]:
    from importlib import metadata

    return {"rewarm": metadata.version("rewarm")}


def of_kernels(found: Iterable[Record], kernels: Sequence[str]) -> list[Record]:
    """Those whose kernel's name contains one of these; all where there are none."""
    return [one for one in found if not kernels or any(name in one.case.kernel for name in kernels)]


def loaded(files: Sequence[Path], directory: str | None) -> list[Record]:
    """The records of lock files, or, without any, of a cache directory.

    Raises:
      LockFileError: a file cannot be used.
      click.ClickException: there is no such directory.
    """
    from rewarm.tunables import text_file

    if files:
        return [record for path in files for record in text_file.load(path)]
    return keeping_at(directory).all()


def the_one(found: Sequence[Record], wanted: str, arguments: str | None) -> Record:
    """The record of one case.

    Args:
      wanted: the first digits of its key, or the kernel's name or a part of it.
      arguments: its arguments, or a part of their text.

    Raises:
      click.ClickException: there is none, or more than one (exit code 1).
    """
    by_key = [one for one in found if one.case.key.startswith(wanted)] if len(wanted) >= 4 else []
    chosen = by_key or of_kernels(found, (wanted,))
    chosen = [one for one in chosen if arguments is None or arguments in one.case.arguments]
    exact = [one for one in chosen if wanted == one.case.kernel and arguments in (None, one.case.arguments)]
    chosen = exact or chosen
    if len(chosen) == 1:
        return chosen[0]
    if not chosen:
        raise click.ClickException(f"nothing is tuned under {wanted!r}; see rewarm tune ls")
    some = "\n".join(f"  {one.case.key[:12]}  {one.case.kernel}  {one.case.arguments}" for one in chosen[:10])
    raise click.ClickException(f"{len(chosen)} cases are tuned under {wanted!r}; name one by its key:\n{some}")


def state_of(record: Record) -> str:
    """In one word or two how far a case is."""
    if not is_decided(record):
        return "not decided"
    return "tuned" if record.ratio != 1.0 else "default stays"


def winner_text(record: Record) -> str:
    """The winner as people read it."""
    return chosen_text(record, record.winner) if record.winner is not None else "-"


def is_of_options(record: Record) -> bool:
    """Whether it is of XLA's options for a program, of which those that are `None` are left away."""
    return record.case.kernel.startswith("options of ")


def chosen_text(record: Record, config: Mapping[str, Any]) -> str:
    """A configuration of a record as people read it."""
    if not is_of_options(record):
        return config_text(config)
    return config_text({name: value for name, value in config.items() if value is not None}) or "no options"


def config_text(config: Mapping[str, Any]) -> str:
    """A configuration as people read it: block=64, warps=4."""
    return ", ".join(f"{name}={value}" for name, value in config.items())


def ratio_text(record: Record) -> str:
    """How much faster the winner is, and how sure that is."""
    if record.comparison is None:
        return "-"
    sure = record.comparison
    return f"{record.ratio:.3g}x ({sure.low:.3g} to {sure.high:.3g})" if record.ratio != 1.0 else "1x"


def middle(trial: Trial) -> float | None:
    """The median of a trial's samples, in seconds."""
    return statistics.median(trial.seconds) if trial.seconds else None


def ordered_trials(record: Record) -> list[Trial]:
    """The newest trial of each candidate, the fastest first, then what failed."""
    newest: dict[str, Trial] = {}
    for one in sorted(record.trials, key=lambda one: (one.when, one.text)):
        newest[canonical(one.config)] = one
    return sorted(newest.values(), key=lambda one: (middle(one) is None, middle(one) or 0.0, canonical(one.config)))


def time_text(value: float | None) -> str:
    """Seconds of one call for people, down to nanoseconds."""
    if value is None:
        return "-"
    for limit, factor, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if value < limit:
            return f"{value * factor:.4g} {unit}"
    return as_seconds(value)


def plain(record: Record) -> dict[str, Any]:
    """A record as JSON."""
    told: dict[str, Any] = json.loads(record.text)
    return {**told, "key": record.case.key, "ratio": record.ratio, "state": state_of(record)}


def when_text(record: Record) -> str:
    """When the winner was found, for people; a lock file does not say."""
    return moment(record.when) if record.when else "-"
