"""Arguments as far as a choice may depend on them: shapes, types, and the values of what is no array.

Not promised: that two calls of one text have equal values in their arrays, or that those lie on the same devices.

The text is canonical and can be read: `f32[1024,512], bf16[8]{weak}, {'a': i32[]}, n=4`. A Python number is a value of
the case, not an array: whoever passes many of them makes many cases.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rewarm.errors import NotFingerprintableError
from rewarm.tunables.records import LONGEST

_BEGINNING = 1000

_PREFIX = {"float": "f", "int": "i", "uint": "u", "complex": "c"}
_FORM = re.compile(r"(float|int|uint|complex)(\d+)")
_SHORT = re.compile(r"(f|i|u|c|bf)(\d+)")
_ONE = re.compile(r"(?P<name>\w+)\[(?P<shape>[\d, ]*)\](?P<weak>\{weak\})?")


class Arguments(NamedTuple):
    """The arguments of one call.

    Attributes:
      text: the canonical text.
      leaves: the arrays, in order: concrete, traced, or `jax.ShapeDtypeStruct`.
      structs: the same, each as `jax.ShapeDtypeStruct`.
      rebuild: from leaves in this order to `(args, kwargs)`.
    """

    text: str
    leaves: list[Any]
    structs: list[Any]
    rebuild: Callable[[Sequence[Any]], tuple[tuple[Any, ...], dict[str, Any]]]

    def abstract(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with `jax.ShapeDtypeStruct` in place of arrays."""
        return self.rebuild(self.structs)

    @property
    def is_traced(self) -> bool:
        """Whether an array is one of a trace."""
        import jax

        return any(isinstance(leaf, jax.core.Tracer) for leaf in self.leaves)


def arguments_of(args: Sequence[Any], kwargs: Mapping[str, Any], *, told: bool = True) -> Arguments:
    """The arguments of `function(*args, **kwargs)`.

    Args:
      args, kwargs: they.
      told: whether their text is wanted; else it is "".

    Raises:
      NotFingerprintableError: one that is no array has no text that would tell it from another.
    """
    import jax

    flat, tree = jax.tree_util.tree_flatten((tuple(args), dict(kwargs)))
    places = [place for place, leaf in enumerate(flat) if is_array(leaf)]
    structs = [struct_of(flat[place]) for place in places]

    def rebuild(leaves: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        filled = list(flat)
        for place, leaf in zip(places, leaves, strict=True):
            filled[place] = leaf
        rebuilt: tuple[tuple[Any, ...], dict[str, Any]] = jax.tree_util.tree_unflatten(tree, filled)
        return rebuilt

    parts = [_text(value) for value in args] if told else []
    parts += [f"{name}={_text(kwargs[name])}" for name in sorted(kwargs)] if told else []
    return Arguments(_bounded(", ".join(parts)), [flat[place] for place in places], structs, rebuild)


def _bounded(text: str) -> str:
    """The text, or of one that is longer than a case may have its beginning and its digest."""
    if len(text) <= LONGEST:
        return text
    return f"{text[:_BEGINNING]}... {len(text)} characters #{hashlib.sha256(text.encode()).hexdigest()}"


def is_array(value: Any) -> bool:
    """Whether a leaf is an array, traced or described, and no plain value of Python."""
    import jax
    import numpy

    return isinstance(value, (jax.Array, jax.ShapeDtypeStruct, numpy.ndarray, numpy.generic))


def struct_of(value: Any) -> Any:
    """Shape, type and weak type of an array, without its values."""
    import jax

    if isinstance(value, jax.ShapeDtypeStruct):
        return value
    if not isinstance(value, jax.Array):  # NumPy's, whose type JAX may narrow
        return jax.ShapeDtypeStruct(value.shape, jax.dtypes.canonicalize_dtype(value.dtype))
    return jax.ShapeDtypeStruct(value.shape, value.dtype, weak_type=bool(getattr(value.aval, "weak_type", False)))


def text_of_struct(struct: Any) -> str:
    """One array as text, such as `f32[1024,512]`."""
    shape = ",".join(str(size) for size in struct.shape)
    return f"{short_dtype(struct.dtype)}[{shape}]{'{weak}' if getattr(struct, 'weak_type', False) else ''}"


def short_dtype(dtype: Any) -> str:
    """A type in few letters: `f32`, `bf16`, `i8`; what has none keeps its name."""
    name = str(dtype)
    if name == "bfloat16":
        return "bf16"
    found = _FORM.fullmatch(name)
    return f"{_PREFIX[found[1]]}{found[2]}" if found else name


def structs_of_text(text: str) -> list[Any]:
    """Arrays from text as in `f32[1024,512], bf16[8]`: what `--shapes` takes.

    Raises:
      ValueError: it is none; the message says what is expected.
    """
    import jax

    found, place = [], 0
    stripped = text.strip()
    while place < len(stripped):
        one = _ONE.match(stripped, place)
        if one is None:
            raise ValueError(
                f"expected shapes such as 'f32[1024,512], bf16[8]', found {stripped[place:]!r} in {text!r}"
            )
        shape = tuple(int(size) for size in one["shape"].split(",") if size.strip())
        found.append(jax.ShapeDtypeStruct(shape, long_dtype(one["name"]), weak_type=bool(one["weak"])))
        place = one.end()
        rest = re.compile(r"\s*,?\s*").match(stripped, place)
        place = rest.end() if rest else place
    return found


def long_dtype(name: str) -> Any:
    """The type of a short name.

    Raises:
      ValueError: there is no such type.
    """
    import jax.numpy as jnp

    short = _SHORT.fullmatch(name)
    words = {"f": "float", "i": "int", "u": "uint", "c": "complex", "bf": "bfloat"}
    long = f"{words[short[1]]}{short[2]}" if short else name
    try:
        return jnp.dtype(getattr(jnp, "bool_" if long == "bool" else long))
    except (AttributeError, TypeError):
        raise ValueError(f"expected a type such as f32, bf16, i8, u32, bool, found {name!r}") from None


def _text(value: Any) -> str:
    if is_array(value):
        return text_of_struct(struct_of(value))
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        return repr(value)
    if type(value) is tuple:
        return f"({', '.join(map(_text, value))}{',' if len(value) == 1 else ''})"
    if type(value) is list:
        return f"[{', '.join(map(_text, value))}]"
    if type(value) is dict:
        rows = sorted((repr(key), _text(one)) for key, one in value.items())
        return f"{{{', '.join(f'{key}: {one}' for key, one in rows)}}}"
    return _text_of_object(value)


def _text_of_object(value: Any) -> str:
    """A node of a tree that somebody registered, or an object of anybody's, by its content."""
    import jax

    from rewarm.jax_adapter.jax_values import companions, reducers

    leaves, tree = jax.tree_util.tree_flatten(value)
    known: dict[Any, Any] = dict(reducers())
    from rewarm.fingerprint import fingerprint

    what: Any = tree if tree.node_data() is not None else value
    found = fingerprint(what, name="an argument", reducers=known, companions=companions)
    if found.unordered:
        raise NotFingerprintableError("an argument", "a set", "its order is another in each process")
    inner = ", ".join(map(_text, leaves)) if what is tree else ""
    return f"{type(value).__name__}#{found.digest[:16]}({inner})"
