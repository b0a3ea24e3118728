"""`rewarm tune run`."""

from __future__ import annotations

import json
from typing import Any

import click

from rewarm.cli.common import directory_option, json_option, print_json
from rewarm.cli.tune.check import tunable_at
from rewarm.cli.tune.chosen import plain


@click.command()
@click.argument("function", metavar="MODULE:NAME")
@click.option(
    "--shapes",
    "shapes",
    multiple=True,
    required=True,
    metavar="TEXT",
    help="The arrays that it takes, such as 'f32[1024,512], bf16[8]'. May be repeated: each is a case of its own.",
)
@click.option("--set", "named", multiple=True, metavar="NAME=JSON", help="A named argument that is no array.")
@click.option("--budget", type=click.FloatRange(min=0, min_open=True), default=60.0, help="Seconds for each case.")
@click.option("--trials", type=click.IntRange(min=1), help="Candidates at most, for each case.")
@click.option("--tolerance", type=click.FloatRange(min=0), help="How far results may be from the default's, relative.")
@click.option("--seed", type=int, default=0, help="Of all that is drawn.")
@click.option("--optimiser", type=click.Choice(["optuna"]), help="Who says what to try in a large space.")
@click.option("--again", is_flag=True, help="Measure what is known, too.")
@click.option("--strict", is_flag=True, help="Refuse a noisy session.")
@directory_option
@json_option
def command(
    function: str,
    shapes: tuple[str, ...],
    named: tuple[str, ...],
    directory: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Tune a function of `rewarm.tunable` for arrays of these shapes, and keep the winners.

    MODULE:NAME is imported; it may be path/file.py:name. Values are made for the shapes, never zeros. What is known is
    not measured again. Ctrl-C keeps what was measured.
    """
    import rewarm
    from rewarm.jax_adapter.tuner.arguments import structs_of_text

    tunable = tunable_at(function)
    rewarm.enable(directory)
    given = dict(map(_named, named))
    results = []
    for text in shapes:
        try:
            structs = structs_of_text(text)
        except ValueError as wrong:
            raise click.UsageError(f"--shapes: {wrong}") from None
        found = rewarm.tune(tunable, None, *structs, **options, **given)
        results.append(found)
        if not as_json:
            click.echo(found.show())
    if as_json:
        print_json([{**plain(one.record), "measured": one.measured, "not_kept": one.not_kept} for one in results])


def _named(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name.isidentifier():
        raise click.UsageError(f"--set: expected NAME=JSON, such as causal=true, found {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
