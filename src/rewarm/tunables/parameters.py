"""Parameters of a space: plain values in an order, what stands behind labels, and how users give them.

Not promised: that two functions of one name are one; they go by their modules, too, and by labels of the user's own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rewarm.errors import SpaceError
from rewarm.tunables.calling import call_by_name, name_of

Value = int | float | bool | str | None

_MOST_VALUES = 100_000
_LONGEST_NAME = 200
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Choices:
    """These values, in this order. The same as a list of them.

    Attributes:
      values: scalars, functions, or a mapping of labels to any objects.
    """

    values: Iterable[Any] | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `low` to `high`, BOTH included where they are met: by steps, or by powers.

    Attributes:
      low: the first.
      high: none is above this.
      step: from one to the next; more than 0. Of no use with `log`.
      log: each is so many times the one before: `Range(16, 256, log=2)` is 16, 32, 64, 128, 256.
    """

    low: float
    high: float
    step: float = 1
    log: float | None = None

    def values(self) -> list[int | float]:
        """The numbers, ascending.

        Raises:
          SpaceError: there are none, more than 100,000, or they do not rise.
        """
        numbers = (self.low, self.high, self.step, self.log or 2)
        if any(isinstance(one, bool) or not isinstance(one, int | float) for one in numbers):
            raise SpaceError(f"{self}: numbers are expected")
        rises = self.log > 1 and self.low > 0 if self.log is not None else self.step > 0
        if not rises or not all(math.isfinite(one) for one in numbers) or self.low > self.high:
            raise SpaceError(
                f"{self}: expected low <= high, a step above 0, and with log= a low above 0 and log above 1"
            )
        found = list(itertools.islice(self._walk(), _MOST_VALUES + 1))
        if len(found) > _MOST_VALUES:
            raise SpaceError(f"{self}: more than {_MOST_VALUES:,} values; use a larger step, or log=2")
        return found

    def _walk(self) -> Iterator[int | float]:
        # Each from the first, not from the one before: steps of 0.1 would add their errors up.
        for number in itertools.count():
            at = self.low + number * self.step if self.log is None else self.low * self.log**number
            if at > self.high * (1 + 1e-12 if isinstance(at, float) else 1):
                return
            yield at


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: its values in order, and what stands behind the labels among them.

    Attributes:
      name: as the tuned function's keyword.
      values: plain values, each once.
      objects: label -> object.
      is_ordered: whether neighbours in `values` are near each other, as numbers are.
    """

    name: str
    values: tuple[Value, ...]
    objects: Mapping[str, Any] = field(default_factory=dict)
    is_ordered: bool = False

    def index(self, value: Any) -> int | None:
        """Where a value, a label or the object behind a label stands; `None`: nowhere."""
        wanted = _identity(plain(value)) if is_scalar(plain(value)) else None
        for number, one in enumerate(self.values):
            if _identity(one) == wanted or (
                isinstance(one, str) and one in self.objects and self.objects[one] is value
            ):
                return number
        return None

    def _stands_for(self, label: Value, value: Any) -> bool:
        return isinstance(label, str) and label in self.objects and self.objects[label] is value

    def take(self, value: Any) -> Value:
        """The plain value of what a user gave.

        Raises:
          SpaceError: the parameter has no such value; the message has the good ones.
        """
        found = self.index(value)
        if found is None:
            raise SpaceError(f"{self.name}={shown(value)} is not in the space; {self.name} is one of {self.listed()}")
        return self.values[found]

    def listed(self) -> str:
        """The values in words, the first of many."""
        more = f", ... ({len(self.values):,} in all)" if len(self.values) > _SHOWN else ""
        return ", ".join(shown(one) for one in self.values[:_SHOWN]) + more


def plain(value: Any) -> Any:
    """A value of numpy as Python's own; all others as they are."""
    is_numpy = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    return value.item() if is_numpy else value


def is_scalar(value: Any) -> bool:
    """Whether a value is a JSON scalar, and finite."""
    return value is None or type(value) in (int, bool, str) or (type(value) is float and math.isfinite(value))


