"""What `--json` of each command prints, and the JSON Schemas in the package that describe it.

    python tests/cli/json_forms.py     runs the commands, and writes the schemas anew: look at the difference, since
                                       what goes from a schema goes from somebody's script

A field that was in each output of a command is required. What is a table by names (programs, targets, versions) is a
map, and what is another's value (a component's, an option's) may be anything.
"""

from __future__ import annotations

import json
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import json_forms_more as more

from conftest import clean_environment, execute

SCHEMAS = Path(__file__).resolve().parents[2] / "src" / "rewarm" / "cli" / "schemas"

_MAPS = {"by_target", "by_jax", "programs", "versions", "settings", "stats", "producer", "about", "refused", "failures"}
_MAPS |= {"default", "winner", "config", "against", "targets", "environment", "backends"}
_ANYTHING = {"value", "values", "tuning", "facts", "details", "configuration"}
_MAY_BE_NULL = {"words"}  # on one JAX, and on another never
_NAMED = {"gc-remote": "gc --remote", "ls-remote": "ls --remote", "explain-trace": "explain --trace"}

PROGRAM = """
    import sys, jax, numpy as np, rewarm
    scale = float(sys.argv[1])
    @jax.jit
    def step(x):
        return x @ x * scale
    print(step(np.ones((8, 8), np.float32)).sum())
    rewarm.jit(lambda x: x + 1)(np.ones(3, np.float32))
"""


def outputs(folder: Path) -> Iterator[tuple[str, Any]]:
    """Command after command, in a directory that is made for it: a name of its form, and what it printed."""
    env = clean_environment(REWARM_DIR=str(folder / "cache"), XDG_CONFIG_HOME=str(folder / "config"), HOME=str(folder))

    say = more.sayer(folder, env)
    (folder / "train.py").write_text(textwrap.dedent(PROGRAM))
    for scale in ("2", "3", "3"):
        done = execute([sys.executable, "train.py", scale], env=env, cwd=folder)
        assert done.code == 0, done.err
    listed = say("ls", "--json")
    yield "ls", listed
    keys = [one["key"] for one in listed if one["program"] == "jit_step"]
    yield "show", say("show", keys[0], "--json")
    yield "diff", say("diff", *keys[:2], "--json")
    runs = sorted(path.stem for path in (folder / "cache" / "runs").iterdir())
    killed = f"{runs[0][:-8]}00000000"  # a run that was killed, of a process whose folder is gone
    lines = (folder / "cache" / "runs" / f"{runs[0]}.jsonl").read_text().replace(runs[0], killed).splitlines()[:-1]
    header = {**json.loads(lines[0]), "directory": None}
    (folder / "cache" / "runs" / f"{killed}.jsonl").write_text("\n".join([json.dumps(header), *lines[1:]]) + "\n")
    runs.append(killed)
    for run in runs:
        yield "explain", say("explain", "--run", run, "--json")
    yield "stats", say("stats", "--json")
    yield "stats-all-time", say("stats", "--all-time", "--json")
    yield "du", say("du", "--json")
    yield "target-ls", say("target", "ls", "--json")
    yield "target-show", say("target", "show", "h100", "--json")
    yield "doctor", say("doctor", "--json", code=(0, 1))
    yield "keys-ls", say("keys", "ls", "--json")
    execute([sys.executable, "-m", "rewarm", "keys", "new"], env=env, cwd=folder)
    yield "keys-ls", say("keys", "ls", "--json")
    yield from more.traces(say)
    yield from more.sharing(folder, say)
    yield "gc", say("gc", "--max-entries", "1", "--dry-run", "--json")
    bad = next((folder / "cache" / keys[0][:2]).glob(keys[0]))
    whole = bad.read_bytes()
    bad.write_bytes(whole[:20])
    yield "ls", say("ls", "--json")
    yield "du", say("du", "--json")
    bad.write_bytes(whole[:-10])
    yield "verify", say("verify", "--json", code=(0, 1))
    yield "verify", say("verify", "--repair", "--json", code=(0, 1))
    (folder / "cache" / "quarantine" / "of-nobody").write_bytes(b"junk")
    aside = say("quarantine", "ls", "--json")
    yield "quarantine-ls", aside
    for one in aside["files"]:
        yield "quarantine-show", say("quarantine", "show", one["name"], "--json")
    yield "gc", say("gc", "--max-entries", "1", "--json")
    yield "clear", say("clear", "--json")


def schema_of(name: str, values: Iterable[Any]) -> dict[str, Any]:
    """The schema that fits some values."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"rewarm {_NAMED.get(name, name.replace('-', ' ', 1))} --json",
        **_of("", list(values)),
    }


_PLAIN = {str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}


def _of(name: str, values: list[Any]) -> dict[str, Any]:
    if name in _ANYTHING or not values:
        return {}
    kinds = []
    tables = [value for value in values if isinstance(value, dict)]
    lists = [value for value in values if isinstance(value, list)]
    if tables and name in _MAPS:
        kinds.append({"type": "object"})
    elif tables:
        kinds.append(_table(tables))
    if lists:
        kinds.append({"type": "array", "items": _of("", [inner for value in lists for inner in value])})
    plain = sorted({_PLAIN[type(value)] for value in values if not isinstance(value, dict | list)})
    if name in _MAY_BE_NULL:
        plain = sorted({*plain, "null"})
    if plain == ["null"] and not kinds:
        return {}  # of what kind it is where there is something was not seen
    if plain:
        kinds.append({"type": plain[0] if len(plain) == 1 else plain})
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


def _table(tables: list[dict[str, Any]]) -> dict[str, Any]:
    names = list(dict.fromkeys(name for table in tables for name in table))
    properties = {name: _of(name, [table[name] for table in tables if name in table]) for name in sorted(names)}
    required = sorted(name for name in names if all(name in table for table in tables))
    return {"type": "object", "properties": properties, "required": required}


def main() -> None:
    """Write them all."""
    found: dict[str, list[Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for place, some in (("quick", outputs), ("slow", more.slow_outputs)):
            (Path(folder) / place).mkdir()
            for name, value in some(Path(folder) / place):
                found.setdefault(name, []).append(value)
    SCHEMAS.mkdir(exist_ok=True)
    for name, values in found.items():
        (SCHEMAS / f"{name}.json").write_text(json.dumps(schema_of(name, values), indent=2) + "\n")
        print(name)


if __name__ == "__main__":
    main()
