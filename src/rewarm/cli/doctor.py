"""`rewarm doctor`."""

from __future__ import annotations

import dataclasses
import sys

import click

from rewarm.cli.common import FOUND_BAD, directory_option, json_option, print_json
from rewarm.doctor import Check, Verdict, examine, gather

_COLOURS: dict[Verdict, str] = {"ok": "green", "note": "yellow", "problem": "red"}


@click.command()
@click.option("--python", metavar="PATH", help="The Python to look into. Default: the one that runs this command.")
@click.option("--quick", is_flag=True, help="Leave out the trial, which starts JAX twice.")
@click.option("--import", "module", metavar="MODULE", help="Say which options of JAX's cache importing it changes.")
@directory_option
@json_option
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="[-- SCRIPT | -m MODULE ...]")
def command(
    python: str | None, quick: bool, module: str | None, directory: str | None, as_json: bool, program: tuple[str, ...]
) -> None:
    """Say whether caching would work here and now: one line for each check, and what to do next.

    `rewarm doctor -- train.py ARGS` also runs the program, in this environment, and says what was compiled before
    rewarm was on, what was left to JAX and what was not stored. What it prints goes to standard error.

    Remotes that are named are asked, too: where one is written to, a small blob is put there and removed again.

    Exit code 1 where there is a problem.
    """
    facts = gather(directory, python or sys.executable, module)
    found = []
    for check in examine(facts, quick=quick, arguments=program):
        found.append(check)
        if not as_json:
            _print(check)
    problems = sum(check.verdict == "problem" for check in found)
    if as_json:
        told = {"directory": str(facts.directory), "python": facts.python, "problems": problems}
        print_json({**told, "checks": [dataclasses.asdict(check) for check in found]})
    else:
        notes = sum(check.verdict == "note" for check in found)
        click.echo(f"{_count(problems, 'problem')}, {_count(notes, 'note')}" if problems or notes else "all well")
    if problems:
        raise SystemExit(FOUND_BAD)


def _print(check: Check) -> None:
    verdict = click.style(f"{check.verdict:<8}", fg=_COLOURS[check.verdict])
    click.echo(f"{verdict} {check.name:<20} {check.found}")
    if check.advice:
        click.echo(f"{'':<8} {'':<20} → {check.advice}")


def _count(number: int, word: str) -> str:
    return f"{number or 'no'} {word}{'' if number == 1 else 's'}"
