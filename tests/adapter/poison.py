"""Sound entries whose executable ends the process: the machine code of a real one is changed, and the entry is sealed
again, so that every digest holds.

The object files in a serialised XLA:CPU executable are ELF files as they are (System V ABI, chapter 4); only bytes
inside them change, so all lengths hold too.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rewarm.envelope import open_entry, seal

_MAGIC = b"\x7fELF"
_SYMBOLS, _RELOCATIONS = 2, 4
_FUNCTION = 2

Change = Callable[[bytes], bytes]


class _Section(NamedTuple):
    header: int
    kind: int
    offset: int
    size: int


def reseal(path: Path, change: Change) -> None:
    """Put a changed executable under the same key, in an entry that is sound."""
    entry = open_entry(path.read_bytes(), path.name)
    sections = {section.name: entry.section(section.name) for section in entry.header.sections}
    changed = change(sections["executable"])
    assert len(changed) == len(sections["executable"])
    assert changed != sections["executable"]
    path.write_bytes(seal(entry.header, {**sections, "executable": changed}))


def changes(path: Path, change: Change) -> bool:
    """Whether there is anything in an entry that a change is about: small programs have no relocations on some JAX."""
    executable = open_entry(path.read_bytes(), path.name).section("executable")
    return change(executable) != executable


def ends_with(signal: int) -> Change:
    """Each function sends this signal to its process, by system calls of its own."""
    _x86_only()
    code = b"\xb8\x27\x00\x00\x00\x0f\x05"  # mov eax, getpid; syscall
    code += b"\x89\xc7\xbe" + struct.pack("<I", signal)  # mov edi, eax; mov esi, signal
    code += b"\xb8\x3e\x00\x00\x00\x0f\x05\xeb\xfe"  # mov eax, kill; syscall; wait for it
    return _each_function_starts_with(code)


def illegal_instruction() -> Change:
    """Each function begins with an instruction that no CPU has."""
    _x86_only()
    return _each_function_starts_with(b"\x0f\x0b")


def writes_to_null() -> Change:
    """Each function writes to address 0."""
    _x86_only()
    return _each_function_starts_with(b"\x31\xc0\x89\x00")  # xor eax, eax; mov [rax], eax


def dies_while_loading(raw: bytes) -> bytes:
    """The linker meets a kind of relocation that it does not know, and ends the process."""
    _x86_only()
    data = bytearray(raw)
    for start in _objects(raw):
        for section in _sections(raw, start):
            if section.kind == _RELOCATIONS:
                for place in range(start + section.offset, start + section.offset + section.size, 24):
                    struct.pack_into("<I", data, place + 8, 0xFD)
    return bytes(data)


def _x86_only() -> None:
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("the machine code in this test is for x86-64")


def _each_function_starts_with(code: bytes) -> Change:
    def change(raw: bytes) -> bytes:
        data = bytearray(raw)
        for start in _objects(raw):
            sections = _sections(raw, start)
            for place, size in _functions(raw, start, sections):
                if size >= len(code):
                    data[place : place + len(code)] = code
            for section in sections:
                if section.kind == _RELOCATIONS:  # they would patch the new code
                    struct.pack_into("<Q", data, section.header + 32, 0)
        return bytes(data)

    return change


def _objects(raw: bytes) -> Iterator[int]:
    place = raw.find(_MAGIC)
    while place >= 0:
        yield place
        place = raw.find(_MAGIC, place + 1)


def _sections(raw: bytes, start: int) -> list[_Section]:
    (table,) = struct.unpack_from("<Q", raw, start + 40)
    size, count = struct.unpack_from("<HH", raw, start + 58)
    found = []
    for number in range(count):
        place = start + table + number * size
        (kind,) = struct.unpack_from("<I", raw, place + 4)
        offset, length = struct.unpack_from("<QQ", raw, place + 24)
        found.append(_Section(place, kind, offset, length))
    return found


def _functions(raw: bytes, start: int, sections: list[_Section]) -> Iterator[tuple[int, int]]:
    """Where the machine code of each function lies, and its length in bytes."""
    for table in sections:
        if table.kind != _SYMBOLS:
            continue
        for place in range(start + table.offset, start + table.offset + table.size, 24):
            kind, section = raw[place + 4] & 0xF, struct.unpack_from("<H", raw, place + 6)[0]
            value, size = struct.unpack_from("<QQ", raw, place + 8)
            if kind == _FUNCTION and 0 < section < len(sections):
                yield start + sections[section].offset + value, size
