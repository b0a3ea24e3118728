"""Spaces: what may be chosen, parameter by parameter, as plain values that have one text.

Not promised: that a configuration works, or that two spaces with one digest have functions of one content; the
fingerprint of a function is the business of whoever makes a case (`records.Case.content`).

A configuration is plain JSON scalars by parameter. What is none, such as a function that is one of several variants,
goes by a label, and the space keeps label and object:

    Space.of({"block": [32, 64], "warps": Range(1, 8, log=2), "variant": [direct, by_fft]}, {"block": 64, ...})
    Space.of({"variant": {"direct": direct, "fft": by_fft}})                labels of the user's own
    Space.of(lambda x: {"block": [d for d in (32, 64) if x.shape[0] % d == 0]}, arguments={"x": abstract})
    Space.of({"block": lambda x: range(32, x.shape[0] + 1, 32)}, arguments={"x": abstract})

A parameter that is itself a callable is a function of the abstract arguments, by the names of the tuned function's own
parameters; a callable inside a list or a mapping is a choice.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rewarm.errors import SpaceError
from rewarm.tunables.calling import call_by_name, name_of
from rewarm.tunables.parameters import Choices, Parameter, Range, Value, parameter_of, shown, told

__all__ = ["Choices", "Config", "Range", "Space", "SpaceError", "Value", "canonical"]

Config = Mapping[str, Value]
Constraint = Callable[..., Any]
Given = Mapping[str, Any] | Callable[..., Any]

# A space of at most so many combinations is walked through whole where that helps; a larger one is drawn from.
WALKED = 20_000


def canonical(config: Config) -> str:
    """The one text of a configuration: compact JSON, sorted by parameter. `1`, `1.0` and `true` are three values.

    Raises:
      ValueError: a value is not finite.
      TypeError: a value is no JSON scalar.
    """
    return json.dumps(dict(config), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


@dataclass(frozen=True, eq=False)
class Space:
    """A space for one set of abstract arguments: nothing in it is a question any more. Made by `Space.of`.

    Attributes:
      parameters: by name, in the order given.
      default: the configuration that is used where nothing is known.
      constraints: each takes what it names of the parameters and arguments, and says whether they go together.
      arguments: the abstract arguments, by name.
    """

    parameters: Mapping[str, Parameter]
    default: Config
    constraints: tuple[Constraint, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        space: Given | Space,
        default: Mapping[str, Any] | None = None,
        constraints: Constraint | Iterable[Constraint] | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> Space:
        """Make a space of what a user gave.

        Args:
          space: parameter -> list, `Choices`, `Range`, mapping of labels, or a callable of the arguments that gives
            one of these; or a callable of the arguments that gives all that. A `Space` is taken as it is.
          default: a value for each parameter; by default the first of each.
          constraints: callables on those parameters (with objects in place of labels) and arguments that they name.
          arguments: the tuned function's own parameter -> abstract value.

        Raises:
          SpaceError: it is no space, a constraint names what is not there, or the default is not in it.
        """
        if isinstance(space, Space):
            return space
        known = dict(arguments or {})
        given = told("the space", space, known) if callable(space) else space
        if not isinstance(given, Mapping) or not given:
            raise SpaceError(f"a space is a mapping of parameters to their values, found {shown(given)}")
        parameters = {name: parameter_of(name, values, known) for name, values in given.items()}
        held = _constraints(constraints)
        first = {name: one.values[0] for name, one in parameters.items()}
        made = cls(parameters, first, held, known)
        if default is None and (broken := made.broken(first)) is not None:
            raise SpaceError(f"the first value of each parameter, {canonical(first)}, breaks {broken}: give default=")
        try:
            return cls(parameters, made.check(first if default is None else default), held, known)
        except SpaceError as wrong:
            raise SpaceError(f"the default: {wrong}") from None

    @functools.cached_property
    def size(self) -> int:
        """How many combinations there are, with those that constraints forbid."""
        return math.prod(len(one.values) for one in self.parameters.values())

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of parameters, values, labels and default, 64 hexadecimal digits. Constraints are not in it."""
        told = [[name, list(one.values), sorted(one.objects)] for name, one in sorted(self.parameters.items())]
        text = json.dumps([1, told, canonical(self.default)], separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def functions(self) -> dict[str, Any]:
        """`parameter=label` -> the object behind it, of all labels: what a fingerprint of the space has to cover."""
        return {f"{name}={label}": one for name, it in self.parameters.items() for label, one in it.objects.items()}

    def all(self) -> Iterator[Config]:
        """The allowed configurations, the default first, then in the order of the parameters and their values.

        Raises:
          SpaceError: a constraint raises.
        """
        first = canonical(self.default)
        yield self.default
        for values in itertools.product(*(one.values for one in self.parameters.values())):
            config = dict(zip(self.parameters, values, strict=True))
            if self.broken(config) is None and canonical(config) != first:
                yield config

    def count(self, at_most: int) -> int:
        """How many configurations are allowed, counted no further than this; `at_most` where a walk would be long."""
        if self.size > WALKED:
            return at_most
        return sum(1 for _ in itertools.islice(self.all(), at_most))

    def sample(self, rng: random.Random, count: int) -> list[Config]:
        """So many different allowed configurations by chance, fewer where there are fewer or they are hard to meet.

        The default is one like any other. The same `rng` state gives the same ones.
        """
        if self.size <= WALKED:
            found = list(self.all())
            return rng.sample(found, min(count, len(found)))
        drawn: dict[str, Config] = {}
        for _ in range(100 * count):
            if len(drawn) >= count:
                break
            config = {name: rng.choice(one.values) for name, one in self.parameters.items()}
            if self.broken(config) is None:
                drawn.setdefault(canonical(config), config)
        return list(drawn.values())

    def neighbours(self, config: Config) -> list[Config]:
        """The allowed configurations that differ in one parameter: by one place of an ordered one, else by any value.

        A value of `config` that the space lacks counts as far from all.
        """
        found: list[Config] = []
        for name, parameter in self.parameters.items():
            at = parameter.index(config[name]) if name in config else None
            near = (at - 1, at + 1) if parameter.is_ordered and at is not None else range(len(parameter.values))
            for number in near:
                if 0 <= number < len(parameter.values) and number != at:
                    moved = {**config, name: parameter.values[number]}
                    if moved.keys() == self.parameters.keys() and self.broken(moved) is None:
                        found.append(moved)
        return found

    def check(self, config: Mapping[str, Any]) -> Config:
        """The configuration in plain values, in the order of the parameters; objects in place of labels are taken.

        Raises:
          SpaceError: a parameter is missing, unknown, or has no such value, or a constraint is broken.
        """
        for name in config:
            self._known(name)
        for name, parameter in self.parameters.items():
            if name not in config:
                raise SpaceError(f"no value for {name}, which is one of {parameter.listed()}")
        taken = {name: parameter.take(config[name]) for name, parameter in self.parameters.items()}
        broken = self.broken(taken)
        if broken is not None:
            raise SpaceError(f"{canonical(taken)} breaks {broken}: choose values that it allows")
        return taken

    def check_value(self, name: str, value: Any) -> Value:
        """One parameter's plain value.

        Raises:
          SpaceError: there is no such parameter or value.
        """
        return self._known(name).take(value)

    def allows(self, config: Config) -> bool:
        """Whether a configuration, such as one of an older record, is in this space."""
        try:
            self.check(config)
        except SpaceError:
            return False
        return True

    def keywords(self, config: Config) -> dict[str, Any]:
        """The keywords to call the tuned function with: objects in place of labels.

        Raises:
          SpaceError: see `check_value`.
        """
        return {name: self._object(self._known(name), value) for name, value in config.items()}

    def broken(self, config: Config) -> str | None:
        """The first constraint that a configuration breaks, in words; `None`: none.

        Raises:
          SpaceError: a constraint raises, or names what is not there.
        """
        if not self.constraints:
            return None
        known = {**self.arguments, **self.keywords(config)}
        for one in self.constraints:
            title = f"the constraint {name_of(one)}"
            try:
                if not call_by_name(one, known, title):
                    return title
            except SpaceError:
                raise
            except Exception as wrong:
                said = f"{type(wrong).__name__}: {wrong}"
                raise SpaceError(f"{title} raised {said} for {canonical(config)}; it must say yes or no") from wrong
        return None

    def _known(self, name: str) -> Parameter:
        if name not in self.parameters:
            raise SpaceError(f"{name!r} is no parameter of the space; it has {', '.join(self.parameters)}")
        return self.parameters[name]

    @staticmethod
    def _object(parameter: Parameter, value: Value) -> Any:
        value = parameter.take(value)
        return parameter.objects.get(value, value) if isinstance(value, str) else value


def _constraints(given: Constraint | Iterable[Constraint] | None) -> tuple[Constraint, ...]:
    if given is None:
        return ()
    held = tuple(given) if isinstance(given, Iterable) and not callable(given) else (given,)
    for one in held:
        if not callable(one):
            raise SpaceError(f"a constraint is a function that says yes or no, found {shown(one)}")
    return held
