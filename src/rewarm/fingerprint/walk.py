"""The walk: from the root through everything that it leads to, in one order, into one digest.

Not promised: that two graphs with equal digests are equal beyond doubt; that is as sure as SHA-256.

Objects are written down in the order in which a walk from the root first comes to them. An object that can change, or
be compared by `is`, is numbered, and where it is met again its number is written: so cycles end, and one shared list
differs from two equal ones. Each function, and each thing that a function captures, is a part with a stream of its
own; the digest is that of the parts in order:

    stream := node*          node := kind own count:u64le   (its edges follow, each a node)
                                   | scalar | "R" part:u64le number:u64le | "P"   (the next part in order)
                                   | "X" type   (below methods that did not run: cannot be identified)

Where somebody watched the code run (`node.Ran`), what only methods that did not run lead to is walked last.

The walk keeps its own stack, so that depth is not bounded by Python's.
"""

from __future__ import annotations

import functools
import hashlib
import struct
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from rewarm.errors import NotFingerprintableError
from rewarm.fingerprint.allowed import CLOCK_READS, IMPURE, NAMING, PATH_READS, REFLECTION
from rewarm.fingerprint.arrays import size_of
from rewarm.fingerprint.code import SETS
from rewarm.fingerprint.describe import describe
from rewarm.fingerprint.digest import FINGERPRINT_SCHEMA, PYTHON, frame, integer, scalar, text
from rewarm.fingerprint.functions import annotations_of
from rewarm.fingerprint.node import Context, Edge, Node, RefusedError

MAX_OBJECTS = 100_000
MAX_BYTES = 256 << 20
# Sets inside sets: each level walks its elements twice.
MAX_NESTED_SETS = 20
# Steps of a path that a message shows at each end.
_SHOWN = 6
# Bytes of a scalar that is shown as it is.
_SHORT = 80
# Elements whose hash, and with it their order in a set, is the same in each process.
_ORDERED = (bool, int, float, complex)
# Strings that name an attribute count as a reading of it: they may reach `getattr`.
_TELLING = frozenset().union(*IMPURE.values(), NAMING, PATH_READS, CLOCK_READS)
_TOLD = _TELLING | REFLECTION

_LENGTH = struct.Struct("<Q").pack

Path = tuple[Any, str]  # the path so far (or None) and one more step


class Budget:
    """How much one fingerprint may still look at."""

    def __init__(self, objects: int = MAX_OBJECTS, size: int = MAX_BYTES) -> None:
        self.objects = objects
        self.size = size

    def spend(self, size: int) -> None:
        """One more object of so many bytes.

        Raises:
          RefusedError: that was too much.
        """
        self.objects -= 1
        if self.objects < 0:
            raise RefusedError(f"more than {MAX_OBJECTS} objects are on the way")
        self.spend_bytes(size)

    def spend_bytes(self, size: int) -> None:
        """So many bytes.

        Raises:
          RefusedError: that was too much.
        """
        self.size -= size
        if self.size < 0:
            raise RefusedError(f"more than {MAX_BYTES >> 20} MB of data are on the way")


class _Part:
    """One stream."""

    def __init__(self, index: int, path: Path, within: _Part | None) -> None:
        self.index = index
        self.path = path
        self.within = within
        self.code: CodeType | None = None
        self.note = ""
        self.kind = ""
        self.nodes = 0
        self.hash = hashlib.sha256()


# One object to visit: the object, how it was reached, into which part it goes, and whether it starts its own. A plain
# tuple, since there are tens of thousands.
_Step = tuple[object, Path, _Part, bool]


