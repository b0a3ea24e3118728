"""What a cache does with a failure of its own: count it, say it once for each kind, and raise it where it is strict."""

from __future__ import annotations

from rewarm.errors import StoreError
from rewarm.ledger import Ledger
from rewarm.telling import Teller


class Failures:
    """Failures of the stores and remotes of one cache, none of which stops a program that did not ask for that.

    Args:
      ledger: counts them.
      strict: raise.
    """

    def __init__(self, ledger: Ledger, *, strict: bool) -> None:
        self.strict = strict
        self._ledger = ledger
        self._teller = Teller()

    def count(self) -> None:
        """One that is told elsewhere."""
        self._ledger.error()

    def complain(self, verb: str, error: Exception) -> None:
        """One of a store: said once for each kind, since a full disk fails for every program.

        Raises:
          Exception: `error`, in a strict cache.
        """
        self._ledger.error()
        if self.strict:
            raise error
        line = f"cannot {verb} the store: {error}; the program goes on without it"
        self._teller.tell(line, kind=f"{verb}: {why(error)}")


def why(error: Exception) -> str:
    """A few words without a path, so that counts by reason stay few."""
    return str(error.strerror) if isinstance(error, StoreError) else type(error).__name__


def short(error: BaseException) -> str:
    """One line with the kind of the error."""
    first = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {first[0][:200]}"
