"""The envelope: what was sealed opens, and nothing else does."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import entries
import pytest
from entries import DIGEST_BYTES, HEADER, KEY, PREFIX_BYTES, SECTIONS, entry_of, small_entry, with_fields, with_section
from hypothesis import given, settings
from hypothesis import strategies as st

from rewarm.envelope import ENVELOPE_VERSION, Entry, Header, codec, open_entry, read_header, seal
from rewarm.envelope.format import header_bytes
from rewarm.errors import BadEntryError
from rewarm.telling import one_line

OTHER_KEY = hashlib.sha256(b"another key").hexdigest()


@pytest.fixture
def unpackings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The codecs that were asked to unpack, in order; they still do."""
    called: list[str] = []
    for name, (pack, unpack) in codec.CODECS.items():
        monkeypatch.setitem(codec.CODECS, name, (pack, _counting(unpack, name, called)))
    return called


def _counting(unpack: Callable[[bytes, int], bytes], name: str, called: list[str]) -> Callable[[bytes, int], bytes]:
    def counting(packed: bytes, raw_length: int) -> bytes:
        called.append(name)
        return unpack(packed, raw_length)

    return counting


def reason_of(data: bytes, key: str = KEY) -> str:
    """Why `data` is refused as the entry of `key`."""
    with pytest.raises(BadEntryError) as caught:
        open_entry(data, key)
    assert str(caught.value) == caught.value.reason
    return caught.value.reason


# ---------------------------------------------------------------------------------------------------------------
# Round trips

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
# Any text that a module's name may come to, lone surrogates included.
texts = st.text(st.characters(), max_size=30)
seconds = st.floats(allow_nan=False, allow_infinity=False)
headers = st.builds(
    Header,
    kind=texts,
    key=st.text("0123456789abcdef", min_size=64, max_size=64),
    components=st.lists(
        st.fixed_dictionaries({"name": texts, "digest": texts}, optional={"value": json_values}), max_size=5
    ).map(tuple),
    program=texts,
    compile_seconds=seconds,
    load_seconds=st.none() | seconds,
    created=seconds,
    producer=st.dictionaries(texts, texts, max_size=4),
    target=texts,
    sections=st.just(()),
    tuning=st.none() | st.dictionaries(texts, json_values, max_size=4),
)
sections_of_entries = st.dictionaries(texts, st.binary(max_size=300), max_size=4)


def shown(header: Header) -> Header:
    """As it is read: what it says of itself steers no terminal."""
    return header._replace(
        kind=one_line(header.kind),
        program=one_line(header.program),
        target=one_line(header.target),
        producer={one_line(name): one_line(value) for name, value in header.producer.items()},
    )


def test_what_an_entry_says_of_itself_steers_no_terminal() -> None:
    header = HEADER._replace(program="\x1b[2Jjit_step\nhit", target="cpu\x07 x1", producer={"jax": "0.12\x9b1A"})
    read = open_entry(seal(header, SECTIONS), KEY).header
    assert (read.program, read.target) == ("\\x1b[2Jjit_step\\nhit", "cpu\\x07 x1")
    assert read.producer == {"jax": "0.12\\x9b1A"}


@given(headers, sections_of_entries, st.sampled_from(sorted(codec.CODECS)), st.sampled_from([1, 3, 22]))
@settings(max_examples=150, deadline=None)
def test_what_was_sealed_opens(header: Header, sections: dict[str, bytes], packed_by: str, level: int) -> None:
    data = seal(header, sections, codec=packed_by, level=level)
    entry = open_entry(data, header.key)
    assert entry.header._replace(sections=()) == shown(header)
    assert [section.name for section in entry.header.sections] == list(sections)
    assert {name: entry.section(name) for name in sections} == sections
    assert read_header(data) == entry.header


@pytest.mark.parametrize("packed_by", sorted(codec.CODECS))
def test_sections_describe_the_payload(packed_by: str) -> None:
    entry = open_entry(small_entry(packed_by), KEY)
    for section in entry.header.sections:
        packed = bytes(entry.payload[section.offset : section.offset + section.length])
        assert hashlib.sha256(packed).hexdigest() == section.sha256
        assert section.raw_length == len(SECTIONS[section.name])
        assert section.codec == packed_by
    assert entry.header.sections[-1].offset + entry.header.sections[-1].length == len(entry.payload)


def test_a_large_section_round_trips() -> None:
    content = random.Random(0).randbytes(3 << 20) + bytes(3 << 20)
    data = seal(HEADER, {"executable": content})
    assert len(data) < 4 << 20
    assert open_entry(data, KEY).section("executable") == content


