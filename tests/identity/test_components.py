"""The component table: one key for one table, another for any other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rewarm.identity import KEY_SCHEMA, Component, KeyComponents, component
from rewarm.identity.components import TABLE, derive_key

VALUES: Mapping[str, Any] = {
    "program": b"ML\xefR bytecode",
    "callbacks": "none",
    "options": b"\x01\x02\x03",
    "inputs": [["xla_gpu_load_autotune_results_from", "", "00" * 32]],
    "toolchain": {"jaxlib/libjax_common.so": "11" * 32},
    "target": {"platform": "cpu", "shape": [1, 1], "triple": "x86_64-unknown-linux-gnu", "features": "avx,avx2"},
    "salt": {"salt": "", "custom_hook": "", "flags": []},
}
# Of the table above under schema 2. A change of this value strands every entry that users have: bump KEY_SCHEMA.
GOLDEN_KEY = "3b69ec7618e6d73e7e1c03a4f473c0332bdee553097a8c78ecb4c542eb2420a8"


def table(**changes: Any) -> KeyComponents:
    return KeyComponents.of({name: component(name, value) for name, value in {**VALUES, **changes}.items()})


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_the_golden_key() -> None:
    assert KEY_SCHEMA == 2
    assert table().key() == GOLDEN_KEY


def test_the_key_as_its_description_has_it() -> None:
    """Computed without rewarm."""
    total = b""
    for name in ("format", "program", "callbacks", "options", "inputs", "toolchain", "target", "salt"):
        value = {"format": 2, **VALUES}[name]
        plain = value if isinstance(value, bytes) else json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
        total += len(name).to_bytes(4, "little") + name.encode() + hashlib.sha256(plain).digest()
    assert table().key() == sha256(total)


def test_a_header_keeps_what_proves_its_key() -> None:
    """The rows as a header stores them, through JSON and back."""
    filled = table()
    rows = json.loads(json.dumps([row.as_dict() for row in filled.rows]))
    assert derive_key((row["name"], row["digest"]) for row in rows) == filled.key()
    assert [row["name"] for row in rows] == list(TABLE)
    for row in rows:
        if "value" in row:
            assert component(row["name"], row["value"]).digest == row["digest"]


@pytest.mark.parametrize("name", [name for name in TABLE if name != "format"])
def test_every_component_counts(name: str) -> None:
    other = b"other" if isinstance(VALUES[name], bytes) else "other"
    assert table(**{name: other}).key() != table().key()


@pytest.mark.parametrize("name", [name for name in TABLE if name != "format"])
def test_a_missing_component_is_a_key_error(name: str) -> None:
    rows = {known: component(known, value) for known, value in VALUES.items() if known != name}
    with pytest.raises(KeyError, match=name):
        KeyComponents.of(rows)


def test_the_schema_is_first_and_nobody_elses_to_say() -> None:
    said = {**{name: component(name, value) for name, value in VALUES.items()}, "format": component("format", 99)}
    assert KeyComponents.of(said).rows[0] == component("format", KEY_SCHEMA)


def test_the_order_of_the_mapping_does_not_count() -> None:
    rows = {name: component(name, value) for name, value in reversed(list(VALUES.items()))}
    assert KeyComponents.of(rows).key() == GOLDEN_KEY


# ---------------------------------------------------------------------------------------------------------------
# Framing

digests = st.binary(min_size=32, max_size=32).map(bytes.hex)
rows = st.lists(st.tuples(st.text(max_size=10), digests), max_size=5)


@given(rows, rows)
@settings(deadline=None)
def test_different_rows_have_different_keys(one: list[tuple[str, str]], other: list[tuple[str, str]]) -> None:
    assume(one != other)
    assert derive_key(one) != derive_key(other)


def test_a_name_cannot_pass_for_a_row() -> None:
    """Without the length before each name both tables would be the same bytes."""
    inner = "D" * 32
    one_row = [(f"x{inner}y", "00" * 32)]
    two_rows = [("x", inner.encode().hex()), ("y", "00" * 32)]
    assert derive_key(one_row) != derive_key(two_rows)
    framed = [(f"x{inner}\x01\0\0\0y", "00" * 32)]
    assert derive_key(framed) != derive_key(two_rows)


def test_a_digest_cannot_pass_for_a_row() -> None:
    """Rows come from headers, too: what is no SHA-256 must not be taken for one."""
    swallowed = "11" * 32 + (1).to_bytes(4, "little").hex() + b"y".hex() + "22" * 32
    with pytest.raises(ValueError, match="digest"):
        derive_key([("x", swallowed)])  # the same bytes as the rows x and y have


@given(rows)
@settings(deadline=None)
def test_the_order_of_rows_counts(some: list[tuple[str, str]]) -> None:
    assume(some != some[::-1])
    assert derive_key(some) != derive_key(some[::-1])


# ---------------------------------------------------------------------------------------------------------------
# One component


def test_bytes_count_by_digest_alone() -> None:
    row = component("program", b"bytes")
    assert row == Component("program", sha256(b"bytes"))
    assert row.as_dict() == {"name": "program", "digest": sha256(b"bytes")}


def test_a_json_value_counts_by_its_canonical_text() -> None:
    row = component("salt", {"b": [1, "ü"], "a": None})
    assert row.digest == sha256(b'{"a":null,"b":[1,"\\u00fc"]}')
    assert row.as_dict() == {"name": "salt", "digest": row.digest, "value": {"b": [1, "ü"], "a": None}}


@pytest.mark.parametrize(
    ("one", "other"), [(1, "1"), (1, True), (0, False), ("", "none"), ([], {}), ([1, 2], [2, 1]), ("a", ["a"])]
)
def test_values_of_other_types_count(one: Any, other: Any) -> None:
    assert component("salt", one).digest != component("salt", other).digest


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object()])
def test_what_json_cannot_say_is_refused(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        component("salt", value)
