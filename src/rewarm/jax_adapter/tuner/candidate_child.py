"""The process in which candidates compile and run, and die without the program that asked.

Not promised: anything to whoever else starts it.

    parent to child   frames on standard input, u32le length and then a pickle: first a `loading.Spec` as a tuple, then
                      {"prepare": number, "choice": bytes, "calls": n} | {"compile": bytes} | {"drop": number} |
                      {"rounds": [[[number, calls], ...], ...]}
    child to parent   lines of JSON: {"at": what is about to happen, with a number}, and one answer to each frame:
                      {"ok": ...}, or {"error": words, "memory": whether it lacked memory}

What comes on standard input is from the process that started this one, by a pipe that nobody else has.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pickle
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

from rewarm.jax_adapter.tuner import loading
from rewarm.jax_adapter.tuner.loading import Spec

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG, prctl(2)
_LONGEST = 500
# Over what is refused at once stands the parent, who looks at what the process has taken.
_BESIDE = 4 << 30


def main() -> None:
    """Answer frames until standard input ends."""
    loading.become_child()
    frames, answers = _streams()
    _say = _sayer(answers)
    _die_with_parent()
    bench: Any = None
    for raw in _read(frames):
        try:
            if bench is None:
                spec = Spec(*pickle.loads(raw))
                bench = _begin(spec, _say)
                _say({"ok": None})
            else:
                _say({"ok": _answer(bench, pickle.loads(raw))})
        except BaseException as error:  # noqa: BLE001 - SystemExit of a candidate, too, is an answer
            _say({"error": words_of(error), "memory": is_memory(error)})
            if bench is None:
                return


def _streams() -> tuple[IO[bytes], IO[str]]:
    """The pipes of the parent; what candidates read and print goes nowhere."""
    frames = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)
    return frames, answers


def _sayer(answers: IO[str]) -> Callable[[dict[str, Any]], None]:
    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    return say


def _die_with_parent() -> None:
    """A candidate that hangs must not outlive who asked for it."""
    with contextlib.suppress(Exception):
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def _read(frames: IO[bytes]) -> Iterator[bytes]:
    while len(head := frames.read(4)) == 4:
        (length,) = struct.unpack("<I", head)
        yield frames.read(length)


def _begin(spec: Spec, say: Callable[[dict[str, Any]], None]) -> Any:
    _limit(spec.memory, spec.device[0])
    sys.path[:], sys.argv[:] = list(spec.path), list(spec.argv)
    import rewarm

    if not spec.cached:
        rewarm.disable()
    say({"at": "start"})
    import jax

    for name, value in spec.config.items():
        with contextlib.suppress(Exception):
            jax.config.update(name, value)
    device = _device(spec.device)
    jax.config.update("jax_default_device", device)
    function = loading.load(loading.Reference(*spec.reference))
    from rewarm.jax_adapter.tuner import bench, kernels

    choices = {label: pickle.loads(data) for label, data in spec.choices.items()}
    if spec.content and kernels.content_of(function, choices) != spec.content:
        raise loading.NotImportableError(f"{spec.reference[1]} is another function when it is read in another process")
    arguments = _arguments(spec.arguments)
    inputs = [loading.received(rows, device) for rows in pickle.loads(spec.inputs)]
    make = (bench.by_keywords if spec.mode == "keywords" else bench.by_options)(function, arguments)
    return bench.Bench(make, inputs, spec.tolerance, spec.device[0], lambda at: say({"at": at}))


def _limit(memory: int, platform: str) -> None:
    import resource

    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory and platform == "cpu":  # drivers of accelerators reserve more than they take
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (memory + _BESIDE, memory + _BESIDE))


def _device(wanted: tuple[str, int]) -> Any:
    import jax

    platform, number = wanted
    found = jax.local_devices(backend=platform)
    return next((device for device in found if device.id == number), found[0])


def _arguments(data: bytes) -> Any:
    import jax

    from rewarm.jax_adapter.tuner.arguments import Arguments

    args, kwargs = pickle.loads(data)
    flat, tree = jax.tree_util.tree_flatten((args, kwargs), is_leaf=lambda one: isinstance(one, loading.Slot))
    places = {leaf.number: place for place, leaf in enumerate(flat) if isinstance(leaf, loading.Slot)}

    def rebuild(leaves: Any) -> Any:
        filled = list(flat)
        for number, leaf in enumerate(leaves):
            filled[places[number]] = leaf
        return jax.tree_util.tree_unflatten(tree, filled)

    return Arguments("", [], [], rebuild)


def _answer(bench: Any, asked: dict[str, Any]) -> Any:
    if "prepare" in asked:
        return bench.prepare(asked["prepare"], pickle.loads(asked["choice"]), asked["calls"])._asdict()
    if "compile" in asked:
        bench.compile(pickle.loads(asked["compile"]))
        return None
    if "drop" in asked:
        return bench.drop(asked["drop"])
    own = time.process_time()
    rounds = [bench.round([(number, calls) for number, calls in order]) for order in asked["rounds"]]
    return {"rounds": rounds, "processor": time.process_time() - own}


def is_memory(error: BaseException) -> bool:
    """Whether something failed since there was not enough memory."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error) or "ut of memory" in str(error)


def words_of(error: BaseException) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:_LONGEST]


if __name__ == "__main__":
    main()