def test_an_unknown_section_is_a_bad_entry() -> None:
    with pytest.raises(BadEntryError, match="no section 'autotuning'"):
        open_entry(small_entry(), KEY).section("autotuning")


def test_opening_unpacks_nothing_and_a_section_only_itself(unpackings: list[str]) -> None:
    entry = open_entry(small_entry(), KEY)
    assert unpackings == []
    entry.section("program")
    assert unpackings == ["zstd"]


# ---------------------------------------------------------------------------------------------------------------
# The checks, in their order


def _patched(data: bytes, position: int, value: bytes) -> bytes:
    return data[:position] + value + data[position + len(value) :]


def test_each_check_has_its_reason() -> None:
    good = small_entry()
    body = good[:-DIGEST_BYTES]
    assert reason_of(b"") == "empty file"
    assert reason_of(_patched(good, 0, b"\x89PNG")) == "not an entry of rewarm"
    assert reason_of(_patched(good, 4, b"\x07")) == f"envelope version 7, this rewarm reads {ENVELOPE_VERSION}"
    assert reason_of(_patched(good, len(good) - 1, bytes([good[-1] ^ 1]))).startswith("digest does not match")
    assert reason_of(good, OTHER_KEY) == f"it is the entry of another key, {KEY[:12]}"
    assert (
        reason_of(entries.with_digest(_patched(body, 5, b"\xff\xff\xff\x7f"))) == "the header is longer than the file"
    )
    assert "has 110 bytes, its sections" in reason_of(entry_of(*_grown(1)))


def _grown(by: int) -> tuple[bytes, bytes]:
    fields, payload = entries.head_and_payload(small_entry("raw"))
    return json.dumps(fields).encode(), payload + b"x" * by


def test_the_first_check_that_fails_is_the_one_that_is_told() -> None:
    """Each case fails two neighbouring checks at once; the earlier one must speak."""
    good = small_entry()
    magic_and_version = _patched(_patched(good, 0, b"XXXX"), 4, b"\x07")
    version_and_digest = _patched(good, 4, b"\x07")
    digest_and_key = _patched(good, len(good) - 1, bytes([good[-1] ^ 1]))
    key_and_layout = with_section({"offset": 1})
    assert reason_of(magic_and_version).startswith("not an entry")
    assert reason_of(version_and_digest).startswith("envelope version 7")
    assert reason_of(digest_and_key, OTHER_KEY).startswith("digest")
    assert reason_of(key_and_layout, OTHER_KEY).startswith("it is the entry of another key")
    assert reason_of(key_and_layout).startswith("section 'executable' does not start")


@pytest.mark.parametrize("data", [b"R", b"RWR", b"RWRM", b"RWRM\x01", small_entry()[:42], b"X", b"PK\x03\x04" * 100])
def test_the_start_of_an_entry_is_truncated_and_anything_else_foreign(data: bytes) -> None:
    expected = "digest does not match" if data[:1] == b"R" else "not an entry of rewarm"
    assert reason_of(data).startswith(expected)


@pytest.mark.parametrize("packed_by", sorted(codec.CODECS))
def test_truncation_at_every_byte_is_a_bad_entry(packed_by: str, unpackings: list[str]) -> None:
    data = small_entry(packed_by)
    for length in range(len(data)):
        reason_of(data[:length])
    assert unpackings == []


@pytest.mark.parametrize("packed_by", sorted(codec.CODECS))
def test_a_flip_of_any_bit_is_a_bad_entry(packed_by: str, unpackings: list[str]) -> None:
    data = bytearray(small_entry(packed_by))
    for position in range(len(data)):
        for bit in range(8):
            data[position] ^= 1 << bit
            reason_of(bytes(data))
            data[position] ^= 1 << bit
    assert open_entry(bytes(data), KEY).header.key == KEY
    assert unpackings == []


@pytest.mark.parametrize("tail", [b"\0", b"x" * 100, small_entry()])
def test_anything_after_the_digest_is_a_bad_entry(tail: bytes, unpackings: list[str]) -> None:
    reason_of(small_entry() + tail)
    assert unpackings == []


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_garbage_is_a_bad_entry(garbage: bytes) -> None:
    reason_of(garbage)
    reason_of(entries.with_digest(garbage))
    reason_of(entries.with_digest(small_entry()[:PREFIX_BYTES] + garbage))


# ---------------------------------------------------------------------------------------------------------------
# Headers that lie; the digest holds, so that the header is what is tested


