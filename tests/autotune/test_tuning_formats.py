"""Reading, writing, converting: nothing is lost, nothing on disk stops a reader, a fault is told with its place."""

from __future__ import annotations

import os
import random
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from tuning_samples import (
    BODY,
    NEW,
    OLD,
    PROGRAMS,
    files_of,
    filled,
    json_of,
    legacy_entry,
    new_entry,
    seeds,
    target,
    triton_result,
)

from conftest import clean_environment, first
from rewarm.autotune.formats import (
    Format,
    Header,
    Reading,
    Severity,
    TuningEntry,
    TuningFormatError,
    Versions,
    binary,
    build_of,
    convert,
    fusion_path,
    read,
    read_bytes,
    reading,
    records,
    serialised,
    sniff,
    text,
    with_keys,
    write,
)
from rewarm.autotune.formats.protobuf import message_class
from rewarm.small_files import SHARED

FILES = [path for program in PROGRAMS for path in files_of(program)]
WHOLE = {
    Format.LEGACY_TEXT: "results.textproto",
    Format.LEGACY_BINARY: "results.pb",
    Format.LEGACY_DIRECTORY: "legacy",
    Format.NEW_TEXT: "cache.txtpb",
    Format.NEW_BINARY: "cache.pb",
    Format.NEW_DIRECTORY: "new",
}
samples = pytest.mark.parametrize("path", FILES, ids=lambda path: "-".join(path.parts[-3:]))


def told(path: Path) -> Format:
    name = path.name
    if name.endswith("_dir"):
        return Format.LEGACY_DIRECTORY if name.startswith("legacy") else Format.NEW_DIRECTORY
    return Format(f"{name.split('_')[0]}-{'binary' if path.suffix == '.pb' else 'text'}")


def codes(done: Reading, severity: Severity = Severity.ERROR) -> list[str]:
    return [finding.code for finding in done.findings if finding.severity is severity]


