"""The library `protobuf`, imported when a message is first needed, and the classes of XLA's messages.

Not promised: that the classes are those of another package in the process (TensorFlow has some of the same names).
They live in a pool of their own, so neither collides with the other, and neither's messages can be put into the
other's.

`protobuf` has no types that a checker could see without its stubs, so messages are `Any` here.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from rewarm.autotune.formats import schema
from rewarm.autotune.formats.errors import MissingLibraryError

Message = Any

_TYPES = {"double": 1, "float": 2, "int64": 3, "int32": 5, "bool": 8, "string": 9, "bytes": 12}
_ENUM, _MESSAGE = 14, 11
_OPTIONAL, _REPEATED = 1, 3
_WELL_KNOWN = ("any_pb2", "duration_pb2", "wrappers_pb2")


def module(name: str) -> Any:
    """A module of the library: `module("text_format")`.

    Raises:
      MissingLibraryError: it is not installed, or cannot be imported.
    """
    try:
        return importlib.import_module(f"google.protobuf.{name}")
    except Exception as error:  # noqa: BLE001 - a broken library fails in many ways, and each is raised again as one
        raise MissingLibraryError(
            f"XLA's tuning files need the library protobuf, which cannot be imported ({error!r}); "
            'install it with: pip install "rewarm[autotune]"'
        ) from None


@functools.cache
def pool() -> Any:
    """The descriptors of `schema`, in a pool of their own.

    Raises:
      MissingLibraryError: see `module`.
    """
    made = module("descriptor_pool").DescriptorPool()
    for name in _WELL_KNOWN:
        made.AddSerializedFile(module(name).DESCRIPTOR.serialized_pb)
    for file in _files():
        made.AddSerializedFile(file.SerializeToString())
    return made


@functools.cache
def message_class(name: str) -> Any:
    """The class of a message by its full name: `message_class("xla.AutotuneResults")`.

    Raises:
      MissingLibraryError: see `module`.
    """
    return module("message_factory").GetMessageClass(pool().FindMessageTypeByName(name))


def _files() -> list[Any]:
    """One file for each package, since a file has one package; each depends on those before it."""
    descriptors = module("descriptor_pb2")
    names = [module(name).DESCRIPTOR.name for name in _WELL_KNOWN]
    made: list[Any] = []
    for package in schema.packages():
        file = descriptors.FileDescriptorProto(
            name=f"rewarm/{package}.proto", package=package, syntax="proto3", dependency=names
        )
        _fill(file, package)
        names = [*names, file.name]
        made.append(file)
    return made


def _fill(file: Any, package: str) -> None:
    holders: dict[str, Any] = {}
    for message in schema.messages():
        if schema.package_of(message.name) == package:
            scope, _, short = message.name.rpartition(".")
            within = holders.get(scope)
            made = file.message_type.add(name=short) if within is None else within.nested_type.add(name=short)
            holders[message.name] = made
            _add_fields(made, message)
    for enum in schema.enums():
        if schema.package_of(enum.name) == package:
            scope, _, short = enum.name.rpartition(".")
            made = holders.get(scope, file).enum_type.add(name=short)
            for value in enum.values:
                made.value.add(name=value.name, number=value.number)


def _add_fields(made: Any, message: schema.Message) -> None:
    groups = list(dict.fromkeys(row.oneof for row in message.fields if row.oneof))
    for group in groups:
        made.oneof_decl.add(name=group)
    for row in message.fields:
        one = made.field.add(name=row.name, number=row.number, label=_REPEATED if row.repeated else _OPTIONAL)
        if row.map_of:
            _add_map(made, message.name, one, row)
        else:
            _set_type(one, row.type)
        if row.oneof:
            one.oneof_index = groups.index(row.oneof)


def _set_type(field: Any, spelled: str) -> None:
    if spelled in _TYPES:
        field.type = _TYPES[spelled]
    else:
        field.type = _ENUM if spelled in schema.enum_names() else _MESSAGE
        field.type_name = f".{spelled}"


def _add_map(made: Any, within: str, field: Any, row: schema.Field) -> None:
    """A map is a repeated message of key and value, whose name follows from the field's."""
    name = "".join(part.capitalize() for part in row.name.split("_")) + "Entry"
    entry = made.nested_type.add(name=name)
    entry.options.map_entry = True
    for number, (label, spelled) in enumerate(zip(("key", "value"), row.map_of, strict=True), start=1):
        _set_type(entry.field.add(name=label, number=number, label=_OPTIONAL), spelled)
    field.label, field.type, field.type_name = _REPEATED, _MESSAGE, f".{within}.{name}"
