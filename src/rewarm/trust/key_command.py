"""A signing key from a command, such as that of a password manager: it prints the key, and nothing is kept on disk.

Not promised: a terminal to ask on. The command runs without one, without a shell, and without standard input. Nor that
this works where pipes cannot be waited for (Windows): there it fails as a command that cannot be run.

Race: a child of the command that outlives it may keep its standard output open. What was printed when the command
ended counts, and nobody waits for the child.
"""

# No thread reads the pipe: the first signature may be asked for at the end of the program, when none can be started.

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time

from rewarm.trust.errors import UnusableKeyError

DEADLINE = 10.0
"""Seconds that a command may take."""

_LIMIT = 64 * 1024
_PAUSE = 0.02


def output_of(command: tuple[str, ...], where: str, deadline: float = DEADLINE) -> str:
    """What the command prints, 64 KiB at most.

    Neither its arguments nor its output are in any message: either may hold the secret.

    Raises:
      UnusableKeyError: it cannot be run, fails, takes longer than `deadline` seconds, or prints too much.
    """
    until = time.monotonic() + deadline
    try:
        printed, code = _run(command, until)
    except subprocess.TimeoutExpired:
        raise _failure(where, f"a command that had not ended after {deadline:g} s") from None
    except (OSError, ValueError, RuntimeError) as error:
        what = getattr(error, "strerror", None) or type(error).__name__
        raise _failure(where, f"a command that cannot be run ({what})") from None
    if len(printed) > _LIMIT:
        raise _failure(where, f"more than {_LIMIT // 1024} KiB of output")
    if code != 0:
        raise _failure(where, f"a command that ended with exit code {code}")
    return printed.decode("utf-8", "replace")


def _run(command: tuple[str, ...], until: float) -> tuple[bytes, int]:
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # so that what it starts can be ended with it
    )
    assert process.stdout is not None
    try:  # not `with process`, which would wait for its end however long that takes
        printed = _printed(process, process.stdout.fileno(), until)
        return printed, process.wait(max(until - time.monotonic(), _PAUSE)) if len(printed) <= _LIMIT else 0
    finally:
        process.stdout.close()
        if process.returncode is None:
            _end(process)


def _printed(process: subprocess.Popen[bytes], pipe: int, until: float) -> bytes:
    """What the process prints, up to a byte more than the limit.

    Raises:
      subprocess.TimeoutExpired: it goes on for longer.
    """
    data = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while (left := until - time.monotonic()) > 0:
            ended = process.poll() is not None  # before looking at the pipe: what it printed is there by then
            if selector.select(min(left, _PAUSE)):
                part = os.read(pipe, _LIMIT + 1 - len(data))
                data += part
                if not part or len(data) > _LIMIT:
                    return data
            elif ended:
                return data
    raise subprocess.TimeoutExpired("", 0.0)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the command and what it started."""
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1.0)


def _failure(where: str, found: str) -> UnusableKeyError:
    return UnusableKeyError(
        where,
        "a command that prints the line of a signing key",
        found,
        "run it by hand and see that it prints the key and exits with 0",
    )
