"""Libraries by content: RECORD is believed where nothing speaks against it, a remembered digest where nothing moved."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rewarm.identity import Toolchain, toolchain
from rewarm.identity.toolchain import Library, recorded_digest

CONTENT = b"\x7fELF the compiler"
PATCHED = b"\x7fELF the COMPILER"
LIBRARY = "jaxlib/libjax_common.so"
DISTRIBUTION = "jaxlib"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def record_line(name: str, content: bytes, *, algorithm: str = "sha256", size: int | None = None) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode("ascii")
    return f"{name},{algorithm}={digest},{len(content) if size is None else size}\n"


class Site:
    """A site-packages directory with one wheel in it, laid down as an installer does: files first, RECORD last."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.library = place / LIBRARY
        self.info = place / "jaxlib-0.10.2.dist-info"
        self.record = self.info / "RECORD"
        self.library.parent.mkdir(parents=True)
        self.library.write_bytes(CONTENT)
        self.info.mkdir()
        self.write_record(record_line(LIBRARY, CONTENT))

    def write_record(self, line: str) -> None:
        rows = [record_line("jaxlib/__init__.py", b""), line, "jaxlib-0.10.2.dist-info/RECORD,,\n"]
        self.record.write_text("".join(rows), encoding="utf-8")

    def recorded(self, distribution: str = DISTRIBUTION) -> str | None:
        return recorded_digest(self.library, distribution)


@pytest.fixture(autouse=True)
def _no_conda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own interpreter may be conda's."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site-packages")


