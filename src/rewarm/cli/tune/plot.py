"""Timings drawn: as bars in the terminal, and as a picture by matplotlib (extra `rewarm[tune]`).

Not promised: that a picture has every sample of a long session; records keep the first 256 of each candidate.
"""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import Any

import click

from rewarm.cli.tune.chosen import chosen_text, middle, ordered_trials, time_text
from rewarm.telling import one_line
from rewarm.tunables.records import Record, Trial
from rewarm.tunables.spaces import canonical

_BAR = "█"
_PARTS = " ▏▎▍▌▋▊▉"
_MOST_BARS = 60
_NARROWEST = 10


def in_terminal(record: Record) -> None:
    """One bar for each candidate that was timed, the fastest first; as wide as the terminal."""
    timed = [one for one in ordered_trials(record) if one.seconds]
    if not timed:
        click.echo("nothing to draw: no timings are kept with it")
        return
    names = [_name(one, record) for one in timed[:_MOST_BARS]]
    times = [time_text(middle(one)) for one in timed[:_MOST_BARS]]
    longest = max(middle(one) or 0.0 for one in timed[:_MOST_BARS])
    left, right = max(map(len, names)), max(map(len, times))
    width = max(_NARROWEST, shutil.get_terminal_size().columns - left - right - 4)
    click.echo("")
    for name, said, one in zip(names, times, timed, strict=False):
        click.echo(f"{name:<{left}}  {_bar((middle(one) or 0.0) / longest, width):<{width}}  {said:>{right}}".rstrip())
    if len(timed) > _MOST_BARS:
        click.echo(f"and {len(timed) - _MOST_BARS} slower ones")


def _name(trial: Trial, record: Record) -> str:
    text = canonical(trial.config)
    marks = [
        word for word, one in (("*", record.winner), ("default", record.default)) if one and canonical(one) == text
    ]
    return one_line(" ".join((chosen_text(record, trial.config), *marks)))


def _bar(share: float, width: int) -> str:
    whole, part = divmod(max(1, round(share * width * 8)), 8)
    return _BAR * whole + (_PARTS[part] if part else "")


def to_file(record: Record, path: Path) -> None:
    """A picture of every sample of each candidate, by the suffix of the path (png, svg, pdf).

    Raises:
      click.ClickException: matplotlib is not there, the suffix is none of its, or there is nothing to draw.
    """
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
        figures: Any = importlib.import_module("matplotlib.figure")
    except ImportError as wrong:
        raise click.ClickException(f"a picture needs matplotlib ({wrong}): pip install 'rewarm[tune]'") from None
    timed = [one for one in ordered_trials(record) if one.seconds][:_MOST_BARS]
    if not timed:
        raise click.ClickException("nothing to draw: no timings are kept with it")
    with matplotlib.rc_context({"svg.hashsalt": "rewarm", "text.parse_math": False}):
        figure = figures.Figure(figsize=(9, 1.5 + 0.3 * len(timed)), layout="constrained")
        _draw(figure.add_subplot(), record, timed)
        try:
            figure.savefig(path, dpi=150)
        except ValueError as wrong:  # a suffix that it does not know
            raise click.ClickException(f"{path}: {wrong}") from None


def _draw(axes: Any, record: Record, timed: list[Trial]) -> None:
    samples = [[one * 1e3 for one in trial.seconds] for trial in timed]
    axes.boxplot(samples, orientation="horizontal", showfliers=True, tick_labels=[_name(one, record) for one in timed])
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds of one call")
    axes.set_title(one_line(f"{record.case.kernel} for {record.case.arguments}"), fontsize=9)
    axes.grid(visible=True, axis="x", alpha=0.3)