def content(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
    return {str(one.relative_to(path.parent if path.is_file() else path)): one.read_bytes() for one in files}


@samples
def test_samples_are_told_apart_and_have_no_fault(path: Path) -> None:
    assert sniff(path) is told(path)
    done = read(path)
    assert done.format is told(path)
    assert len(done.entries) == (1 if "dot" in path.parts[-2] else 2)
    assert done.findings == ()
    assert {entry.backend for entry in done.entries} <= {"TRITON", "BLOCK_LEVEL_EMITTER"}
    assert all(entry.rest == b"" for entry in done.entries)


@samples
def test_a_sample_that_is_written_again_is_the_same_to_the_byte(path: Path, tmp_path: Path) -> None:
    done = read(path)
    assert done.format is not None
    write(done.entries, tmp_path / path.name, done.format, header=done.header)
    assert content(tmp_path / path.name) == content(path)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_all_files_of_a_family_have_the_same_entries(program: Path) -> None:
    known = [tuple(key) for key in json_of(program, "legacy_keys.json")]
    legacy = read(program / "legacy_load.pb").entries
    assert read(program / "legacy_load.textproto").entries == legacy
    assert set(with_keys(read(program / "legacy_dir").entries, iter(known))) == set(legacy)
    if program.parent is NEW:
        new = read(program / "new_load.pb").entries
        assert read(program / "new_load.textproto").entries == new
        assert set(read(program / "new_dir").entries) == set(new)


def made_by_chance(seed: int, family: str) -> list[TuningEntry]:
    chance = random.Random(seed)
    name, make = {
        "legacy": ("xla.AutotuneResults.Entry", records.from_legacy),
        "new": ("xla.autotuner.AutotuneEntry", records.from_new),
    }[family]
    made = [filled(name, chance) for _ in range(5)]
    entries = [make(message, legacy_entry().source) for message in made]
    back = records.to_legacy if family == "legacy" else records.to_new
    for message, entry in zip(made, entries, strict=True):
        assert back(entry).SerializeToString(deterministic=True) == message.SerializeToString(deterministic=True)
    return entries


@pytest.mark.parametrize("family", ["legacy", "new"])
@settings(max_examples=100, deadline=None)
@given(seed=seeds)
def test_text_model_binary_model_text(family: str, seed: int) -> None:
    """100 times 5 entries for each family."""
    entries = made_by_chance(seed, family)
    header = Header(version=3) if family == "legacy" else Header(device_scope="a", explicit_version_scope="b")
    kind = "xla.AutotuneResults" if family == "legacy" else "xla.autotuner.AutotuneCache"
    file = records.file_of(entries, header, entries[0].family)
    written = text.print_message(file)
    first = text.parse(written, kind)
    as_bytes = first.SerializeToString(deterministic=True)
    done = read_bytes(as_bytes, Path("a.pb"), Format(f"{family}-binary"))
    assert list(done.entries) == entries
    assert done.header == header
    again = text.print_message(records.file_of(list(done.entries), done.header, entries[0].family))
    assert again == written
    assert read_bytes(again, Path("a.txt")).entries == done.entries


@pytest.mark.parametrize("family", ["legacy", "new"])
@settings(max_examples=60, deadline=None)
@given(seed=seeds)
def test_unknown_fields_survive_binary_at_every_level_and_are_told(family: str, seed: int) -> None:
    chance = random.Random(seed)
    name = {"legacy": "xla.AutotuneResults.Entry", "new": "xla.autotuner.AutotuneEntry"}[family]
    message = with_unknown(filled(name, chance), chance)
    kind = "xla.AutotuneResults" if family == "legacy" else "xla.autotuner.AutotuneCache"
    number = b"\x22" if family == "legacy" else b"\x1a"
    raw = message.SerializeToString(deterministic=True)
    data = message_class(kind).FromString(number + varint(len(raw)) + raw + b"\xf2\x3f\x01x")
    whole = data.SerializeToString(deterministic=True)
    done = read_bytes(whole, Path("a.pb"), Format(f"{family}-binary"))
    back = records.file_of(list(done.entries), done.header, done.entries[0].family)
    assert back.SerializeToString(deterministic=True) == whole
    assert codes(done, Severity.INFO).count("unknown-field") >= 2
    with pytest.raises(TuningFormatError, match="unknown-field"):
        write(done.entries, Path("a.txt"), Format(f"{family}-text"), header=done.header)


def varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def with_unknown(message: records.Message, chance: random.Random) -> records.Message:
    """The message with a field 1000 or 1001, of one or the other wire type, in itself and in all inside it."""
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None and not descriptor.message_type.GetOptions().map_entry:
            for one in value if hasattr(value, "add") else (value,):
                changed = with_unknown(one, chance)
                one.CopyFrom(changed)
    extra = chance.choice([b"\xc0\x3e\x07", b"\xca\x3e\x03abc", b"\xc5\x3e\x01\x02\x03\x04"])
    return type(message).FromString(message.SerializeToString() + extra)


def test_a_file_is_written_with_unknown_fields_left_out_only_where_that_is_allowed(tmp_path: Path) -> None:
    result = records.to_result(legacy_entry())
    result.triton.MergeFromString(b"\xc0\x3e\x07")
    entry = legacy_entry(result)
    with pytest.raises(TuningFormatError, match=r"triton: field 1000"):
        write([entry], tmp_path / "a.txt", Format.LEGACY_TEXT)
    assert not (tmp_path / "a.txt").exists()
    write([entry], tmp_path / "a.txt", Format.LEGACY_TEXT, lossy=True)
    assert read(tmp_path / "a.txt").entries == (legacy_entry(),)
    write([entry], tmp_path / "a.pb", Format.LEGACY_BINARY)
    assert read(tmp_path / "a.pb").entries == (entry,)


@pytest.mark.parametrize(
    ("data", "place", "code", "words"),
    [
        (b"version: 3\nresults {\n  foo: 1\n}\n", (3, 3), "unknown-name", ["device", "foo"]),
        (b"version: 3\nresults { result { triton {\n block_m: x } } }", (3, 11), "text", ["integer"]),
        (b"version: 3\nresults {\n  device: 'a'\n", (3, 11), "text", ['here "}", found the end of the text']),
        (b"version: 3\nresults { device: 'a' device: 'b' }", (2, 31), "text", ["multiple"]),
        (b"version: 99999999999", (1, 10), "text", ["range"]),
        (b"version: 3\n# \xff\n", (2, 3), "text", ["UTF-8", "0xff"]),
        (b"version: 3\nresults { device: 'a\x00' \x00 }", (2, 24), "text", [""]),
        (
            b"device_scope: 'a'\nentries { value { optimal_config { backend: NOPE } } }",
            (2, 45),
            "unknown-name",
            ["NOPE"],
        ),
        (b"results " + b"{ result " * 100, (1, 9 + 9 * 64), "too-deep", ["64"]),
    ],
)
def test_a_broken_text_is_told_with_line_and_column(
    data: bytes, place: tuple[int, int], code: str, words: list[str]
) -> None:
    done = read_bytes(data, Path("/x/a.textproto"))
    assert codes(done) == [code]
    (finding,) = done.findings
    assert finding.place.path == "/x/a.textproto"
    assert (finding.place.line, finding.place.column) == place
    assert all(word in str(finding) for word in words)


@pytest.mark.parametrize("cut", [0.3, 0.6, 0.95])
@pytest.mark.parametrize("name", ["legacy_load.pb", "new_load.pb"])
def test_a_torn_binary_is_told_with_its_byte(name: str, cut: float) -> None:
    data = (NEW / "mlp_128x128" / name).read_bytes()
    size = int(len(data) * cut)
    done = read_bytes(data[:size], Path("/x/a.pb"), told(Path(name)))
    assert codes(done) == ["binary"]
    finding = done.findings[0]
    assert 0 < finding.place.offset < size
    assert "bytes" in finding.expected
    # Without being told what it should be, it is told all the same.
    assert read_bytes(data[:size], Path("/x/a.pb")).is_broken


@pytest.mark.parametrize(
    ("data", "offset", "expected"),
    [
        (b"\x08\x03\x22\x04\x0a\x02\xff\xff", 6, "UTF-8"),
        (b"\x08\x03\x22\x7f", 3, "127 bytes"),
        (b"\x08\x03\x00\x00", 2, "tag"),
        (b"\x08\x03\x26", 2, "wire type"),
        (b"\x08" + b"\xff" * 11, 1, "64 bits"),
        (b"\x08\x03\x2c", 2, "field"),
        (b"\x08\x03\x2b", 3, "end of group"),
    ],
)
def test_a_fault_of_the_wire_has_its_offset(data: bytes, offset: int, expected: str) -> None:
    with pytest.raises(TuningFormatError) as wrong:
        binary.parse(data, "xla.AutotuneResults")
    finding = wrong.value.finding
    assert (finding.place.offset, expected in finding.expected) == (offset, True), finding


@pytest.mark.parametrize("data", [b"", b"\n \n", b"logs { }", b"hello: 3", b"\xff\xfe\xfd", b"}{"])
def test_what_is_no_tuning_file_is_an_error(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    assert sniff(path) is None
    done = read(path)
    assert done.entries == ()
    assert codes(done) == ["empty" if not data.strip() else "foreign"]
    assert data != b"logs { }" or "log of autotuning" in str(done.findings[0])


@pytest.mark.parametrize("data", [b"version: 3", b"device_scope: 'a4baa03864db7cfb'"])
def test_a_file_with_nothing_but_a_header_is_an_error(data: bytes) -> None:
    assert codes(read_bytes(data, Path("a.txt"))) == ["header-only"]
    name = "xla.AutotuneResults" if data.startswith(b"version") else "xla.autotuner.AutotuneCache"
    as_bytes = text.parse(data, name).SerializeToString()
    done = read_bytes(as_bytes, Path("a.pb"))
    assert codes(done) == ["header-only"]
    assert done.format in (Format.LEGACY_BINARY, Format.NEW_BINARY)


def test_text_in_a_binarys_place_and_the_other_way_round(tmp_path: Path) -> None:
    legacy, new = tmp_path / "legacy", tmp_path / "new"
    write(read(NEW / "mlp_128x128/new_load.pb").entries, new, Format.NEW_DIRECTORY)
    write(read(NEW / "mlp_128x128/legacy_dir").entries, legacy, Format.LEGACY_DIRECTORY)
    for path in new.rglob("*.pb"):
        path.write_bytes(text.print_message(records.to_new(read(path).entries[0])))
    for path in legacy.iterdir():
        path.write_bytes(records.to_result(read(path).entries[0]).SerializeToString())
    assert codes(read(new)) == ["text-where-binary"] * 2
    assert codes(read(legacy)) == ["binary-where-text"] * 2
    # A load file is text or binary by its name.
    for family in ("legacy", "new"):
        for kind, name in (("textproto", "a.pb"), ("pb", "a.txt")):
            data = (NEW / "mlp_128x128" / f"{family}_load.{kind}").read_bytes()
            done = read_bytes(data, Path(name))
            found = "text-under-binary-name" if kind == "textproto" else "binary-under-text-name"
            # The new reader tries text when binary fails.
            severity = Severity.INFO if (family, kind) == ("new", "textproto") else Severity.ERROR
            assert codes(done, severity) == [found]
            assert len(done.entries) == 2


def test_another_format_than_was_asked_for_is_told(tmp_path: Path) -> None:
    for path in (NEW / "mlp_128x128/legacy_load.pb", NEW / "mlp_128x128/legacy_load.textproto"):
        assert codes(read(path, Format.NEW_BINARY)) == ["other-format"]
    assert codes(read(NEW / "mlp_128x128/new_dir", Format.LEGACY_DIRECTORY)) == ["other-format"]
    assert codes(read(tmp_path)) == ["empty"]
    (tmp_path / "a.textproto").write_bytes((NEW / "mlp_128x128/legacy_load.textproto").read_bytes())
    done = read(tmp_path)
    assert codes(done) == ["other-format"]
    assert done.entries == ()


@pytest.mark.timeout(60)
def test_the_rest_of_a_directory_is_read_whatever_lies_in_it(tmp_path: Path) -> None:
    sound = [replace(new_entry(), fusion=f"{number:032x}") for number in range(4)]
    write(sound, tmp_path, Format.NEW_DIRECTORY)
    write([replace(legacy_entry(), fusion=f"{BODY}{number}") for number in range(3)], tmp_path, Format.LEGACY_DIRECTORY)
    folder = tmp_path / str(sound[0].device)
    (folder / "corrupt.pb").write_bytes(b"\x0a\xff\x01")
    (folder / "empty.pb").write_bytes(b"")
    (folder / "folder.pb").mkdir()
    (folder / "folder.pb" / "deeper").mkdir()
    os.mkfifo(folder / "fifo.pb")
    (folder / "link.pb").symlink_to(folder / f"{0:032x}.pb")
    (folder / "huge.pb").write_bytes(bytes(reading.LARGEST_FUSION + 1))
    (folder / ".tmp_abc_1_2").write_bytes(b"being written")
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp" / "tmp_per_fusion_cache_x.textproto").write_bytes(b"tri")
    (tmp_path / "readme").write_bytes(b"hello")
    (tmp_path / "bad.textproto").write_bytes(b"triton {")
    (tmp_path / ("a" * 16)).symlink_to("/")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket.textproto"))
        done = read(tmp_path)
    assert done.format is Format.NEW_DIRECTORY
    assert len(done.entries) == 7
    assert set(sound) <= set(done.entries)
    found = {(Path(finding.place.path).name, finding.code) for finding in done.findings}
    assert found == {
        ("corrupt.pb", "binary"),
        ("empty.pb", "empty"),
        ("deeper", "stray"),
        ("fifo.pb", "not-a-file"),
        ("link.pb", "link"),
        ("huge.pb", "too-large"),
        ("readme", "stray"),
        ("a" * 16, "link"),
        ("bad.textproto", "text"),
        ("socket.textproto", "unreadable"),
    }


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: path.symlink_to("loop"), lambda _: None], ids=["fifo", "loop", "none"]
)
def test_what_is_no_file_never_holds_the_reader(make: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "loop"
    make(path)
    assert sniff(path) is None
    done = read(path)
    assert codes(done)[0] in ("not-a-file", "unreadable")
    before = len(list(Path("/proc/self/fd").iterdir()))
    read(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("name", ["a\x00b", "a" * 300, "file/below"])
def test_a_name_that_cannot_be_is_a_finding(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    assert codes(read(tmp_path / name)) == ["unreadable"]
    assert sniff(tmp_path / name) is None


def test_a_link_that_the_user_names_is_followed(tmp_path: Path) -> None:
    (tmp_path / "a.pb").symlink_to(NEW / "mlp_128x128/new_load.pb")
    (tmp_path / "dir").symlink_to(NEW / "mlp_128x128/new_dir")
    assert len(read(tmp_path / "a.pb").entries) == len(read(tmp_path / "dir").entries) == 2


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "data",
    [
        b'version: 3 results { device: "' + b'\\"' * 2_000_000,
        b"version: 3 " + b"results {" * 3_000_000,
        b"version: " + b"9" * 1_000_000,
        b"version: 3\n" + b"results { device: 'a' 'b' }" * 3,
        b"version: 3 " + b"# comment" * 1_000_000,
        b"{" * 200_000,
        b"version" + b" " * 2_000_000 + b": 3",
        b"\x22\x00" * 100_000,
        b"\x08\x03" + b"\x2b" * 50_000,
        b"\x0a\x80\x80\x80\x80\x10" + bytes(1000),
        (b"\x3a" + varint(2_000_000)) * 200,
    ],
    ids=range(11),
)
def test_no_content_is_slow_or_deep(data: bytes) -> None:
    begun = time.process_time()
    read_bytes(data, Path("a.txt"))
    read_bytes(data, Path("a.pb"))
    assert time.process_time() - begun < 20


def wrapped(tags: bytes, data: bytes) -> bytes:
    """Messages inside each other, from the inside out."""
    for tag in reversed(tags):
        data = bytes([tag]) + varint(len(data)) + data
    return data


@pytest.mark.skipif(sys.platform != "linux", reason="what a process took at most is read from /proc")
@pytest.mark.parametrize(
    "repeat", first(1, [b"\x1a\x00", b"\x18\x01", b"\xc0\x3e\x07"]), ids=["messages", "numbers", "unknown"]
)
def test_a_small_file_that_would_be_millions_of_messages_is_refused(repeat: bytes) -> None:
    """In a process of its own: what it takes at its worst is measured. A few hundred megabytes are the library's."""
    look = (
        "import sys; from pathlib import Path; from rewarm.autotune.formats import read_bytes\n"
        "done = read_bytes(sys.stdin.buffer.read(), Path('a.pb'))\n"
        "status = Path('/proc/self/status').read_text().splitlines()\n"  # ru_maxrss would have the parent's in it
        "most = next(int(line.split()[1]) for line in status if line.startswith('VmHWM'))\n"
        "print([f.code for f in done.findings], most // 1024)"
    )
    data = wrapped(b"\x1a\x12\x0a\x12\x1a", repeat * (20_000_000 // len(repeat)))
    out = subprocess.check_output([sys.executable, "-c", look], env=clean_environment(), input=data).decode()
    found, _, megabytes = out.strip().rpartition(" ")
    assert found == "['too-many']"
    assert int(megabytes) < 600


def test_more_than_the_bounds_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    with path.open("wb") as file:
        file.truncate(binary.LARGEST + 1)
    assert codes(read(path)) == ["too-large"]
    monkeypatch.setattr(text, "MOST_TOKENS", 50)
    assert codes(read(NEW / "mlp_128x128/legacy_load.textproto")) == ["too-large"]
    monkeypatch.setattr(reading, "MOST_ENTRIES", 1)
    assert codes(read(NEW / "mlp_128x128/legacy_load.pb")) == ["too-many"]
    done = read(NEW / "mlp_128x128/new_dir")
    assert (codes(done), len(done.entries)) == (["too-many"], 1)


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_files_are_written_whole_with_the_modes_given(tmp_path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        write([new_entry()], tmp_path / "p" / "private", Format.NEW_DIRECTORY)
        write([new_entry()], tmp_path / "s" / "shared", Format.NEW_DIRECTORY, modes=SHARED)
        write([new_entry()], tmp_path / "c.pb", Format.NEW_BINARY)
    finally:
        os.umask(old)
    for top, directory, file in (("p", 0o700, 0o600), ("s", 0o2770, 0o660)):
        for path in (tmp_path / top, *(tmp_path / top).rglob("*")):
            assert stat.S_IMODE(path.stat().st_mode) == (directory if path.is_dir() else file)
    assert stat.S_IMODE((tmp_path / "c.pb").stat().st_mode) == 0o600
    assert not list(tmp_path.rglob(".*"))


def test_a_reader_sees_the_old_or_the_new_file(tmp_path: Path) -> None:
    path, stop, wrong = tmp_path / "c.pb", threading.Event(), []
    small = [new_entry()]
    large = [replace(new_entry(), fusion=f"{number:032x}") for number in range(300)]
    write(small, path, Format.NEW_BINARY)

    def look() -> None:
        while not stop.is_set():
            done = read(path)
            if done.findings or len(done.entries) not in (1, 300):
                wrong.append(done)

    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(20):
        write(large, path, Format.NEW_BINARY)
        write(small, path, Format.NEW_BINARY)
    stop.set()
    reader.join()
    assert wrong == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_to_is_an_os_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match="denied"):
        write([new_entry()], tmp_path / "c.pb", Format.NEW_BINARY)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "c.pb").mkdir()
    with pytest.raises(OSError, match=r"."):
        write([new_entry()], tmp_path / "c.pb", Format.NEW_BINARY)
    assert [path.name for path in tmp_path.iterdir()] == ["c.pb"]


@pytest.mark.parametrize(
    ("entry", "format", "name", "code"),
    [
        (new_entry(device="../../../../../x"), Format.NEW_DIRECTORY, "d", "no-place"),
        (new_entry(fusion="../x"), Format.NEW_DIRECTORY, "d", "no-place"),
        (new_entry(versions=Versions(explicit="..")), Format.NEW_DIRECTORY, "d", "no-place"),
        (new_entry(versions=Versions(explicit="a/b")), Format.NEW_DIRECTORY, "d", "no-place"),
        (new_entry(backend="NOPE"), Format.NEW_BINARY, "a.pb", "backend"),
        (new_entry(), Format.LEGACY_BINARY, "a.pb", "other-family"),
        (new_entry(), Format.NEW_BINARY, "a.txt", "name"),
        (new_entry(), Format.NEW_TEXT, "a.pb", "name"),
        (legacy_entry(versions=Versions()), Format.LEGACY_DIRECTORY, "d", "no-place"),
        (legacy_entry(device=None, digest="../x"), Format.LEGACY_DIRECTORY, "d", "no-place"),
        (legacy_entry(device=None, digest="a" * 43), Format.LEGACY_TEXT, "a.txt", "no-key"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(
    entry: TuningEntry,
    format: Format,  # noqa: A002
    name: str,
    code: str,
    tmp_path: Path,
) -> None:
    sound = legacy_entry() if format.value.startswith("legacy") else new_entry(fusion="0" * 32)
    with pytest.raises(TuningFormatError) as wrong:
        write([sound, entry], tmp_path / name, format)
    assert wrong.value.finding.code == code
    assert list(tmp_path.iterdir()) == []


def test_no_entries_and_two_for_one_place_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TuningFormatError, match="header-only"):
        write([], tmp_path / "a.pb", Format.NEW_BINARY)
    with pytest.raises(TuningFormatError, match="one-place"):
        write([new_entry(), new_entry()], tmp_path, Format.NEW_DIRECTORY)
    with pytest.raises(TuningFormatError, match="one-place"):
        write([new_entry(), new_entry(fusion="0" * 32)], tmp_path / "one.pb", Format.NEW_FUSION)


def test_an_explicit_version_is_a_folder(tmp_path: Path) -> None:
    entry = new_entry(versions=Versions(explicit="mine-1.2", codegen="0" * 16))
    write([entry, new_entry()], tmp_path, Format.NEW_DIRECTORY)
    assert fusion_path(entry) == f"{entry.device}/mine-1.2/{entry.fusion}.pb"
    assert set(read(tmp_path).entries) == {entry, new_entry()}


# Conversions.


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_file_becomes_the_directory_that_xla_has(program: Path, tmp_path: Path) -> None:
    done = convert(read(program / "legacy_load.pb").entries, Format.LEGACY_DIRECTORY)
    assert done.findings == ()
    write(done.entries, tmp_path / "d", Format.LEGACY_DIRECTORY)
    assert content(tmp_path / "d") == content(program / "legacy_dir")
    if (program / "new_dir").exists():
        write(read(program / "new_load.textproto").entries, tmp_path / "n", Format.NEW_DIRECTORY)
        assert content(tmp_path / "n") == content(program / "new_dir")


def test_a_directory_becomes_a_file_where_the_keys_are_known() -> None:
    program = NEW / "mlp_128x128"
    entries = read(program / "legacy_dir").entries
    done = convert(entries, Format.LEGACY_TEXT)
    assert done.entries == ()
    assert ["digest" in finding.expected for finding in done.findings] == [True, True]
    known = [tuple(key) for key in json_of(program, "legacy_keys.json")[:1]]
    done = convert(with_keys(entries, iter(known)), Format.LEGACY_TEXT)
    assert (len(done.entries), len(done.findings)) == (1, 1)
    assert set(done.entries) <= set(read(program / "legacy_load.pb").entries)


def test_an_entry_of_whoever_reads_it_needs_the_build_for_its_name() -> None:
    entry = legacy_entry(versions=Versions())
    assert "build" in convert([entry], Format.LEGACY_DIRECTORY).findings[0].expected
    build = build_of("0.10.2")
    (made,) = convert([entry], Format.LEGACY_DIRECTORY, build=build).entries
    assert made.versions.entry == 45
    assert convert([entry], Format.LEGACY_TEXT).entries == (entry,)


def test_one_directory_has_room_for_one_environment() -> None:
    stale = new_entry(versions=Versions(codegen="0" * 16, backend="x"))
    other = new_entry(versions=Versions(codegen="1" * 16, backend="y"))
    entries = [stale, new_entry(), other]
    assert len(convert(entries, Format.NEW_BINARY).entries) == 3
    done = convert(entries, Format.NEW_DIRECTORY, build=build_of("0.12.0.1"), device=target("h200"))
    assert done.entries == (new_entry(),)
    assert len(done.findings) == 2
    assert convert(entries, Format.NEW_DIRECTORY).entries == (stale,)  # as XLA, which takes the first that matches
    loose = replace(stale, versions=replace(stale.versions, backend=new_entry().versions.backend))
    known = {"build": build_of("0.12.0.1"), "device": target("h200")}
    assert convert([stale, loose], Format.NEW_DIRECTORY, **known).entries == (loose,)
    assert convert([loose, new_entry()], Format.NEW_DIRECTORY, **known).entries == (new_entry(),)
    other_tiles = message_class("xla.autotuner.BackendConfig")(triton=triton_result(block_m=16).triton)
    again = replace(loose, config=new_entry(other_tiles).config)
    assert convert([loose, again], Format.NEW_DIRECTORY, **known).entries == (again,)  # of one key the last


def test_legacy_entries_become_the_new_ones_that_the_compiler_took() -> None:
    program = NEW / "mlp_128x128"
    legacy, new = read(program / "legacy_load.pb").entries, read(program / "new_load.pb").entries
    done = convert(legacy, Format.NEW_BINARY, device=target("h200"))
    assert done.entries == new[:1]
    assert "backend_config" in done.findings[0].expected
    fusions = {legacy[1].fusion: new[1].fusion}
    done = convert(legacy, Format.NEW_BINARY, device=target("h200"), fusions=fusions)
    assert (done.entries, done.findings) == (new, ())
    # And back. Which build made it, Triton's version says.
    fusions[legacy[0].fusion] = new[0].fusion
    back = convert(new, Format.LEGACY_BINARY, device=target("h200"), fusions=fusions)
    assert (back.entries, back.findings) == (legacy, ())


def test_without_the_device_the_codegen_version_stays_open() -> None:
    (made,) = convert(read(NEW / "dot_tanh_64x64/legacy_load.pb").entries, Format.NEW_TEXT).entries
    assert made.versions == Versions(backend="b575c0c38d428a609e25487db64051a5fa7bfab8")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (legacy_entry(versions=Versions(entry=45)), "version of TRITON"),
        (legacy_entry(versions=Versions(entry=44)), "version of TRITON"),
        (legacy_entry(versions=Versions()), "version of TRITON"),
        (legacy_entry(fusion="f32[] custom-call()"), "computation"),
        (legacy_entry(device=None, digest="a" * 43), "digest"),
        (legacy_entry(message_class("xla.AutotuneResult")(conv={"algorithm": 1})), "configuration"),
        (legacy_entry(message_class("xla.AutotuneResult")()), "configuration"),
        (legacy_entry(rest=b"\xc0\x3e\x07"), "known"),
    ],
)
def test_what_cannot_become_new_is_told_why(entry: TuningEntry, words: str) -> None:
    done = convert([entry], Format.NEW_BINARY, device=target("h200"))
    assert done.entries == ()
    assert words in done.findings[0].expected


def test_what_cannot_become_legacy_is_told_why() -> None:
    entry = new_entry()
    assert "device" in convert([entry], Format.LEGACY_TEXT).findings[0].expected
    assert "HLO text" in convert([entry], Format.LEGACY_TEXT, device=target("h200")).findings[0].expected
    fusions = {BODY: entry.fusion or ""}
    unknown = replace(entry, versions=Versions(backend="none"))
    assert (
        "build" in convert([unknown], Format.LEGACY_TEXT, device=target("h200"), fusions=fusions).findings[0].expected
    )


def test_a_backend_that_legacy_formats_have_no_field_for() -> None:
    config = message_class("xla.autotuner.BackendConfig")(
        block_level={"num_warps": 4, "output_tiles": [{"sizes": [8]}]}
    )
    entry = new_entry(config, backend="BLOCK_LEVEL_EMITTER")
    fusions = {BODY: entry.fusion or ""}
    (made,) = convert([entry], Format.LEGACY_TEXT, device=target("h200"), fusions=fusions).entries
    assert made.backend == "BLOCK_LEVEL_EMITTER"
    assert records.chosen(made).message == records.chosen(entry).message
    old = convert([entry], Format.LEGACY_TEXT, device=target("h200"), fusions=fusions, build=build_of("0.9.2"))
    assert "0.9.2" in old.findings[0].expected


def test_one_file_of_a_directory_can_be_made_alone(tmp_path: Path) -> None:
    entry = read(OLD / "dot_tanh_64x64/legacy_dir").entries[0]
    assert serialised(entry) == (OLD / "dot_tanh_64x64/legacy_dir" / fusion_path(entry)).read_bytes()
    path = tmp_path / fusion_path(entry)
    path.write_bytes(serialised(entry))
    assert sniff(path) is Format.LEGACY_FUSION
    assert read(path).entries == (entry,)


# The library.


def test_nothing_is_imported_before_a_message_is_needed() -> None:
    look = "import sys, rewarm.autotune.formats; assert not [n for n in sys.modules if n.startswith('google')]"
    subprocess.run([sys.executable, "-c", look], env=clean_environment(), check=True)


def test_without_the_library_one_error_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "google").mkdir()
    (tmp_path / "google" / "__init__.py").write_text("")
    look = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from pathlib import Path\nfrom rewarm.autotune.formats import read, MissingLibraryError\n"
        f"try: read(Path({str(NEW / 'mlp_128x128/new_load.pb')!r}))\n"
        "except MissingLibraryError as error: assert 'rewarm[autotune]' in str(error)\nelse: raise SystemExit(3)"
    )
    subprocess.run([sys.executable, "-c", look], env=clean_environment(), check=True)


def test_the_classes_collide_with_nobody() -> None:
    """Another package's file with the same message in the library's own pool, before and after."""
    look = (
        "from pathlib import Path\nfrom google.protobuf import descriptor_pb2, descriptor_pool\n"
        "f = descriptor_pb2.FileDescriptorProto(name='xla/autotuning.proto', package='xla', syntax='proto3')\n"
        "f.message_type.add(name='AutotuneResult').field.add(name='other', number=1, type=9, label=1)\n"
        "descriptor_pool.Default().AddSerializedFile(f.SerializeToString())\n"
        "from rewarm.autotune.formats import read\n"
        f"assert len(read(Path({str(NEW / 'mlp_128x128/legacy_load.textproto')!r})).entries) == 2\n"
        "other = descriptor_pool.Default().FindMessageTypeByName('xla.AutotuneResult')\n"
        "assert list(other.fields_by_name) == ['other']"
    )
    subprocess.run([sys.executable, "-c", look], env=clean_environment(), check=True)


def test_the_librarys_plain_form_reads_the_same() -> None:
    look = (
        "import sys; from pathlib import Path; from rewarm.autotune.formats import read\n"
        "from google.protobuf.internal import api_implementation as a; assert a.Type() == 'python'\n"
        "for name in sys.argv[1:]: print(read(Path(name)))"
    )
    environment = clean_environment(PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="python")
    names = [str(path) for path in FILES]
    out = subprocess.check_output([sys.executable, "-c", look, *names], env=environment, text=True)
    assert out.splitlines() == [str(read(path)) for path in FILES]
