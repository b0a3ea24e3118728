"""Print the fields of a CUDA plugin's autotuning messages that the schema does not have, as lines for it.

    python tools/autotune_fields.py [PLUGIN.so VERSION]...

Each line goes into src/rewarm/autotune/formats/schema.py, under its message. VERSION is the JAX release of the plugin
("0.12.0.1"); without arguments the installed plugin is looked at. Its library describes its own messages: see
`option_fields.py`. Exit code 1 if a line is missing or a build lacks what the schema says it has.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from option_fields import Descriptors, descriptors

from rewarm.autotune.formats import schema

# Not XLA's own, or of another file than XLA's, which `descriptors` does not look at.
_OURS = ("rewarm.",)
# Up to 0.10 under another name.
_MOVED = {"xla.xtile.": "xla.gpu."}


def installed() -> list[tuple[Path, str]]:
    """The installed plugins with their versions."""
    found = []
    for flavour in ("cuda12", "cuda13"):
        spec = importlib.util.find_spec("jax_plugins")
        for place in (spec.submodule_search_locations or ()) if spec else ():
            library = Path(place) / f"xla_{flavour}" / "xla_cuda_plugin.so"
            if library.exists():
                found.append((library, importlib.metadata.version(f"jax-{flavour}-pjrt")))
    return found


def complaints(found: Descriptors, version: str) -> Iterator[str]:
    """What the schema lacks, or has otherwise than the library of this version."""
    major, minor = (int(part) for part in version.split(".")[:2])
    for message in schema.messages():
        if not message.name.startswith(_OURS):
            name = _name(message.name, found)
            if (name in found.messages) != message.known.to((major, minor)):
                yield f"{message.name}: {'there' if name in found.messages else 'not there'}, unlike the schema says"
            elif name in found.messages:
                yield from _fields(message, name, found, (major, minor))
    for enum in schema.enums():
        if enum.name in found.enums:
            yield from _values(enum, found, (major, minor))


def _name(name: str, found: Descriptors) -> str:
    for now, before in _MOVED.items():
        if name.startswith(now) and name not in found.messages:
            return name.replace(now, before, 1)
    return name


def _fields(message: schema.Message, name: str, found: Descriptors, version: schema.Minor) -> Iterator[str]:
    rows = {row.number: row for row in message.fields}
    there = {field.number for field in found.messages[name]}
    for field in found.messages[name]:
        row = rows.get(field.number)
        if row is None:
            yield f"{message.name}: add the line: {field.number} {field.name} {field.type} ({field.of})"
        elif row.name != field.name or not _same_type(row, field.type):
            yield f"{message.name}: the schema has {row.number} {row.name} {row.type}, not {field.name} {field.type}"
        elif not row.known.to(version):
            yield f"{message.name}.{field.name}: there, unlike the schema says"
    for row in message.fields:
        if row.known.to(version) and row.number not in there:
            yield f"{message.name}.{row.name}: not there, unlike the schema says"


def _same_type(row: schema.Field, spelled: str) -> bool:
    """`option_fields` has short names, and calls a map with numbers for keys a repeated message."""
    if row.map_of:
        return spelled.endswith("Entry")
    kind = "enum" if row.type in schema.enum_names() else "message"
    one = f"{kind}:{row.type.rpartition('.')[2]}" if "." in row.type else row.type
    return spelled == (f"repeated:{one}" if row.repeated else one)


def _values(enum: schema.Enum, found: Descriptors, version: schema.Minor) -> Iterator[str]:
    table = {value.number: value.name for value in enum.values if value.known.to(version)}
    there = {number: names[0] for number, names in found.enums[enum.name].items()}
    for number in sorted({*table, *there}):
        if table.get(number) != there.get(number):
            yield f"{enum.name}: the schema has {number} {table.get(number)}, the library {there.get(number)}"


def main(arguments: list[str]) -> int:
    """Print what is missing."""
    given = [(Path(library), version) for library, version in zip(arguments[::2], arguments[1::2], strict=True)]
    plugins = given or installed()
    lines = [f"{version}: {line}" for library, version in plugins for line in complaints(descriptors(library), version)]
    if not plugins:
        lines = ["no CUDA plugin is installed; give the path of its library and its version"]
    print("\n".join(lines) or f"The schema has every field of {', '.join(version for _, version in plugins)}.")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
