"""How entries differ, also ones that keep less or are damaged, and events that are completed by entries."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from records import evidence, lowered

from rewarm.cache import COMPONENTS, EXECUTABLE, PROGRAM, SOURCE
from rewarm.envelope import Entry, Header, open_entry, seal
from rewarm.errors import BadEntryError, StoreError
from rewarm.explain import compare_entries
from rewarm.explain.afterwards import completed, entry, explanation_of, misses
from rewarm.explain.difference import listing_of, values_of
from rewarm.explain.text import lines
from rewarm.identity import KeyComponents, component
from rewarm.ledger.explanation import Change, Explanation, Finding
from rewarm.store import LocalStore

np = pytest.importorskip("numpy")
jax = pytest.importorskip("jax")
jnp = jax.numpy
pytestmark = pytest.mark.contract

ONE = np.ones((4, 4), np.float32)
LARGE = {f"xla_option_{number}": "x" * 100 for number in range(50)}


def sealed(function: Callable[[Any], Any], argument: Any = ONE, drop: tuple[str, ...] = (), **values: Any) -> bytes:
    """An entry as the cache makes it, without the sections `drop`; `values` are those of its components."""
    said = evidence(lowered(function, argument))
    rows: dict[str, Any] = {
        "program": said.canonical,
        "callbacks": "none",
        "options": {"xla_cpu_max_isa": "AVX2"},
        "inputs": [],
        "toolchain": {"jaxlib/x.so": "a" * 64},
        "target": {"platform": "cpu", "shape": [1, 1], "threads": 2},
        "salt": {"salt": ""},
    }
    producer = {"jax": "0.10.2", "jaxlib": values.pop("jaxlib", "0.10.2")}
    components = KeyComponents.of({row: component(row, value) for row, value in {**rows, **values}.items()})
    header = Header(
        kind="executable",
        key=components.key(),
        components=tuple(row.as_dict() for row in components.rows),
        program="jit_step",
        compile_seconds=1.0,
        created=1.0,
        producer=producer,
        target="cpu x1",
    )
    sections = {
        EXECUTABLE: b"code",
        PROGRAM: said.canonical,
        SOURCE: said.source(),
        COMPONENTS: json.dumps(components.large_values()).encode(),
    }
    return seal(header, {name: raw for name, raw in sections.items() if name not in drop})


def opened(data: bytes) -> Entry:
    """An entry with all checks of the envelope, whatever its key."""
    length = int.from_bytes(data[5:9], "little")
    return open_entry(data, json.loads(data[9 : 9 + length])["key"])


def scaled(number: float) -> Callable[[Any], Any]:
    return lambda x: jnp.sin(x) * number


def kinds(said: Explanation) -> list[str]:
    return [finding.kind for finding in said.findings]


# ---------------------------------------------------------------------------------------------------------------
# Two entries


def test_two_programs() -> None:
    before = opened(sealed(scaled(2.0)))
    said = compare_entries(before, opened(sealed(scaled(3.0))))
    assert (said.nearest, said.differs, kinds(said)) == (before.header.key, ("program",), ["constants"])
    (change,) = said.changes
    assert "2.000000e+00" in change.before
    assert "3.000000e+00" in change.after
    assert said.summary.startswith("the two entries: program differs")


def test_one_entry_twice() -> None:
    one = opened(sealed(scaled(2.0)))
    assert compare_entries(one, one) == Explanation("the same key", one.header.key)


def test_several_components_in_the_order_of_the_table() -> None:
    before = opened(sealed(scaled(2.0)))
    after = opened(sealed(scaled(3.0), salt={"salt": "x"}, options={"xla_cpu_max_isa": "AVX512"}))
    said = compare_entries(before, after)
    assert said.differs == ("program", "options", "salt")
    assert [change.component for change in said.changes] == ["program", "options", "salt"]


def test_large_values_are_read_from_their_section() -> None:
    before = opened(sealed(scaled(2.0), options=LARGE))
    after = opened(sealed(scaled(2.0), options={**LARGE, "xla_option_7": "other"}))
    assert values_of(before)["options"] == LARGE
    said = compare_entries(before, after)
    assert said.changes == (Change("options", "xla_option_7", "x" * 57 + "...", "other"),)


def test_another_jaxlib_is_said_first_and_once() -> None:
    before = opened(sealed(scaled(2.0)))
    after = opened(sealed(scaled(2.0), toolchain={"jaxlib/x.so": "b" * 64}, options={"new": 1}, jaxlib="0.11.2"))
    said = compare_entries(before, after)
    assert said.differs == ("options", "toolchain")
    assert Change("toolchain", "jaxlib", "0.10.2", "0.11.2") in said.changes
    assert "jaxlib 0.10.2 → 0.11.2" in said.summary
    assert "options" in said.summary


# ---------------------------------------------------------------------------------------------------------------
# Entries that keep less, or are damaged


def test_entries_without_source_are_compared_by_the_canonical_program() -> None:
    said = compare_entries(
        opened(sealed(scaled(2.0), drop=(SOURCE,))), opened(sealed(scaled(3.0), drop=(SOURCE, COMPONENTS)))
    )
    assert kinds(said) == ["constants"]
    assert said.changes[0].item == ""


def test_one_with_source_and_one_without() -> None:
    said = compare_entries(opened(sealed(scaled(2.0), drop=(SOURCE,))), opened(sealed(scaled(3.0))))
    assert len(said.changes) == 1
    assert said.changes[0].item.startswith(__file__)


@pytest.mark.parametrize("which", [0, 1])
def test_entries_without_programs_are_compared_by_components(which: int) -> None:
    drop: list[tuple[str, ...]] = [(), ()]
    drop[which] = (PROGRAM, SOURCE, COMPONENTS)
    said = compare_entries(
        opened(sealed(scaled(2.0), drop=drop[0])), opened(sealed(scaled(3.0), drop=drop[1], salt={"salt": "x"}))
    )
    assert said.differs == ("program", "salt")
    assert said.changes == (Change("salt", "salt", "", "x"),)
    assert kinds(said) == ["unfinished"]
    assert "is not kept, or unreadable" in said.summary


def with_sections(data: bytes, sections: Mapping[str, bytes]) -> Entry:
    """An entry whose digest holds, with other bytes in its sections."""
    old = opened(data)
    kept = {section.name: old.section(section.name) for section in old.header.sections}
    return opened(seal(old.header, {**kept, **sections}))


@pytest.mark.parametrize("junk", [b"junk", b"ML\xefR\x00", bytes(range(256)) * 10])
def test_programs_that_are_none_leave_the_components(junk: bytes) -> None:
    hurt = with_sections(sealed(scaled(2.0)), {PROGRAM: junk, SOURCE: junk, COMPONENTS: junk})
    said = compare_entries(hurt, opened(sealed(scaled(3.0), salt={"salt": "x"})))
    assert said.differs == ("program", "salt")
    assert kinds(said) == ["unfinished"]


def test_a_source_that_is_none_leaves_the_program() -> None:
    hurt = with_sections(sealed(scaled(2.0)), {SOURCE: b"junk"})
    assert kinds(compare_entries(hurt, opened(sealed(scaled(3.0))))) == ["constants"]


@pytest.mark.parametrize("values", [b"[]", b"7", b'{"options": 3}', b'"text"', b"[" * 100_000])
def test_values_of_another_form_are_no_error(values: bytes) -> None:
    hurt = with_sections(sealed(scaled(2.0), options=LARGE), {COMPONENTS: values})
    said = compare_entries(hurt, opened(sealed(scaled(2.0), options={**LARGE, "xla_option_7": "other"})))
    assert said.differs == ("options",)
    assert said.changes


def test_a_section_that_does_not_unpack_is_one_that_is_not_there() -> None:
    """The digest of the file holds; only its writer was wrong."""
    whole = opened(sealed(scaled(2.0)))
    longer = tuple(section._replace(raw_length=section.raw_length + 1) for section in whole.header.sections)
    hurt = Entry(whole.header._replace(sections=longer), whole.payload)
    with pytest.raises(BadEntryError):
        hurt.section(PROGRAM)
    assert listing_of(hurt) is None
    assert kinds(compare_entries(hurt, opened(sealed(scaled(3.0))))) == ["unfinished"]


def test_a_header_of_another_table_is_compared_as_far_as_it_goes() -> None:
    whole = opened(sealed(scaled(2.0)))
    rows = tuple(row for row in whole.header.components if row["name"] != "callbacks")
    other = Entry(whole.header._replace(components=({"name": "tiles", "digest": "d" * 64}, *rows)), whole.payload)
    assert compare_entries(other, whole).differs == ("callbacks",)
    assert "tiles" in compare_entries(whole, other).differs
    assert compare_entries(Entry(whole.header._replace(components=({}, *rows)), whole.payload), whole).differs


def test_a_program_above_a_limit_is_not_listed() -> None:
    one = opened(sealed(scaled(2.0)))
    assert listing_of(one, limit=10) is None
    assert listing_of(one, limit=1 << 20) == listing_of(one)


def test_addresses_of_callbacks_are_no_changes() -> None:
    """The source of a program has the address of its `custom_partitioning` Python, which is another in each run."""

    def source(address: int, number: float) -> bytes:
        text = f"""
        module @jit_step {{
          func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
            %0 = stablehlo.custom_call @CustomSPMDPartitioning(%a) {{backend_config = "{address}"}}
              : (tensor<4xf32>) -> tensor<4xf32>
            %1 = stablehlo.constant dense<{number}> : tensor<4xf32>
            %2 = stablehlo.add %0, %1 : tensor<4xf32>
            return %2 : tensor<4xf32>
          }}
        }}"""
        from jaxlib.mlir import ir

        from rewarm.identity.program import listing, with_locations

        with ir.Context() as context, ir.Location.unknown(context):
            listing._register(context)
            return with_locations(ir.Module.parse(text))

    entries = [
        with_sections(sealed(scaled(number)), {SOURCE: source(address, number)})
        for address, number in ((94000000000001, 2.0), (94000000000002, 3.0))
    ]
    said = compare_entries(*entries)
    assert kinds(said) == ["constants"]
    assert len(said.changes) == 1


# ---------------------------------------------------------------------------------------------------------------
# Events of runs


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "cache")


def put(store: LocalStore, data: bytes) -> str:
    key = opened(data).header.key
    store.put(key, data)
    return key


def event(said: Explanation | None, key: str | None = None) -> dict[str, Any]:
    """As it comes back from a run."""
    plain = {"outcome": "miss", "key": key, "explanation": said and dataclasses.asdict(said)}
    back = json.loads(json.dumps(plain))
    assert isinstance(back, dict)
    return back


def test_an_explanation_comes_back() -> None:
    said = Explanation("s", "a" * 64, ("program",), (Change("program", "", "a", "b"),), (Finding("new", "t"),))
    assert explanation_of(event(said)) == said
    assert explanation_of(event(Explanation("s"))) == Explanation("s")


@pytest.mark.parametrize(
    "said",
    [
        *(None, 7, "text", [], {}, {"summary": "s"}),
        {"summary": "s", "nearest": None, "differs": 3, "changes": [], "findings": []},
        {"summary": "s", "nearest": None, "differs": [], "changes": [{}], "findings": []},
        {"summary": "s", "nearest": None, "differs": [], "changes": [3], "findings": []},
        {"summary": "s", "nearest": None, "differs": [], "changes": [], "findings": [{"kind": "k", "later": 1}]},
    ],
)
def test_what_is_no_explanation_is_none(store: LocalStore, said: Any) -> None:
    assert explanation_of({"explanation": said}) is None
    assert completed({"explanation": said, "key": 3}, store) is None


@pytest.mark.parametrize("nearest", [3, "x", "../../etc/passwd", "a" * 64, "A" * 64, "", ["a"]])
def test_a_nearest_that_is_no_key_leaves_what_was_said(store: LocalStore, nearest: Any) -> None:
    hurt = event(Explanation("s", differs=("program",)), "b" * 64)
    hurt["explanation"]["nearest"] = nearest
    found = completed(hurt, store)
    assert found is not None
    assert found.summary == "s"


def test_a_large_program_is_completed_from_the_entries(store: LocalStore) -> None:
    keys = [put(store, sealed(scaled(number))) for number in (2.0, 3.0)]
    salt = Change("salt", "salt", "", "x")
    varying = Finding("varying constant", "it had other constants in each of the 3 times")
    said = Explanation("s", keys[0], ("program", "salt"), (salt,), (Finding("constants", "c"), varying))
    found = completed(event(said, keys[1]), store)
    assert found is not None
    assert (found.nearest, found.differs) == (keys[0], ("program", "salt"))
    assert found.summary.startswith("s, but: program differs (stablehlo.constant dense<2.0"), (
        "said anew, from the lines"
    )
    assert found.changes[0] == salt
    assert "3.000000e+00" in found.changes[1].after
    assert kinds(found) == ["constants", "varying constant"]


def test_lines_that_say_more_take_the_place_of_what_a_shape_said(store: LocalStore) -> None:
    keys = [put(store, sealed(lambda x: jnp.sin(x) + 1)), put(store, sealed(lambda x: jnp.cos(x) + 1))]
    guessed = (Finding("constants", "the same operations with other constants"), Finding("varying constant", "v"))
    found = completed(event(Explanation("s", keys[0], ("program",), (), guessed), keys[1]), store)
    assert found is not None
    assert kinds(found) == ["operations"]


def test_what_was_known_of_other_runs_stays(store: LocalStore) -> None:
    keys = [put(store, sealed(jnp.sin)), put(store, sealed(jnp.sin, np.ones((8, 4), np.float32)))]
    shapes = Finding("shapes", "the same program for other shapes: now x; seen before: y, z")
    renamed = Finding("renamed", "it was seen as jit_other")
    found = completed(event(Explanation("s", keys[0], ("program",), (), (shapes, renamed)), keys[1]), store)
    assert found is not None
    assert set(kinds(found)) == {"shapes", "renamed"}
    assert {shapes, renamed} <= set(found.findings)


def test_what_was_compared_already_stays_as_it_is(store: LocalStore) -> None:
    keys = [put(store, sealed(scaled(number))) for number in (2.0, 3.0)]
    said = Explanation("s", keys[0], ("program",), (Change("program", "x.py:1", "a", "b"),))
    assert completed(event(said, keys[1]), store) == said


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("harm", ["removed", "damaged", "emptied"])
def test_without_either_entry_what_was_said_stands(store: LocalStore, which: int, harm: str) -> None:
    keys = [put(store, sealed(scaled(number))) for number in (2.0, 3.0)]
    if harm == "removed":
        store.delete(keys[which])
    else:
        store.path(keys[which]).write_bytes(b"junk" if harm == "damaged" else b"")
    said = Explanation("s", keys[0], ("program",), (), (Finding("operations", "o"),))
    assert completed(event(said, keys[1]), store) == said
    assert entry(store, keys[which]) is None
    assert harm == "removed" or store.path(keys[which]).exists(), "nothing is changed by looking"


def test_a_store_that_fails_is_quiet() -> None:
    class Failing:
        def get(self, _: str, *, use: bool = True) -> bytes:  # noqa: ARG002
            raise StoreError(5, "Input/output error", "x")

    said = Explanation("s", "a" * 64, ("program",))
    assert completed(event(said, "b" * 64), Failing()) == said  # type: ignore[arg-type]


def test_misses_are_those_that_missed() -> None:
    events: list[dict[str, Any]] = [{"outcome": "hit"}, {"outcome": "miss", "n": 1}, {}, {"outcome": None}]
    assert list(misses(iter(events))) == [{"outcome": "miss", "n": 1}]


# ---------------------------------------------------------------------------------------------------------------
# As lines


def test_lines_for_people() -> None:
    said = Explanation(
        "s",
        "a" * 64,
        ("program", "options", "salt"),
        (
            Change("program", "train.py:7", "%0 = a", "%0 = b"),
            Change("program", "", "", "%1 = c"),
            Change("program", "", "func.func public @main() {", "func.func public @main(%a: x) {"),
            Change("options", "xla_x", "1", "2"),
            Change("salt", "", "a", "b"),
        ),
        (Finding("operations", "other operations"),),
    )
    assert list(lines(said)) == [
        "program differs",
        "  train.py:7",
        "    - %0 = a",
        "    + %0 = b",
        "  source line unknown",
        "    + %1 = c",
        "  in the signature",
        "    - func.func public @main() {",
        "    + func.func public @main(%a: x) {",
        "options differs",
        "  xla_x: 1 → 2",
        "salt differs",
        "  value: a → b",
        "=> other operations",
    ]