@pytest.fixture
def memo(tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache" / "libraries.json"


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were hashed, in order; they still are."""
    seen: list[Path] = []
    real = toolchain.hash_file

    def hash_file(path: Path) -> str:
        seen.append(path)
        return real(path)

    monkeypatch.setattr(toolchain, "hash_file", hash_file)
    return seen


@pytest.fixture
def installed_long_ago(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call it, and what follows counts as after the installation.

    A ctime cannot be set back, so instead of waiting out the minute that an installation may take, that minute is
    made nothing, and the clock of the file system is let tick.
    """

    def pass_time() -> None:
        monkeypatch.setattr(toolchain, "_INSTALLING", 0.0)
        time.sleep(0.05)

    return pass_time


def patch_in_place(path: Path, content: bytes) -> None:
    """Other bytes in the same file, with the times of before as far as a user can set them."""
    status = path.stat()
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


# ---------------------------------------------------------------------------------------------------------------
# RECORD


def test_the_record_of_an_unmodified_file_is_believed(site: Site, memo: Path, hashed: list[Path]) -> None:
    assert site.recorded() == sha256(CONTENT)
    found = Toolchain(memo).identify([Library(LIBRARY, site.library, DISTRIBUTION)])
    assert found == {LIBRARY: sha256(CONTENT)}
    assert hashed == []
    assert not memo.exists()


def test_what_the_record_says_is_what_counts(site: Site) -> None:
    """Believed, not checked: that is how start-up stays cheap."""
    site.write_record(record_line(LIBRARY, PATCHED))
    assert site.recorded() == sha256(PATCHED)


def test_the_name_of_the_distribution_is_normalised(site: Site) -> None:
    for name in ("JaxLib", "jaxlib"):
        assert site.recorded(name) == sha256(CONTENT)
    site.info.rename(site.place / "jax_cuda12_plugin-0.10.2.dist-info")
    for name in ("jax-cuda12-plugin", "Jax.Cuda12_Plugin"):
        assert site.recorded(name) == sha256(CONTENT)
    assert site.recorded() is None


def test_a_name_with_a_comma_is_found(site: Site) -> None:
    odd = site.library.with_name("lib,jax.so")
    site.library.rename(odd)
    site.write_record(record_line('"jaxlib/lib,jax.so"', CONTENT))
    assert recorded_digest(odd, DISTRIBUTION) == sha256(CONTENT)


def test_patched_content_of_the_same_size_and_time_is_noticed(
    site: Site, memo: Path, installed_long_ago: Callable[[], None]
) -> None:
    assert len(PATCHED) == len(CONTENT)
    installed_long_ago()
    assert site.recorded() == sha256(CONTENT)
    before = site.library.stat()
    patch_in_place(site.library, PATCHED)
    after = site.library.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (before.st_size, before.st_mtime_ns, before.st_ino)
    assert site.recorded() is None
    found = Toolchain(memo).identify([Library(LIBRARY, site.library, DISTRIBUTION)])
    assert found == {LIBRARY: sha256(PATCHED)}


def test_a_newer_file_is_not_believed(site: Site) -> None:
    now = site.record.stat().st_mtime_ns + 1_000_000_000
    os.utime(site.library, ns=(now, now))
    assert site.recorded() is None


def test_a_file_of_another_size_is_not_believed(site: Site) -> None:
    patch_in_place(site.library, CONTENT + b"!")
    assert site.recorded() is None


def _remove_record(site: Site) -> None:
    site.record.unlink()


def _second_record(site: Site) -> None:
    shutil.copytree(site.info, site.place / "jaxlib-0.9.0.dist-info")


def _editable(site: Site) -> None:
    said = {"url": "file:///home/someone/jaxlib", "dir_info": {"editable": True}}
    (site.info / "direct_url.json").write_text(json.dumps(said))


def _local_folder(site: Site) -> None:
    (site.info / "direct_url.json").write_text(json.dumps({"url": "file:///home/someone/jaxlib", "dir_info": {}}))


def _unreadable_direct_url(site: Site) -> None:
    (site.info / "direct_url.json").write_bytes(b"\xff{")


def _direct_url_is_a_folder(site: Site) -> None:
    (site.info / "direct_url.json").mkdir()


def _no_row(site: Site) -> None:
    site.write_record(record_line("jaxlib/another.so", CONTENT))


def _two_rows(site: Site) -> None:
    site.write_record(record_line(LIBRARY, CONTENT) * 2)


def _row_without_digest(site: Site) -> None:
    site.write_record(f"{LIBRARY},,\n")


def _row_without_size(site: Site) -> None:
    site.write_record(record_line(LIBRARY, CONTENT).rsplit(",", 1)[0] + ",\n")


def _row_of_two_columns(site: Site) -> None:
    site.write_record(record_line(LIBRARY, CONTENT).rsplit(",", 1)[0] + "\n")


def _another_algorithm(site: Site) -> None:
    site.write_record(record_line(LIBRARY, CONTENT, algorithm="md5"))


def _another_size(site: Site) -> None:
    site.write_record(record_line(LIBRARY, CONTENT, size=7))


def _no_digest_at_all(site: Site) -> None:
    site.write_record(f"{LIBRARY},sha256=,{len(CONTENT)}\n")


def _digest_of_one_letter(site: Site) -> None:
    site.write_record(f"{LIBRARY},sha256=a,{len(CONTENT)}\n")


def _digest_too_short(site: Site) -> None:
    site.write_record(f"{LIBRARY},sha256=abcd,{len(CONTENT)}\n")


def _digest_of_no_letters(site: Site) -> None:
    site.write_record(f"{LIBRARY},sha256=???????????,{len(CONTENT)}\n")


def _digest_beyond_ascii(site: Site) -> None:
    site.write_record(f"{LIBRARY},sha256=Gr\u00fc\u00dfe,{len(CONTENT)}\n")


def _record_is_empty(site: Site) -> None:
    site.record.write_bytes(b"")


def _record_is_not_text(site: Site) -> None:
    site.record.write_bytes(b"\xff\xfe\0" + site.record.read_bytes())


def _record_is_a_folder(site: Site) -> None:
    site.record.unlink()
    site.record.mkdir()


DOUBTS = [
    _remove_record,
    _second_record,
    _editable,
    _local_folder,
    _unreadable_direct_url,
    _direct_url_is_a_folder,
    _no_row,
    _two_rows,
    _row_without_digest,
    _row_without_size,
    _row_of_two_columns,
    _another_algorithm,
    _another_size,
    _no_digest_at_all,
    _digest_of_one_letter,
    _digest_too_short,
    _digest_of_no_letters,
    _digest_beyond_ascii,
    _record_is_empty,
    _record_is_not_text,
    _record_is_a_folder,
]


@pytest.mark.parametrize("doubt", DOUBTS, ids=lambda doubt: doubt.__name__.strip("_"))
def test_a_record_in_doubt_is_not_believed_and_the_file_is_hashed(
    site: Site, memo: Path, hashed: list[Path], doubt: Callable[[Site], None]
) -> None:
    doubt(site)
    assert site.recorded() is None
    found = Toolchain(memo).identify([Library(LIBRARY, site.library, DISTRIBUTION)])
    assert found == {LIBRARY: sha256(CONTENT)}
    assert hashed == [site.library.resolve()]


def test_an_installation_from_an_index_or_an_archive_is_believed(site: Site) -> None:
    said = {"url": "https://example.org/jaxlib.whl", "archive_info": {"hashes": {}}}
    (site.info / "direct_url.json").write_text(json.dumps(said))
    assert site.recorded() == sha256(CONTENT)


def test_conda_may_have_rewritten_what_the_record_says(site: Site) -> None:
    (Path(sys.prefix) / "conda-meta").mkdir(parents=True)
    assert site.recorded() is None


def test_a_link_out_of_the_installation_is_hashed(site: Site, memo: Path, hashed: list[Path], tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.so"
    elsewhere.write_bytes(PATCHED)
    site.library.unlink()
    site.library.symlink_to(elsewhere)
    found = Toolchain(memo).identify([Library(LIBRARY, site.library, DISTRIBUTION)])
    assert found == {LIBRARY: sha256(PATCHED)}
    assert hashed == [elsewhere.resolve()]


def test_the_record_of_the_installed_jaxlib_is_believed() -> None:
    jaxlib = pytest.importorskip("jaxlib")
    folder = Path(jaxlib.__file__).resolve().parent
    library = min(folder.glob("*.so"), key=lambda path: path.stat().st_size)
    recorded = recorded_digest(library, "jaxlib")
    if recorded is None:
        pytest.skip("this jaxlib was installed in a way that leaves room for doubt")
    assert recorded == sha256(library.read_bytes())


# ---------------------------------------------------------------------------------------------------------------
# The memo


@pytest.fixture
def library(tmp_path: Path) -> Library:
    path = tmp_path / "tool"
    path.write_bytes(CONTENT)
    return Library("cuda/ptxas", path)


def identify(memo: Path, *libraries: Library) -> dict[str, str]:
    """As the next process would."""
    return Toolchain(memo).identify(libraries)


def test_the_second_identification_hashes_nothing(memo: Path, library: Library, hashed: list[Path]) -> None:
    for _ in range(3):
        assert identify(memo, library) == {"cuda/ptxas": sha256(CONTENT)}
    assert hashed == [library.path]


def test_several_files_are_remembered(memo: Path, tmp_path: Path, hashed: list[Path]) -> None:
    paths = [tmp_path / f"tool{number}" for number in range(5)]
    for path in paths:
        path.write_bytes(path.name.encode())
    libraries = [Library(path.name, path) for path in paths]
    first = identify(memo, *libraries)
    assert first == {path.name: sha256(path.name.encode()) for path in paths}
    assert identify(memo, *reversed(libraries)) == first
    assert list(identify(memo, *reversed(libraries))) == sorted(first)
    assert len(hashed) == 5


def test_a_changed_file_is_hashed_again(memo: Path, library: Library, hashed: list[Path]) -> None:
    identify(memo, library)
    library.path.write_bytes(CONTENT + b"!")
    assert identify(memo, library) == {"cuda/ptxas": sha256(CONTENT + b"!")}
    assert len(hashed) == 2


def test_a_patched_file_of_the_same_size_and_time_is_hashed_again(memo: Path, library: Library) -> None:
    identify(memo, library)
    time.sleep(0.05)
    patch_in_place(library.path, PATCHED)
    assert identify(memo, library) == {"cuda/ptxas": sha256(PATCHED)}


def test_a_file_put_in_its_place_is_hashed_again(memo: Path, library: Library, tmp_path: Path) -> None:
    identify(memo, library)
    status = library.path.stat()
    replacement = tmp_path / "replacement"
    replacement.write_bytes(PATCHED)
    os.utime(replacement, ns=(status.st_atime_ns, status.st_mtime_ns))
    replacement.replace(library.path)
    assert identify(memo, library) == {"cuda/ptxas": sha256(PATCHED)}


def test_the_path_does_not_count_and_the_content_does(memo: Path, library: Library, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    copy = Library(library.name, tmp_path / "elsewhere" / "tool-2")
    copy.path.write_bytes(CONTENT)
    assert identify(memo, copy) == identify(memo, library)
    for position in range(len(CONTENT)):
        changed = bytearray(CONTENT)
        changed[position] ^= 1
        copy.path.write_bytes(changed)
        assert identify(memo, copy) != identify(memo, library), f"byte {position}"


def _memo_row(library: Library) -> list[object]:
    status = library.path.stat()
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"7",
        b'"text"',
        b"\xff\xfe\xfd",
        b"\0" * 100,
        b'{"PATH": 7}',
        b'{"PATH": []}',
        b'{"PATH": [1, 2, 3, 4, 5]}',
        b'{"PATH": [1, 2, 3, 4, 5, "00"]}',
        b'{"PATH": {"a": 1}}',
        b"[" * 200_000,
        b'{"a":' * 200_000,
    ],
    ids=lambda damage: repr(damage[:40]),
)
def test_a_damaged_memo_is_ignored_and_mended(memo: Path, library: Library, hashed: list[Path], damage: bytes) -> None:
    memo.write_bytes(damage.replace(b"PATH", os.fsencode(library.path)))
    for _ in range(2):
        assert identify(memo, library) == {"cuda/ptxas": sha256(CONTENT)}
    assert len(hashed) == 1


@pytest.mark.parametrize("digest", [None, "", "00", "g" * 64, ["0" * 64]], ids=repr)
def test_a_remembered_digest_that_is_none_is_ignored(memo: Path, library: Library, digest: object) -> None:
    memo.write_text(json.dumps({library.path.as_posix(): [*_memo_row(library), digest]}))
    assert identify(memo, library) == {"cuda/ptxas": sha256(CONTENT)}


def test_a_row_of_another_file_in_the_memo_does_no_harm(memo: Path, library: Library, hashed: list[Path]) -> None:
    memo.write_text(json.dumps({"/elsewhere": 7, "/another": [1, 2, 3, 4, 5, "00"]}))
    assert identify(memo, library) == identify(memo, library) == {"cuda/ptxas": sha256(CONTENT)}
    assert len(hashed) == 1


def test_a_memo_without_a_place_costs_a_hash_each_time(tmp_path: Path, library: Library, hashed: list[Path]) -> None:
    missing = tmp_path / "missing" / "libraries.json"
    for _ in range(2):
        assert identify(missing, library) == {"cuda/ptxas": sha256(CONTENT)}
    assert len(hashed) == 2
    assert not missing.parent.exists()


@pytest.mark.parametrize("obstacle", ["a file for the folder", "a folder for the file"])
def test_a_memo_that_cannot_be_written_is_done_without(tmp_path: Path, library: Library, obstacle: str) -> None:
    memo = tmp_path / "cache" / "libraries.json"
    if obstacle == "a file for the folder":
        memo.parent.write_bytes(b"")
    else:
        memo.mkdir(parents=True)
    assert identify(memo, library) == {"cuda/ptxas": sha256(CONTENT)}
    assert list(tmp_path.rglob("*.tmp")) == []


def test_a_read_only_place_is_done_without(memo: Path, library: Library, hashed: list[Path]) -> None:
    memo.parent.chmod(0o555)
    try:
        if os.access(memo.parent, os.W_OK):
            pytest.skip("file modes do not bind this user")
        for _ in range(2):
            assert identify(memo, library) == {"cuda/ptxas": sha256(CONTENT)}
    finally:
        memo.parent.chmod(0o755)
    assert len(hashed) == 2
    assert not memo.exists()


def test_a_memo_leaves_no_temporary_files(memo: Path, library: Library) -> None:
    identify(memo, library)
    assert [path.name for path in memo.parent.iterdir()] == [memo.name]


def test_a_library_that_is_not_there_is_an_os_error(memo: Path, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        identify(memo, Library("cuda/ptxas", tmp_path / "nothing"))
    with pytest.raises(OSError, match="No such file"):
        identify(memo, Library("cuda/ptxas", tmp_path / "nothing", DISTRIBUTION))


@pytest.mark.timeout(30)
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs")
def test_a_fifo_in_the_memo_s_place_holds_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "memo.json")
    (tmp_path / "library.so").write_bytes(b"code")
    library = Library("library.so", tmp_path / "library.so")
    digest = hashlib.sha256(b"code").hexdigest()
    assert Toolchain(tmp_path / "memo.json").identify([library]) == {"library.so": digest}
    assert (tmp_path / "memo.json").is_file(), "and the memo takes its place"
