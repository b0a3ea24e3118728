"""What a traced function must not change in its process, since a start without a trace would not: the table.

Not promised: all of it. A counter or an attribute that code sets in a module of a library's or of Python's is not
known here, nor a setting that is set to what it was at the time.

Each kind of state has the functions of Python that change it, by module and qualified name. Where it can be compared,
it is, before and after the trace: what was put back (`with numpy.errstate(...)`, `with warnings.catch_warnings()`) is
no change. C functions of this kind are refused where they are called (`judging.py`), as random numbers are, or not
known (`harmless.py`), and what Python tells its auditors of (`os.chdir`, a variable of the environment that is set), as
an effect.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, NamedTuple

from rewarm.fingerprint.allowed import words


class Kind(NamedTuple):
    """One kind of state.

    Attributes:
      what: in words, after "it changes".
      functions: module to the qualified names of the functions that change it; modules of JAX without its own name.
      state: what can be compared; `None` where it cannot.
      by_libraries: whether it is a change where a library does it.
    """

    what: str
    functions: Mapping[str, frozenset[str]]
    state: Callable[[], object] | None = None
    by_libraries: bool = False


def _numpy() -> Any:
    return sys.modules["numpy"]


def _loggers() -> object:
    """Levels, handlers and filters of all loggers."""
    logging: Any = sys.modules["logging"]
    found = [(None, logging.root), *logging.root.manager.loggerDict.items()]
    told = [
        (name, one.level, one.disabled, one.propagate, list(one.handlers), list(one.filters))
        for name, one in found
        if isinstance(one, logging.Logger)
    ]
    return told, logging.root.manager.disable, [handler.level for _, one in found for handler in _handlers(one)]


def _handlers(logger: Any) -> list[Any]:
    return list(getattr(logger, "handlers", ()))


def _warnings() -> object:
    warnings: Any = sys.modules["warnings"]
    return list(warnings.filters), warnings.showwarning


_UFUNCS = words("seterr seterrcall setbufsize")
_PRINTING = words("set_printoptions")
_OF_LOGGING = words(
    "Logger.setLevel Logger.addHandler Logger.removeHandler Filterer.addFilter Filterer.removeFilter Handler.setLevel "
    "basicConfig disable captureWarnings"
)
_TREES = words(
    "register_pytree_node register_pytree_node_class register_pytree_with_keys register_pytree_with_keys_class "
    "register_dataclass register_static"
)

KINDS = (
    Kind(
        "how numpy handles errors",
        {"numpy._core._ufunc_config": _UFUNCS, "numpy.core._ufunc_config": _UFUNCS},
        lambda: (_numpy().geterr(), _numpy().geterrcall(), _numpy().getbufsize()),
        by_libraries=True,
    ),
    Kind(
        "how numpy prints",
        {"numpy._core.arrayprint": _PRINTING, "numpy.core.arrayprint": _PRINTING},
        lambda: _numpy().get_printoptions(),
        by_libraries=True,
    ),
    Kind(
        "JAX's options",
        {"_src.config": words("Config.update")},
        lambda: dict(sys.modules["jax"].config.values),
        by_libraries=True,
    ),
    Kind(
        "what is logged",
        {"logging": _OF_LOGGING, "logging.config": words("dictConfig fileConfig")},
        _loggers,
    ),
    Kind(
        "which warnings are shown",
        {name: words("simplefilter filterwarnings resetwarnings") for name in ("warnings", "_py_warnings")},
        _warnings,
    ),
    Kind("which classes JAX takes apart", {"_src.tree_util": _TREES}),
    Kind("how classes are copied", {"copyreg": words("pickle constructor")}),
    Kind("which classes are registered with an abstract one", {"abc": words("ABCMeta.register")}),
    Kind("a function of functools.singledispatch", {"functools": frozenset({"singledispatch.<locals>.register"})}),
)
_BY_NAME = {(module, name): kind for kind in KINDS for module, names in kind.functions.items() for name in names}
_NAMES = frozenset(name for _, name in _BY_NAME)


def kind_of_change(name: str, frame: FrameType) -> Kind | None:
    """What kind of state a function that starts will change, if any; registering a class that the function itself
    makes changes nothing that others see.

    Args:
      name: the qualified name of its code.
      frame: its frame.
    """
    if name not in _NAMES:
        return None
    kind = _BY_NAME.get((str(frame.f_globals.get("__name__")).removeprefix("jax."), name))
    if kind is None or kind.state is not None:
        return kind
    code = frame.f_code
    classes = (frame.f_locals.get(name) for name in code.co_varnames[: min(code.co_argcount, 2)])
    is_local = any(isinstance(one, type) and "<locals>" in one.__qualname__ for one in classes)
    return None if is_local else kind


def states() -> dict[str, object]:
    """The state of each kind now, by what it is; of what is not imported, or cannot be had, nothing."""
    found = {}
    for kind in KINDS:
        if kind.state is not None:
            try:
                found[kind.what] = kind.state()
            except Exception:  # noqa: BLE001 - not imported yet, or another's
                continue
    return found
