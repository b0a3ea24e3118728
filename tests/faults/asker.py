"""A long-lived program that asks for compilations on command, since a fresh process for each of thousands is too slow.

It reads one JSON object per line and answers each with one. JAX and rewarm are the real ones: each request goes the
whole way of a program's call. In the answer, `right` says that the result has the bits of a run without rewarm.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from fault_layer import Call, How, Layer

import rewarm

_INPUT = np.arange(16 * 16, dtype=np.float32).reshape(16, 16) / 1000
_TABLE = np.random.RandomState(0).standard_normal((64, 128)).astype(np.float32)


def _small() -> Callable[[Any], Any]:
    return lambda x: x * 3 + 1


def _medium() -> Callable[[Any], Any]:
    return lambda x: jnp.tanh(x @ x.T) @ x


def _gradient() -> Callable[[Any], Any]:
    return jax.grad(lambda y: jnp.sum(jax.nn.softmax(y @ y.T) @ y))


def _with_table() -> Callable[[Any], Any]:
    return lambda x: x.sum() * jnp.asarray(_TABLE)


def _unstored() -> Callable[[Any], Any]:
    return lambda x: x - 7


PROGRAMS = {
    "small": _small,
    "medium": _medium,
    "gradient": _gradient,
    "table": _with_table,
    "new": _unstored,
}


def _run(name: str) -> bytes:
    # A new function each time, so that nothing that JAX remembers answers in the place of rewarm.
    done = jax.jit(PROGRAMS[name]()).lower(_INPUT).compile()(_INPUT)
    return np.asarray(done).tobytes()


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Asker:
    """Answers commands."""

    def __init__(self, layer: Layer | None) -> None:
        self._layer = layer
        self._right = {name: _run(name) for name in PROGRAMS}
        self._lines = _Lines()
        logging.getLogger("rewarm").addHandler(self._lines)
        self._said: dict[str, Any] = {}

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        """Do one command: "under" sets the prefix of faults, "enable" the settings, "ask" runs a program."""
        self._lines.lines = []
        if "under" in command and self._layer is not None:
            self._layer.arm(command["under"], calls=())
        if "enable" in command:
            rewarm.enable(min_compile_seconds=0, **command["enable"])
        if "ask" not in command:
            return {}
        return self._ask(command["ask"], command.get("fault"))

    def _ask(self, name: str, fault: dict[str, Any] | None) -> dict[str, Any]:
        before = len(rewarm.events())
        if fault is not None and self._layer is not None:
            calls = [Call(number) for number in fault.pop("calls", Call)]
            self._layer.arm(fault.pop("under"), calls=calls, **{**fault, "how": How(fault.get("how", 0))})
        try:
            right = _run(name) == self._right[name]
        except Exception as error:
            return {"raised": f"{type(error).__name__}: {error}", "right": False}
        finally:
            if self._layer is not None:
                self._layer.disarm()
        events = rewarm.events()[before:]
        assert len(events) == 1, events
        told = {name: getattr(events[0], name) for name in ("outcome", "reason", "stored", "not_stored", "quarantined")}
        said = {"right": right, "key": events[0].key, "lines": self._lines.lines}
        if fault is not None and self._layer is not None:
            said.update(calls=[int(call) for call in self._layer.calls()], struck=self._layer.struck)
        said["descriptors"] = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").is_dir() else 0
        return {**told, **said}


def main() -> None:
    """Answer until the input ends."""
    asker = Asker(Layer() if "--faults" in sys.argv else None)
    for line in sys.stdin:
        print(json.dumps(asker.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
