"""Running two executables of one program on made-up inputs, and comparing what they give, bit by bit.

Not promised: that every program is run. One is run only where that is safe beside the user's program, whose device,
memory and state it shares:

- on CPU, on one device. A program of several devices could have collectives, and two threads that launch such
  programs can leave each other waiting for ever.
- without callbacks, tokens, infeed, outfeed, sends, or a random state that a run would move on for the user's program;
  and with no custom calls but those of linear algebra and matrix products that JAX itself puts there, since a call of
  somebody's own may do anything.
- within bounds: 64 MiB of inputs, 256 MiB of memory, and some seconds by XLA's own count of operations and bytes. On
  made-up inputs a loop may run for ever, so each loop must have a known number of steps (`known_trip_count`). After
  `SECONDS` a run is left alone and says nothing.

Two runs of one executable on the same inputs tell whether the program is deterministic. Where they differ, results
say nothing.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from rewarm.jax_adapter import seam
from rewarm.jax_adapter.seam import Call

if TYPE_CHECKING:
    import numpy as np

SECONDS = 10.0
_INPUT_BYTES = 64 << 20
_ALL_BYTES = 256 << 20
# Scalar code does some 10^9 of them in a second, and most programs do more.
_OPERATIONS = 4e9

_IMPURE = re.compile(
    r" (infeed|outfeed|send|send-done|recv|recv-done|after-all|rng|rng-get-and-update-state|async-start"
    r"|(?:all|collective|reduce-scatter|ragged)[a-z\-]*)\("
)
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
# What JAX's own functions call on CPU: factorisations, matrix products, the largest k. All compute and do no more.
_PURE_TARGETS = re.compile(r"lapack_[a-z]+(_ffi)?|__onednn\$[a-z]+|TopK|xla\.cpu\.topk|__cpu\$topk[a-z_]*")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')

_LAYOUT = re.compile(r"entry_computation_layout=\{\((.*?)\)->")
_PARAMETER = re.compile(r"(?:/\*index=\d+\*/)?([a-z]\w*)\[([\d,]*)\](?:\{([\d,]*)(?::E\(\d\))?\})?")
_HEAD = re.compile(r"(?:ENTRY )?(%[\w.\-]+) \{")
_NAME = re.compile(r"%[\w.\-]+")


class Parameter(NamedTuple):
    """One input of a program: XLA's name of its element type, and its shape."""

    kind: str
    shape: tuple[int, ...]


class NotRun(Exception):  # noqa: N818 - not an error: the program is left alone, for the reason in its words
    """A program is not run."""


def difference(call: Call, one: Any, other: Any) -> str | None:
    """In what the results of two executables differ, in words; `None` where every bit is the same.

    The first is run twice, and where the second gives something else, both are run again.

    Raises:
      NotRun: with the reason.
      Exception: what the runtime raises.
    """
    inputs = _inputs(_parameters(call, one))
    device = call.flat_devices()[0]
    first, again, second = (_results(executable, device, inputs) for executable in (one, one, other))
    if _unlike(first, again) is not None:
        raise NotRun("two runs of one executable differ")
    number = _unlike(first, second)
    if number is None:
        return None
    runs = (_results(other, device, inputs), second), (_results(one, device, inputs), first)
    if any(_unlike(*pair) is not None for pair in runs):
        raise NotRun("two runs of one executable differ")
    return f"result {number} on made-up inputs"


# ---------------------------------------------------------------------------------------------------------------
# Whether it is safe


def _parameters(call: Call, executable: Any) -> list[Parameter]:
    """The inputs of a program that may be run.

    Raises:
      NotRun: it may not.
    """
    if call.backend.platform != "cpu":
        raise NotRun("programs are run on CPU only")
    if len(call.flat_devices()) != 1:
        raise NotRun("it is a program of several devices")
    if call.host_callbacks:
        raise NotRun("it calls the host")
    programs = seam.optimised_programs(executable)
    if len(programs) != 1:
        raise NotRun("it has several modules")
    _refuse_effects(programs[0])
    parameters = _declared(programs[0])
    _refuse_size(executable, programs[0])
    return parameters


def _refuse_effects(program: str) -> None:
    if (impure := _IMPURE.search(program)) is not None:
        raise NotRun(f"it has {impure[1]}")
    targets = {target for target in _TARGET.findall(program) if not _PURE_TARGETS.fullmatch(target)}
    if targets:
        raise NotRun(f"it calls {min(targets)}")


def _declared(program: str) -> list[Parameter]:
    layout = _LAYOUT.search(program)
    if layout is None:
        raise NotRun("its inputs are not known")
    found, text = [], layout[1]
    while text:
        one = _PARAMETER.match(text)
        if one is None:
            raise NotRun("its inputs have a form that is not known")
        shape = tuple(int(size) for size in one[2].split(",") if size)
        order = tuple(int(axis) for axis in (one[3] or "").split(",") if axis)
        if order != tuple(reversed(range(len(shape)))):
            raise NotRun("an input has a layout of its own")
        found.append(Parameter(one[1], shape))
        text = text[one.end() :].removeprefix(",").strip()
    return found


