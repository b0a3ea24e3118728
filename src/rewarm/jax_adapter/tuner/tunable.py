"""A function with choices: `rewarm.tunable`. It is called as the function, and the choices are made by what was tuned.

Not promised: that a choice is the best one. Untuned arguments have the default, or what won for near ones where that
was allowed, and a line says so once. What was chosen is part of the program that comes of a trace: JAX keeps traces in
memory, so a winner that is found later acts at the next trace, or the next start.
"""

from __future__ import annotations

import functools
import inspect
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any, NamedTuple

from rewarm import settings
from rewarm.errors import NotFingerprintableError, SpaceError, UntunedError
from rewarm.jax_adapter import activation
from rewarm.jax_adapter.jax_values import register_reducer
from rewarm.jax_adapter.tuner import decisions, kernels, lookups
from rewarm.jax_adapter.tuner.arguments import Arguments, arguments_of
from rewarm.tunables.records import Case
from rewarm.tunables.selecting import short
from rewarm.tunables.spaces import Config, Space, canonical

logger = logging.getLogger("rewarm")

_SPACES_KEPT = 256


class Asked(NamedTuple):
    """One call, taken apart.

    Attributes:
      arguments: without the choices.
      space: for these arguments.
      given: the choices that the caller made, in plain values.
      args: as they were passed, without choices.
      kwargs: likewise.
    """

    arguments: Arguments
    space: Space
    given: Config
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Tunable:
    """What `rewarm.tunable` returns. Called as the function; see there.

    Attributes:
      function: the function itself, whose choices have to be given.
    """

    __rewarm_tunable__ = True

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        space: Any,
        default: Mapping[str, Any] | None = None,
        constraints: Any = None,
        name: str | None = None,
        nearest: bool = False,
    ) -> None:
        if not callable(function):
            raise TypeError(f"rewarm.tunable: expected a function, found {type(function).__name__}")
        functools.update_wrapper(self, function)
        self.function = function
        self._space, self._default, self._constraints = space, default, constraints
        self._name, self._nearest = name, nearest
        self._signature = _signature(function)
        self._lock = threading.Lock()
        self._spaces: dict[str, Space] = {}
        self._contents: dict[str, str] = {}
        if not callable(space):  # what is wrong with it is said where it is written, as far as that can be known
            self._check_names(space)

    def _check_names(self, space: Any) -> None:
        if isinstance(space, Space):
            names: Sequence[str] = list(space.parameters)
        elif isinstance(space, Mapping):
            names = [name for name in space if isinstance(name, str)]
        else:
            raise SpaceError(
                f"a space is a mapping of parameters to their values, found {type(space).__name__}; it comes before "
                "the arguments: rewarm.tune(f, None, x) where f is rewarm.tunable"
            )
        check_keywords(self._signature, names, self.kernel)

    def other(self, *, space: Any, default: Any, constraints: Any) -> Tunable:
        """The same function and name, with another space, default or constraints where they are not `None`.

        Raises:
          SpaceError: it cannot be used.
        """
        return Tunable(
            self.function,
            space=self._space if space is None else space,
            default=self._default if default is None else default,
            constraints=self._constraints if constraints is None else constraints,
            name=self._name,
            nearest=self._nearest,
        )

    @property
    def kernel(self) -> str:
        """The name that its records go by."""
        return kernels.name_of(self.function, self._name)

    def __repr__(self) -> str:
        return f"<rewarm.tunable {self.kernel}>"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def parts(self) -> tuple[Any, ...]:
        """What counts of it, for fingerprints and guards."""
        return ("tunable", self.function, self._space, self._default, self._constraints, self._name, self._nearest)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result, with the choices made.

        Raises:
          SpaceError: a choice that the caller gives is not in the space.
          UntunedError: nobody has tuned these arguments, and the setting `untuned` is "error".
          Exception: what the function raises.
        """
        with activation.paused():
            asked = self.asked(args, kwargs)
            config = self.chosen(asked)
            keywords = asked.space.keywords(config)
        return self.function(*asked.args, **{**asked.kwargs, **keywords})

    def asked(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Asked:
        """A call, taken apart.

        Raises:
          SpaceError: the space cannot be made for these arguments, or has not a choice that is given.
        """
        names = self._names(args, kwargs)
        args, kwargs, given = _without(self._signature, args, kwargs, names)
        arguments = arguments_of(args, kwargs)
        space = self.space_for(arguments)
        plain = {name: space.check_value(name, value) for name, value in given.items()}
        return Asked(arguments, space, plain, args, kwargs)

    def _names(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> frozenset[str]:
        if isinstance(self._space, Space):
            return frozenset(self._space.parameters)
        if not callable(self._space):
            return frozenset(self._space)
        return frozenset(self.space_for(arguments_of(args, kwargs)).parameters)

    def space_for(self, arguments: Arguments) -> Space:
        """The space for these arguments.

        Raises:
          SpaceError: it cannot be made.
        """
        with self._lock:
            known = self._spaces.get(arguments.text)
        if known is None:
            args, kwargs = arguments.abstract()
            named = named_arguments(self._signature, args, kwargs)
            known = Space.of(self._space, self._default, self._constraints, named)
            check_keywords(self._signature, list(known.parameters), self.kernel)
            with self._lock:
                while len(self._spaces) >= _SPACES_KEPT:
                    del self._spaces[next(iter(self._spaces))]
                self._spaces[arguments.text] = known
        return known

    def chosen(self, asked: Asked) -> Config:
        """What is used for a call.

        Raises:
          SpaceError: what the caller gives goes together with nothing.
          UntunedError: see `__call__`.
        """
        space, given = asked.space, asked.given
        if given.keys() == space.parameters.keys():
            return space.check(given)
        found = self._winner(asked)
        if found.config is not None:
            config = {**found.config, **given}
            if space.allows(config):
                return space.check(config)
            activation.tell(f"{self.kernel}: {canonical(config)} is not in the space, so the default is used")
        return space.check({**space.default, **given})

    def _winner(self, asked: Asked) -> lookups.Winner:
        session = activation.session()
        why = "rewarm is off"
        if session is not None:
            try:
                place = kernels.place_of(session, kernels.device_of(asked.arguments.leaves))
                case = self.case(asked, place)
            except (NotFingerprintableError, ValueError) as error:
                why = str(error)
            else:
                found = lookups.winner(session, case, nearest=self._nearest, about=place.about)
                decisions.note(decisions.Decision(case, self._nearest, found.text))
                session.count_tuned("default" if found.config is None else "winner")
                if found.config is not None:
                    self._tell_of_near(asked, found)
                    return found
                why = found.why
        self._untuned(asked, why, told=session is not None)
        return lookups.Winner(None, why)

    def case(self, asked: Asked, place: kernels.Place) -> Case:
        """The case of a call.

        Raises:
          NotFingerprintableError: the function cannot be identified.
        """
        # A trace is made once and takes far longer than a fingerprint; a call without one must be quick.
        content = self.content(asked.space, anew=asked.arguments.is_traced)
        return kernels.case_of(self.kernel, content, asked.arguments.text, place)

    def content(self, space: Space, *, anew: bool = False) -> str:
        """The fingerprint of the function and of the variants in a space.

        Args:
          space: of which the variants are.
          anew: what was worked out before does not count: a global, or a function that it reaches, may be another one
            since then, as in a notebook.

        Raises:
          NotFingerprintableError: it cannot be identified.
        """
        variants = space.functions
        key = canonical(dict.fromkeys(variants, True))
        known = None if anew else self._contents.get(key)
        if known is None:
            known = self._contents[key] = kernels.content_of(self.function, variants)
        return known

    def _tell_of_near(self, asked: Asked, found: lookups.Winner) -> None:
        if not found.exact:
            text = short(asked.arguments.text)
            activation.tell(f"{self.kernel} is not tuned for {text}: {found.text} is used, {found.why}")

    def _untuned(self, asked: Asked, why: str, *, told: bool) -> None:
        what = f"{self.kernel} is not tuned for {short(asked.arguments.text)} here" + (f" ({why})" if why else "")
        if settings.untuned_is_error(activation.said()):
            raise UntunedError(f"{what}, and untuned=error: tune it with rewarm.tune, or load a lock file that has it")
        if told:
            activation.tell(f"{what}: its default {canonical(asked.space.default)} is used; rewarm.tune tunes it")


register_reducer(Tunable, lambda value: value.parts())


def tunable(function: Any = None, /, **options: Any) -> Any:
    """See `rewarm.tunable`."""
    if function is None:
        return lambda function: Tunable(function, **options)
    return Tunable(function, **options)


def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def check_keywords(signature: inspect.Signature | None, names: Sequence[str], kernel: str) -> None:
    """Refuse choices that the function cannot be given.

    Raises:
      SpaceError: it has no keyword of that name; the message lists those it has.
    """
    if signature is None:
        return
    kinds = {name: one.kind for name, one in signature.parameters.items()}
    if inspect.Parameter.VAR_KEYWORD in kinds.values():
        return
    good = [name for name, kind in kinds.items() if kind in (_EITHER, inspect.Parameter.KEYWORD_ONLY)]
    for name in names:
        if name not in good:
            raise SpaceError(f"{kernel} has no keyword {name!r}; it has {', '.join(good) or 'none'}")


_EITHER = inspect.Parameter.POSITIONAL_OR_KEYWORD


def named_arguments(
    signature: inspect.Signature | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments by the names that the function has for them."""
    if signature is None:
        return {**{f"argument_{number}": value for number, value in enumerate(args)}, **kwargs}
    try:
        bound = signature.bind_partial(*args, **kwargs)
    except TypeError:
        return dict(kwargs)
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            found.update(value)
        else:
            found[name] = value
    return found


def _without(
    signature: inspect.Signature | None, args: Sequence[Any], kwargs: Mapping[str, Any], names: frozenset[str]
) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]:
    """Positional and named arguments without choices, and the choices that were given."""
    given = {name: value for name, value in kwargs.items() if name in names}
    rest = {name: value for name, value in kwargs.items() if name not in names}
    positional = [
        name for name, one in (signature.parameters.items() if signature else ()) if one.kind is not _NAMED_ONLY
    ]
    if not names.intersection(positional[: len(args)]):
        return tuple(args), rest, given
    # A choice given by its place: all from there on go by name.
    first = next(place for place, name in enumerate(positional) if name in names)
    for name, value in zip(positional[first:], args[first:], strict=False):
        (given if name in names else rest)[name] = value
    return tuple(args[:first]), rest, given


_NAMED_ONLY = inspect.Parameter.KEYWORD_ONLY
