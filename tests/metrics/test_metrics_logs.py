"""Structured logs: one JSON object on a line, whatever it is about."""

from __future__ import annotations

import io
import json
import logging
import math
import os
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metrics_programs import TWO, lines_of

from conftest import Program
from rewarm.ledger import Event, Stats
from rewarm.metrics.logs import JsonFormatter


def test_events_and_numbers_on_standard_error(program: Program, cache: Path) -> None:
    for start in ("miss", "hit"):
        done = program(TWO, REWARM_DIR=str(cache), REWARM_LOG="json")
        found = [json.loads(line) for line in done.err.splitlines() if line.startswith('{"time"')]
        events = [line for line in found if line["kind"] == "event"]
        assert len(events) == done.stats["requests"]
        for line in events:
            assert set(line["event"]) == set(Event.__dataclass_fields__)
            assert line["event"]["outcome"] == start
            assert line["message"].startswith(f"{start} jit_")
            assert (line["level"], line["logger"]) == ("INFO", "rewarm")
            assert datetime.fromisoformat(line["time"]).utcoffset() is not None
        assert found[-1]["kind"] == "stats"
        assert set(found[-1]["stats"]) == set(Stats.__dataclass_fields__)
        assert found[-1]["stats"]["requests"] == done.stats["requests"]


def test_log_lines_of_rewarm_are_json_too_and_said_once(program: Program, tmp_path: Path) -> None:
    obstacle = tmp_path / "a file"
    obstacle.write_text("")
    done = program(TWO, REWARM_DIR=str(obstacle), REWARM_LOG="json")
    found = [json.loads(line) for line in done.warnings()]
    logs = [line for line in found if line["kind"] == "log"]
    assert [line["level"] for line in logs] == ["WARNING"]
    assert "cannot use the directory" in logs[0]["message"]
    assert logs[0]["pid"] > 0


def test_a_file_for_each_process(program: Program, tmp_path: Path, cache: Path) -> None:
    asked = {"REWARM_DIR": str(cache), "REWARM_LOG": f"json:{tmp_path}/%p.jsonl"}
    for _ in range(2):
        done = program(TWO, **asked)
        assert done.warnings() == []
    files = list(tmp_path.glob("*.jsonl"))
    assert len(files) == 2
    for path in files:
        assert {line["pid"] for line in lines_of(path)} == {int(path.stem)}
        assert [line["kind"] for line in lines_of(path)][-1] == "stats"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_stops_nothing_and_says_nothing(program: Program, cache: Path) -> None:
    done = program(TWO, REWARM_DIR=str(cache), REWARM_LOG="json:/dev/full")
    assert done.out.splitlines() == ["5.0", "2.0"]
    assert done.warnings() == []


def test_the_users_handlers_and_levels_stay(program: Program, cache: Path) -> None:
    source = """
        import logging, sys, jax, numpy as np, rewarm
        logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="mine %(name)s %(levelname)s")
        level = logging.getLogger("rewarm").level
        rewarm.enable()
        jax.jit(lambda x: x + 1)(np.ones(2, np.float32))
        assert logging.getLogger("rewarm").level == level
        logging.getLogger("rewarm").warning("seen")
    """
    done = program(source, REWARM_DIR=str(cache), REWARM_LOG="json")
    assert [line for line in done.out.splitlines() if "rewarm" in line] == ["mine rewarm WARNING"]
    assert "seen" in [json.loads(line)["message"] for line in done.warnings()]


@given(st.text(), st.dictionaries(st.text(), st.floats() | st.text() | st.integers() | st.none(), max_size=4))
def test_any_record_is_one_line_of_json(message: str, more: dict[str, object]) -> None:
    record = logging.LogRecord("any", logging.ERROR, __file__, 1, message.replace("%", "%%"), (), None)
    record.rewarm_said = {"kind": "event", "event": more}
    line = JsonFormatter().format(record)
    assert line.isascii()
    assert "\n" not in line
    found = json.loads(line)
    assert found["level"] == "ERROR"
    finite = {name: None if isinstance(one, float) and not math.isfinite(one) else one for name, one in more.items()}
    assert found["event"] == finite


def test_the_formatter_serves_any_handler() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.Logger("jax")
    logger.addHandler(handler)
    try:
        raise ValueError("said\nso")
    except ValueError:
        logger.exception("it failed: %s", "why")
    found = json.loads(stream.getvalue())
    assert (found["message"], found["logger"], found["kind"]) == ("it failed: why", "jax", "log")
    assert found["pid"] == os.getpid()
    assert found["exception"].endswith("ValueError: said\nso")
