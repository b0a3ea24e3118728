"""The same function in another process: by the name under which it can be imported, or in the program's own script.

Not promised: that a function has such a name. Lambdas, closures and what is written at a prompt have none, and are
measured in their own process. A script that is run has its functions under the name `__main__`; a child reads it like
`multiprocessing` does, but without what stands under `if __name__ == "__main__":`. What a script does at its top level
is done in the child again, up to its first call of the tuner.
"""

from __future__ import annotations

import ast
import importlib
import pickle
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from rewarm.errors import RewarmError

_MAIN = "__main__"


class Reference(NamedTuple):
    """Where a function is found.

    Attributes:
      module: the name to import, or "__main__".
      qualname: its name there.
      script: the file of "__main__"; "" for others.
    """

    module: str
    qualname: str
    script: str = ""


class NotImportableError(RewarmError, ImportError):
    """A function cannot be had in another process by its name."""


class _Reached(BaseException):
    pass


_state: dict[str, bool] = {"child": False, "reading": False}


def is_child() -> bool:
    """Whether this process is one in which candidates run."""
    return _state["child"]


def become_child() -> None:
    """Say that this process is such a one."""
    _state["child"] = True


def stop_reading() -> None:
    """Called by the tuner where a program asks it to tune: in a child, the script has been read so far as it must."""
    if _state["reading"]:
        raise _Reached


def reference_of(function: Any) -> Reference:
    """Where a function is found.

    Raises:
      NotImportableError: nowhere, or something else is found there; the message says so.
    """
    module, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not qualname or "<locals>" in qualname:
        raise NotImportableError(f"{qualname or function!r} is no function of a module, but a closure or an object")
    script = ""
    if module == _MAIN:
        main = sys.modules.get(_MAIN)
        if (spec := getattr(main, "__spec__", None)) is not None:
            module = str(spec.name)
        else:
            script = str(getattr(main, "__file__", "") or "")
            if not script or not Path(script).is_file():
                raise NotImportableError(f"{qualname} was written at a prompt, which no other process can read")
    home = sys.modules.get(str(function.__module__))
    if _look_up(home, qualname) is function:
        return Reference(str(module), str(qualname), script)
    # What was jitted is in its module under another name than the function itself.
    named = next((name for name, one in list(vars(home).items()) if unwrapped(one) is function), None) if home else None
    if named is None:
        raise NotImportableError(f"{module} has no name for the function: its {qualname} is another object")
    return Reference(str(module), named, script)


def _look_up(module: Any, qualname: str) -> Any:
    found = module
    for name in qualname.split("."):
        found = getattr(found, name, None)
    return unwrapped(found)


def unwrapped(found: Any) -> Any:
    """The function of a `Tunable`, and others as they are."""
    return found.function if hasattr(type(found), "__rewarm_tunable__") else found


def load(reference: Reference) -> Any:
    """The function, in a child.

    Raises:
      NotImportableError: it is not there.
      Exception: whatever its module raises.
    """
    module = _script(reference.script) if reference.script else importlib.import_module(reference.module)
    found = _look_up(module, reference.qualname)
    if found is None:
        where = reference.script or reference.module
        raise NotImportableError(f"{where} has no {reference.qualname} when it is read in another process")
    return found


def _script(path: str) -> ModuleType:
    module = ModuleType(_MAIN)
    module.__file__ = path
    sys.modules[_MAIN] = module
    tree = ast.parse(Path(path).read_bytes(), path)
    tree.body = [node for node in tree.body if not _is_guard(node)]
    _state["reading"] = True
    try:
        exec(compile(tree, path, "exec"), vars(module))
    except (_Reached, SystemExit):
        pass
    finally:
        _state["reading"] = False
    return module


def _is_guard(node: ast.stmt) -> bool:
    """Whether this is `if __name__ == "__main__":`."""
    if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare):
        return False
    sides = [node.test.left, *node.test.comparators]
    names = {side.id for side in sides if isinstance(side, ast.Name)}
    return names == {"__name__"} and any(isinstance(side, ast.Constant) and side.value == _MAIN for side in sides)


# ---------------------------------------------------------------------------------------------------------------
# Arguments and choices on their way to a child


class Slot(NamedTuple):
    """Stands for the array of this number among arguments that are sent."""

    number: int


class Spec(NamedTuple):
    """All that a child needs to know. Plain values and bytes, so that paths are set before anything is imported.

    Attributes:
      path: `sys.path`.
      argv: `sys.argv`, which scripts and modules may read while they are imported.
      reference: of the function.
      content: fingerprint of it and of what choices may hold here, to be compared; "" for one that has none.
      choices: what choices may hold, each pickled, by label.
      mode: "keywords" or "options".
      arguments: pickled `(args, kwargs)` with a `Slot` in place of each array.
      structs: shape, type and weak type of each array.
      inputs: pickled sets of arrays of NumPy.
      tolerance: see `checking.difference`.
      device: platform and id.
      config: options of JAX.
      memory: bytes that the process may take; 0 for no bound.
      cached: whether executables are to be kept in the cache and taken from it.
    """

    path: Sequence[str]
    argv: Sequence[str]
    reference: Reference
    content: str
    choices: Mapping[str, bytes]
    mode: str
    arguments: bytes
    inputs: bytes
    tolerance: float | None
    device: tuple[str, int]
    config: Mapping[str, Any]
    memory: int
    cached: bool


def pickled(value: Any, what: str) -> bytes:
    """As bytes.

    Raises:
      NotImportableError: it cannot be sent.
    """
    try:
        return pickle.dumps(value, protocol=5)
    except Exception as error:
        raise NotImportableError(f"{what} cannot be sent to another process: {error}") from error


def sent(arrays: Sequence[Any]) -> list[Any]:
    """Arrays in a form that can be sent: NumPy's, with the generator beside keys."""
    import jax
    import numpy as np

    found: list[Any] = []
    for array in arrays:
        if isinstance(array, jax.Array) and jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
            impl = str(array.dtype).removeprefix("key<").removesuffix(">")
            found.append(("key", impl, np.asarray(jax.random.key_data(array))))
        else:
            found.append(("array", bool(getattr(array, "weak_type", False)), np.asarray(array)))
    return found


def received(rows: Sequence[Any], device: Any) -> list[Any]:
    """The arrays of `sent`, on a device."""
    import jax
    import jax.numpy as jnp

    found = []
    for kind, more, array in rows:
        if kind == "key":
            found.append(jax.random.wrap_key_data(jnp.asarray(array), impl=_KEYS.get(more, more)))
        elif more and not array.shape:
            found.append(jnp.asarray(array.item()))
        else:
            found.append(jax.device_put(array, device))
    return found


# The names under which types of keys are printed, and those that make them.
_KEYS = {"fry": "threefry2x32", "rbg": "rbg", "urbg": "unsafe_rbg"}
