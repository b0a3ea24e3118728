"""What a plan's module says to rewarm and to JAX's cache counts as in a run, or is said by name."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from conftest import clean_environment, execute

PLAN = """
import jax, numpy as np, rewarm
{says}
f = jax.jit(lambda x: x * 5 + 1)

def plan():
    {late}
    yield rewarm.Program(f, jax.ShapeDtypeStruct((4,), np.float32), name="f")

if __name__ == "__main__":
    f(np.ones(4, np.float32))
    import json
    print(json.dumps([[one.program, one.outcome] for one in rewarm.events()]))
"""


def filled(folder: Path, says: str, late: str = "pass") -> dict[str, Any]:
    (folder / "own.py").write_text(PLAN.format(says=says, late=late))
    words = [sys.executable, "-m", "rewarm", "prewarm", "own.py:plan", "--target", "host", "--json"]
    done = execute([*words, "--dir", str(folder / "cache")], env=clean_environment(), cwd=folder)
    [program] = json.loads(done.out)["programs"]
    assert program["outcome"] == "stored", done.err
    return dict(program)


def ran(folder: Path, *arguments: str, **env: str) -> Any:
    done = execute([sys.executable, "own.py", *arguments], env=clean_environment(**env), cwd=folder)
    assert done.code == 0, done.err[-2000:]
    return done.json


def test_what_is_part_of_keys_counts(tmp_path: Path) -> None:
    place = tmp_path / "cache"
    made = filled(tmp_path, f"rewarm.enable({str(place)!r}, salt='v2')")
    assert made["notes"] == []
    assert ran(tmp_path) == [["jit__lambda", "hit"]]


def test_another_directory_is_named(tmp_path: Path) -> None:
    made = filled(tmp_path, "rewarm.enable('elsewhere', namespace='theirs')")
    assert [note for note in made["notes"] if f"rewarm.enable(directory={tmp_path / 'elsewhere'})" in note]
    assert [note for note in made["notes"] if "rewarm.enable(namespace=theirs)" in note]
    assert not (tmp_path / "elsewhere").exists()


def test_what_the_module_says_to_jax_is_named(tmp_path: Path) -> None:
    hook = "from jax._src import cache_key; cache_key.add_flag_prefixes(['--model'])"
    says = f"jax.config.update('jax_compilation_cache_dir', 'theirs'); {hook}"
    notes = filled(tmp_path, says, late="rewarm.enable('late')")["notes"]
    for words in ("jax_compilation_cache_dir=theirs", "begin with --model are part of keys", "the plan calls"):
        assert [note for note in notes if words in note], (words, notes)
    assert not (tmp_path / "late").exists()
    place = {"REWARM_DIR": str(tmp_path / "cache")}
    assert ran(tmp_path, **place) == [["jit__lambda", "hit"]]
    assert ran(tmp_path, "--model=x", **place) == [["jit__lambda", "miss"]], "which is what the line says"