def _refuse_size(executable: Any, program: str) -> None:
    sizes = seam.buffers(executable).sizes
    inputs = sizes.get("argument_size_in_bytes", 0)
    memory = inputs + sizes.get("output_size_in_bytes", 0) + sizes.get("temp_size_in_bytes", 0)
    if inputs > _INPUT_BYTES or memory > _ALL_BYTES:
        raise NotRun(f"it needs {memory >> 20} MiB, {inputs >> 20} of them inputs")
    told = executable.cost_analysis()
    told = told[0] if isinstance(told, list) else told
    once = sum(float(told.get(name, 0.0)) for name in ("flops", "transcendentals", "bytes accessed"))
    if _TARGET.search(program) is not None:
        once += 50.0 * (memory / 4) ** 1.5  # XLA does not count calls; a factorisation takes some 20 n^3
    if once * _deepest(program) > _OPERATIONS:
        raise NotRun("it would take long")


def _deepest(program: str) -> int:
    """How often the innermost loop's body runs; XLA's count has each body once.

    Raises:
      NotRun: a loop's number of steps is not known.
    """
    times: dict[str, int] = {}
    bodies = _bodies(program)
    # A module's text has what is called before what calls it.
    for name in reversed(bodies):
        own = times.setdefault(name, 1)
        for line in bodies[name]:
            steps = own * _steps(line)
            for called in _NAME.findall(line):
                if called in bodies and called != name:
                    times[called] = max(times.get(called, 1), steps)
    return max(times.values(), default=1)


def _bodies(program: str) -> dict[str, list[str]]:
    """The lines of each computation, by its name."""
    bodies: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in program.splitlines():
        if (head := _HEAD.match(line)) is not None:
            lines = bodies[head[1]] = []
        elif "=" in line:
            lines.append(line)
    return bodies


def _steps(line: str) -> int:
    if " while(" not in line:
        return 1
    known = _TRIPS.search(line)
    if known is None:
        raise NotRun("it has a loop whose number of steps is not known")
    return int(known[1]) + 1  # the condition is looked at once more


# ---------------------------------------------------------------------------------------------------------------
# Inputs and results


def _inputs(parameters: list[Parameter]) -> list[np.ndarray[Any, Any]]:
    """The same values at every call: floats as in a normal distribution, small integers, which may be indices."""
    import numpy as np

    random = np.random.default_rng(20)
    return [_values(random, parameter.shape, _type_of(parameter.kind)) for parameter in parameters]


def _type_of(kind: str) -> np.dtype[Any]:
    """NumPy's type for XLA's name of an element type."""
    import ml_dtypes
    import numpy as np

    parts = _KIND.fullmatch(kind)
    name = f"{_LETTERS[parts[1]]}{parts[2]}{'_' if parts[3] else ''}{parts[3]}" if parts else _WORDS.get(kind, "")
    found = getattr(np, name, None) or getattr(ml_dtypes, name, None) if name else None
    if found is None:
        raise NotRun(f"an input is of type {kind}")
    told: np.dtype[Any] = np.dtype(found)
    return told


_WORDS = {"pred": "bool_", "bf16": "bfloat16"}
_LETTERS = {"f": "float", "s": "int", "u": "uint", "c": "complex"}
_KIND = re.compile(r"([fsuc])(\d+)(\w*)")


def _values(random: np.random.Generator, shape: tuple[int, ...], kind: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if kind.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    if kind.name.startswith(("int", "uint")):
        most = 2 if kind.name in ("int2", "uint2") else 8
        return random.integers(0, most, shape).astype(kind)
    values = random.standard_normal(shape)
    if kind.kind == "c":
        return (values + 1j * random.standard_normal(shape)).astype(kind)
    return values.astype(kind)


def _results(executable: Any, device: Any, inputs: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    import numpy as np

    given = seam.run_once(executable, device, inputs)
    end = time.monotonic() + SECONDS
    while not all(array.is_ready() for array in given):
        if time.monotonic() > end:
            raise NotRun(f"it is not done after {SECONDS:.0f} s")
        time.sleep(0.002)
    return [np.asarray(array) for array in given]


def _unlike(one: list[np.ndarray[Any, Any]], other: list[np.ndarray[Any, Any]]) -> int | None:
    """The number of the first result that differs, or `None`."""
    if len(one) != len(other):
        return min(len(one), len(other))
    pairs = zip(one, other, strict=True)
    return next((number for number, pair in enumerate(pairs) if not _same_bits(*pair)), None)


def _same_bits(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    """Whether each element has the same bits, or is no number in both."""
    import numpy as np

    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    if one.tobytes() == other.tobytes():
        return True
    if one.dtype.kind == "c":
        return _same_bits(one.real, other.real) and _same_bits(one.imag, other.imag)
    if one.dtype.kind in "biu" or "int" in one.dtype.name:
        return False
    neither, zero = np.isnan(one) & np.isnan(other), one.dtype.type(0)
    return np.where(neither, zero, one).tobytes() == np.where(neither, zero, other).tobytes()
