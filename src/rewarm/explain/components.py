"""What differs between the components of two keys, item by item, in words.

Not promised: every item. Lists are cut where a person would stop reading; the header holds the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rewarm.explain.words import is_digest, words_of_two
from rewarm.ledger.explanation import Change

_LISTED = 8

Producer = Mapping[str, str]


def changes_in(name: str, before: Any, after: Any, producers: tuple[Producer, Producer]) -> list[Change]:
    """The changes of one component from value `before` to value `after`; `None` is a value that was not kept.

    `producers` are the versions that made either.
    """
    if before is None or after is None:
        return [Change(name, "", "not kept" if before is None else "", "" if before is None else "not kept")]
    try:
        rows = list(_RULES.get(name, _items)(before, after, producers))
    except Exception:  # noqa: BLE001 - written by another version of rewarm, in a form of its own
        rows = list(_items(before, after, producers))
    return [Change(name, str(item), *words_of_two(old, new)) for item, old, new in rows]


_Row = tuple[str, Any, Any]


def _items(before: Any, after: Any, _: tuple[Producer, Producer]) -> Iterator[_Row]:
    """Two mappings, name by name; two other values as wholes."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        yield "", before, after
        return
    for item in sorted(before.keys() | after.keys()):
        if before.get(item) != after.get(item):
            yield item, before.get(item), after.get(item)


def _toolchain(before: Any, after: Any, producers: tuple[Producer, Producer]) -> Iterator[_Row]:
    versions = [made.get("jaxlib", "?") for made in producers]
    said = False
    for item, old, new in _items(before, after, producers):
        if not item.startswith("jaxlib/"):
            yield item, old, new
        elif versions[0] == versions[1]:
            yield item, f"{versions[0]} {_library(old)}", f"{versions[1]} {_library(new)}"
        elif not said:  # once for all its libraries
            said = True
            yield "jaxlib", versions[0], versions[1]


def _library(digest: Any) -> Any:
    return f"sha256 {digest[:12]}" if isinstance(digest, str) and is_digest(digest) else digest


def _target(before: Any, after: Any, producers: tuple[Producer, Producer]) -> Iterator[_Row]:
    for item, old, new in _items(before, after, producers):
        if item == "features":
            yield from _words_of_a_list(item, str(before.get(item, "")), str(after.get(item, "")))
        elif item == "topology" and isinstance(old, dict) and isinstance(new, dict):
            yield from ((f"{item} {name}", was, now) for name, was, now in _items(old, new, producers))
        elif item == "shape":
            yield "devices", _devices(before[item]), _devices(after[item])
        else:
            yield item, old, new


def _devices(shape: Any) -> str:
    replicas, partitions = shape
    return f"{int(replicas) * int(partitions)} ({replicas} x {partitions})"


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


def _content(digest: Any) -> Any:
    return f"content {digest[:12]}" if isinstance(digest, str) and is_digest(digest) else digest


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
            yield f"{call}options that shape a trace", was, now
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
