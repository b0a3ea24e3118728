"""The end of a process while requests are under way.

A thread that comes back from native code while the interpreter is being taken down is ended inside that code (CPython
before 3.14). A client that is not made for that would abort the process; this one is.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time

import pytest

from shared_remotes import HttpCache, http_cache

# The module `late` goes while the interpreter is taken down, and takes its time: the answer comes in the middle.
PROGRAM = """
import sys, threading, time, types
from rewarm.remote.address import parse
from rewarm.remote.guard import Guarded
from rewarm.remote.opening import open_blobs

class Keeper:
    def __del__(self, sleep=time.sleep):
        sleep(1.5)

late = sys.modules["late"] = types.ModuleType("late")
late.keeper = Keeper()
del late
guard = Guarded(open_blobs(parse(sys.argv[1])), deadline=5.0, tell=print)

def ask():
    try:
        guard.get("main/one", limit=100)
    except Exception as error:
        print(type(error).__name__)

threading.Thread(target=ask, daemon=True).start()
time.sleep(0.3)
print("ends", flush=True)
"""


def run(http: HttpCache) -> tuple[int, str, float]:
    since = time.monotonic()
    command = [sys.executable, "-c", PROGRAM, http.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr, time.monotonic() - since


@pytest.mark.parametrize("delay", [0.6, 1.2])
def test_an_answer_that_comes_at_the_end_aborts_nobody(delay: float) -> None:
    with http_cache() as http:
        http.get_delay = delay
        code, said, seconds = run(http)
    assert (code, said) == (0, "")
    assert seconds < 15


# A thread imports a module in Rust, and signs, while the program ends.
SIGNS = """
import os, sys, threading, time
from rewarm.trust import Algorithm
from rewarm.trust.keys import SigningKey

key = SigningKey(Algorithm.ED25519, b"k" * 32)
begun = threading.Event()

def work():
    begun.set()
    while True:
        key.sign(b"message")

threading.Thread(target=work, daemon=True).start()
begun.wait()
time.sleep(float(sys.argv[1]))
"""


@pytest.mark.skipif(importlib.util.find_spec("cryptography") is None, reason="no cryptography here")
def test_a_signature_at_the_end_aborts_nobody() -> None:
    ended = []
    for moment in range(24):
        command = [sys.executable, "-c", SIGNS, str(moment * 0.002)]
        ended.append(subprocess.run(command, capture_output=True, text=True, timeout=60, check=False))
    assert {(one.returncode, one.stderr) for one in ended} == {(0, "")}
