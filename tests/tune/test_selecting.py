"""Which configuration a call gets, and what is said where it is not its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tune_world import WHEN, a_case, a_record

from rewarm.tunables.keeping import Keeping
from rewarm.tunables.records import Record
from rewarm.tunables.selecting import DEFAULT, EXACT, NEAREST, all_near, changes, choose, distance, sisters, why_not
from rewarm.tunables.spaces import Space

SPACE = Space.of({"block": [16, 32, 64, 128]}, {"block": 32})


def known(*records: Record) -> Keeping:
    keeping = Keeping(None)
    for one in records:
        keeping.put(one)
    return keeping


def test_a_tuned_case_gets_its_winner_and_nothing_is_said() -> None:
    found = choose(a_case(), SPACE, known(a_record()), nearest=True)
    assert (found.config, found.how, found.why) == ({"block": 64}, EXACT, "")
    assert found.record == a_record()


def test_an_untuned_shape_gets_the_default_unless_the_nearest_is_allowed() -> None:
    records = known(a_record(a_case("f32[4096,512]"), {"block": 128}), a_record(a_case("f32[512,512]"), {"block": 16}))
    case = a_case("f32[640,512]")
    plain = choose(case, SPACE, records)
    assert (plain.config, plain.how, plain.record) == ({"block": 32}, DEFAULT, None)
    assert plain.why == (
        "kernels:attention is not tuned for f32[640,512]; it is for 2 other shapes; the default is used"
    )
    near = choose(case, SPACE, records, nearest=True)
    assert (near.config, near.how, near.why) == (
        {"block": 16},
        NEAREST,
        "not tuned; the winner of f32[512,512] is used",
    )


@pytest.mark.parametrize("other", ["bf16[512,512]", "f32[512,512,1]", "f32[512,512], n=4", "f32[512,512]{weak}"])
def test_another_type_rank_or_value_is_not_near(other: str) -> None:
    found = choose(a_case("f32[640,512]"), SPACE, known(a_record(a_case(other))), nearest=True)
    assert found.how == DEFAULT


@pytest.mark.parametrize("changed", ["content", "target", "toolchain", "libraries"])
def test_near_is_only_what_is_of_this_kernel_device_and_compiler(changed: str) -> None:
    records = known(a_record(a_case("f32[512,512]", **{changed: "new"})))
    assert choose(a_case("f32[640,512]"), SPACE, records, nearest=True).how == DEFAULT


def test_obsolescence_is_named() -> None:
    about = {"device": "cpu x4", "jaxlib": "0.12.1", "jax": "0.12.1", "build": "b"}
    words = {
        "content": "the kernel changed",
        "target": "the device changed (device cpu x2 → cpu x4)",
        "toolchain": "the compiler changed (jaxlib 0.12.0.1 → 0.12.1)",
        "libraries": "a library changed (jax 0.12.0.1 → 0.12.1)",
    }
    for name, said in words.items():
        found = choose(a_case(**{name: "new"}), SPACE, known(a_record()), about=about)
        assert found.why.startswith(
            f"kernels:attention was tuned for f32[1024,512], and since then {said}; the default"
        )
    both = a_case(target="new", toolchain="new")
    assert changes(both, a_record()) == [
        "the device changed (device cpu x2)",
        "the compiler changed (jaxlib 0.12.0.1)",
    ]
    closer = a_record(a_case(target="new"), when=WHEN - 1)
    assert "compiler" in why_not(both, [a_record(), closer])
    assert "device" not in why_not(both, [a_record(), closer])


def test_what_was_never_tuned_is_called_that() -> None:
    assert choose(a_case(), SPACE, known()).why == "kernels:attention is not tuned; the default is used"
    begun = known(a_record(comparison=None))
    assert choose(a_case(), SPACE, begun).why == "tuning was begun and has not ended; the default is used"


def test_a_winner_that_the_space_has_not_is_not_used_and_named() -> None:
    found = choose(a_case(), SPACE, known(a_record(winner={"block": 99})))
    assert found.how == DEFAULT
    assert "block=99 is not in the space; block is one of 16, 32, 64, 128" in found.why


def test_seeds_are_near_shapes_and_sister_devices() -> None:
    near = [a_record(a_case(f"f32[{size},512]")) for size in (4096, 512, 2048)]
    sister = a_record(a_case(target="new"))
    found = [*near, sister, a_record()]
    ordered = [one.case.arguments for one in all_near(a_case(), found, SPACE)]
    assert ordered == ["f32[2048,512]", "f32[512,512]", "f32[4096,512]"]
    assert sisters(a_case(), found) == [sister]


SHAPES = st.lists(st.lists(st.integers(0, 4096), max_size=3), min_size=1, max_size=3)


@given(SHAPES, SHAPES)
def test_distance_is_symmetric_and_nought_for_itself(one: list[list[int]], other: list[list[int]]) -> None:
    here, there = (", ".join(f"f32[{','.join(map(str, shape))}]" for shape in shapes) for shapes in (one, other))
    assert distance(here, here) == 0.0
    assert distance(here, there) == distance(there, here)
    assert (distance(here, there) == 0.0) == (here == there)