def _open_all(data: bytes) -> Entry:
    """Open and unpack everything, as `rewarm verify` does."""
    entry = open_entry(data, KEY)
    for section in entry.header.sections:
        entry.section(section.name)
    return entry


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"{}",
        b"null",
        b"[]",
        b"7",
        b'"text"',
        b"{",
        b'{"key": ',
        b"\xff\xfe\xfd",
        b"\0" * 50,
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b"1" * 100_000,
    ],
    ids=lambda head: repr(head[:12]),
)
def test_a_header_that_is_no_header_is_a_bad_entry(head: bytes) -> None:
    data = entry_of(head, b"")
    assert reason_of(data).startswith(("the header cannot be read", "digest does not match"))


FIELDS = sorted(Header._fields)
WRONG: dict[str, Any] = {
    "null": None,
    "number": 7,
    "list": [],
    "object": {},
    "text": "text",
    "nested list": [[[]]],
    "list of numbers": [1, 2],
    "list of text": ["ab"],
    "object of numbers": {"a": 1},
}
RIGHT = {
    *(("null", name) for name in ("load_seconds", "tuning")),
    *(("number", name) for name in ("compile_seconds", "load_seconds", "created")),
    *(("text", name) for name in ("kind", "program", "target")),
    ("list", "components"),
    ("object", "producer"),
    *((found, "tuning") for found in ("object", "object of numbers")),
}


@pytest.mark.parametrize("name", [name for name in FIELDS if name != "tuning"])
def test_a_header_without_a_field_is_a_bad_entry(name: str) -> None:
    fields, payload = entries.head_and_payload(small_entry("raw"))
    del fields[name]
    assert reason_of(entry_of(json.dumps(fields).encode(), payload)).startswith("the header cannot be read: KeyError")


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_field_of_the_wrong_type_is_a_bad_entry(name: str, wrong: str) -> None:
    data = with_fields({name: WRONG[wrong]})
    if (wrong, name) in RIGHT:
        _open_all(data)
    else:
        reason_of(data)


@pytest.mark.parametrize("name", ["compile_seconds", "load_seconds", "created"])
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 400, "1" * 5000])
def test_a_time_that_is_no_finite_number_is_a_bad_entry(name: str, value: str) -> None:
    fields, payload = entries.head_and_payload(small_entry("raw"))
    text = json.dumps({**fields, name: "HERE"}).replace('"HERE"', value)
    reason_of(entry_of(text.encode(), payload))


def test_a_new_name_in_the_header_is_passed_over() -> None:
    """A reader of this version takes what a later one adds, as the format promises."""
    entry = _open_all(with_fields({"autotuning": {"anything": [1]}}))
    assert entry.header.key == KEY


@pytest.mark.parametrize(
    "changes",
    [
        {"offset": 1},
        {"offset": -1},
        {"offset": 2**64},
        {"length": 0},
        {"length": 1},
        {"length": -100},
        {"length": 99},
        {"length": 101},
        {"length": 2**31},
        {"length": 2**64},
        {"raw_length": -1},
        {"raw_length": True},
        {"offset": False},
        {"offset": None},
        {"offset": "0"},
        {"offset": 0.0},
        {"length": 100.0},
        {"length": [100]},
        {"raw_length": {}},
    ],
    ids=repr,
)
def test_a_section_that_lies_about_its_place_is_refused_unopened(
    changes: dict[str, Any], unpackings: list[str]
) -> None:
    reason_of(with_section(changes))
    assert unpackings == []


@pytest.mark.parametrize("packed_by", sorted(codec.CODECS))
@pytest.mark.parametrize(
    "changes",
    [
        {"raw_length": 0},
        {"raw_length": 99},
        {"raw_length": 101},
        {"raw_length": 2**40},
        {"raw_length": 2**62},
        {"raw_length": 2**63},
        {"raw_length": 10**30},
        {"codec": "lzma"},
        {"codec": ""},
        {"codec": None},
        {"codec": 7},
        {"codec": []},
        {"codec": {}},
        {"name": None},
        {"name": ["executable"]},
    ],
    ids=repr,
)
def test_a_section_that_lies_about_its_content_is_a_bad_entry(changes: dict[str, Any], packed_by: str) -> None:
    with pytest.raises(BadEntryError):
        _open_all(with_section(changes, codec=packed_by)).section("executable")


def test_a_section_under_another_codec_is_a_bad_entry() -> None:
    with pytest.raises(BadEntryError, match="zstd"):
        open_entry(with_section({"codec": "zstd"}, codec="raw"), KEY).section("executable")


@pytest.mark.parametrize("missing", ["name", "codec", "offset", "length", "raw_length", "sha256"])
def test_a_section_without_a_field_is_a_bad_entry(missing: str) -> None:
    fields, payload = entries.head_and_payload(small_entry("raw"))
    del fields["sections"][0][missing]
    reason_of(entry_of(json.dumps(fields).encode(), payload))


