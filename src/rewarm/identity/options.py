"""The `options` and `inputs` components: the effective compile options, and the files that they name by content.

Not promised: that two options with one effect count as one. What is known to be equal is: an option spelled at its
default, in another order, or through `compiler_options=` in the place of a flag. All else differs.

Read from `CompileOptionsProto` (xla/pjrt/proto/compile_options.proto), field by field, by the class that the option
table gives each:

    affects              counts by value; unset reads as zero, as XLA reads it
    file, named_file     counts in `inputs`
    toolkit              is reported, for the toolchain
    output               does not count, and is reported: such a program is neither looked up nor stored
    no_effect            does not count
    target, process      do not count here
    a number without a row counts with its raw bytes

`compiler_options=` are folded into the flags first, as XLA applies them: they replace what the flags say. What cannot
be folded with certainty counts by name, type and value. Names with `xla_tpu_` are never folded: libtpu has options of
its own under such names.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from rewarm.identity.option_files import file_row
from rewarm.identity.option_table import Message, OptionField, flags, message
from rewarm.identity.option_values import Override, as_json, is_unset, raw_as_json, read


class CanonicalOptions(NamedTuple):
    """The compile options as a key sees them.

    Attributes:
      canonical: `value` as text, equal when no option that counts differs.
      value: name -> value of all that counts, as JSON values; shared between calls, so not to be changed. Flags stand
        under their own names, options around them as "profile_version" or "executable_build_options.num_partitions",
        `compiler_options=` that were not folded under "env_option_overrides", fields without a row as "field 9".
      inputs: content of the named files: option, base name where it counts, what stands for the content.
      outputs: names of the options that ask for files or logs to be written; such a program is not cached.
      cuda_directory: where the options say the CUDA toolkit lies, or "".
    """

    canonical: bytes
    value: dict[str, Any]
    inputs: tuple[tuple[str, str, str], ...]
    outputs: tuple[str, ...]
    cuda_directory: str


class _Flags(NamedTuple):
    value: dict[str, Any]
    files: tuple[tuple[OptionField, str], ...]
    outputs: tuple[str, ...]
    cuda_directory: str


def canonical_options(serialized: bytes) -> CanonicalOptions:
    """The canonical form of a serialised `CompileOptionsProto`.

    Raises:
      ValueError: the bytes are not such a message.
      UnidentifiableFileError: a file that an option names cannot be identified; one kind of ValueError.
    """
    options, files = _parsed(serialized)
    if not files:
        return options
    # Files are read each time: the text of the options says nothing about their content.
    return options._replace(inputs=tuple(file_row(field, path) for field, path in files))


# The programs of one process share a few values of these bytes.
@functools.lru_cache(maxsize=256)
def _parsed(serialized: bytes) -> tuple[CanonicalOptions, tuple[tuple[OptionField, str], ...]]:
    outer = _Part.of("CompileOptionsProto", serialized)
    build = _Part.of("ExecutableBuildOptionsProto", outer.inside("executable_build_options"))
    flags_said = _flags(build.inside("debug_options"), tuple(sorted(outer.inside("env_option_overrides").items())))
    value = {
        **outer.as_json("", "field"),
        **build.as_json("executable_build_options.", "executable_build_options.field"),
        **flags_said.value,
    }
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")
    options = CanonicalOptions(canonical, value, (), flags_said.outputs, flags_said.cuda_directory)
    return options, flags_said.files


# Nearly all of the bytes, and less varied still: the parts around have a list as long as the program has arguments.
@functools.lru_cache(maxsize=64)
def _flags(debug_options: bytes, overrides: tuple[tuple[str, bytes], ...]) -> _Flags:
    debug = _Part.of("DebugOptions", debug_options)
    left = dict(_left_after_folding(overrides, debug))
    value = debug.as_json("", "debug_options.field")
    if left:
        value["env_option_overrides"] = {name: override.as_json() for name, override in left.items()}
    outputs = {field.name for field, _ in debug.set_fields("output")}
    outputs |= {name for name in left if name in flags() and flags()[name].group == "output"}
    return _Flags(
        value=value,
        files=tuple(_named(debug)),
        outputs=tuple(sorted(outputs)),
        cuda_directory=next((directory for _, directory in debug.set_fields("toolkit")), ""),
    )


class _Part(NamedTuple):
    """One message: its rows of the table, plain values, and raw bytes of what has no row."""

    table: Message
    values: dict[int, Any]
    unknown: dict[int, bytes]

    @classmethod
    def of(cls, name: str, data: bytes) -> _Part:
        table = message(name)
        return cls(table, *read(data, table))

    def inside(self, name: str) -> Any:
        """The value of a field that is read field by field: the bytes of a message, or a map."""
        field = next(field for field in self.table.values() if field.name == name)
        if field.number in self.unknown:
            raise ValueError(f"{name} is not the message that it should be")
        return self.values.get(field.number, {} if field.many else b"")

    def set_fields(self, *groups: str) -> Iterator[tuple[OptionField, Any]]:
        """Fields and values in the order of their numbers, without those that are as good as unset."""
        for number in sorted(self.values):
            field, value = self.table[number], self.values[number]
            if field.group in groups and not is_unset(field, value):
                yield field, value

    def as_json(self, prefix: str, unknown: str) -> dict[str, Any]:
        """What counts, by name."""
        known = {prefix + field.name: as_json(field, value) for field, value in self.set_fields("affects")}
        return known | {f"{unknown} {number}": raw_as_json(raw) for number, raw in sorted(self.unknown.items())}


def _left_after_folding(overrides: Iterable[tuple[str, bytes]], debug: _Part) -> Iterator[tuple[str, Override]]:
    """Put overrides into the flags, as XLA does. What comes out are those for which that is not certain."""
    for name, data in overrides:
        override = Override.of(data)
        field = None if name.startswith("xla_tpu_") else flags().get(name)
        value = None if field is None else override.folded(field)
        if field is None or value is None:
            yield name, override
        else:
            debug.values[field.number] = value


def _named(debug: _Part) -> Iterator[tuple[OptionField, str]]:
    for field, value in debug.set_fields("file", "named_file"):
        yield from ((field, path) for path in (value if field.many else [value]) if path)