def _identity(value: Value) -> tuple[type, Value]:
    return type(value), value


def shown(value: Any) -> str:
    """A value in an error, short."""
    return repr(value) if is_scalar(value) else f"{name_of(value)}" if callable(value) else f"{value!r:.80}"


def told(what: str, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """What a function of the abstract arguments gives; `what` it stands for is in the error.

    Raises:
      SpaceError: it raised, or needs an argument that is not there.
    """
    try:
        return call_by_name(function, arguments, what)
    except SpaceError:
        raise
    except Exception as wrong:
        raise SpaceError(
            f"{what} is a function, {name_of(function)}, that raised {type(wrong).__name__}: {wrong}"
        ) from wrong


def parameter_of(name: Any, given: Any, arguments: Mapping[str, Any]) -> Parameter:
    """A parameter of what a user gave; see `spaces.Space.of`.

    Raises:
      SpaceError: it is none.
    """
    if not isinstance(name, str) or not name.isidentifier() or len(name) > _LONGEST_NAME:
        raise SpaceError(f"{shown(name)}: a parameter's name is one that a keyword can have")
    if callable(given) and not isinstance(given, type):
        given = told(f"the values of {name}", given, arguments)
    if isinstance(given, Range):
        try:
            return Parameter(name, tuple(given.values()), is_ordered=True)
        except SpaceError as wrong:
            raise SpaceError(f"{name}: {wrong}") from None
    given = given.values if isinstance(given, Choices) else given
    if isinstance(given, Mapping):
        return _labelled(name, list(given.items()))
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise SpaceError(f"{name}: its values are a list, Choices or Range, found {shown(given)}")
    return _listed(name, [plain(one) for one in itertools.islice(given, _MOST_VALUES + 1)])


def _labelled(name: str, rows: list[tuple[Any, Any]]) -> Parameter:
    if not rows or not all(isinstance(label, str) and label for label, _ in rows):
        raise SpaceError(f"{name}: a mapping of values has labels, which are text, found {shown(dict(rows))}")
    return Parameter(name, tuple(label for label, _ in rows), dict(rows))


def _listed(name: str, values: list[Any]) -> Parameter:
    if not 0 < len(values) <= _MOST_VALUES:
        raise SpaceError(f"{name}: at least one value is expected and at most {_MOST_VALUES:,}, found {len(values):,}")
    objects = _labels(name, [one for one in values if callable(one)])
    labels = {id(one): label for label, one in objects.items()}
    taken: dict[tuple[type, Value], None] = {}
    for one in values:
        if not callable(one) and not is_scalar(one):
            said = "give such values names instead: a mapping of labels to objects"
            raise SpaceError(
                f"{name}: values are numbers (finite), text, bools, None or functions, found {shown(one)}; {said}"
            )
        key = _identity(labels[id(one)] if callable(one) else one)
        if key in taken:
            raise SpaceError(f"{name}: the value {shown(one)} is there twice")
        taken[key] = None
    found = tuple(value for _, value in taken)
    return Parameter(name, found, objects, is_ordered=_rises(found))


def _rises(values: tuple[Value, ...]) -> bool:
    """Whether the values are numbers in order, so that places beside each other are near."""
    numbers = [one for one in values if isinstance(one, int | float) and not isinstance(one, bool)]
    pairs = list(itertools.pairwise(numbers))
    return len(numbers) == len(values) and (all(a < b for a, b in pairs) or all(a > b for a, b in pairs))


def _labels(name: str, functions: list[Any]) -> dict[str, Any]:
    """Label -> function. Functions of one name go by their module, too; lambdas have no name that lasts."""
    short = [name_of(one) for one in functions]
    found: dict[str, Any] = {}
    for one, label in zip(functions, short, strict=True):
        whole = label if short.count(label) == 1 else f"{getattr(one, '__module__', '')}:{label}"
        if whole in found:
            said = "give them labels of your own: a mapping of labels to functions"
            raise SpaceError(f"{name}: two functions have the name {whole}; {said}")
        found[whole] = one
    return found
