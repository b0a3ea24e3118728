"""Reading the outer form of MLIR bytecode: what MLIR writes is read, and anything else is a `ValueError`."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from module_texts import (
    BINARY,
    UNARY,
    Function,
    Names,
    Op,
    Source,
    names_for,
    parse,
    program,
    sources,
    string,
    text_of,
)

from rewarm.identity.program import bytecode, payloads, shape_of

pytestmark = pytest.mark.contract
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

HEADER = b"ML\xefR\x0dMLIR\0"
# One number for each count of bytes, and the edges between them.
EDGES = [edge for bits in range(7, 64, 7) for edge in (2**bits - 1, 2**bits)]


def varint(number: int) -> bytes:
    """As MLIR writes it: the zero bits before the lowest bit that is set say how many bytes follow."""
    for more in range(8):
        if number < 1 << (7 * (more + 1)):
            return ((number << (more + 1)) | (1 << more)).to_bytes(more + 1, "little")
    return b"\0" + number.to_bytes(8, "little")


def section(identifier: int, data: bytes, length: int | None = None) -> bytes:
    return bytes([identifier]) + varint(len(data) if length is None else length) + data


def strings_section(texts: list[bytes]) -> bytes:
    lengths = b"".join(varint(len(text) + 1) for text in reversed(texts))
    return section(bytecode._STRINGS, varint(len(texts)) + lengths + b"".join(text + b"\0" for text in texts))


def refused(read: Callable[..., Any], *arguments: Any) -> bool:
    """Whether it is a `ValueError`; any other exception is a failure of the test."""
    try:
        read(*arguments)
    except ValueError:
        return True
    return False


def written(*tags: str) -> bytes:
    """A module of MLIR's own whose bytecode has these strings."""
    rows = ", ".join(f"my.tag{number} = {string(tag)}" for number, tag in enumerate(tags))
    return payloads.write(parse(f"module @name attributes {{{rows}}} {{}}").operation)


# -- what MLIR writes ----------------------------------------------------------------------------------------------


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20), max_size=6))
@settings(relaxed, max_examples=60)
def test_the_strings_of_a_module_are_found(texts: list[str]) -> None:
    encoded = {text.encode() for text in texts}
    others = {b"not there", b"nam", b"ame"} - encoded
    assert bytecode.among_strings(written(*texts), {*encoded, *others, b"name", b"builtin"}) >= {
        *encoded,
        b"name",
        b"builtin",
    }


@pytest.mark.parametrize("size", [1, 126, 127, 128, 16382, 16383, 16384, 16385, 2**21 - 2, 2**21 - 1, 2**21])
def test_strings_are_found_beside_one_of_any_length(size: int) -> None:
    """The lengths lie before the strings; some of their bytes are zero, like the bytes between strings."""
    wanted = {b"builtin", b"name", b"module", b"z" * size}
    found = bytecode.among_strings(written("z" * size), wanted | {b"z" * (size + 1)})
    assert found >= {b"builtin", b"name", b"z" * size}


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=6))
@settings(relaxed, max_examples=60)
@example(["a\0b"])
@example(["\0", "\0\0"])
def test_strings_with_a_zero_byte_are_found(texts: list[str]) -> None:
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    encoded = {text.encode() for text in texts if text}
    assert bytecode.among_strings(written(*filter(None, texts)), encoded) == encoded


@given(st.lists(st.binary(max_size=300), max_size=8), st.binary(max_size=5))
@settings(deadline=None, max_examples=100)
def test_strings_are_found_wherever_they_lie(texts: list[bytes], other: bytes) -> None:
    data = HEADER + section(1, b"dialects") + strings_section(texts) + section(5, b"resources")
    assert bytecode.among_strings(data, {*texts, other}) >= set(texts)
    assert bytecode.among_strings(HEADER + strings_section([]), {other}) <= {b""}


def test_every_name_of_a_program_is_found() -> None:
    raw = payloads.write(parse(TWO_CALLS.format(value="1.0", size=4)).operation)
    found = bytecode.among_strings(raw, {b"one", b"two", b"main", b"jit_f", b"three", b"func", b"stablehlo"})
    assert found == {b"one", b"two", b"main", b"jit_f", b"func", b"stablehlo"}


# -- anything else -------------------------------------------------------------------------------------------------

