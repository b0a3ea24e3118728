"""`--json` keeps its form: what the commands print fits the schemas in the package, and these name all of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import json_forms
import jsonschema
import pytest


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What the commands printed, by the name of the form."""
    found: dict[str, list[Any]] = {}
    for name, value in json_forms.outputs(tmp_path_factory.mktemp("world")):
        found.setdefault(name, []).append(value)
    return found


def test_every_schema_has_an_output_and_the_other_way_round(printed: dict[str, list[Any]]) -> None:
    assert {path.stem for path in json_forms.SCHEMAS.glob("*.json")} == set(printed)


@pytest.mark.parametrize("path", sorted(json_forms.SCHEMAS.glob("*.json")), ids=lambda path: path.stem)
def test_what_is_printed_fits(printed: dict[str, list[Any]], path: Path) -> None:
    schema = json.loads(path.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    for value in printed[path.stem]:
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
