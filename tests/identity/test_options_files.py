"""Files that options name: their content counts, wherever they lie, and what cannot be read is never guessed at."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest
from wire_encoder import NUMBERS, counts, field, of, override

from rewarm.identity import option_files
from rewarm.identity.option_files import UnidentifiableFileError
from rewarm.identity.option_table import flags

PERF_TABLE = NUMBERS["xla_gpu_experimental_matmul_perf_table_path"]
PTX = NUMBERS["xla_gpu_ptx_file"]
CUDA_DIRECTORY = NUMBERS["xla_gpu_cuda_data_dir"]
READ_ONCE = "xla_gpu_load_autotune_results_from"
TOPOLOGY = "xla_gpu_topology_filename"
FILES = {row.number: row.name for row in flags().values() if row.group in ("file", "named_file")}
NAMED_FILES = sorted(row.number for row in flags().values() if row.group == "named_file")
PLAIN_FILES = sorted(FILES.keys() - set(NAMED_FILES))
NOTHING = of()


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(option_files, "_first_seen", {})


@pytest.fixture
def two_files(tmp_path: Path) -> tuple[Path, Path]:
    """Two files of the same content in two directories."""
    paths = tmp_path / "one" / "a.txt", tmp_path / "other" / "b.txt"
    for path in paths:
        path.parent.mkdir()
        path.write_bytes(b"results")
    return paths


@pytest.mark.parametrize("number", PLAIN_FILES)
def test_a_file_counts_by_content_and_not_by_path(number: int, two_files: tuple[Path, Path]) -> None:
    one, other = (of(debug=field(number, str(path))) for path in two_files)
    assert counts(one) == counts(other)
    assert one.canonical == NOTHING.canonical
    ((name, base, digest),) = one.inputs
    assert (name, base) == (FILES[number], "")
    assert len(digest) == 64
    two_files[1].write_bytes(b"resultS")
    if flags()[name].mark != "once":
        assert of(debug=field(number, str(two_files[1]))).inputs != one.inputs
    assert of(debug=field(number, "")) == NOTHING


def test_which_option_names_the_file_counts(two_files: tuple[Path, Path]) -> None:
    found = {of(debug=field(number, str(two_files[0]))).inputs for number in PLAIN_FILES}
    assert len(found) == len(PLAIN_FILES)


@pytest.mark.parametrize("number", sorted(NAMED_FILES))
def test_the_base_name_counts_where_it_says_which_module_is_meant(number: int, tmp_path: Path) -> None:
    paths = [tmp_path / folder / name for folder in ("one", "other") for name in ("m1.ptx", "m2.ptx")]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"code")
    one, renamed, moved, _ = (of(debug=field(number, str(path))).inputs for path in paths)
    assert one == moved
    assert one != renamed
    assert one[0][1] == "m1.ptx"


def test_several_files_of_one_option_all_count(two_files: tuple[Path, Path]) -> None:
    both = b"".join(field(PTX, str(path)) for path in two_files)
    assert [base for _, base, _ in of(debug=both).inputs] == ["a.txt", "b.txt"]
    before = of(debug=both).inputs
    two_files[0].write_bytes(b"changed")
    assert of(debug=both).inputs != before


def test_a_missing_file_counts_as_missing_whatever_its_name(tmp_path: Path) -> None:
    one, other = (of(debug=field(PERF_TABLE, str(tmp_path / name))) for name in ("one", "other"))
    assert one == other
    assert one.inputs == ((FILES[PERF_TABLE], "", "missing"),)
    assert one.inputs != NOTHING.inputs
    (tmp_path / "one").write_bytes(b"there now")
    found = of(debug=field(PERF_TABLE, str(tmp_path / "one"))).inputs
    assert found == ((FILES[PERF_TABLE], "", hashlib.sha256(b"there now").hexdigest()),)


@pytest.mark.parametrize("path", ["x" * 5000, "/" + "x" * 300, "/dev/null/x", "/tmp/\udcff\udcfe", "a\0b"])
def test_a_path_that_cannot_be_is_missing(path: str) -> None:
    assert of(debug=field(PERF_TABLE, path)).inputs[0][2] == "missing"


def test_text_in_the_place_of_a_file_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (of(debug=field(NUMBERS[TOPOLOGY], text)) for text in ("1x1x8", "1x2x8"))
    assert counts(one) != counts(other)
    assert one.inputs[0][2].startswith("text:")
    (tmp_path / "1x1x8").write_bytes(b"a description")
    monkeypatch.chdir(tmp_path)
    assert of(debug=field(NUMBERS[TOPOLOGY], "1x1x8")).inputs[0][2] == hashlib.sha256(b"a description").hexdigest()


# ---------------------------------------------------------------------------------------------------------------
# What cannot be identified


def refused(path: Path | str, number: int = PERF_TABLE) -> str:
    with pytest.raises(UnidentifiableFileError) as caught:
        of(debug=field(number, str(path)))
    return str(caught.value)


@pytest.mark.timeout(20)
def test_a_pipe_or_a_device_does_not_hang_and_has_no_key(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "folder" / "pipe")
    for path in (tmp_path / "pipe", tmp_path / "link", tmp_path / "folder", "/dev/null", "/dev/zero"):
        assert refused(path) == f"{FILES[PERF_TABLE]} names what is neither file nor folder"


def test_looking_at_a_pipe_takes_nothing_from_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    with (tmp_path / "pipe").open("wb") as pipe:
        refused(tmp_path / "pipe")
        pipe.write(b"for the reader")
    reader.join()
    assert got == [b"for the reader"]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable for root")
@pytest.mark.parametrize("place", ["file", "folder", "folder/file"])
def test_what_may_not_be_read_is_neither_missing_nor_its_content(tmp_path: Path, place: str) -> None:
    _folder(tmp_path, {"file": b"1", "folder/file": b"1"})
    (tmp_path / place).chmod(0)
    try:
        said = refused(tmp_path / place.partition("/")[0])
    finally:
        (tmp_path / place).chmod(0o700)
    assert said == f"{FILES[PERF_TABLE]} names what cannot be read: Permission denied"


def test_an_error_of_the_disk_is_no_missing_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"1")

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(option_files.hashlib, "file_digest", fail)
    assert "cannot be read: Input/output error" in refused(tmp_path / "file")


@pytest.mark.parametrize("place", ["gs://bucket/table", "file:///tmp/table", "ram://table"])
def test_what_is_in_another_file_system_has_no_key(place: str) -> None:
    assert "in no local file system" in refused(place)


def test_a_file_that_changes_while_it_is_read_has_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    whole = hashlib.file_digest

    def slow(file: object, name: str) -> object:
        with path.open("ab") as other:
            other.write(b" and after")
        return whole(file, name)  # type: ignore[arg-type]

    monkeypatch.setattr(option_files.hashlib, "file_digest", slow)
    assert "changed while it was read" in refused(path)


def test_a_change_of_what_xla_reads_once_has_no_key(two_files: tuple[Path, Path]) -> None:
    """XLA loads autotuning results once per process and path, so a later program is compiled with the first content."""
    path = two_files[0]
    before = of(debug=field(NUMBERS[READ_ONCE], str(path)))
    path.write_bytes(b"others")
    assert "changed since this process first used it" in refused(path, NUMBERS[READ_ONCE])
    path.write_bytes(b"results")
    assert of(debug=field(NUMBERS[READ_ONCE], str(path))) == before
    path.unlink()
    refused(path, NUMBERS[READ_ONCE])


def test_a_large_file_is_read_in_pieces(tmp_path: Path) -> None:
    import tracemalloc

    with (tmp_path / "large").open("wb") as file:
        file.truncate(256 << 20)
    tracemalloc.start()
    ((_, _, digest),) = of(debug=field(PERF_TABLE, str(tmp_path / "large"))).inputs
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(digest) == 64
    assert peak < 4 << 20


# ---------------------------------------------------------------------------------------------------------------
# Folders


def _folder(place: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    return place


def test_a_folder_counts_by_its_files(tmp_path: Path) -> None:
    files = {"a": b"1", "b": b"2", "deep/c": b"3"}
    same = [_folder(tmp_path / name, files) for name in ("one", "other")]
    found = [of(debug=field(PERF_TABLE, str(folder))).inputs for folder in same]
    assert found[0] == found[1]
    others = [
        {"a": b"1", "b": b"2", "deep/c": b"4"},
        {"a": b"1", "b": b"2", "deep/d": b"3"},
        {"a": b"1", "b": b"2"},
        {"a": b"2", "b": b"1", "deep/c": b"3"},
        {"a": b"12", "b": b"", "deep/c": b"3"},
        {"a": b"1", "b": b"2", "c": b"3"},
        {"empty": b""},
    ]
    for number, changed in enumerate(others):
        folder = _folder(tmp_path / str(number), changed)
        found.append(of(debug=field(PERF_TABLE, str(folder))).inputs)
    (tmp_path / "void").mkdir()
    found.append(of(debug=field(PERF_TABLE, str(tmp_path / "void"))).inputs)
    assert len(set(found)) == len(found) - 1


def test_the_toolkits_directory_is_reported_and_does_not_count(tmp_path: Path) -> None:
    found = of(debug=field(CUDA_DIRECTORY, "/opt/cuda-13"))
    assert found.cuda_directory == "/opt/cuda-13"
    assert counts(found) == counts(NOTHING)
    overridden = of(
        debug=field(CUDA_DIRECTORY, "/opt/cuda-13"), overrides=override("xla_gpu_cuda_data_dir", "/opt/cuda-12")
    )
    assert overridden.cuda_directory == "/opt/cuda-12"
    assert counts(overridden) == counts(NOTHING)


# ---------------------------------------------------------------------------------------------------------------
# Through `compiler_options=`


@pytest.mark.parametrize("number", PLAIN_FILES)
def test_an_override_that_names_a_file_replaces_the_flag(number: int, two_files: tuple[Path, Path]) -> None:
    one, other = (of(overrides=override(FILES[number], str(path))) for path in two_files)
    assert counts(one) == counts(other)
    assert one == of(debug=field(number, str(two_files[0])))
    assert of(debug=field(number, "/elsewhere"), overrides=override(FILES[number], str(two_files[0]))) == one
    assert of(debug=field(number, str(two_files[0])), overrides=override(FILES[number], "")) == NOTHING


def test_an_override_may_name_several_files(two_files: tuple[Path, Path]) -> None:
    said = override("xla_gpu_ptx_file", ",".join(map(str, two_files)))
    assert of(overrides=said).inputs == of(debug=b"".join(field(PTX, str(path)) for path in two_files)).inputs


def test_a_comma_in_the_name_of_a_single_file_is_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "results,second.pb"
    path.write_bytes(b"one")
    before = of(overrides=override(FILES[PERF_TABLE], str(path))).inputs
    path.write_bytes(b"other")
    assert of(overrides=override(FILES[PERF_TABLE], str(path))).inputs != before
