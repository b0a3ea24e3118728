"""The winner of a case: from what this process has looked up before, else from the store and the remotes.

Not promised: that what others find meanwhile is seen: a case is looked up once in a process, and again after this
process has tuned it. Nothing here raises for the user's program: what cannot be read is untuned, and said once.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from typing import NamedTuple, cast

from rewarm.jax_adapter.session import Session
from rewarm.jax_adapter.tuner import ranks
from rewarm.tunables import selecting
from rewarm.tunables.merging import is_decided
from rewarm.tunables.records import Case, Record
from rewarm.tunables.spaces import Config, Space, canonical

logger = logging.getLogger("rewarm")


class Winner(NamedTuple):
    """What is known of a case.

    Attributes:
      config: the winner, which need not be in the space of today; `None`: nothing is known.
      why: why nothing was found, or whose winner it is.
      exact: whether it is of this very case.
    """

    config: Config | None
    why: str = ""
    exact: bool = False

    @property
    def text(self) -> str:
        """Canonical; "" where nothing is known."""
        return "" if self.config is None else canonical(self.config)


class _AnySpace:
    """Takes every configuration: whether a winner is still in its space is asked where it is used."""

    def check(self, config: Config) -> Config:
        return config


_lock = threading.Lock()
_found: dict[tuple[str, str, bool], Winner] = {}
_pinned: dict[tuple[str, str], Winner] = {}


def winner(session: Session, case: Case, *, nearest: bool = False, about: Mapping[str, str] | None = None) -> Winner:
    """What is known of a case.

    Args:
      session: where to look.
      case: whose.
      nearest: whether a near case's winner will do.
      about: what the case's digests stand for here, so that what has changed can be named.
    """
    key = (str(session.settings.directory), case.key, nearest)
    with _lock:
        known = _pinned.get(key[:2]) or _found.get(key)
    if known is None:
        known = _of_all(case, _looked_up(session, case, nearest, about))
        with _lock:
            known = _found.setdefault(key, known)
    return known


def _looked_up(session: Session, case: Case, nearest: bool, about: Mapping[str, str] | None) -> Winner:
    try:
        keeping = session.records()
        record = keeping.find(case)
        if record is not None and is_decided(record):
            return Winner(record.winner, "", exact=True)
        others = keeping.of_kernel(case.kernel)
        if nearest and (near := selecting.near_to(case, others, cast("Space", _AnySpace()))) is not None:
            return Winner(near.winner, f"which won for {near.case.arguments}")
        return Winner(None, selecting.why_not(case, others, about))
    except Exception as error:
        logger.debug("rewarm: no winner of %s", case.kernel, exc_info=True)
        return Winner(None, f"it cannot be looked up: {type(error).__name__}: {error}")


def _of_all(case: Case, own: Winner) -> Winner:
    """What all processes of a job use."""
    text = ranks.agreed(case, own.text)
    if text == own.text:
        return own
    return Winner(json.loads(text) if text else None, "as the processes of the job agreed")


def pin(session: Session, case: Case, config: Config) -> None:
    """Use this for a case in this process, whatever is kept."""
    with _lock:
        _pinned[str(session.settings.directory), case.key] = Winner(config, exact=True)


def record_of(session: Session, case: Case) -> Record | None:
    """All that is known of a case; `None` for nothing."""
    return session.records().find(case)


def keep(session: Session, record: Record, seconds: float, *, instead: bool = False) -> bool:
    """Keep a record, and look everything up again; whether it is on disk. `instead`: see `Keeping.put`."""
    kept = session.records().put(record, seconds=seconds, instead=instead)
    forget()
    return kept


def forget() -> None:
    """Look everything up again."""
    with _lock:
        _found.clear()