def _sections(*spans: tuple[int, int]) -> list[Mapping[str, Any]]:
    return [
        {"name": f"s{number}", "codec": "raw", "offset": start, "length": length, "raw_length": length, "sha256": ""}
        for number, (start, length) in enumerate(spans)
    ]


@pytest.mark.parametrize(
    "spans",
    [
        [(0, 6), (4, 6)],  # overlapping
        [(0, 10), (0, 10)],  # the same bytes twice
        [(0, 4), (6, 4)],  # a gap
        [(5, 5), (0, 5)],  # in another order
        [(2, 8)],  # not from the start
        [(0, 9)],  # not to the end
        [(0, 11)],  # past the end
        [(0, 5)],
        [],
        [(0, 10), (10, 1)],
        [(0, 0), (0, 10), (9, 1)],
    ],
    ids=repr,
)
def test_sections_that_do_not_tile_the_payload_are_refused(spans: list[tuple[int, int]]) -> None:
    fields, _ = entries.head_and_payload(small_entry("raw"))
    fields["sections"] = _sections(*spans)
    reason_of(entry_of(json.dumps(fields).encode(), b"0123456789"))


def test_sections_that_tile_the_payload_open() -> None:
    fields, _ = entries.head_and_payload(small_entry("raw"))
    fields["sections"] = _sections((0, 4), (4, 0), (4, 6))
    entry = open_entry(entry_of(json.dumps(fields).encode(), b"0123456789"), KEY)
    assert [entry.section(f"s{number}") for number in range(3)] == [b"0123", b"", b"456789"]


def _types_hold(header: Header) -> bool:
    texts_hold = all(isinstance(text, str) for text in (header.kind, header.key, header.program, header.target))
    numbers = [header.compile_seconds, header.created, *([header.load_seconds] if header.load_seconds else [])]
    return (
        texts_hold
        and all(type(number) is float and math.isfinite(number) for number in numbers)
        and all(isinstance(name, str) for component in header.components for name in component)
        and all(isinstance(word, str) for pair in header.producer.items() for word in pair)
    )


@given(st.sampled_from(FIELDS), json_values)
@settings(max_examples=400, deadline=None)
def test_any_json_in_a_field_opens_right_or_is_a_bad_entry(name: str, value: Any) -> None:
    data = with_fields({name: value})
    try:
        entry = _open_all(data)
    except BadEntryError:
        return
    assert _types_hold(entry.header)


@given(st.sampled_from(["name", "codec", "offset", "length", "raw_length", "sha256"]), json_values)
@settings(max_examples=300, deadline=None)
def test_any_json_in_a_section_opens_right_or_is_a_bad_entry(name: str, value: Any) -> None:
    for packed_by in codec.CODECS:
        try:
            entry = _open_all(with_section({name: value}, codec=packed_by))
            found = entry.section("executable")
        except BadEntryError:
            continue
        assert found == SECTIONS["executable"]


# ---------------------------------------------------------------------------------------------------------------
# The header alone


def test_read_header_of_the_first_bytes() -> None:
    data = small_entry()
    whole = header_bytes(data)
    assert whole < len(data)
    assert read_header(data[:whole]) == open_entry(data, KEY).header
    for length in range(PREFIX_BYTES, whole):
        assert read_header(data[:length]) is None
        assert header_bytes(data[:length]) == whole
    for length in range(PREFIX_BYTES):
        with pytest.raises(BadEntryError):
            read_header(data[:length])


def test_header_bytes_guesses_a_length_that_suffices() -> None:
    assert header_bytes() >= header_bytes(small_entry())
    for length in range(PREFIX_BYTES):
        assert header_bytes(small_entry()[:length]) == header_bytes()


def test_a_header_longer_than_the_guess_is_read_in_two_steps() -> None:
    data = seal(HEADER._replace(program="p" * 40_000), SECTIONS)
    start = data[: header_bytes()]
    assert read_header(start) is None
    header = read_header(data[: header_bytes(start)])
    assert header is not None
    assert header.program == "p" * 40_000


def test_read_header_verifies_nothing_else() -> None:
    data = small_entry()
    assert read_header(data[:-1] + b"?") == read_header(data)


@pytest.mark.parametrize(
    "start", [b"", b"RWR", b"PK\x03\x04" * 10, b"RWRM\x02\0\0\0\0", b"RWRM\x01\x02\0\0\0{]"], ids=repr
)
def test_read_header_of_something_else_is_a_bad_entry(start: bytes) -> None:
    with pytest.raises(BadEntryError):
        read_header(start)


