"""What `jax.jit` makes: its parts, another one with a function of ours where JAX traces, and its executables in parts.

Not promised: that a future JAX keeps any of this; `probe_jitted` looks first, and where something is not as known,
`rewarm.jit` is `jax.jit`.

What `jax.jit` returns is a C++ object that calls `cache_miss(*args, **kwargs)` for arguments of a kind that it has not
seen, and gets `(results, fast path or None, whether to forget)`. Its parts are those that it is pickled by
(`__getstate__`), so another one is made of the same parts with another `cache_miss`, and all else, its keys and the
fast path after the first call, stays JAX's own. The same in JAX 0.9 to 0.12.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

_STATE = {"fun", "cache_miss", "static_argnums", "static_argnames", "global_cache_key", "cache"}
_FASTPATH = (
    *("executable", "out_tree", "args_flat", "out_flat", "effects", "consts_for_constvars"),
    *("pgle_profiler", "const_args"),
)
_UNLOADED = {"xla_executable", "ordered_effects", "unordered_effects", "host_callbacks", "keepalive", "mut"}

Miss = Callable[..., tuple[Any, Any, bool]]


class Parts(NamedTuple):
    """What a jitted function is made of.

    Attributes:
      fun: the user's function.
      miss: JAX's own `cache_miss`.
      static_argnums: which positional arguments are static, counted from 0.
      static_argnames: which are when given by name.
    """

    fun: Any
    miss: Miss
    static_argnums: tuple[int, ...]
    static_argnames: tuple[str, ...]

    def static_among(self, count: int) -> set[int]:
        """The numbers of those that are static among so many positional arguments."""
        return {number % count if -count <= number < 0 else number for number in self.static_argnums}


class Leaf(NamedTuple):
    """What JAX sees of one argument before it traces, in plain text: two with the same text trace alike.

    Attributes:
      aval: shape, type, weak type, memory space and the sharding in the type.
      placed: for an array that is committed to devices, its sharding and layout; "" for all others.
    """

    aval: str
    placed: str


def probe_jitted() -> str | None:
    """Why a jitted function cannot be made of parts in this JAX, or `None`."""
    from jax._src import core, pjit
    from jax._src.interpreters import pxla

    try:
        lacking = _STATE - jit(_probe).__getstate__().keys()
        if lacking:
            return f"a jitted function has no {sorted(lacking)[0]}"
        if tuple(inspect.signature(pjit._get_fastpath_data).parameters) != _FASTPATH:
            return "its fast path is made of other parts"
        fields = pxla.UnloadedMeshExecutable.__dataclass_fields__
        if _UNLOADED - fields.keys() or not callable(pxla.UnloadedMeshExecutable.load):
            return "an executable is made of other parts"
        core.trace_state_clean()
        _nobodys_context()
    except Exception as error:  # noqa: BLE001 - a JAX that is not as known raises anything
        return f"{type(error).__name__}: {error}"
    return None


def _probe() -> None:
    """Jitted to be looked at, never called."""


def jit(fun: Any, **options: Any) -> Any:
    """JAX's own `jit`, whatever a program has put into its place in the module `jax`."""
    from jax._src import api

    return api.jit(fun, **options)


def parts_of(jitted: Any) -> Parts:
    """The parts of what `jax.jit` returned."""
    state = jitted.__getstate__()
    return Parts(
        state["fun"],
        state["cache_miss"],
        tuple(int(one) for one in state["static_argnums"]),
        tuple(str(one) for one in state["static_argnames"]),
    )


def with_miss(jitted: Any, miss: Miss) -> Any:
    """Another jitted function of the same parts, which calls `miss` in the place of JAX's `cache_miss`.

    It keeps its executables apart from those of other functions, which share theirs: what is cleared here is cleared
    here alone.
    """
    state = dict(jitted.__getstate__())
    state["cache_miss"] = miss
    state["cache"] = type(state["cache"])(capacity=4096)
    kind: Any = type(jitted)
    made = kind.__new__(kind)
    made.__setstate__(state)
    made.__dict__.update(jitted.__dict__)
    return made


def nothing_is_traced() -> bool:
    """Whether this thread is outside of every trace."""
    from jax._src import core

    return bool(core.trace_state_clean())


