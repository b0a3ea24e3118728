"""Messages as text: read with the place of each fault, written as XLA writes them.

Not promised: comments and layout; a file that is written again has neither. Fields that are not known have no names and
cannot be written.

Bounds: what goes into `parse` has at most `LARGEST` bytes, `MOST_TOKENS` tokens (quoted texts and comments count as
one), `MOST_MESSAGES` messages, `DEEPEST` of them inside each other, and `LONGEST` bytes in one quoted text. They are
looked for before the library begins, which is plain Python here: a message takes it some 70 microseconds.

Format: https://protobuf.dev/reference/protobuf/textformat-spec/
"""

from __future__ import annotations

import re

from rewarm.autotune.formats.errors import TuningFormatError
from rewarm.autotune.formats.findings import Finding, Place, error
from rewarm.autotune.formats.protobuf import Message, message_class, module, pool

LARGEST = 64 << 20
MOST_TOKENS = 4_000_000
MOST_MESSAGES = 300_000
DEEPEST = 64
LONGEST = 4 << 20

# A quote that is not closed ends with its line, so that no text makes this slow; the library says what is wrong.
_TOKENS = re.compile(
    rb"""(?P<open>[{<])|(?P<close>[}>])|"(?:[^"\\\n]|\\.)*+"?|'(?:[^'\\\n]|\\.)*+'?|#[^\n]*+|[\w.+-]++"""
)
_NO_FIELD = re.compile(r'Message type "([\w.]+)" has no field named "([^"]*)"')
_PLACE = re.compile(r"^\d+:\d+ : ")
_AWAITED = re.compile(r"Expected (.+?)(?:, (?:got|found):? .*| but found:? .*)?\.?", re.DOTALL)
_NO_VALUE = re.compile(r"Couldn't parse (\w+): ?(.*)", re.DOTALL)
_CLOSING = ('"}"', '">"')
_QUOTED = re.compile(r"^'[^']*': ")

# A field's name and what can follow one, after blanks and comments.
_BEGINNING = re.compile(rb"(?:\s|#[^\n]*\n)*([A-Za-z_]\w*)\s*[:{<\[]")
_JSON = re.compile(rb"\s*[{\[]")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")


def first_name(data: bytes) -> str:
    """The name that a text begins with; empty for what does not look like a text."""
    begins = _BEGINNING.match(data, 0, 1 << 16)
    return begins[1].decode() if begins else ""


def looks_like_text(data: bytes) -> bool:
    """Whether a file begins as a text, and has no byte that only a binary one has."""
    return bool(first_name(data)) and not _CONTROL.search(data)


def looks_like_json(data: bytes) -> bool:
    """Whether a file is a text that begins as JSON does, and none of XLA's: those begin with a name."""
    return bool(_JSON.match(data)) and not _CONTROL.search(data)


def parse(data: bytes, name: str) -> Message:
    """Read a text as the message of this full name.

    Raises:
      TuningFormatError: it is not such a text; the finding has line and column, and no path.
    """
    _bound(data)
    try:
        text = data.decode()
    except UnicodeDecodeError as wrong:
        place = _position(data, wrong.start)
        raise TuningFormatError(error("text", place, "UTF-8", f"byte {data[wrong.start]:#04x}")) from None
    message = message_class(name)()
    try:
        module("text_format").Parse(text, message, descriptor_pool=pool())
    except Exception as wrong:  # noqa: BLE001 - on broken input the library raises more than its own error
        raise TuningFormatError(_explained(wrong, text)) from None
    return message


def print_message(message: Message) -> bytes:
    """The text of a message. An Any is written with its type and bytes, as XLA writes it."""
    return str(module("text_format").MessageToString(message, as_utf8=False, descriptor_pool=_no_types())).encode()


def _no_types() -> object:
    """A pool without types: with one that knows what an Any holds, the library would write its fields."""
    return module("descriptor_pool").DescriptorPool()


def _bound(data: bytes) -> None:
    if len(data) > LARGEST:
        raise TuningFormatError(error("too-large", Place(), f"at most {LARGEST} bytes of text", f"{len(data)} bytes"))
    depth = messages = 0
    for count, token in enumerate(_TOKENS.finditer(data)):
        kind = token.lastgroup
        if kind:
            depth += 1 if kind == "open" else -1
            messages += kind == "open"
        start, end = token.span()
        for code, most, what, found in (
            ("too-large", MOST_TOKENS, "tokens", count),
            ("too-large", MOST_MESSAGES, "messages", messages),
            ("too-deep", DEEPEST, "messages inside each other", depth),
            ("too-large", LONGEST, "bytes in one text", end - start),
        ):
            if found > most:
                raise TuningFormatError(error(code, _position(data, start), f"at most {most} {what}", "more"))


def _position(data: bytes, offset: int) -> Place:
    start = data.rfind(b"\n", 0, offset) + 1
    column = len(data[start:offset].decode(errors="replace")) + 1
    return Place(line=data.count(b"\n", 0, offset) + 1, column=column)


def _first_word(text: str) -> str:
    words = text.split(maxsplit=1)
    return repr(words[0]) if words else "the end of the text"


def _explained(wrong: Exception, text: str) -> Finding:
    line, column = (int(getattr(wrong, name, lambda: 0)() or 0) for name in ("GetLine", "GetColumn"))
    place = Place(line=line, column=column)
    said = _PLACE.sub("", str(wrong))
    lacking = _NO_FIELD.search(said)
    if lacking:
        names = ", ".join(sorted(pool().FindMessageTypeByName(lacking[1]).fields_by_name))
        return error("unknown-name", place, f"a field of {lacking[1]} ({names})", lacking[2])
    if "has no value named" in said:
        return error("unknown-name", place, "a value of the enum, or its number", said.rpartition(" named ")[2])
    # The library quotes the line, which can be the whole file, before it says what is wrong.
    here = text.split("\n", line)[line - 1] if line else ""
    said = _QUOTED.sub("", said.removeprefix(f"'{here}': "))
    awaited, no_value = _AWAITED.fullmatch(said), _NO_VALUE.fullmatch(said)
    if awaited:
        # Where a message is not closed, the library has come to the end, and its place is the last word's.
        found = "" if awaited[1] in _CLOSING else here[max(column - 1, 0) :]
        return error("text", place, f"XLA's text format, and here {awaited[1]}", _first_word(found))
    if no_value:
        return error("text", place, f"XLA's text format, and here a value ({no_value[1]})", _first_word(no_value[2]))
    words = said[:1].lower() + said[1:].rstrip(".")
    return error("text", place, "XLA's text format", f"what cannot be read ({words})")
