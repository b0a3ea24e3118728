"""A file that this process made and keeps open, in a program that may close or remove anything.

Not promised: to notice between a look and what is done next. Look before each line.
"""

from __future__ import annotations

import contextlib
import errno
import os


class OwnFile:
    """An open descriptor, as long as it is the file that was made.

    A daemon closes every descriptor that it has, ours too, and the number is given to another file: nothing may be
    written there, and it may not be closed. No method but `close` raises.

    Attributes:
      lost: why it is not ours any more, in words; "" while it is, or was closed by us.
    """

    def __init__(self) -> None:
        self.lost = ""
        self._descriptor: int | None = None
        self._made: os.stat_result | None = None

    def take(self, descriptor: int) -> None:
        """From here on this is the file. It is ours to close, whatever comes."""
        self.lost = ""
        self._descriptor, self._made = descriptor, None
        self._made = os.fstat(descriptor)

    @property
    def descriptor(self) -> int | None:
        """What was taken, without a look; `None` where there is nothing."""
        return self._descriptor

    def status(self) -> os.stat_result | None:
        """Its state; `None` where there is none, or it is not ours any more."""
        if self._descriptor is None or self._made is None:
            return None
        try:
            status = os.fstat(self._descriptor)
        except OSError as error:
            if error.errno != errno.EBADF:  # a disk that fails: nothing is known, and it is still to be closed
                return None
            status = None
        if status is None or (status.st_dev, status.st_ino) != (self._made.st_dev, self._made.st_ino):
            self._descriptor, self.lost = None, "the program closed it"
            return None
        if status.st_nlink < self._made.st_nlink:
            self.lost = "it was removed"
            with contextlib.suppress(OSError):
                self.close()
            return None
        return status

    def close(self) -> None:
        """Close it, if it is there.

        Raises:
          OSError: what a network file system says that it could not write. It is closed all the same.
        """
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
