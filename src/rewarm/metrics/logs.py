"""Structured logs: one JSON object on a line for each event, each log line of rewarm, and the numbers at the end.

Not promised: lines of other loggers, JAX's among them: give their handlers the formatter. Or that a line gets there:
where the file cannot be written to, it is lost, and the program goes on. Or that a message keeps its words; fields do.

    {"time": "2026-11-29T18:45:00.123456+00:00",  UTC, RFC 3339
     "level": "INFO", "logger": "rewarm", "kind": "event" | "log" | "stats",
     "message": "miss jit_step: ...",  "pid": 1234, "host": "node7",
     "event": {...}}                     kind "event": the fields of `rewarm.Event`
     "stats": {...}                      kind "stats", once, at the end of the process: the fields of `rewarm.Stats`
     "exception": "Traceback ..."        where a log line has one

A line is written at once, ASCII alone, and has no line end in it. Numbers that JSON does not have are null.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import json
import logging
import math
import os
import platform
from typing import Any

from rewarm.ledger import Event, of_this_process
from rewarm.metrics import paths

_FIELD = "rewarm_said"
_LOGGER = "rewarm"


class JsonFormatter(logging.Formatter):
    """Formats any record as one JSON object: `handler.setFormatter(JsonFormatter())`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        said: dict[str, Any] = getattr(record, _FIELD, {"kind": "log"})
        time = datetime.datetime.fromtimestamp(record.created, tz=datetime.UTC)
        line = {
            "time": time.isoformat(timespec="microseconds"),
            "level": record.levelname,
            "logger": record.name,
            "kind": said["kind"],
            "message": record.getMessage(),
            "pid": record.process,
            "host": platform.node(),
            **{name: value for name, value in said.items() if name != "kind"},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _as_json(line)


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False, default=str)
    except ValueError:
        return json.dumps(_finite(value), default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(name): _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value


class JsonLines:
    """Writes the lines. See `json_lines`.

    Args:
      handler: where to.
    """

    def __init__(self, handler: logging.Handler) -> None:
        handler.setFormatter(JsonFormatter())
        # A full disk would bring a traceback for each event.
        handler.handleError = _lost  # type: ignore[method-assign]
        self._handler = handler
        self._pid = os.getpid()

    def start(self) -> None:
        """Begin."""
        logging.getLogger(_LOGGER).addHandler(self._handler)
        of_this_process().listen(self._event)
        atexit.register(self._at_the_end)

    def stop(self) -> None:
        """End."""
        of_this_process().unlisten(self._event)
        logging.getLogger(_LOGGER).removeHandler(self._handler)
        atexit.unregister(self._at_the_end)
        with contextlib.suppress(OSError):
            self._handler.close()

    def _event(self, event: Event) -> None:
        self._say(_words(event), kind="event", event=event.as_dict())

    def _at_the_end(self) -> None:
        stats = of_this_process().stats()
        if os.getpid() == self._pid and (stats.requests or stats.left_to_jax):
            self._say(stats.line(), kind="stats", stats=stats.as_dict())

    def _say(self, message: str, **said: Any) -> None:
        # Past the logger: its level, which is the user's, is about lines for people.
        record = logging.LogRecord(_LOGGER, logging.INFO, __file__, 0, message, None, None)
        setattr(record, _FIELD, said)
        self._handler.handle(record)


def _words(event: Event) -> str:
    if event.outcome == "hit":
        return f"hit {event.program} ({event.tier})"
    why = event.explanation.summary if event.explanation is not None else event.reason
    return f"miss {event.program}: {why}"


def _lost(record: logging.LogRecord) -> None:
    del record


def json_lines(path: str | os.PathLike[str] | None = None) -> JsonLines:
    """Write events and rewarm's log lines as JSON: to standard error, or to the end of a file.

    Lines that go to the user's own handlers go there as ever. A child of fork writes to its parent's file; "pid" tells
    whose a line is. At the end of the process there is one line with its numbers.

    Args:
      path: of the file, which is made when it is needed; it may have placeholders (`paths.py`).

    Raises:
      SettingError: the path has another placeholder.
    """
    if path is None:
        lines = JsonLines(logging.StreamHandler())
    else:
        place = paths.template(path).path
        lines = JsonLines(logging.FileHandler(place, encoding="ascii", delay=True))
    lines.start()
    return lines
