"""What differs between the components of two keys, item by item, in words.

Not promised: every item. Lists are cut where a person would stop reading; the header holds the whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rewarm.ledger.explanation import Change

_WIDTH = 60
_ABSENT = "unset"
_LISTED = 8

Producer = Mapping[str, str]


def changes_in(name: str, before: Any, after: Any, producers: tuple[Producer, Producer]) -> list[Change]:
    """The changes of one component from value `before` to value `after`; `None` is a value that was not kept.

    `producers` are the versions that made either.
    """
    if before is None or after is None:
        return [Change(name, "", "not kept" if before is None else "", "" if before is None else "not kept")]
    rule = _RULES.get(name, _items)
    return [Change(name, item, old, new) for item, old, new in rule(before, after, producers)]


_Row = tuple[str, str, str]


def _items(before: Any, after: Any, _: tuple[Producer, Producer]) -> Iterator[_Row]:
    """Two mappings, name by name; two other values as wholes."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        yield "", words(before), words(after)
        return
    for item in sorted(before.keys() | after.keys()):
        old, new = before.get(item), after.get(item)
        if old != new:
            yield item, words(old), words(new)


def _toolchain(before: Any, after: Any, producers: tuple[Producer, Producer]) -> Iterator[_Row]:
    versions = [made.get("jaxlib", "?") for made in producers]
    for item, old, new in _items(before, after, producers):
        if not item.startswith("jaxlib/"):
            yield item, old, new
        elif versions[0] != versions[1]:
            yield "jaxlib", versions[0], versions[1]
            return
        else:
            yield item, f"{versions[0]} sha256 {old[:12]}", f"{versions[1]} sha256 {new[:12]}"


def _target(before: Any, after: Any, producers: tuple[Producer, Producer]) -> Iterator[_Row]:
    for item, old, new in _items(before, after, producers):
        if item == "features":
            yield from _words_of_a_list(item, str(before.get(item, "")), str(after.get(item, "")))
        elif item == "shape":
            yield "devices", _devices(before[item]), _devices(after[item])
        else:
            yield item, old, new


def _devices(shape: Any) -> str:
    replicas, partitions = shape
    return f"{replicas * partitions} ({replicas} x {partitions})"


def _words_of_a_list(item: str, before: str, after: str) -> Iterator[_Row]:
    old, new = set(before.split(",")), set(after.split(","))
    yield item, _some(old - new), _some(new - old)


def _some(names: set[str]) -> str:
    listed = sorted(name for name in names if name)
    more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return " ".join(listed[:_LISTED]) + more if listed else "without"


def _inputs(before: Any, after: Any, producers: tuple[Producer, Producer]) -> Iterator[_Row]:
    tables = [
        {" ".join(part for part in row[:-1] if part): _content(row[-1]) for row in rows} for rows in (before, after)
    ]
    yield from _items(tables[0], tables[1], producers)


def _content(digest: str) -> str:
    return digest if not _is_digest(digest) else f"content {digest[:12]}"


def _is_digest(text: str) -> bool:
    return len(text) == 64 and all(letter in "0123456789abcdef" for letter in text)


def _callbacks(before: Any, after: Any, producers: tuple[Producer, Producer]) -> Iterator[_Row]:
    """Call by call: the parts of its Python, and the options of JAX under which that is traced."""
    if not (isinstance(before, list) and isinstance(after, list) and len(before) == len(after)):
        yield from _items(before, after, producers)
        return
    several = len(before) > 1
    for number, (old, new) in enumerate(zip(before, after, strict=True), 1):
        call = f"call {number}: " if several else ""
        found = list(_items(old["parts"], new["parts"], producers))
        yield from ((call + item, was, now) for item, was, now in found)
        traced = [pair for pair in zip(old["context"], new["context"], strict=False) if pair[0] != pair[1]]
        if traced:
            was, now = (", ".join(values) for values in zip(*traced, strict=True))
            yield f"{call}options that shape a trace", words(was), words(now)
        elif not found:
            yield f"{call}what it is made of", old["digest"][:12], new["digest"][:12]


def _salt(before: Any, after: Any, producers: tuple[Producer, Producer]) -> Iterator[_Row]:
    yield from _items(_flat(before), _flat(after), producers)


def _flat(said: dict[str, Any]) -> dict[str, Any]:
    """Declared files and variables one by one; a file has no name, since its path does not count."""
    files = {f"files, number {number}": _content(one) for number, one in enumerate(said.get("files", ()), 1)}
    variables = {f"variable {name}": _content(one) for name, one in said.get("variables", {}).items()}
    return {**{name: one for name, one in said.items() if name not in ("files", "variables")}, **files, **variables}


_RULES: dict[str, Callable[[Any, Any, tuple[Producer, Producer]], Iterator[_Row]]] = {
    "toolchain": _toolchain,
    "target": _target,
    "inputs": _inputs,
    "callbacks": _callbacks,
    "salt": _salt,
}


def words(value: Any) -> str:
    """A value in at most some sixty characters."""
    if value is None:
        return _ABSENT
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _WIDTH or _is_digest(text) else f"{text[: _WIDTH - 3]}..."