class Walk:
    """One walk; used once."""

    def __init__(
        self, context: Context, budget: Budget, nested: int = 0, ordering: frozenset[int] = frozenset()
    ) -> None:
        self._context = context
        self._budget = budget
        self._nested = nested
        # Sets whose elements are being ordered by outer walks.
        self._ordering = ordering
        # The object itself is kept: as long as it lives, nobody else has its id.
        self._seen: dict[int, tuple[object, bytes]] = {}
        self._parts: list[_Part] = []
        self._stack: list[_Step] = []
        self._later: list[_Step] = []

    def digest(self, root: object, path: Path) -> bytes:
        """The digest of what `root` leads to.

        Raises:
          NotFingerprintableError: something on the way has none.
        """
        self._stack.append((root, path, self._part(path, None), False))
        self._run()
        clash = self._context.contradiction()
        if clash is not None:
            word, reason = clash
            raise NotFingerprintableError(render(path), f"code that reads {word!r}", reason)
        self._context.idle = True
        self._stack, self._later = self._later[::-1], []
        self._run()
        head = frame(integer(FINGERPRINT_SCHEMA), text(PYTHON))
        names = frame(*self._context.names) if self._context.reads_names else b""
        if self._context.reads_annotations:
            names += frame(*map(annotations_of, self._context.functions))
        return hashlib.sha256(frame(head, names, *(part.hash.digest() for part in self._parts))).digest()

    def _run(self) -> None:
        while self._stack:
            step = self._stack.pop()
            try:
                self._visit(step)
            except RefusedError as refusal:
                if not self._context.idle:
                    raise _error(step, refusal) from refusal.__cause__
                value, _, part, _ = step
                part.hash.update(b"X" + frame(text(type(value).__name__)))

    @property
    def unordered(self) -> bool:
        """Whether anything on the way has an order that is another in each process."""
        return SETS in self._context.words

    def explain(self) -> dict[str, str]:
        """Path to short text, for each part."""
        found: dict[str, str] = {}
        for part in self._parts:
            path = render(part.path)
            while path in found:
                path += "'"
            found[path] = part.note or f"{part.kind} {part.hash.hexdigest()[:12]}"
        return found

    def told(self) -> list[tuple[str, str, str]]:
        """Like `explain`, in the words of whoever wrote the code: where each function is, and who reads what.

        Third comes a digest of the whole part, in which a function counts with more than its code.
        """
        return [
            (_told(part), part.note or f"{part.kind} {part.hash.hexdigest()[:12]}", part.hash.hexdigest()[:12])
            for part in self._parts
            if part.nodes
        ]

    def _part(self, path: Path, within: _Part | None) -> _Part:
        part = _Part(len(self._parts), path, within)
        self._parts.append(part)
        return part

    def _open(self, step: _Step, is_part: bool) -> _Part:
        """The part that an object is written into: its own, if it starts one."""
        _, path, part, captured = step
        if not captured and not (is_part and part.nodes):
            return part
        part.hash.update(b"P")
        return self._part(path, part)

    def _visit(self, step: _Step) -> None:
        value, path, into, _ = step
        plain = scalar(value)
        if plain is not None:
            self._write_scalar(step, plain)
            return
        known = self._seen.get(id(value))
        if known is not None:
            self._budget.spend(0)
            into.hash.update(known[1])
            return
        self._budget.spend(size_of(value))
        node = _describe(value, self._context)
        self._budget.spend_bytes(len(node.own))
        edges = self._sorted(value, node, step) if node.unordered else node.edges
        part = self._open(step, node.is_part)
        if node.lasting:
            self._seen[id(value)] = (value, b"R" + integer_pair(part.index, part.nodes))
        if not part.nodes:
            self._begin(part, value, node)
        part.nodes += 1
        part.hash.update(b"".join((_kind(node.kind), _LENGTH(len(node.own)), node.own, _LENGTH(len(edges)))))
        if node.later and not self._context.idle:
            self._later += [(inner, (path, label), part, node.captures) for label, inner in edges]
        elif edges:
            first = 0 if node.captures else self._write_leading(edges, part)
            rest = reversed(edges[first:])
            self._stack += [(inner, (path, label), part, node.captures) for label, inner in rest]

    def _begin(self, part: _Part, value: object, node: Node) -> None:
        part.note = part.note or node.note
        part.kind = part.kind or type(value).__name__
        if node.is_part and type(value) is FunctionType:
            part.code = value.__code__

    def _write_leading(self, edges: tuple[Edge, ...], part: _Part) -> int:
        """Write the plain values among the edges that come before all others, and return how many they are: what is
        first on the stack would be written at once anyway."""
        for number, (_, value) in enumerate(edges):
            plain = scalar(value)
            if plain is None or (type(value) is str and value in _TOLD):
                return number
            self._budget.spend(len(plain))
            part.nodes += 1
            part.hash.update(plain)
        return len(edges)

    def _write_scalar(self, step: _Step, plain: bytes) -> None:
        self._budget.spend(len(plain))
        value = step[0]
        if type(value) is str and value in REFLECTION and not self._context.idle:
            raise RefusedError(f"a name, {value}, behind which anything can be")
        if type(value) is str and value in _TELLING and not self._context.idle:
            self._context.words.add(value)
            self._context.reads_names = self._context.reads_names or value in NAMING
        part = self._open(step, False)
        if not part.nodes:
            part.kind = type(value).__name__
            part.note = ascii(value) if len(plain) <= _SHORT else ""
        part.nodes += 1
        part.hash.update(plain)

    def _sorted(self, value: object, node: Node, step: _Step) -> tuple[Edge, ...]:
        """The elements of a set by their own digests.

        Raises:
          RefusedError: two cannot be told apart, so their order (and which of them is met elsewhere) is unknown.
        """
        if id(value) in self._ordering:  # a set that holds itself by way of an element
            return ()
        if self._nested >= MAX_NESTED_SETS:
            raise RefusedError("too many sets inside sets")
        if len(node.edges) > 1 and not all(type(edge[1]) in _ORDERED for edge in node.edges):
            self._context.words.add(SETS)
        ordering = self._ordering | {id(value)}
        found: dict[bytes, Edge] = {}
        for edge in node.edges:
            key = scalar(edge[1])
            if key is None:
                inner = Walk(self._context.fresh(), self._budget, self._nested + 1, ordering)
                key = inner.digest(edge[1], (step[1], edge[0]))
            if key in found:
                raise RefusedError("two of its elements are alike but not the same")
            found[key] = edge
        return tuple(found[key] for key in sorted(found))


