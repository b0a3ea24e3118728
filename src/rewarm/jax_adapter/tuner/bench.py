"""What is done with candidates where they run: compile, warm up, run once for their results, and be timed in rounds.

Not promised: that a candidate comes back. Whoever must not die with one has this done in a child (`worker.py`).

A sample is the mean over so many calls that it takes a millisecond and a thousand steps of the clock. On CPU each call
is waited for, so what is timed is a call's latency with JAX's dispatch, not how many calls may overlap. An accelerator
runs calls one after the other, so there they are queued and the last one is waited for: what is timed is the device's
work, wherever that takes longer than the dispatch (`TIMERS`). That has not been seen on a device. Arguments that a
function takes over (donation) are copied before the clock starts.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rewarm.jax_adapter import seam
from rewarm.jax_adapter.tuner import checking, conditions
from rewarm.jax_adapter.tuner.arguments import Arguments

SAMPLE_SECONDS = 1e-3
TIMERS = {"cpu": "wall, each call waited for"}
QUEUED = "wall, calls queued on the device"
_STEPS = 1000
_MOST_CALLS = 1000
# Of one sample where each call takes over its arguments, which must all be there before.
_MOST_COPIES = 8
_WARM_CALLS, _WARM_SECONDS, _MOST_WARM_CALLS = 3, 0.02, 50

Said = Callable[[str], object]


class Prepared(NamedTuple):
    """What is known of a candidate once it has run.

    Attributes:
      program: digest of the program that is compiled: two candidates of one program are one.
      compile_seconds: of wall time.
      call_seconds: of one call, once it was warm.
      differs: how its results differ from the default's, in words; "".
      calls: how often it was called so far.
    """

    program: str
    compile_seconds: float
    call_seconds: float
    differs: str
    calls: int


class Bench:
    """The candidates of one function and one set of arguments.

    Args:
      make: from a choice and the leaves of the arguments to a compiled candidate.
      inputs: sets of leaves, of which results are compared on all and times are taken on the first.
      tolerance: see `checking.difference`.
      platform: of the device.
      said: hears what is about to happen: "compile", "run", "check" and "time", with a candidate's number.
    """

    def __init__(
        self,
        make: Callable[[Any, Sequence[Any]], Candidate],
        inputs: Sequence[Sequence[Any]],
        tolerance: float | None,
        platform: str = "cpu",
        said: Said = lambda _: None,
    ) -> None:
        self._make = make
        self._inputs = inputs
        self._tolerance = tolerance
        self._waits = platform in TIMERS
        self._said = said
        self._candidates: dict[int, Candidate] = {}
        self._calls: dict[int, int] = {}
        self._expected: list[list[Any]] | None = None
        self._form: Any = None

    def compile(self, choice: Any) -> None:
        """Compile only: what that makes is in the cache for others.

        Raises:
          Exception: what tracing and compiling raise.
        """
        self._make(choice, self._inputs[0])

    def prepare(self, number: int, choice: Any, calls: int = 0) -> Prepared:
        """Compile a candidate, run it until it is warm, and compare its results with those of the first one prepared.

        Args:
          number: what it is called from now on.
          choice: for `make`.
          calls: how often it is called at least before it counts as warm.

        Raises:
          Exception: what tracing, compiling and running raise.
        """
        self._said(f"compile {number}")
        since = time.perf_counter()
        candidate = self._make(choice, self._inputs[0])
        compile_seconds = time.perf_counter() - since
        self._said(f"run {number}")
        first = checking.as_numpy(candidate.call(self._inputs[0]))
        self._said(f"check {number}")
        results = [first, *(checking.as_numpy(candidate.call(leaves)) for leaves in self._inputs[1:])]
        differs = self._compared(results, candidate.form)
        self._candidates[number] = candidate
        self._calls[number] = len(self._inputs)
        self._said(f"warm {number}")
        seconds = self._warm(number, calls)
        return Prepared(candidate.program, compile_seconds, seconds, differs, self._calls[number])

    def drop(self, number: int) -> None:
        """Forget a candidate: its executable's memory is free."""
        self._candidates.pop(number, None)

    def round(self, order: Sequence[tuple[int, int]]) -> list[float]:
        """Seconds of one call of each candidate, in this order, each the mean over so many calls.

        Raises:
          Exception: what running raises.
        """
        found = []
        for number, calls in order:
            self._said(f"time {number}")
            found.append(self._sample(number, calls))
        return found

    def calls(self, number: int) -> int:
        """How often a candidate was called."""
        return self._calls[number]

    def _compared(self, results: list[list[Any]], form: checking.Form | None) -> str:
        if self._expected is None:
            self._expected, self._form = results, form
            return ""
        if words := checking.difference_of_form(self._form, form):
            return words
        for number, (expected, found) in enumerate(zip(self._expected, results, strict=True)):
            words = checking.difference(expected, found, self._tolerance)
            if words:
                return f"on input {number}, {words}"
        return ""

    def _warm(self, number: int, calls: int) -> float:
        best, begin, done = math.inf, time.perf_counter(), 0
        while done < max(_WARM_CALLS, calls) or (
            time.perf_counter() - begin < _WARM_SECONDS and done < _MOST_WARM_CALLS
        ):
            best = min(best, self._sample(number, 1))
            done += 1
        return best

    def _sample(self, number: int, calls: int) -> float:
        candidate = self._candidates[number]
        sets = candidate.sets(self._inputs[0], calls)
        self._calls[number] += len(sets)
        call = candidate.run
        begin = time.perf_counter()
        results: list[Any] = []
        for leaves in sets:
            results = call(leaves)
            if self._waits:
                for one in results:
                    one.block_until_ready()
        for one in results:
            one.block_until_ready()
        return (time.perf_counter() - begin) / len(sets)


