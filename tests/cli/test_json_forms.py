"""`--json` keeps its form: what the commands print fits the schemas in the package, and these name all of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import json_forms
import jsonschema
import pytest

import cuda_compilers

SLOW = json_forms.more.SLOW
NAMES = sorted(path.stem for path in json_forms.SCHEMAS.glob("*.json"))


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What the commands printed, by the name of the form."""
    return _together(json_forms.outputs(tmp_path_factory.mktemp("world")))


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """The same of commands that take longer."""
    return _together(json_forms.more.slow_outputs(tmp_path_factory.mktemp("world")))


def _together(pairs: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("which", ["quick", pytest.param("slow", marks=pytest.mark.campaign)])
def test_every_schema_has_an_output_and_the_other_way_round(which: str, request: pytest.FixtureRequest) -> None:
    without = set() if cuda_compilers.find() is not None else json_forms.more.OF_COMPILER
    named = {name for name in NAMES if name.startswith(SLOW) == (which == "slow")}
    assert named - without == set(request.getfixturevalue(which))


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(SLOW)])
def test_what_is_printed_fits(quick: dict[str, list[Any]], name: str) -> None:
    fits(quick[name], name)


@pytest.mark.campaign
@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(SLOW)])
def test_what_slow_commands_print_fits(slow: dict[str, list[Any]], name: str) -> None:
    if name in json_forms.more.OF_COMPILER:
        cuda_compilers.wanted()
    fits(slow[name], name)


def fits(values: list[Any], name: str) -> None:
    """Hold outputs against a schema, which is to name all of them."""
    schema = json.loads((json_forms.SCHEMAS / f"{name}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    for value in values:
        jsonschema.validate(value, schema)
        assert list(unnamed(value, schema)) == [], "new fields: run tests/cli/json_forms.py"


def unnamed(value: Any, schema: dict[str, Any], where: str = "") -> Any:
    """The fields of a value that its schema does not name."""
    for one in schema.get("anyOf", []):
        if isinstance(value, dict) == (one.get("type") == "object") and isinstance(value, list) == ("items" in one):
            yield from unnamed(value, one, where)
    if isinstance(value, list):
        for inner in value:
            yield from unnamed(inner, schema.get("items", {}), f"{where}[]")
    elif isinstance(value, dict) and "properties" in schema:
        for name, inner in value.items():
            if name not in schema["properties"]:
                yield f"{where}.{name}"
            else:
                yield from unnamed(inner, schema["properties"][name], f"{where}.{name}")
