"""Cache directories made up for the report: runs of any number of ranks and programs, in the form that is on disk.

The runs are written line by line, since a `RunWriter` is one process's; the events go through `Event.as_dict`.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rewarm.ledger import Event, Seconds
from rewarm.ledger.explanation import Change, Explanation, Finding
from rewarm.ledger.journal import RUNS, SUFFIX, VERSION, encode_line
from rewarm.store import LocalStore

# Names that would run, or break the page, if they were anything but text.
HOSTILE = (
    "</script><script>window.struck = 1</script>",
    "<img src=x onerror='window.struck = 2'>",
    "line\u2028separator\u2029paragraph",
    "${window.struck = 3}`{{data}}{{script}}",
    "]]><!-- <script>",
    "'\"><svg onload=window.struck=4>",
    "{a|rich}{b}text",
    "\u202eright to left, \x00 nothing, \ud800 half",
)


def directory(root: Path) -> Path:
    """An empty cache directory."""
    LocalStore(root).prepare()
    return root


def key_of(name: str) -> str:
    """A key that is one name's for ever."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


def hit(program: str, when: float, *, load: float = 0.02, saved: float = 0.5, **more: Any) -> Event:
    """A request that was served, `load` seconds long."""
    spans = (("trace", -0.02, 0.01), ("lower", -0.01, 0.005), ("key", -0.004, 0.004), ("fetch", 0.0, 0.001),
             ("load", 0.001, load))  # fmt: skip
    plain: dict[str, Any] = {"tier": "local", "reason": None, "stored": False, "not_stored": None, "quarantined": None}
    fields = {"key": key_of(program), "seconds_saved": saved, "bytes_read": 9000, "bytes_written": 0, "spans": spans}
    seconds = Seconds(key=0.004, fetch=0.001, load=load)
    return Event(program=program, outcome="hit", time=when, seconds=seconds, **{**plain, **fields, **more})


def miss(program: str, when: float, *, compile_: float = 0.4, why: str = "", **more: Any) -> Event:
    """A request that was compiled, `compile_` seconds long."""
    spans = (("trace", -0.02, 0.01), ("lower", -0.01, 0.005), ("key", -0.004, 0.004), ("fetch", 0.0, 0.0002),
             ("compile", 0.001, compile_), ("store", 0.001 + compile_, 0.003))  # fmt: skip
    said = Explanation(
        f"differs from what was known: {why or 'constants'}",
        nearest=key_of(f"{program} before"),
        differs=("program",),
        changes=(Change("program", "/home/me/train.py:9", "%0 = constant 2.0", f"%0 = constant 3.0 {why}"),),
        findings=(Finding("constants", "the same operations with other constants"),),
    )
    plain: dict[str, Any] = {"tier": None, "reason": "not in the store", "stored": True, "not_stored": None}
    fields = {"key": key_of(program), "seconds_saved": 0.0, "bytes_read": 0, "bytes_written": 9000, "spans": spans}
    seconds = Seconds(key=0.004, fetch=0.0002, compile=compile_, store=0.003)
    every = {**plain, **fields, "quarantined": None, "explanation": said, **more}
    return Event(program=program, outcome="miss", time=when, seconds=seconds, **every)


def write_run(
    root: Path,
    events: Iterable[Event | Mapping[str, Any]],
    *,
    started: float,
    argv: tuple[str, ...] = ("/home/me/train.py", "--steps", "10"),
    job: Mapping[str, Any] | None = None,
    ends: bool = True,
    number: int = 0,
) -> str:
    """A run on disk; returns its id."""
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(started))
    run = f"{moment}-{1000 + number}-{number:08x}"
    header = {"run": run, "version": VERSION, "started": started, "pid": 1000 + number, "host": f"host{number // 8}",
              "argv": list(argv), "python": "3.12.1", "directory": "/home/me", "parent": None}  # fmt: skip
    about: dict[str, Any] = {"versions": {"rewarm": "0.1.0", "jax": "0.12.0.1", "jaxlib": "0.12.0.1"}}
    if job is not None:
        about["job"] = job
    records = [event.as_dict() if isinstance(event, Event) else event for event in events]
    lines = [encode_line({**header, "about": about}), *(encode_line({"event": record}) for record in records)]
    if ends:
        lines.append(encode_line({"end": started + 100, "events": len(records), "lost": 0, "stats": {"tuned": {}}}))
    (root / RUNS).mkdir(exist_ok=True, mode=0o700)
    (root / RUNS / f"{run}{SUFFIX}").write_bytes(b"".join(line for line in lines if line is not None))
    return run


def large(root: Path, programs: int, ranks: int, *, started: float | None = None) -> None:
    """One start of so many ranks, each of which asks for so many programs; a tenth of them miss."""
    chance = random.Random(7)
    began = time.time() - 1000 if started is None else started
    for rank in range(ranks):
        when, events = began + chance.random(), []
        for number in range(programs):
            name = f"jit_layer_{number % 40}_step_{number}"
            when += 0.03 + chance.random() * 0.02
            if number % 10 == 3:
                took = 0.05 + chance.random() * 0.4
                events.append(miss(name, when, compile_=took))
                when += took
            else:
                load = 0.002 + chance.random() * 0.03
                events.append(hit(name, when, load=load))
                when += load
        job = {"id": "10.0.0.1:1234", "rank": rank, "ranks": ranks}
        write_run(root, events, started=began + rank / 100, job=job if ranks > 1 else None, number=rank)