def calls_of_a_sample(call_seconds: float) -> int:
    """How many calls one sample takes, so that it is long beside the clock's steps."""
    wanted = max(SAMPLE_SECONDS, _STEPS * conditions.clock_resolution())
    return max(1, min(_MOST_CALLS, math.ceil(wanted / max(call_seconds, 1e-9))))


class Candidate:
    """A compiled candidate.

    Args:
      run: from leaves to results, flat.
      program: digest of what was compiled.
      donates: whether it takes over any of its arguments.
      form: of its results; `None` where all candidates have one.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Any]], list[Any]],
        program: str,
        donates: bool,
        form: checking.Form | None = None,
    ) -> None:
        self.run = run
        self.program = program
        self.donates = donates
        self.form = form

    def call(self, leaves: Sequence[Any]) -> list[Any]:
        """The results, which are there."""
        results = self.run(self.sets(leaves, 1)[0])
        for one in results:
            one.block_until_ready()
        return results

    def sets(self, leaves: Sequence[Any], calls: int) -> list[Sequence[Any]]:
        """So many sets of leaves to call with: the same ones, or copies where they are taken over."""
        if not self.donates:
            return [leaves] * calls
        copies = [[_copy(leaf) for leaf in leaves] for _ in range(min(calls, _MOST_COPIES))]
        for one in copies:
            for leaf in one:
                leaf.block_until_ready()
        return list(copies)


def _copy(leaf: Any) -> Any:
    import jax.numpy as jnp

    return jnp.array(leaf, copy=True)


# ---------------------------------------------------------------------------------------------------------------
# How candidates are made of choices


def by_keywords(function: Any, arguments: Arguments) -> Callable[[Any, Sequence[Any]], Candidate]:
    """A choice is keywords of a function."""

    def make(keywords: Mapping[str, Any], leaves: Sequence[Any]) -> Candidate:
        forms: list[checking.Form] = []
        jitted = _with_keywords(function, arguments, keywords, forms)
        lowered = jitted.lower(*leaves)
        lowered.compile()
        return Candidate(lambda leaves: list(jitted(*leaves)), digest_of(lowered), donates=False, form=forms[0])

    return make


def program_by_keywords(function: Any, arguments: Arguments, keywords: Mapping[str, Any], leaves: Sequence[Any]) -> str:
    """The `program` of a candidate, without compiling it.

    Raises:
      Exception: what tracing raises.
    """
    return digest_of(_with_keywords(function, arguments, keywords, []).lower(*leaves))


def _with_keywords(function: Any, arguments: Arguments, keywords: Mapping[str, Any], forms: list[checking.Form]) -> Any:
    """A jitted function of leaves; `forms` gets the form of its results when it is traced."""
    import jax

    def candidate(*leaves: Any) -> Any:
        args, kwargs = arguments.rebuild(leaves)
        results = function(*args, **{**kwargs, **keywords})
        forms.append(checking.form_of(results))
        return jax.tree_util.tree_leaves(results)

    return jax.jit(candidate)


def by_options(jitted: Any, arguments: Arguments) -> Callable[[Any, Sequence[Any]], Candidate]:
    """A choice is options of XLA for a jitted function."""
    import jax

    parts = seam.parts_of(jitted)

    def make(options: Mapping[str, Any], leaves: Sequence[Any]) -> Candidate:
        args, kwargs = arguments.rebuild(leaves)
        lowered = jitted.lower(*args, **kwargs)
        compiled = lowered.compile(compiler_options=dict(options) or None)
        static = parts.static_among(len(args))

        def run(leaves: Sequence[Any]) -> list[Any]:
            args, kwargs = arguments.rebuild(leaves)
            dynamic = [value for number, value in enumerate(args) if number not in static]
            named = {name: value for name, value in kwargs.items() if name not in parts.static_argnames}
            return list(jax.tree_util.tree_leaves(compiled(*dynamic, **named)))

        donates = any(info.donated for info in jax.tree_util.tree_leaves(lowered.args_info))
        return Candidate(run, _with_options(lowered, options), donates)

    return make


def program_by_options(jitted: Any, arguments: Arguments, options: Mapping[str, Any], leaves: Sequence[Any]) -> str:
    """As `program_by_keywords`."""
    args, kwargs = arguments.rebuild(leaves)
    return _with_options(jitted.lower(*args, **kwargs), options)


def _with_options(lowered: Any, options: Mapping[str, Any]) -> str:
    return f"{digest_of(lowered)} {sorted(options.items())}"


def digest_of(lowered: Any) -> str:
    """The program that was lowered, 64 hex digits: the same in every process."""
    return hashlib.sha256(lowered.as_text().encode()).hexdigest()
