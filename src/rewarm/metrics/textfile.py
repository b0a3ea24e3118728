"""A text file of the metrics, as node_exporter's textfile collector reads them: for jobs that nobody can scrape.

Not promised: a file of a process that JAX asked for nothing, or that ends without the interpreter's end (`kill -9`,
`os._exit`, by which children of multiprocessing end): of those the file is as the last interval left it. A file is
never seen in part. It stays when the process is gone, which is what it is for; removing old ones is the user's.

The path may have placeholders (`paths.py`). What tells the files of one folder from each other is a label, too, since
node_exporter refuses two files with one series.

A child of fork has a file of its own, with its own numbers, where the path has `%p`; else it writes none, since it
would take its parent's place. Two processes that share a path without being parent and child replace each other's file.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading

from rewarm import small_files
from rewarm.errors import SettingError
from rewarm.ledger import Event, of_this_process
from rewarm.metrics import paths
from rewarm.metrics.numbers import Numbers
from rewarm.metrics.prometheus import Collector, exposition
from rewarm.sharing.forks import renew_in_child
from rewarm.telling import Teller

logger = logging.getLogger("rewarm")

# node_exporter is another user.
_MODE = 0o644
_AT_THE_END = 2.0


class TextFile:
    """One file, kept up to date by a thread. See the module.

    Args:
      path: with placeholders.
      seconds: between two writings.

    Attributes:
      path: of the file, for this process.

    Raises:
      SettingError: either cannot be used.
    """

    def __init__(self, path: str | os.PathLike[str], seconds: float) -> None:
        self._template = paths.template(path)
        if not 0 < seconds <= threading.TIMEOUT_MAX:
            raise SettingError(f"seconds between two writings of metrics: expected more than 0, found {seconds!r}")
        self._seconds = seconds
        self._teller = Teller()
        self._numbers = Numbers(of_this_process().stats)
        self._begin()

    def _begin(self) -> None:
        self.path = self._template.path
        self._collector = Collector(self._template.labels, self._numbers)
        self._stopped = threading.Event()
        self._writing = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to write, once there is something."""
        atexit.register(self.stop)
        renew_in_child(self, TextFile._after_fork)
        of_this_process().listen(self._heard)

    def stop(self) -> None:
        """Write once more, and then no more."""
        of_this_process().unlisten(self._heard)
        if not self._stopped.is_set():
            self._stopped.set()
            if self._thread is not None:
                self._thread.join(_AT_THE_END)
            self.write()

    def write(self) -> bool:
        """Write the file now; returns whether it was. What stands in the way is said once. Never raises."""
        try:
            if not self._numbers.has_any():
                return False
            with self._writing:
                small_files.replace(self.path, exposition(self._collector), _MODE)
        except OSError as error:
            words = f"{error.strerror or error}; choose another path, or make its folder"
            self._teller.tell(f"cannot write metrics to {self.path}: {words}", kind=str(error.errno))
            return False
        except Exception:  # no failure of metrics stops a program
            logger.debug("rewarm: no metrics in %s", self.path, exc_info=True)
            return False
        return True

    # -- inside ------------------------------------------------------------------------------------------------

    def _heard(self, _: Event) -> None:
        """Something happened: there is a thread from now on, in this process."""
        if self._thread is None and not self._stopped.is_set():
            with self._writing:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="rewarm metrics", daemon=True)
                    self._thread.start()

    def _run(self) -> None:
        self.write()
        while not self._stopped.wait(self._seconds):
            self.write()

    def _after_fork(self) -> None:
        ended = self._stopped.is_set()
        self._begin()
        if ended or "p" not in self._template.marks:
            self._stopped.set()
