"""A process that has something in hand, and ends as it is told: `dying.py <root> <what> <how>`.

what: steps, separated by commas: load, loaded, run, ran, wait (1.2 s), fork, fill (a long mark), closefds, handler
    (the user's own handler of fatal signals).
how: kill, term, abort (by a line of Python), crash (in a thread that Python knows nothing of, as an executable's),
    exit, _exit, or stand (says "ready" and reads a line first, then exits).
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import time
from pathlib import Path

from rewarm.trials import Trials

KEY = "ab" * 32
CONTENT = "cd" * 32


def no(*_: str) -> bool:
    raise AssertionError("nothing is to be put aside here")


def crash() -> None:
    library, thread = ctypes.CDLL(None), ctypes.c_ulong()
    library.pthread_create(ctypes.byref(thread), None, ctypes.cast(library.abort, ctypes.c_void_p), None)
    time.sleep(60)


def main(root: str, what: str, how: str) -> None:
    trials = Trials(Path(root), no, print)
    trial = None
    for step in what.split(","):
        if step == "load":
            trial = trials.begin(KEY, "jit_f", CONTENT)
            assert trial is not None
        elif step == "handler":
            faulthandler.enable()
        elif step == "wait":
            time.sleep(1.2)
        elif step == "closefds":
            os.closerange(3, 256)
            Path(root, "other").write_text("")
            os.open(Path(root, "other"), os.O_RDWR)
        elif step == "fork":
            started, starts = os.pipe()
            if (child := os.fork()) == 0:
                os.write(starts, b"x")
                time.sleep(60)
                os._exit(0)
            os.read(started, 1)
            print(child, flush=True)
        elif step == "fill":
            for _ in range(800):
                another = trials.begin(KEY, "jit_filler", CONTENT)
                assert another is not None
                trials.loaded(another)
        elif trial is not None:
            {"loaded": trials.loaded, "run": trials.running, "ran": lambda one: trials.ran(one, proved=False)}[step](
                trial
            )
    if how == "stand":
        print("ready", flush=True)
        sys.stdin.readline()
    elif how != "exit":
        print("ends", flush=True)
        ends = {
            "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
            "term": lambda: os.kill(os.getpid(), signal.SIGTERM),
            "abort": os.abort,
            "crash": crash,
            "_exit": lambda: os._exit(3),
        }
        ends[how]()


if __name__ == "__main__":
    main(*sys.argv[1:])
