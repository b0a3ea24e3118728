"""The JSON Schema of a report's JSON, made from the records of `model.py`, so that the two cannot differ.

Not promised: that a validator finds every wrong value; it finds fields that are missing, and values of another kind.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from rewarm.report.model import SCHEMA, Report

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}


def schema() -> dict[str, Any]:
    """The schema (draft 2020-12), with what each field means."""
    definitions: dict[str, Any] = {}
    report = _record(Report, definitions)
    report["properties"]["schema"] = {"const": SCHEMA}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        **report,
        "$defs": {name: definitions[name] for name in sorted(definitions) if name != "Report"},
    }


def _record(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    hints, meant = typing.get_type_hints(kind), _meanings(kind)
    properties = {}
    for field in dataclasses.fields(kind):
        properties[field.name] = {**_of(hints[field.name], definitions)}
        if field.name in meant:
            properties[field.name]["description"] = meant[field.name]
    return {
        "description": (kind.__doc__ or "").split("\n\n")[0].replace("\n    ", " "),
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }


def _of(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if dataclasses.is_dataclass(hint):
        name = hint.__name__  # type: ignore[union-attr]
        if name not in definitions:
            definitions[name] = {}
            definitions[name] = _record(hint, definitions)
        return {"$ref": f"#/$defs/{name}"}
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [{"type": "null"} if one is type(None) else _of(one, definitions) for one in inside]}
    if origin in (tuple, list):
        return {"type": "array", "items": _of(inside[0], definitions)}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _of(inside[1], definitions)}
    return {}


def _meanings(kind: Any) -> dict[str, str]:
    """What a record's docstring says of its fields; "a, b:" is said of both."""
    told: dict[str, str] = {}
    names: list[str] = []
    _, _, text = (kind.__doc__ or "").partition("Attributes:\n")
    for line in text.splitlines():
        head, colon, rest = line.strip().partition(":")
        if line.startswith("      ") and not line.startswith("       ") and colon:
            names = [name.strip() for name in head.split(",")]
            told |= dict.fromkeys(names, rest.strip())
        elif line.strip():
            told |= {name: f"{told[name]} {line.strip()}" for name in names}
    return told