_WATCHED = ("debug_nans", "debug_infs", "debug_key_reuse", "no_execution", "no_tracing")


def is_watched() -> bool:
    """Whether an option is on by which JAX looks over each run, or which says what a trace or a run may do."""
    from jax._src import config

    return any(getattr(config, name).value for name in _WATCHED if hasattr(config, name))


def key_parts(array: Any) -> tuple[Any, Any] | None:
    """The generator of a typed random key and the bits of the key; `None` for another array. Nothing is compiled."""
    bits = getattr(array, "_base_array", None)
    return None if bits is None else (array._impl, bits)


def leaf_of(value: Any) -> Leaf | None:
    """What counts of one argument; `None` for a tracer, and for what JAX takes as no argument."""
    import jax
    from jax._src import core

    if isinstance(value, core.Tracer):
        return None
    try:
        aval = core.shaped_abstractify(value)
    except Exception:  # noqa: BLE001 - JAX says by itself what it thinks of such an argument
        return None
    if aval is None or type(aval).__name__ != "ShapedArray":
        return None
    placed = ""
    if isinstance(value, jax.Array) and getattr(value, "_committed", False):
        placed = f"{_sharding_text(value)} {_layout_text(value)}"
    return Leaf(_aval_text(aval), placed)


def type_of_result(aval: Any) -> str:
    """What counts of the type of one result."""
    return f"{getattr(aval, 'shape', aval)} {getattr(aval, 'dtype', '')!s} weak={getattr(aval, 'weak_type', False)}"


@functools.lru_cache(maxsize=1 << 12)
def _aval_text(aval: Any) -> str:
    # A model has hundreds of leaves of a few shapes, and JAX takes 20 us for the text of each.
    return f"{aval!r} {aval.dtype!s} weak={aval.weak_type} {getattr(aval, 'sharding', None)!r}"


def _sharding_text(value: Any) -> str:
    sharding = value.sharding
    devices = [int(device.id) for device in sharding._device_assignment]
    return f"{sharding!r} {sharding.memory_kind} {devices}"


def _layout_text(value: Any) -> str:
    try:
        return repr(value.format.layout)
    except Exception:  # noqa: BLE001 - arrays of keys, and older JAX, have none to say
        return ""


def abstract(value: Any) -> Any:
    """What an argument is traced by: shape, type, weak type and, where it is committed, sharding; without its data."""
    import jax
    from jax._src import core

    aval = core.shaped_abstractify(value)
    committed = isinstance(value, jax.Array) and getattr(value, "_committed", False)
    sharding = value.sharding if committed else None
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding, weak_type=aval.weak_type)


def take_apart(compiled: Any, way_to: Callable[[Any], Any | None]) -> bytes:
    """All that a `Compiled` is beside its executable, as bytes for `put_together`.

    `way_to`: for an object that is not to be written out, plain values by which another process finds its own.

    Raises:
      ValueError: it has parts of this process, such as callbacks; the text says which.
      Exception: what pickling raises.
    """
    found = getattr(compiled._executable, "_unloaded_executable", None)
    if found is None:
        raise ValueError("an executable that has no parts")
    if found.host_callbacks or found.keepalive:
        raise ValueError("callbacks, whose Python is there only after a trace")
    if found.ordered_effects or found.unordered_effects:
        raise ValueError("effects, which are ordered by a trace")
    if found.mut is not None:
        raise ValueError("mutable references")
    if getattr(compiled._params, "const_args", None):
        raise ValueError("constants that are passed as arguments")
    with io.BytesIO() as file:
        _Pickler(file, way_to).dump((found, compiled.out_tree))
        return file.getvalue()


def put_together(data: bytes, executable: Any, client: Any, find: Callable[[Any], Any]) -> tuple[Any, Any]:
    """The `MeshExecutable` of what `take_apart` made, around a loaded executable, and the tree of its results.

    `find`: the object of this process that such values lead to. `data` must have been verified: it is unpickled.

    Raises:
      Exception: what unpickling raises.
    """
    unloaded, out_tree = _Unpickler(io.BytesIO(data), executable, client, find).load()
    return unloaded.load(), out_tree


