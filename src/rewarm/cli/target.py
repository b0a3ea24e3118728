"""`rewarm target`: the machines that programs can be compiled for without having them.

Not promised: that text output keeps its form; `--json` does. `capture` alone starts JAX, and takes the devices that it
finds for the moment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rewarm import targets
from rewarm.cli.common import FOUND_BAD, json_option, print_json, table
from rewarm.targets.comparing import said
from rewarm.targets.names import listed


@click.group()
def command() -> None:
    """Look after descriptions of machines, for which programs are compiled ahead."""


@command.command()
@json_option
def ls(as_json: bool) -> None:
    """List the machines that are described here.

    Wherever one of their names is expected, a file that `capture` made does as well.
    """
    found = listed()
    if as_json:
        print_json({"targets": [_as_json(target) for target in found.values()]})
        return
    table(("name", "platform", "about"), [[name, one.platform, one.about] for name, one in found.items()])


@command.command()
@click.argument("name", metavar="NAME|FILE")
@click.option("--against", metavar="NAME|FILE", help="Say only in what it differs from this one.")
@click.option("--topology", metavar="TEXT", help="Say also what a topology means.")
@json_option
def show(name: str, against: str | None, topology: str | None, as_json: bool) -> None:
    """Show what compilers read of a machine, or in what two differ.

    With --against the exit code is 1 where a field that is part of keys differs: what is compiled for one does not
    serve the other.
    """
    target = targets.named(name)
    shape = target.topology(topology)
    if against is not None:
        _differences(target, targets.named(against), as_json)
        return
    meant = {"text": shape.text, "processes": shape.processes, "devices": shape.devices}
    if as_json:
        print_json({**_as_json(target), "topology": meant, "fields": said(target)})
        return
    click.echo(f"{target.name}, {target.source}: {target.about}")
    if topology is not None or target.reported is not None:
        click.echo(f"topology {shape.text}: {shape.devices} devices in {shape.processes} processes")
    table(("field", "value"), [list(row) for row in said(target).items()])
    if target.processor is None and target.platform == "cpu":
        click.echo("its instruction set is what JAX finds; rewarm target capture writes it down")


@command.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--platform", type=click.Choice(["cuda", "tpu", "cpu"]), help="Default: that of JAX's default devices.")
@click.option("--name", metavar="TEXT", help="What it is called; by default as the file.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def capture(file: Path, platform: str | None, name: str | None, force: bool) -> None:
    """Write what this machine is into FILE, to compile for it anywhere.

    Run it with the JAX, the driver and the XLA_FLAGS of the programs that are to run here. In a job of several hosts
    on TPU run it on each at once, and keep one of the files. Of GPUs and CPUs one host alone is enough.
    """
    from rewarm.jax_adapter import described

    if not force and file.exists():
        raise click.ClickException(f"{file} is there already and is not overwritten; name another file, or --force")
    target = described.capture(name or file.stem, platform)
    targets.write(target, file, force=force)
    click.echo(f"{file}: {targets.read(file).about}")


def _differences(first: targets.Target, second: targets.Target, as_json: bool) -> None:
    if first.source == "this host" or second.source == "this host":
        from rewarm.jax_adapter import described

        first, second = described.exact(first), described.exact(second)
    found = targets.differences(first, second)
    if as_json:
        print_json({"differences": [one.plain() for one in found]})
    elif found:
        table(
            ("field", first.name, second.name, "in keys"),
            [[one.field, one.first, one.second, "yes" if one.keyed else "no"] for one in found],
        )
    else:
        click.echo(f"{first.name} and {second.name} say the same")
    if any(one.keyed for one in found):
        raise click.exceptions.Exit(FOUND_BAD)


def _as_json(target: targets.Target) -> dict[str, Any]:
    told = target.reported
    return {
        "name": target.name,
        "platform": target.platform,
        "about": target.about,
        "source": target.source,
        "versions": None if told is None else dict(told.versions),
    }
