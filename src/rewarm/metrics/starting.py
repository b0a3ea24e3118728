"""What the environment asks for: metrics and logs, begun when rewarm is turned on.

Not promised: that it begins. Where a library is missing or a value cannot be used, one line says so, and the program
goes on without.

    REWARM_METRICS_TEXTFILE=/path/%h-%p.prom   a text file for node_exporter (`textfile.py`)
    REWARM_METRICS_SECONDS=15                  how often it is written
    REWARM_OPENTELEMETRY=1                     metrics and spans, through the providers that the program has set
    REWARM_LOG=json, or json:/path/%h-%p.jsonl events and log lines as JSON (`logs.py`)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rewarm.errors import SettingError
from rewarm.setting_values import FALSE, TRUE

_begun: set[str] = set()


def begin(asked: Mapping[str, str], tell: Callable[[str], None]) -> None:
    """Begin what the variables in `asked` ask for, once for a process; `tell` hears what cannot be. Never raises."""
    for variable, start in _STARTS.items():
        if variable in asked and variable not in _begun:
            _begun.add(variable)
            try:
                start(asked)
            except SettingError as error:
                tell(f"{variable}: {error}; it is ignored")
            except Exception as error:  # noqa: BLE001 - no failure of metrics stops a program
                tell(f"{variable} is ignored: {error or type(error).__name__}")


def _textfile(asked: Mapping[str, str]) -> None:
    from rewarm.metrics import prometheus

    seconds = asked.get("REWARM_METRICS_SECONDS")
    try:
        every = prometheus.EVERY_SECONDS if seconds is None else float(seconds)
    except ValueError:
        raise SettingError(f"REWARM_METRICS_SECONDS: expected seconds, more than 0, found {seconds!r}") from None
    prometheus.textfile(asked["REWARM_METRICS_TEXTFILE"], every)


def _opentelemetry(asked: Mapping[str, str]) -> None:
    word = asked["REWARM_OPENTELEMETRY"].lower()
    if word in FALSE:
        return
    if word not in TRUE:
        raise SettingError(f"expected true or false, found {word!r}")
    from rewarm.metrics import opentelemetry

    opentelemetry.instrument()


def _log(asked: Mapping[str, str]) -> None:
    form, _, path = asked["REWARM_LOG"].partition(":")
    if form.lower() in FALSE:
        return
    if form.lower() != "json":
        raise SettingError(f"expected json, or json:PATH, found {asked['REWARM_LOG']!r}")
    from rewarm.metrics import logs

    logs.json_lines(path or None)


_STARTS: Mapping[str, Callable[[Mapping[str, str]], Any]] = {
    "REWARM_METRICS_TEXTFILE": _textfile,
    "REWARM_OPENTELEMETRY": _opentelemetry,
    "REWARM_LOG": _log,
}
