"""A report as JSON; `schema.json` beside this file describes it.

Not promised: that numbers have more than six places after the point.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from rewarm.report.model import Report, Spans


def to_json(report: Report, *, indent: int | None = None) -> str:
    """All of it, as one JSON object in ASCII."""
    return json.dumps(as_plain(report), indent=indent, separators=(",", ":") if indent is None else None)


def as_plain(report: Report, *, spans: bool = True) -> dict[str, Any]:
    """The report as plain JSON values; without the steps of lanes where they are not wanted."""
    told = {name: getattr(report, name) for name in Report.__dataclass_fields__}
    lanes = told.pop("spans")
    plain: dict[str, Any] = _plain(told)
    if spans:
        # As they are: there may be a million numbers.
        plain["spans"] = [{name: getattr(one, name) for name in Spans.__dataclass_fields__} for one in lanes]
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if dataclasses.is_dataclass(value):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return str(value)
