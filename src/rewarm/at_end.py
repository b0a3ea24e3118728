"""Work of background threads that the end of the interpreter must not strike.

Not promised: that a thread comes to its end. One that is in such work when the interpreter goes is waited for, for ten
seconds at most; one that would begin it then waits for ever, as every thread does from Python 3.14 on.

Before 3.14 a daemon thread that wants the interpreter's lock back while the interpreter is taken down is ended by
`pthread_exit`, which unwinds its stack. Code between that catches everything, as modules in Rust made with PyO3 do,
ends the process then: "FATAL: exception not rethrown", and exit code -6 after a program that was right. (Seen with
`cryptography`, whose import runs Python code below such a frame.)
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_PATIENCE = 10.0


class _Gate:
    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """In a child of fork there is none of the threads."""
        self._changed = threading.Condition()
        self._inside = 0
        self._closed = False

    def enter(self) -> None:
        with self._changed:
            if not self._closed:
                self._inside += 1
                return
        threading.Event().wait()

    def leave(self) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def close(self) -> None:
        until = time.monotonic() + _PATIENCE
        with self._changed:
            self._closed = True
            while self._inside > 0 and (rest := until - time.monotonic()) > 0:
                self._changed.wait(rest)


_gate = _Gate()
# Calls at the end come in reverse order: whoever wants threads to work then registers later, by importing this.
atexit.register(_gate.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_gate.renew)


@contextmanager
def unbroken() -> Iterator[None]:
    """Within it, this thread is in native code that may not be unwound; short work, and none that waits for others."""
    if threading.current_thread() is threading.main_thread():
        yield
        return
    _gate.enter()
    try:
        yield
    finally:
        _gate.leave()