# ---------------------------------------------------------------------------------------------------------------
# Canonical JSON


def test_the_header_is_canonical_json() -> None:
    head = _head_of(small_entry())
    assert head == json.dumps(json.loads(head), sort_keys=True, separators=(",", ":")).encode("ascii")


def test_the_order_of_mappings_does_not_show() -> None:
    one = HEADER._replace(producer={"a": "1", "b": "2"}, components=({"name": "n", "digest": "d"},))
    other = HEADER._replace(producer={"b": "2", "a": "1"}, components=({"digest": "d", "name": "n"},))
    assert seal(one, SECTIONS, codec="raw") == seal(other, SECTIONS, codec="raw")


def test_names_beyond_ascii_are_escaped() -> None:
    data = seal(HEADER._replace(program="Grüße \N{SNOWMAN}"), {})
    assert b"Gr\\u00fc\\u00dfe \\u2603" in _head_of(data)
    assert open_entry(data, KEY).header.program == "Grüße \N{SNOWMAN}"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_json_cannot_say_is_not_sealed(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        seal(HEADER._replace(compile_seconds=value), SECTIONS)


def _head_of(data: bytes) -> bytes:
    return data[PREFIX_BYTES : header_bytes(data)]


# ---------------------------------------------------------------------------------------------------------------
# Golden entries: what was written once opens for ever


def _golden() -> ModuleType:
    path = Path(__file__).parent.parent / "golden" / "make.py"
    spec = importlib.util.spec_from_file_location("golden_make", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GOLDEN = _golden()
GOLDEN_KEY = "a0329f6727b18f30dba7cf9a2a11e13a6d099590a28fb871b559d76687b54eca"


@pytest.mark.parametrize("packed_by", GOLDEN.CODECS)
def test_a_golden_entry_opens_with_every_field(packed_by: str) -> None:
    entry = open_entry(GOLDEN.golden_file(packed_by, 1).read_bytes(), GOLDEN_KEY)
    header = entry.header
    assert header.kind == "executable"
    assert header.key == GOLDEN_KEY
    assert header.components == (
        {
            "name": "format",
            "digest": "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b",
            "value": 1,
        },
        {"name": "program", "digest": "120970d812836f19888625587a4606a5ad23cef31c8684e601771552548fc6b9"},
        {
            "name": "salt",
            "digest": "63479ad69a090b258277ec8fba6f99419a2ffb248981510657c944ccd1148e97",
            "value": {"salt": "Grüße", "flags": []},
        },
    )
    assert header.program == "jit_train_step"
    assert header.compile_seconds == 12.625
    assert header.load_seconds is None
    assert header.created == 1700000000.5
    assert header.producer == {"rewarm": "0.1.0", "jax": "0.10.2", "jaxlib": "0.10.2", "python": "3.11.7"}
    assert header.target == "cpu x1"
    assert [section.name for section in header.sections] == ["executable", "program", "nothing"]
    assert [section.raw_length for section in header.sections] == [1272, 11, 0]
    assert {section.codec for section in header.sections} == {packed_by}
    assert entry.section("executable") == b"the executable: " + bytes(range(256)) + b"\0" * 1000
    assert entry.section("program") == b"the program"
    assert entry.section("nothing") == b""


def test_the_golden_raw_entry_is_what_seal_makes_today() -> None:
    golden = GOLDEN.golden_file("raw", 1).read_bytes()
    assert seal(GOLDEN.HEADER, GOLDEN.SECTIONS, codec="raw") == golden


def test_the_golden_raw_entry_as_plain_bytes() -> None:
    """Read without rewarm: the format as its description has it."""
    golden = GOLDEN.golden_file("raw", 1).read_bytes()
    length = int.from_bytes(golden[5:9], "little")
    assert golden[:5] == b"RWRM\x01"
    assert json.loads(golden[9 : 9 + length])["program"] == "jit_train_step"
    assert golden[9 + length :][:16] == b"the executable: "
    assert golden[-32:] == hashlib.sha256(golden[:-32]).digest()


def test_every_version_up_to_the_present_has_golden_entries() -> None:
    for version in range(1, ENVELOPE_VERSION + 1):
        for packed_by in GOLDEN.CODECS:
            assert GOLDEN.golden_file(packed_by, version).is_file()


def test_making_golden_entries_again_overwrites_none(capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.read_bytes() for path in GOLDEN.GOLDEN.glob("*.rwrm")}
    assert GOLDEN.main() == 1
    assert "bump ENVELOPE_VERSION" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in GOLDEN.GOLDEN.glob("*.rwrm")} == before
