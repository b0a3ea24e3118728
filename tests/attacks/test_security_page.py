"""Each row of the tables in docs/security.md names tests that are there, and each attack here stands in a row."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent.parent
PAGE = TESTS.parent / "docs" / "security.md"
_TEST = re.compile(r"`(test_\w+)`")


def rows() -> list[tuple[str, list[str]]]:
    """What is done, and the tests that are named, of each row of a table whose last column is "test"."""
    found = []
    columns: list[str] = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            columns = []
        elif not columns:
            columns = cells
        elif columns[-1] == "test" and not set(line) <= set("|-: "):
            assert len(cells) == len(columns), line
            found.append((cells[0], _TEST.findall(cells[-1])))
    return found


def functions(folder: Path) -> dict[str, list[str]]:
    """The tests below a folder, by name, and the files that have them."""
    found: dict[str, list[str]] = {}
    for path in folder.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.setdefault(node.name, []).append(path.name)
    return found


def test_each_row_names_tests_and_each_of_them_is_there() -> None:
    table = rows()
    assert len(table) > 40
    assert [what for what, named in table if not named] == []
    there = functions(TESTS)
    assert [name for _, named in table for name in named if name not in there] == []


def test_a_name_means_one_test() -> None:
    there = functions(TESTS)
    assert {name: there[name] for _, named in rows() for name in named if len(there.get(name, [])) > 1} == {}


def test_each_attack_stands_in_a_row() -> None:
    named = {name for _, names in rows() for name in names}
    attacks = functions(Path(__file__).parent)
    assert sorted(name for name, files in attacks.items() if name not in named and files != [Path(__file__).name]) == []
