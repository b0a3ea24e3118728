"""The guards of one trace, as a record that goes to a file and comes back.

Not promised: compatibility between formats: a record of another format is malformed.

    plain := {"format": 2, "python": str, "optimised": int, "seed": str | None,
              "root": str, "parts": [[words, short, digest]], "ran": [code digest],
              "packages": {info: [identity, [file]]}, "anchors": {module: [name]},
              "origins": {module: {name: origin}}, "values": {module: {name: [digest, [path that does not count]]}},
              "classes": {module: {name: digest}}, "environment": {name: digest | None}, "files": {path: digest | None},
              "adapters": {prefix: digest}, "missing": [module]}
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

FORMAT = 2

_Check = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_text_or_none(value: Any) -> bool:
    return value is None or type(value) is str


def _is_number(value: Any) -> bool:
    return type(value) is int


def _list_of(check: _Check) -> _Check:
    return lambda value: type(value) is list and all(check(item) for item in value)


def _dict_of(check: _Check) -> _Check:
    return lambda value: type(value) is dict and all(_is_text(key) and check(item) for key, item in value.items())


def _is_pair(first: _Check, second: _Check) -> _Check:
    return lambda value: type(value) is list and len(value) == 2 and first(value[0]) and second(value[1])


_FIELDS: Mapping[str, _Check] = {
    "python": _is_text,
    "optimised": _is_number,
    "seed": _is_text_or_none,
    "root": _is_text,
    "parts": _list_of(lambda value: _list_of(_is_text)(value) and len(value) == 3),
    "ran": _list_of(_is_text),
    "packages": _dict_of(_is_pair(_is_text, _list_of(_is_text))),
    "anchors": _dict_of(_list_of(_is_text)),
    "origins": _dict_of(_dict_of(_is_text)),
    "values": _dict_of(_dict_of(_is_pair(_is_text, _list_of(_is_text)))),
    "classes": _dict_of(_dict_of(_is_text)),
    "environment": _dict_of(_is_text_or_none),
    "files": _dict_of(_is_text_or_none),
    "adapters": _dict_of(_is_text),
    "missing": _list_of(_is_text),
}


def digest_of(data: bytes | str) -> str:
    """32 hexadecimal digits."""
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    return hashlib.sha256(raw).hexdigest()[:32]


@dataclass(frozen=True)
class Guards:
    """What must hold for a trace to give again what it gave. Plain values only.

    Attributes:
      facts: the fields of the format above, without its number.
    """

    facts: Mapping[str, Any] = field(repr=False)

    @functools.cached_property
    def digest(self) -> str:
        """64 hexadecimal digits, the same in each process: of all but the parts, which only put the root into words."""
        counting = {**self.plain(), "parts": []}
        text = json.dumps(counting, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def plain(self) -> dict[str, Any]:
        """The record, ready for JSON."""
        return {"format": FORMAT, **self.facts}

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> Guards:
        """The guards of a record.

        Raises:
          ValueError: it is not one, or of another format.
        """
        if type(plain) is not dict:
            raise ValueError("the guards of a trace: no record")
        if plain.get("format") != FORMAT:
            raise ValueError(f"the guards of a trace: format {plain.get('format')!r}, and not {FORMAT}")
        if set(plain) != {"format", *_FIELDS}:
            wrong = sorted(map(str, set(plain) ^ {"format", *_FIELDS}))
            raise ValueError(f"the guards of a trace: fields that are missing or not known: {', '.join(wrong)}")
        for name, check in _FIELDS.items():
            if not check(plain[name]):
                raise ValueError(f"the guards of a trace: {name} is malformed")
        return cls({name: plain[name] for name in _FIELDS})

    def summary(self) -> list[str]:
        """What is guarded, a line each, for people."""
        facts = self.facts
        lines = [words for words, *_ in facts["parts"]]
        for info, (_, files) in facts["packages"].items():
            name, _, version = info.removesuffix(".dist-info").partition("-")
            lines.append(f"the package {name} {version}: {len(files)} file{'s' * (len(files) != 1)} whose code ran")
        for module, names in facts["values"].items():
            lines.append(f"what {module} holds: {', '.join(names)}")
        lines += [f"the environment variable {name}" for name in facts["environment"]]
        lines += [f"the file {path}" for path in facts["files"]]
        lines += [f"the state of {prefix}" for prefix in facts["adapters"]]
        lines += [f"that there is no module {name}" for name in facts["missing"]]
        if facts["seed"] is not None:
            lines.append("PYTHONHASHSEED: code goes through sets of strings or objects")
        lines.append(f"{facts['python']}, optimised {facts['optimised']}")
        return lines
