"""What tuning finds, what it costs, and whether winners are: `rewarm.tune`, `rewarm.tune_options`, and tune-jax beside.

    python benchmarks/tuner.py [--only WORD] [--budget SECONDS] [--beside] [--json FILE]

Each case is tuned in a fresh process; then it and the default are compared in another fresh process, by a loop of this
file's own (rounds in an order drawn anew, medians of ratios, intervals of order statistics at 99 %). A "loss" is a
winner that this finds slower than the default beyond noise: there must be none. A third process asks for the winner as
a user's program does: "start" is what that look-up took, and nothing may be measured in it.

--beside: the same kernels and spaces by tune-jax in the same process, in an order drawn for each case: its winner goes
into the same comparison. It keeps nothing, so its second start is its first one.

Exits with 1 when there is a loss, or a second process that measures.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from _processes import clean_environment, describe_machine, scratch_directory

ROUNDS = 60
CONFIDENCE = 0.99


def case_of(name: str) -> Any:
    """The case of a name."""
    import _tuner_kernels as kernels

    cases = kernels.programs() if name.startswith("options") else kernels.kernels()
    return next(case for case in cases if case.name == name)


def tuned(name: str, budget: float, beside: bool) -> dict[str, Any]:
    """In a fresh process: tune one case."""
    import jax

    import rewarm

    case = case_of(name)
    jax.block_until_ready(case.arguments)
    found: dict[str, Any] = {}
    order = ["rewarm", "tune-jax"] if beside else ["rewarm"]
    random.Random(name).shuffle(order)
    for one in order:
        since = time.perf_counter()
        if one == "tune-jax":
            found["theirs"] = _by_tune_jax(case)
            found["their_seconds"] = time.perf_counter() - since
            continue
        tune = rewarm.tune_options if case.is_of_options else rewarm.tune
        more = () if case.is_of_options else (None,)
        result = tune(case.function, *more, *case.arguments, budget=budget, progress=False)
        found |= {"winner": result.winner, "ratio": result.ratio, "seconds": time.perf_counter() - since}
        found |= {"measured": result.measured, "default": result.record.default, "flags": result.record.flags}
        found["verdict"] = str(result.record.comparison)
    return found


def _by_tune_jax(case: Any) -> Any:
    import tune_jax

    asked = case.function.asked(case.arguments, {})
    space = {name: [asked.space.keywords({name: value})[name] for value in parameter.values]
             for name, parameter in asked.space.parameters.items()}  # fmt: skip
    function = tune_jax.tune(case.function.function, hyperparams=space)
    function(*case.arguments)
    return {name: getattr(value, "__qualname__", value) for name, value in function.optimal_hyperparams.items()}


def compared(name: str, configs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """In a fresh process: configurations beside the first one, by a loop that is not rewarm's."""
    import jax

    from rewarm.tunables.deciding import compare

    case = case_of(name)
    calls = [_call(case, config) for config in configs]
    for call in calls:
        for _ in range(5):
            jax.block_until_ready(call())
    since = time.perf_counter()
    jax.block_until_ready(calls[0]())
    batch = max(1, int(2e-3 / (time.perf_counter() - since)))
    seconds: list[list[float]] = [[] for _ in calls]
    rng = random.Random(1)
    for _ in range(ROUNDS):
        for number in rng.sample(range(len(calls)), len(calls)):
            since = time.perf_counter()
            for _ in range(batch):
                jax.block_until_ready(calls[number]())
            seconds[number].append((time.perf_counter() - since) / batch)
    found = []
    for one in seconds[1:]:
        result = compare(one, seconds[0], confidence=CONFIDENCE, candidates=len(calls) - 1)
        found.append({"ratio": result.ratio, "low": result.low, "high": result.high, "verdict": result.verdict})
    return found


def _call(case: Any, config: dict[str, Any]) -> Any:
    import jax

    if case.is_of_options:
        options = {name: value for name, value in config.items() if value is not None}
        compiled = case.function.lower(*case.arguments).compile(compiler_options=options or None)
        return lambda: compiled(*case.arguments)
    asked = case.function.asked(case.arguments, {})
    keywords = asked.space.keywords(config)
    jitted = jax.jit(lambda *arguments: case.function.function(*arguments, **keywords))
    return lambda: jitted(*case.arguments)