TWO_CALLS = """
    module @jit_f {{
      func.func public @main(%a: tensor<{size}xf32>) -> tensor<{size}xf32> {{
        %0 = stablehlo.constant dense<{value}> : tensor<{size}xf32>
        %1 = stablehlo.add %a, %0 : tensor<{size}xf32>
        %2 = call @one(%1) : (tensor<{size}xf32>) -> tensor<{size}xf32>
        %3 = call @two(%2) : (tensor<{size}xf32>) -> tensor<{size}xf32>
        return %3 : tensor<{size}xf32>
      }}
      func.func private @one(%a: tensor<{size}xf32>) -> tensor<{size}xf32> {{
        %0 = stablehlo.sine %a : tensor<{size}xf32>
        return %0 : tensor<{size}xf32>
      }}
      func.func private @two(%a: tensor<{size}xf32>) -> tensor<{size}xf32> {{
        %0 = stablehlo.cosine %a : tensor<{size}xf32>
        return %0 : tensor<{size}xf32>
      }}
    }}
"""


def test_truncated_bytecode_is_refused_where_the_section_is_cut() -> None:
    raw = program(TWO_CALLS.format(value="1.0", size=4)).canonical
    whole = shape_of(raw)
    for length in range(len(raw)):
        cut = raw[:length]
        assert refused(shape_of, cut) or shape_of(cut) == whole
        assert refused(bytecode.among_strings, cut, {b"f.0"}) or b"f.0" in cut
    assert refused(shape_of, raw[: len(raw) // 2])
    assert refused(shape_of, raw[:4])


@given(st.binary(max_size=120))
@settings(deadline=None, max_examples=300)
@example(b"")
@example(b"ML\xefR")
@example(HEADER[:-1])
@example(HEADER)
def test_garbage_is_refused(garbage: bytes) -> None:
    for data in (garbage, HEADER + garbage, HEADER + section(0, garbage), HEADER + section(4, b"") + garbage):
        refused(shape_of, data)
        refused(bytecode.among_strings, data, {b"f.0"})
    assert refused(shape_of, garbage) or garbage.startswith(HEADER[:4])


@given(st.data())
@settings(relaxed, max_examples=100)
def test_damaged_bytecode_is_read_or_refused(data: st.DataObject) -> None:
    raw = bytearray(program(TWO_CALLS.format(value="1.0", size=4)).canonical)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    refused(shape_of, bytes(raw))
    refused(bytecode.among_strings, bytes(raw), {b"f.0"})


@pytest.mark.parametrize("length", [*EDGES, 2**64 - 1])
def test_lengths_that_no_file_has_are_refused_without_reading(length: int) -> None:
    for identifier in (bytecode._STRINGS, bytecode._OPERATIONS):
        data = HEADER + section(identifier, b"short", length)
        assert refused(shape_of, data)
        assert refused(bytecode.among_strings, data, {b"f.0"})
    many = HEADER + section(bytecode._STRINGS, varint(length) + b"\x03\x03abc")
    assert refused(bytecode.among_strings, many, {b"abc"}) or length == 0
    aligned = HEADER + bytes([bytecode._OPERATIONS | 0x80]) + varint(1) + varint(length) + b"x"
    assert refused(shape_of, aligned)


@given(st.one_of(st.sampled_from(EDGES), st.integers(0, 2**64 - 1)), st.binary(max_size=3))
@settings(deadline=None)
def test_a_number_is_read_where_it_lies(number: int, before: bytes) -> None:
    encoded = varint(number)
    assert bytecode._varint(before + encoded + b"after", len(before)) == (number, len(before) + len(encoded))
    for length in range(len(encoded)):
        assert refused(bytecode._varint, encoded[:length], 0)


def test_a_section_that_is_not_there_is_refused() -> None:
    assert refused(shape_of, HEADER + section(bytecode._ATTRIBUTES, b"attributes"))
    assert refused(shape_of, HEADER + section(bytecode._OPERATIONS, b"operations"))
    assert refused(bytecode.among_strings, HEADER + section(bytecode._ATTRIBUTES, b""), {b"f.0"})


# -- shapes --------------------------------------------------------------------------------------------------------


def test_constants_and_sizes_alone_keep_the_structure() -> None:
    plain = shape_of(program(TWO_CALLS.format(value="1.0", size=4)).canonical)
    for value, size in (("2.0", 4), ("0x7FC00000", 4), ("1.0", 5), ("1.0", 1024)):
        other = shape_of(program(TWO_CALLS.format(value=value, size=size)).canonical)
        assert other.structure == plain.structure
        assert other.operations == plain.operations
        assert other.attributes != plain.attributes


def test_the_order_of_operations_alone_keeps_the_attributes() -> None:
    text = TWO_CALLS.format(value="1.0", size=4)
    plain = shape_of(program(text).canonical)
    other = shape_of(program(text.replace("stablehlo.add %a, %0", "stablehlo.add %0, %a")).canonical)
    assert other.attributes == plain.attributes
    assert other.operations == plain.operations
    assert other.structure != plain.structure


@given(st.data())
@settings(relaxed, max_examples=20)
def test_equal_programs_have_one_shape_whatever_the_names(data: st.DataObject) -> None:
    source = data.draw(sources())
    one, other = (program(text_of(source, data.draw(names_for(source)))).canonical for _ in range(2))
    assert shape_of(one) == shape_of(other)


def test_a_shape_does_not_say_which_operations_there_are() -> None:
    """Their names lie in other sections: a caller must not take equal shapes for equal programs."""
    text = TWO_CALLS.format(value="1.0", size=4)
    one, other = (program(one).canonical for one in (text, text.replace("stablehlo.sine", "stablehlo.tanh")))
    assert shape_of(one) == shape_of(other)
    assert one != other


def kept(part: str, change: Callable[[Source], list[Source]], constants: int = 1000) -> tuple[int, int]:
    """How many of the changed programs keep a part of the shape, and how many there are."""
    same = total = 0
    for seed in range(40):
        source = made_up(seed, constants)
        names = Names(tuple(f"n{number}" for number in range(len(source.functions) - 1)), ())
        plain = getattr(shape_of(program(text_of(source, names)).canonical), part)
        found = [getattr(shape_of(program(text_of(one, names)).canonical), part) for one in change(source)]
        same, total = same + found.count(plain), total + len(found)
    return same, total


def test_how_often_one_change_keeps_the_structure_or_the_attributes() -> None:
    """Mostly, not always: equal attributes are one, numbered by how often it is used, and a change can renumber them.

    The same in all four versions of JAX: a constant keeps the structure in all cases when no other is equal to it
    before or after, and in half of them when most have an equal; operands that change places keep the attributes in
    all cases, operations that do in five of six.
    """

    def with_fresh(source: Source) -> list[Source]:
        return [_with_constant(source, one, 7777) for one in _constants(source)]

    for part, change, constants, bound in (
        ("structure", with_fresh, 1000, 0.95),
        ("structure", with_fresh, 8, 0.3),
        ("attributes", _operands_swapped, 1000, 1.0),
        ("attributes", _operations_swapped, 1000, 0.7),
    ):
        same, total = kept(part, change, constants)
        assert total > 100
        assert same / total >= bound, (part, change.__name__, same, total)


def made_up(seed: int, constants: int) -> Source:
    """The same program in every run."""
    draw = random.Random(seed)
    functions = []
    for _ in range(3):
        ops: list[Op] = []
        for place in range(6):
            kind = draw.choice(["constant", "unary", "binary"])
            if kind == "constant":
                ops.append(Op("constant", number=draw.randrange(constants)))
            elif kind == "unary":
                ops.append(Op("plain", (draw.randint(0, place),), draw.choice(UNARY)))
            else:
                ops.append(Op("plain", (draw.randint(0, place), draw.randint(0, place)), draw.choice(BINARY)))
        functions.append(Function(tuple(ops)))
    return Source(tuple(functions))


def _constants(source: Source) -> list[tuple[int, int]]:
    return [(f, o) for f, one in enumerate(source.functions) for o, op in enumerate(one.ops) if op.kind == "constant"]


def _with_ops(source: Source, function: int, ops: Sequence[Op]) -> Source:
    functions = list(source.functions)
    functions[function] = functions[function]._replace(ops=tuple(ops))
    return source._replace(functions=tuple(functions))


def _with_constant(source: Source, place: tuple[int, int], number: int) -> Source:
    function, at = place
    ops = list(source.functions[function].ops)
    ops[at] = ops[at]._replace(number=number)
    return _with_ops(source, function, ops)


def _operands_swapped(source: Source) -> list[Source]:
    found = []
    for function, one in enumerate(source.functions):
        for at, op in enumerate(one.ops):
            if len(set(op.operands)) == 2:
                swapped = op._replace(operands=op.operands[::-1])
                found.append(_with_ops(source, function, [*one.ops[:at], swapped, *one.ops[at + 1 :]]))
    return found


def _operations_swapped(source: Source) -> list[Source]:
    """Two neighbours of which the second does not use the first; both are values, so later uses change too."""
    found = []
    for function, one in enumerate(source.functions):
        for at in range(len(one.ops) - 2):  # the last is returned
            first, second = one.ops[at], one.ops[at + 1]
            if at + 1 in second.operands or first == second:
                continue
            other = {at + 1: at + 2, at + 2: at + 1}
            later = [
                op._replace(operands=tuple(other.get(value, value) for value in op.operands))
                for op in one.ops[at + 2 :]
            ]
            found.append(_with_ops(source, function, [*one.ops[:at], second, first, *later]))
    return found
