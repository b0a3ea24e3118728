"""The package as a whole: what importing it costs, and that its rooms keep to their floors."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rewarm
from conftest import clean_environment

ROOT = Path(rewarm.__file__).parent

# Room to floor, as docs/architecture.md has it; a room imports only from floors below, or from itself.
FLOORS = {
    "errors": 0,
    "host": 0,
    "telling": 0,
    "hammering": 0,
    "small_files": 0,
    "locks": 0.1,
    "own_file": 0,
    "at_end": 0,
    "digest_set": 0.1,
    "lock_sections": 0.1,
    "setting_values": 0,
    "settings": 0.5,
    "in_force": 0.2,
    "policy": 1,
    "fingerprint": 1,
    "guards": 1.2,
    "envelope": 1,
    "trust": 1.5,
    "remote": 1.6,
    "store": 2,
    "coordination": 2,
    "identity": 2,
    "ledger": 2,
    "trials": 2,
    "restart": 2.7,
    "sharing": 2.5,
    "cache": 3,
    "explain": 4,
    "autotune": 4,
    "tunables": 4,
    "report": 4.5,
    "metrics": 4,
    "jax_adapter": 5,
    "doctor": 5.6,
    "pytest_plugin": 6,
    "notebook": 6,
    "targets": 1,
    "prewarm": 5.5,
    "cli": 6,
    "__main__": 7,
}


def test_importing_costs_next_to_nothing() -> None:
    look = (
        "import sys, time; b = time.perf_counter(); import rewarm; t = time.perf_counter() - b;"
        "assert not {'jax', 'click', 'rich', 'jaxlib', 'numpy'} & set(sys.modules); print(t)"
    )
    took = [
        float(subprocess.check_output([sys.executable, "-c", look], env=clean_environment(), text=True))
        for _ in range(5)
    ]
    assert min(took) < 0.020


def test_public_names_are_there() -> None:
    for name in rewarm.__all__:
        assert getattr(rewarm, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        rewarm.nothing  # noqa: B018
    assert rewarm.__version__ == importlib.metadata.version("rewarm")
    assert (ROOT / "py.typed").exists()


def sources() -> Iterator[tuple[Path, str]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield path.relative_to(ROOT), path.read_text()


def _imported(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_rooms_import_only_from_floors_below() -> None:
    wrong = []
    for path, text in sources():
        room = path.parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        for name in _imported(text):
            parts = name.split(".")
            if parts[0] != "rewarm" or len(parts) < 2 or parts[1] not in FLOORS:
                continue
            if parts[1] != room and FLOORS[parts[1]] >= FLOORS[room]:
                wrong.append(f"{path} imports {name}")
    assert wrong == []


def test_the_house_plan_names_every_room_once_on_its_floor() -> None:
    plan = Path(__file__).resolve().parents[1] / "docs" / "architecture.md"
    text = plan.read_text().split("## Rooms and floors")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([\d.]+) \| (.+?) \| ", text, re.MULTILINE)
    named = [(name, float(floor)) for floor, cell in rows for name in re.findall(r"`(\w+)(?:/|\.py)`", cell)]
    assert len(named) == len({name for name, _ in named})
    # Floor 0 has storeys of its own, which the plan does not tell apart.
    planned = {name: floor for name, floor in named if floor >= 1}
    assert planned == {name: floor for name, floor in FLOORS.items() if floor >= 1 and name != "__main__"}
    assert {name for name, floor in named if not floor} == {name for name, floor in FLOORS.items() if floor < 1}


def test_every_module_of_the_adapter_is_in_the_house_plan() -> None:
    plan = (Path(__file__).resolve().parents[1] / "docs" / "architecture.md").read_text()
    modules = {path.name for path in (ROOT / "jax_adapter").glob("*.py")} - {"__init__.py"}
    assert {name for name in modules if f"`{name}`" not in plan} == set()


def test_only_the_seam_touches_jax_private_modules() -> None:
    assert {str(path.parent) for path, text in sources() if "jax._src" in text} == {"jax_adapter/seam"}


def test_only_settings_read_the_environment() -> None:
    readers = [str(path) for path, text in sources() if "os.environ" in text or "os.getenv" in text]
    assert readers == ["settings.py"]


def test_below_the_adapter_nothing_imports_jax() -> None:
    allowed = {(f"identity/program/{name}.py", "jaxlib") for name in ("arguments", "canonical", "listing", "payloads")}
    found = {
        (str(path), name.split(".")[0])
        for path, text in sources()
        if path.parts[0] not in ("jax_adapter", "doctor", "cli")
        for name in _imported(text)
        if name.split(".")[0] in ("jax", "jaxlib")
    }
    assert found == allowed


def test_every_module_says_what_it_does_not_promise_or_is_small() -> None:
    silent = [str(path) for path, text in sources() if text.strip() and not ast.get_docstring(ast.parse(text))]
    assert silent == []
