"""Settings take effect at the next compile, whenever they are changed; JAX's options keep their meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import Program, entries

pytestmark = pytest.mark.contract

# Prints, for each step of a program, what the request came to.
_STEPS = """
import sys, jax, numpy as np, rewarm, logging
cache = sys.argv[1]
count = 0
def step():
    global count
    count += 1
    number = float(count)
    jax.jit(lambda x: x * number + 1)(np.ones((4, 4), np.float32))
    events = rewarm.events()
    event = events[-1] if len(events) > step.seen else None
    step.seen = len(events)
    return event and (event.outcome, event.stored, event.not_stored)
step.seen = 0
told = []
"""


def steps(program: Program, cache: Path, body: str, **env: str) -> list[Any]:
    """What each `told.append(step())` of `body` came to, cold."""
    run = program(_STEPS + body + "\nimport json; print(json.dumps(told))\n", str(cache), **env)
    found = run.json
    assert isinstance(found, list)
    return found


STORED = ["miss", True, None]


def test_directory_changes_and_off_and_on(program: Program, cache: Path) -> None:
    body = """
rewarm.enable(cache + "/a"); told.append(step())
rewarm.enable(cache + "/b"); told.append(step())
rewarm.disable(); told.append(step())
rewarm.enable(cache + "/a"); told.append(step())
jax.config.update("jax_enable_compilation_cache", False); told.append(step())
jax.config.update("jax_enable_compilation_cache", True); told.append(step())
"""
    assert steps(program, cache, body) == [STORED, STORED, None, STORED, None, STORED]
    assert (len(entries(cache / "a")), len(entries(cache / "b"))) == (3, 1)


def test_jax_directory_changes(program: Program, cache: Path) -> None:
    body = """
rewarm.enable()
for name in "ab":
    jax.config.update("jax_compilation_cache_dir", cache + "/" + name); told.append(step())
jax.config.update("jax_compilation_cache_dir", None); told.append(step())
"""
    run = steps(program, cache, body, XDG_CACHE_HOME=str(cache / "xdg"))
    assert run == [STORED, STORED, STORED]
    assert [len(entries(cache / name / "rewarm")) for name in ("a", "b", "xdg")] == [1, 1, 1]


def test_thresholds(program: Program, cache: Path) -> None:
    body = """
rewarm.enable(cache); told.append(step())
jax.config.update("jax_persistent_cache_min_compile_time_secs", 50.0); told.append(step())
jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0); told.append(step())
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0); told.append(step())
for size in (-1, 0, 10, 10_000_000):
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", size); told.append(step())
rewarm.enable(cache, min_entry_bytes=0); told.append(step())
rewarm.enable(cache, min_compile_seconds=99, min_entry_bytes=0); told.append(step())
jax.config.update("jax_compilation_cache_max_size", 0); told.append(step())
"""
    quick, small = "compiled faster than min_compile_seconds", "smaller than min_entry_bytes"
    assert steps(program, cache, body) == [
        STORED,
        ["miss", False, quick],
        ["miss", False, quick],
        STORED,
        STORED,
        STORED,
        STORED,
        ["miss", False, small],
        STORED,
        ["miss", False, quick],
        ["miss", False, "max_size is 0"],
    ]


@pytest.mark.parametrize(
    ("variable", "value", "refused"),
    [
        ("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "1.0", "compiled faster than min_compile_seconds"),
        ("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "9999999", "smaller than min_entry_bytes"),
        ("REWARM_MIN_COMPILE_SECONDS", "60", "compiled faster than min_compile_seconds"),
        ("REWARM_MIN_ENTRY_BYTES", "9999999", "smaller than min_entry_bytes"),
        ("JAX_COMPILATION_CACHE_MAX_SIZE", "0", "max_size is 0"),
    ],
)
def test_thresholds_from_the_environment(
    program: Program, cache: Path, variable: str, value: str, refused: str
) -> None:
    told = steps(program, cache, "told.append(step())\n", REWARM_DIR=str(cache), **{variable: value})
    assert told == [["miss", False, refused]]
    assert entries(cache) == []


def test_enable_flag_from_the_environment(program: Program, cache: Path) -> None:
    told = steps(program, cache, "told.append(step())\n", REWARM_DIR=str(cache), JAX_ENABLE_COMPILATION_CACHE="false")
    assert told == [None]
    assert not cache.exists()


def test_context_managers_of_jax_count_for_their_thread(program: Program, cache: Path) -> None:
    body = """
from jax._src import config
rewarm.enable(cache)
with config.enable_compilation_cache(False):
    told.append(step())
told.append(step())
with config.persistent_cache_min_compile_time_secs(60.0):
    told.append(step())
