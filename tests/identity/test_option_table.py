"""The option table against itself, and against the messages that the installed jaxlib describes."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from wire_encoder import field

from rewarm.identity import option_rows
from rewarm.identity.option_table import CLASSES, MARKS, MESSAGES, enums, flags, message

TYPES = {"bool", "int32", "int64", "float", "double", "string", "bytes", "enum", "message"}
ROWS = [(name, row) for name in MESSAGES for row in message(name).values()]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """`tools/option_fields.py`."""
    path = Path(__file__).parents[2] / "tools" / "option_fields.py"
    spec = importlib.util.spec_from_file_location("option_fields", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["option_fields"] = module
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------------------------------------------------------
# The table itself


def test_each_row_is_whole() -> None:
    for name, row in ROWS:
        assert row.group in CLASSES, (name, row)
        assert row.mark in MARKS, (name, row)
        assert row.type in TYPES, (name, row)
        assert row.many in ("", "repeated", "map"), (name, row)
        assert len(row.reason) > 7, (name, row)
        assert 0 < row.number < 2**29, (name, row)
        assert (row.of != "") == (row.type in ("enum", "message")), (name, row)
        assert row.type != "enum" or row.of in enums(), (name, row)


def test_no_number_or_name_is_there_twice() -> None:
    texts = (option_rows.COMPILE_OPTIONS, option_rows.EXECUTABLE_BUILD_OPTIONS, option_rows.DEBUG_OPTIONS)
    for text in texts:
        rows = [line.split() for line in text.strip().splitlines() if not line.startswith("#")]
        assert len({row[0] for row in rows}) == len(rows)
        assert len({row[2] for row in rows}) == len(rows)
    # Names of flags stand alone in the readable form, beside those of the outer message.
    assert all(name.startswith("xla_") for name in flags())
    assert not any(row.name.startswith("xla_") for row in message("CompileOptionsProto").values())


def test_names_of_enum_values_are_one_per_number() -> None:
    """A value is shown by name, so two numbers must not share one."""
    for name, members in enums().items():
        said = [value for names in members.values() for value in names]
        assert len(set(said)) == len(said), name
        assert 0 in members, name


def test_classes_fit_what_they_are_for() -> None:
    for name, row in ROWS:
        if row.group in ("file", "named_file", "toolkit"):
            assert name == "DebugOptions"
            assert row.type == "string"
        if row.mark in ("inline", "once"):
            assert row.group == "file"
    assert [row.name for _, row in ROWS if row.group == "toolkit"] == ["xla_gpu_cuda_data_dir"]


def test_whatever_names_an_output_in_its_name_is_an_output() -> None:
    """A new dump option must not slip into the table as one without effect, since a hit would not write it."""
    for name, row in flags().items():
        if "_dump_" in name and name.endswith("_to"):
            assert row.group == "output", name


def test_options_that_name_a_place_are_files_or_have_no_effect() -> None:
    for name, row in flags().items():
        if row.type == "string" and re.search(r"(_file|_filename|_path|_dir|_to|_results_from)$", name):
            assert row.group in ("file", "named_file", "toolkit", "output", "no_effect"), name


def test_what_jax_sets_by_process_or_place_does_not_count() -> None:
    for name in (
        "xla_gpu_kernel_cache_file",
        "xla_gpu_per_fusion_autotune_cache_dir",
        "xla_gpu_experimental_autotune_cache_mode",
        "xla_detailed_logging",
        "xla_force_host_platform_device_count",
    ):
        assert flags()[name].group == "no_effect"
    build = {row.name: row.group for row in message("ExecutableBuildOptionsProto").values()}
    assert (build["device_ordinal"], build["device_assignment"], build["process_index"]) == (
        "target",
        "target",
        "process",
    )


# ---------------------------------------------------------------------------------------------------------------
# The table and the jaxlib that is installed


@pytest.mark.contract
def test_every_field_of_the_installed_jaxlib_is_classified(tool: ModuleType) -> None:
    """A field that is not in the table counts with its raw bytes: safe, but it may cost hits, so it is classified."""
    pytest.importorskip("jaxlib")
    found = tool.descriptors(tool.library())
    assert len(found.messages["xla.DebugOptions"]) > 250
    assert len(found.messages["xla.ExecutableBuildOptionsProto"]) > 20
    assert len(found.messages["xla.CompileOptionsProto"]) > 10
    assert found.enums["xla.ExecutionOptions.EffortLevel"][29] == ["EFFORT_O2"]
    lines = list(tool.complaints(found))
    assert not lines, "src/rewarm/identity/option_rows.py, see tools/option_fields.py:\n" + "\n".join(lines)


def described(tool: ModuleType, **changes: Any) -> Any:
    """Descriptors of messages that the table knows, but for the first flag."""
    messages = {
        f"xla.{name}": [tool.Field(row.number, row.name, tool.spelled(row), "") for row in message(name).values()]
        for name in MESSAGES
    }
    first = messages["xla.DebugOptions"][0]
    messages["xla.DebugOptions"][0] = first._replace(**changes)
    return tool.Descriptors(messages, {})


def test_the_complaint_says_which_row_to_add(tool: ModuleType) -> None:
    assert list(tool.complaints(described(tool))) == []
    row = next(iter(message("DebugOptions").values()))
    cases = {
        "add and classify the row: 99999 bool xla_new": {"number": 99999, "name": "xla_new", "type": "bool"},
        f"the table has bool {row.name} for the row: {row.number} bool xla_new_name": {"name": "xla_new_name"},
        f"the table has bool {row.name} for the row: {row.number} int32 {row.name}": {"type": "int32"},
    }
    for said, changes in cases.items():
        assert list(tool.complaints(described(tool, **changes))) == [f"DebugOptions: {said}"]


def test_a_new_enum_value_is_noticed(tool: ModuleType) -> None:
    found = described(tool, of="xla.Precision")
    members = {number: list(names) for number, names in enums()["Precision"].items()}
    found.enums["xla.Precision"] = members
    assert list(tool.complaints(found)) == []
    members[0] = ["NEW_NAME"]
    members[9] = ["NEW"]
    assert list(tool.complaints(found)) == ["enum Precision: add 0=NEW_NAME", "enum Precision: add 9=NEW"]


def test_descriptors_are_found_wherever_they_lie_in_a_library(tool: ModuleType, tmp_path: Path) -> None:
    def member(name: str, number: int, kind: int, label: int = 1, of: str = "") -> bytes:
        rest = field(6, of) if of else b""
        return field(2, field(1, name) + field(3, number) + field(4, label) + field(5, kind) + rest)

    entry = field(3, field(1, "MapEntry") + member("key", 1, 9) + member("value", 2, 9))
    enum = field(4, field(1, "Mode") + field(2, field(1, "OFF") + field(2, 0)) + field(2, field(1, "ON") + field(2, 1)))
    fields = member("xla_a", 7, 8) + member("xla_mode", 8, 14, of=".xla.Options.Mode") + member("xla_list", 9, 5, 3)
    fields += member("xla_map", 10, 11, 3, ".xla.Options.MapEntry")
    file = field(1, "xla/some.proto") + field(2, "xla") + field(4, field(1, "Options") + entry + enum + fields)
    for end in (field(12, "proto3"), b"\0\0\0", b""):
        library = tmp_path / "library.so"
        library.write_bytes(b"\x7fELF" + bytes(1000) + b"\nxla/no.proto\x12" + file + end + bytes(range(256)))
        found = tool.descriptors(library)
        assert [(one.number, one.name, one.type) for one in found.messages["xla.Options"]] == [
            (7, "xla_a", "bool"),
            (8, "xla_mode", "enum:Mode"),
            (9, "xla_list", "repeated:int32"),
            (10, "xla_map", "map:string"),
        ]
        assert found.enums["xla.Options.Mode"] == {0: ["OFF"], 1: ["ON"]}