def started(name: str) -> dict[str, Any]:
    """In a fresh process: the winner, as a program finds it."""
    import jax

    import rewarm

    case = case_of(name)
    jax.block_until_ready(case.arguments)
    rewarm.stats()
    since = time.perf_counter()
    if case.is_of_options:
        case.function.lower(*case.arguments).compile()
        found = [event.options for event in rewarm.events() if event.options]
        return {"start": time.perf_counter() - since, "applied": bool(found)}
    asked = case.function.asked(case.arguments, {})
    chosen = case.function.chosen(asked)
    return {"start": time.perf_counter() - since, "chosen": dict(chosen)}


def child(what: str, name: str, argument: str) -> None:
    """One of the fresh processes."""
    if what == "tune":
        told: Any = tuned(name, **json.loads(argument))
    elif what == "compare":
        told = compared(name, json.loads(argument))
    else:
        told = started(name)
    print(json.dumps(told))


def asked_of(what: str, name: str, argument: Any, directory: Path, *, on: bool = True) -> Any:
    """What a fresh process said."""
    settings = {"REWARM_DIR": str(directory)} if on else {}
    command = [sys.executable, __file__, "--child", what, name, json.dumps(argument)]
    environment = {**clean_environment(settings), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise RuntimeError(f"{name}: {what}: {done.stderr[-1500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(name: str, budget: float, beside: bool, directory: Path) -> dict[str, Any]:
    """One case."""
    beside = beside and not name.startswith("options")
    row = asked_of("tune", name, {"budget": budget, "beside": beside}, directory)
    configs = [row["default"], row["winner"], *([row["theirs"]] if beside else [])]
    mine, *theirs = asked_of("compare", name, configs, directory, on=False)
    second = asked_of("tune", name, {"budget": budget, "beside": False}, directory)
    return {
        "case": name,
        **row,
        "fresh": mine,
        "their_fresh": theirs[0] if theirs else None,
        "second_seconds": second["seconds"],
        "second_measured": second["measured"],
        **asked_of("start", name, {}, directory),
    }


def line(row: dict[str, Any]) -> str:
    """A row for people."""
    same = row["winner"] == row["default"]
    config = ", ".join(f"{name}={value}" for name, value in row["winner"].items() if value is not None)
    text = f"{row['case']:<26} {row['seconds']:6.1f} s  {'default' if same else config:<40.40} "
    fresh = row["fresh"]
    text += f"{row['ratio']:5.2f}x  fresh {fresh['ratio']:5.2f}x ({fresh['low']:.2f} to {fresh['high']:.2f})"
    text += f"  start {row['start'] * 1e3:5.1f} ms"
    if row.get("their_fresh"):
        other = ", ".join(f"{name}={value}" for name, value in row["theirs"].items())
        text += f" | tune-jax {row['their_seconds']:5.1f} s  {other:<18.18} fresh {row['their_fresh']['ratio']:5.2f}x"
    return text + ("  LOSS" if fresh["verdict"] == "slower" else "")


def main() -> int:
    """Tune, compare, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--only", default="", help="cases whose names have this word")
    parser.add_argument("--budget", type=float, default=10.0, help="seconds of each session")
    parser.add_argument("--beside", action="store_true", help="tune-jax, too (pip install tune-jax)")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.child:
        child(*given.child)
        return 0
    import _tuner_kernels as kernels

    names = [case.name for case in (*kernels.kernels(), *kernels.programs()) if given.only in case.name]
    rows = []
    with scratch_directory() as folder:
        for name in names:
            rows.append(measure(name, given.budget, given.beside, Path(folder) / "cache"))
            print(line(rows[-1]), flush=True)
    losses = [row["case"] for row in rows if row["fresh"]["verdict"] == "slower"]
    again = [row["case"] for row in rows if row["second_measured"]]
    gains = [row["fresh"]["ratio"] for row in rows if row["winner"] != row["default"]]
    print(f"{len(rows)} cases, {len(gains)} with another winner than the default, {len(losses)} losses {losses}, "
          f"{len(again)} measured again {again}")  # fmt: skip
    if given.json:
        given.json.write_text(json.dumps({"machine": describe_machine(), "rows": rows}, indent=1))
    return 1 if losses or again else 0


if __name__ == "__main__":
    sys.exit(main())