@functools.lru_cache(maxsize=1 << 10)
def _kind(kind: str) -> bytes:
    return frame(kind.encode())


def _describe(value: object, context: Context) -> Node:
    """A node, and a refusal whatever else happens: the objects are anybody's."""
    try:
        return describe(value, context)
    except (RefusedError, MemoryError):
        raise
    except NotFingerprintableError as error:  # from a reducer
        raise RefusedError(error.reason, found=error.found, label=error.path) from error
    except Exception as error:
        raise RefusedError(f"it cannot be read: {type(error).__name__}: {str(error)[:200]}") from error


def _error(step: _Step, refusal: RefusedError) -> NotFingerprintableError:
    value, path, _, _ = step
    if refusal.label:
        path = (path, refusal.label)
    return NotFingerprintableError(render(path), refusal.found or _found(value), refusal.reason)


def _found(value: object) -> str:
    """A name, where there is one that can be had without asking the object."""
    kind = type(value)
    if issubclass(kind, (FunctionType, BuiltinFunctionType, type, ModuleType)):
        name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
        if type(name) is str:
            return f"{ascii(name)[1:-1]} ({kind.__name__})"
    return f"an object of type {kind.__module__}.{kind.__qualname__}"


def where(code: CodeType) -> str:
    """The file of some code, and the function."""
    return f"{_file(code)}: {code.co_qualname}"


def _file(code: CodeType) -> str:
    """Without the folders that it is in, but for those of a package."""
    _, found, inside = code.co_filename.rpartition("-packages/")
    return inside if found else PurePath(code.co_filename).name


def _told(part: _Part) -> str:
    label = part.path[1]
    if part.code is not None:
        return f"{_file(part.code)}: function {part.code.co_qualname}"
    reader = part.within
    while reader is not None and reader.code is None:
        reader = reader.within
    if reader is None or reader.code is None:
        return render(part.path)
    kind, _, name = label.partition(" ")
    what = f"the value of {name}" if kind in ("global", "closure") else label
    return f"{what}, read by {where(reader.code)}"


def render(path: Path) -> str:
    """The steps of a path, the middle of a long one left out."""
    steps: list[str] = []
    at: Any = path
    while at is not None:
        at, step = at
        steps.append(step)
    steps.reverse()
    if len(steps) > 2 * _SHOWN + 1:
        steps[_SHOWN:-_SHOWN] = [f"({len(steps) - 2 * _SHOWN} more)"]
    return " \N{RIGHTWARDS ARROW} ".join(steps)


def integer_pair(first: int, second: int) -> bytes:
    """Two numbers, sixteen bytes."""
    return first.to_bytes(8, "little") + second.to_bytes(8, "little")