class _Pickler(pickle.Pickler):
    """Writes devices by their ids, what is at hand by the way to it, and the executable not at all."""

    def __init__(self, file: io.BytesIO, way_to: Callable[[Any], Any | None]) -> None:
        super().__init__(file, protocol=5)
        self._way_to = way_to

    def persistent_id(self, obj: Any) -> Any:
        from jax._src.lib import xla_client

        if isinstance(obj, xla_client.Device):
            return ("device", int(obj.id))
        if isinstance(obj, xla_client.Client):
            return ("client",)
        if isinstance(obj, xla_client.LoadedExecutable) or type(obj).__name__ in ("Executable", "LoadedExecutable"):
            return ("executable",)
        way = self._way_to(obj)
        return None if way is None else ("at hand", way)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, executable: Any, client: Any, find: Callable[[Any], Any]) -> None:
        super().__init__(file)
        self._find = find
        self._executable = executable
        self._client = client
        self._devices = {int(device.id): device for device in client.devices()}

    def persistent_load(self, pid: Any) -> Any:
        match pid:
            case ("device", number):
                return self._devices[number]
            case ("client",):
                return self._client
            case ("executable",):
                return self._executable
            case ("at hand", way):
                return self._find(way)
        raise pickle.UnpicklingError(f"an unknown part: {pid!r}")


def run_flat(executable: Any, flat: Sequence[Any]) -> list[Any]:
    """Run a `MeshExecutable` on its arguments in the order of the tree."""
    return list(executable.unsafe_call(*flat))


def fast_path(executable: Any, out_tree: Any, flat: Sequence[Any], results: Sequence[Any]) -> Any | None:
    """What `cache_miss` hands to the C++ object so that it runs this executable by itself; `None` where it cannot."""
    from jax._src import pjit

    return pjit._get_fastpath_data(executable, out_tree, flat, results, (), (), None, ())


def options_of_a_trace() -> tuple[tuple[str, str], ...]:
    """Name and text of every option of JAX that is not about caches, logs or profiles, as they are for this thread."""
    from jax._src import config

    values = config.config.values
    return tuple(sorted((name, repr(value)) for name, value in values.items() if not _is_beside(name)))


# Words of the names of options that are about caches, logs, profiles and jobs of several processes.
_BESIDE = frozenset(
    {"cache", "caches", "log", "logging", "dump", "dumps", "profile", "profiling", "traceback", "tracebacks", "pgle"}
    | {"explain", "captured", "distributed", "coordination", "heartbeat", "monitor", "monitoring", "persistent"}
)


def _is_beside(name: str) -> bool:
    return not _BESIDE.isdisjoint(name.split("_"))


@contextlib.contextmanager
def forgetting_traces() -> Iterator[None]:
    """Within it, JAX traces anew what it has traces of, inner functions too, and none of that is kept for later.

    A context of the user's is part of what JAX keeps its traces by, and of nothing else (`jax.make_user_context`).
    """
    with _nobodys_context()(object()):
        yield


@functools.cache
def _nobodys_context() -> Any:
    import jax

    return jax.make_user_context(default_value=None)


class Carried(NamedTuple):
    """What one thread has set of JAX's options for itself, and the meshes that it is under, for another thread."""

    options: tuple[tuple[Any, Any], ...]
    resources: tuple[Any, ...]


def carried() -> Carried:
    """The contexts that this thread is in."""
    from jax._src import config, mesh

    unset = config.config_ext.unset
    of_traces = getattr(config, "trace_state", None)
    holders = {id(one): one for one in (*vars(config).values(), *config.config_states.values())}
    options = tuple(
        (one, one.get_local())
        for one in holders.values()
        if isinstance(one, config.config_ext.Config) and one is not of_traces and one.get_local() is not unset
    )
    resources = mesh.thread_resources
    return Carried(options, (resources.env, tuple(resources.stack)))


@contextlib.contextmanager
def carrying(contexts: Carried) -> Iterator[None]:
    """Within it, this thread is in the contexts of another."""
    from jax._src import mesh

    resources = mesh.thread_resources
    before = [(one, one.swap_local(value)) for one, value in contexts.options]
    env, stack = resources.env, list(resources.stack)
    resources.env, resources.stack = contexts.resources[0], list(contexts.resources[1])
    try:
        yield
    finally:
        resources.env, resources.stack = env, stack
        for one, value in reversed(before):
            one.set_local(value)
