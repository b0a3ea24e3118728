"""The child of the load check: loads entries by path and key, and says how that went, unless it ends.

Not promised: anything to whoever else starts it. It has no cache of its own, and runs nothing that it loads.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import rewarm
from rewarm.envelope import open_entry

_NICE = 10


def main() -> None:
    """Read lines from standard input until it ends."""
    rewarm.disable()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    with contextlib.suppress(OSError):
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what others print is not for the parent
    with contextlib.suppress(OSError, AttributeError):
        os.nice(_NICE)  # the program comes first
    client = None
    for line in sys.stdin:
        asked = json.loads(line)
        if client is None:
            client, answer = _client(asked)
        else:
            answer = _load(client, asked)
        _say(answers, answer)


def _client(asked: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    from rewarm.jax_adapter import seam

    try:
        return seam.client_with(asked["platform"], asked["devices"]), {"ok": True}
    except Exception as error:  # noqa: BLE001 - the program holds them, or only it knows of them
        return None, {"cannot": f"{type(error).__name__}: {error}"}


def _load(client: Any, asked: dict[str, Any]) -> dict[str, Any]:
    from rewarm.jax_adapter import seam

    since = time.perf_counter()
    try:
        raw = open_entry(Path(asked["path"]).read_bytes(), asked["key"]).section("executable")
        seam.load_bytes(client, raw, asked["devices"], base64.b64decode(asked["options"]))
    except Exception as error:  # noqa: BLE001 - an error is no crash, and not this check's to judge
        return {"error": f"{type(error).__name__}: {error}"}
    return {"ok": time.perf_counter() - since}


def _say(answers: Any, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