"""
    assert steps(program, cache, body) == [
        None,
        STORED,
        ["miss", False, "compiled faster than min_compile_seconds"],
    ]


_KEYS = """
import sys, os, json, jax, numpy as np, rewarm
{before}
rewarm.enable(sys.argv[1])
{after}
print(rewarm.key_of(jax.jit(lambda x: x * 3), np.ones(3, np.float32)))
"""


def key(program: Program, cache: Path, before: str = "", after: str = "", pad: str = "", **env: str) -> str:
    """The key of one small program, built in a fresh process."""
    return program(pad + _KEYS.format(before=before, after=after), str(cache), **env).out.strip()


def test_hooks_and_salt_change_the_key(program: Program, cache: Path) -> None:
    hook = 'from jax._src import cache_key; cache_key.custom_hook = lambda: "mine"'
    prefix = 'from jax._src import cache_key; cache_key.add_flag_prefixes(["--mine"]); sys.argv.append("--mine=3")'
    keys = [
        key(program, cache),
        key(program, cache, before=hook),
        key(program, cache, before=prefix),
        key(program, cache, before='sys.argv.append("--xla_looks_like_a_flag")'),
        key(program, cache, REWARM_SALT="s"),
        key(program, cache, after='rewarm.enable(sys.argv[1], salt="s")'),
    ]
    assert keys[0] == keys[3]
    assert keys[4] == keys[5]
    assert len(set(keys)) == 4


def test_metadata_in_key(program: Program, cache: Path) -> None:
    option = "JAX_COMPILATION_CACHE_INCLUDE_METADATA_IN_KEY"
    plain = [key(program, cache, pad=pad) for pad in ("", "\n\n\n")]
    located = [key(program, cache, pad=pad, **{option: "true"}) for pad in ("", "\n\n\n")]
    assert plain[0] == plain[1]
    assert len({plain[0], *located}) == 3


_EVENTS = """
import sys, json, jax, numpy as np, collections
seen = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **kw: seen.update([event]))
jax.monitoring.register_event_duration_secs_listener(lambda event, secs, **kw: seen.update([event]))
jax.jit(lambda x: x * 3)(np.ones(3, np.float32))
jax.jit(lambda x: x * 4)(np.ones(3, np.float32))
print(json.dumps({e.removeprefix("/jax/compilation_cache/"): n for e, n in seen.items() if "compilation_cache" in e}))
"""


def test_monitoring_events_are_those_of_jax(program: Program, cache: Path, tmp_path: Path) -> None:
    native = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "native"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "REWARM_STATS": "0",
    }
    for _ in ("cold", "warm"):
        told = [program(_EVENTS, **env).json for env in (native, {"REWARM_DIR": str(cache)})]
        assert told[0] == told[1]
        assert told[1]["compile_requests_use_cache"] == 2
    assert told[1]["cache_hits"] == 2


_SHOUT = """
import jax, numpy as np, logging
logging.basicConfig(format="%(levelname)s %(name)s %(message)s")
jax.jit(lambda x: x * 3)(np.ones(3, np.float32))
"""


def test_explain_and_log_compiles_raise_the_level(program: Program, cache: Path) -> None:
    explained = program(_SHOUT, REWARM_DIR=str(cache), JAX_EXPLAIN_CACHE_MISSES="1").err
    assert "WARNING jax._src.compiler PERSISTENT COMPILATION CACHE MISS for 'jit__lambda' with key" in explained
    assert "WARNING jax._src.compilation_cache Writing jit__lambda to persistent compilation cache" in explained
    hit = program(_SHOUT, REWARM_DIR=str(cache), JAX_LOG_COMPILES="1").err
    assert "WARNING jax._src.compiler Persistent compilation cache hit for 'jit__lambda' with key" in hit
    assert "persistent" not in program(_SHOUT, REWARM_DIR=str(cache)).err.lower()
    assert "MISS" in program(_SHOUT, REWARM_DIR=str(cache), REWARM_EXPLAIN="1", REWARM_SALT="x").err
    refused = program(
        _SHOUT, REWARM_DIR=str(cache), REWARM_EXPLAIN="1", REWARM_SALT="y", REWARM_MIN_COMPILE_SECONDS="60"
    )
    assert "Not writing persistent cache entry for 'jit__lambda'" in refused.err


def test_debug_lines_for_those_who_turn_the_loggers_on(program: Program, cache: Path) -> None:
    run = program(_SHOUT, REWARM_DIR=str(cache), JAX_DEBUG_LOG_MODULES="jax._src.compiler")
    assert "PERSISTENT COMPILATION CACHE MISS for 'jit__lambda'" in run.err


_CHECKED = """
import sys, os, jax, numpy as np, rewarm
f = lambda x: jax.numpy.sin(x @ x) * 3
x = np.ones((8, 8), np.float32)
for _ in range(2):
    jax.clear_caches()
    jax.jit(f)(x)
print([event.outcome for event in rewarm.events() if "lambda" in event.program])
"""


def test_check_contents_compiles_each_stored_key_once(program: Program, cache: Path) -> None:
    outcomes = [
        program(_CHECKED, REWARM_DIR=str(cache), JAX_COMPILATION_CACHE_CHECK_CONTENTS="true").out for _ in range(3)
    ]
    assert outcomes == ["['miss', 'hit']\n"] * 3


def test_check_contents_raises_on_another_executable(program: Program, cache: Path) -> None:
    """One entry gets the executable of another program, sealed as it should be: only a recompile can tell."""
    source = """
import sys, jax, numpy as np, rewarm
from pathlib import Path
from rewarm.envelope import open_entry, seal
x = np.ones((8, 8), np.float32)
f, g = jax.jit(lambda x: jax.numpy.sin(x)), jax.jit(lambda x: jax.numpy.cos(x))
if sys.argv[2] == "make":
    f(x), g(x)
    files = {k: Path(sys.argv[1]) / k[:2] / k for k in (rewarm.key_of(f, x), rewarm.key_of(g, x))}
    mine, other = (open_entry(p.read_bytes(), k) for k, p in files.items())
    target = next(iter(files.values()))
    target.write_bytes(seal(mine.header, {"executable": other.section("executable")}))
else:
    try:
        f(x)
    except RuntimeError as error:
        print(type(error).__name__, str(error))
"""
    program(source, str(cache), "make", REWARM_DIR=str(cache))
    run = program(source, str(cache), "check", REWARM_DIR=str(cache), REWARM_CHECK_CONTENTS="1")
    assert run.out.split()[0] in ("CacheVerificationError", "ContentsDifferError")
    assert "differs from the one just compiled" in run.out
