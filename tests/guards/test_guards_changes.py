"""Each change between two starts, and each refusal, in fresh processes that differ in their hash seeds."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from guards_cases import CHANGED, REFUSED, SAME

from conftest import clean_environment, execute

CHILD = Path(__file__).with_name("guards_child.py")

GOODS = """
REGISTRY = {}
LIMIT = 7
_CACHE = {}
class Config:
    def __init__(self): self.strict = False
config = Config()
def dispatch(name, x): return REGISTRY[name](x)
def double(x): return x * 2
def limited(x): return min(x, LIMIT)
def configured(x): return x if config.strict else -x
def remembered(x):
    _CACHE[x] = _CACHE.get(x, 0) + 1
    return x
class Thing:
    def get(self, x): return x + 1
"""
PART = """
def first(x): return x + 1
inner = first
def outer(x): return inner(x)
"""


def write_goods(site: Path, **files: str) -> None:
    """A distribution as an installer leaves it."""
    rows = []
    for name, text in {"__init__": GOODS, "part": PART, **files}.items():
        path = site / "goods" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"goods/{name}.py,sha256={digest},{len(text.encode())}")
    info = site / "goods-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "RECORD").write_text("\n".join(rows) + "\n")


def write_cases(folder: Path, sources: dict[str, str]) -> None:
    for name, source in sources.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "case.py").write_text(source)


def child(what: str, folder: Path, site: Path, seed: str) -> dict[str, Any]:
    command = [sys.executable, "-B", str(CHILD), what, str(folder), str(site)]
    run = execute(command, env=clean_environment(PYTHONHASHSEED=seed), cwd=folder)
    assert run.code == 0, run.err[-4000:]
    found = run.json
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """All cases at their first start, and at their next, which happens in another folder."""
    place = tmp_path_factory.mktemp("guards")
    site = place / "site-packages"
    write_goods(site)
    first, again, after = place / "first", place / "again", place / "moved" / "after"
    befores = {f"changed{i}": case[1] for i, case in enumerate(CHANGED)}
    befores |= {f"same{i}": case[1] for i, case in enumerate(SAME)}
    write_cases(first, befores | {f"refused{i}": case[1] for i, case in enumerate(REFUSED)})
    recorded = child("record", first, site, "1")
    shutil.copytree(first, again)
    unchanged = child("check", first, site, "2")
    write_cases(first, {f"changed{i}": case[2] for i, case in enumerate(CHANGED)})
    write_cases(first, {f"same{i}": case[2] for i, case in enumerate(SAME)})
    shutil.move(first, after)
    return {"recorded": recorded, "unchanged": unchanged, "next": child("check", after, site, "3")}


@pytest.mark.parametrize("index", range(len(CHANGED)), ids=[case[0] for case in CHANGED])
def test_a_change_is_caught_and_told(starts: dict[str, dict[str, Any]], index: int) -> None:
    name = f"changed{index}"
    assert starts["recorded"][name].get("stable"), starts["recorded"][name]
    assert starts["unchanged"][name]["changes"] == []
    told = [change[0] for change in starts["next"][name]["changes"]]
    assert any(CHANGED[index][3] in words for words in told), told


@pytest.mark.parametrize("index", range(len(SAME)), ids=[case[0] for case in SAME])
def test_what_changes_nothing_does_not_matter(starts: dict[str, dict[str, Any]], index: int) -> None:
    name = f"same{index}"
    assert starts["recorded"][name].get("stable"), starts["recorded"][name]
    assert starts["next"][name]["changes"] == []


@pytest.mark.parametrize("index", range(len(REFUSED)), ids=[case[0] for case in REFUSED])
def test_what_cannot_be_followed_is_refused_by_name(starts: dict[str, dict[str, Any]], index: int) -> None:
    found = starts["recorded"][f"refused{index}"]
    assert "refused" in found, found
    for word in REFUSED[index][2]:
        assert word in found["refused"], found["refused"]


def test_equal_digests_under_all_seeds(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    write_goods(site)
    sources = {f"case{i}": case[1] for i, case in enumerate(CHANGED) if "GUARDED" not in case[1]}
    write_cases(tmp_path / "cases", sources)
    digests = []
    for seed in range(10):
        found = child("record", tmp_path / "cases", site, str(seed))
        digests.append({name: one["digest"] for name, one in found.items()})
    assert all(one == digests[0] for one in digests)


SETS = "names = {'a', 'b', 'c', 'd', 'e'}\ndef root(x):\n    return [x for x in names]\n"
NUMBERS = "names = {1, 2, 3}\ndef root(x):\n    return [x for x in names]\n"


def test_the_order_of_sets_counts_where_it_can_be_seen(tmp_path: Path) -> None:
    write_cases(tmp_path / "cases", {"numbers": NUMBERS, "one": SETS})
    child("record", tmp_path / "cases", tmp_path, "1")
    assert told(tmp_path / "cases", tmp_path, "1") == []
    assert told(tmp_path / "cases", tmp_path, "2") == ["the order of sets (PYTHONHASHSEED)"]
    assert child("check", tmp_path / "cases", tmp_path, "2")["numbers"]["changes"] == []


@pytest.mark.parametrize(
    ("code", "counts"),
    [
        ("a.keys() | b.keys()", True),
        ("a.items() - b.items()", True),
        ("kind(a)", True),
        ("[k for k in a.keys()]", False),
        ("[v - 1 for k, v in a.items()]", False),
        ("a | b", False),
    ],
)
def test_sets_that_have_another_name(tmp_path: Path, code: str, counts: bool) -> None:
    source = f"a, b, kind = {{'a': 1, 'bb': 2}}, {{'ccc': 3}}, type({{1}})\ndef root(x):\n    return {code}\n"
    write_cases(tmp_path / "cases", {"one": source})
    child("record", tmp_path / "cases", tmp_path, "1")
    assert told(tmp_path / "cases", tmp_path, "2") == (["the order of sets (PYTHONHASHSEED)"] if counts else [])


PROGRAM = "import goods, goods.part\ndef root(x):\n    return goods.part.outer(goods.double(x))\n"


def installed(tmp_path: Path) -> tuple[Path, Path]:
    site, cases = tmp_path / "site-packages", tmp_path / "cases"
    write_goods(site)
    write_cases(cases, {"one": PROGRAM})
    assert "digest" in child("record", cases, site, "0")["one"]
    return site, cases


def told(cases: Path, site: Path, seed: str = "0") -> list[str]:
    return [change[0] for change in child("check", cases, site, seed)["one"]["changes"]]


def test_another_version_of_a_library(tmp_path: Path) -> None:
    site, cases = installed(tmp_path)
    assert told(cases, site) == []
    write_goods(site, part=PART + "# more\n")
    assert "the package goods 1.0" in told(cases, site)


def test_a_file_of_a_library_edited_in_place(tmp_path: Path) -> None:
    site, cases = installed(tmp_path)
    (site / "goods" / "part.py").write_text(PART.replace("+ 1", "+ 2"))
    assert "goods/part.py" in told(cases, site)


def test_a_library_that_is_gone(tmp_path: Path) -> None:
    site, cases = installed(tmp_path)
    (site / "goods-1.0.dist-info").rename(site / "goods-2.0.dist-info")
    assert "the package goods 1.0" in told(cases, site)


def test_a_library_in_another_place_is_the_same(tmp_path: Path) -> None:
    site, cases = installed(tmp_path)
    other = tmp_path / "elsewhere" / "site-packages"
    shutil.copytree(site, other)
    shutil.rmtree(site)
    assert told(cases, other) == []


def test_a_module_that_is_imported_only_when_it_runs(tmp_path: Path) -> None:
    source = (
        "import sys\nsys.path.insert(0, __file__.removesuffix('case.py'))\n"
        "def root(x):\n    import late\n    return late.k\n"
    )
    write_cases(tmp_path / "cases", {"one": source})
    (tmp_path / "cases" / "one" / "late.py").write_text("k = 1\n")
    refused = child("record", tmp_path / "cases", tmp_path, "0")["one"]["refused"]
    assert "late.py" in refused
    assert "import it before the first call" in refused


def test_an_edited_library_counts_as_the_users(tmp_path: Path) -> None:
    site, cases = tmp_path / "site-packages", tmp_path / "cases"
    write_goods(site)
    (site / "goods" / "__init__.py").write_text(GOODS + "# mine\n")
    write_cases(cases, {"one": "import goods\ndef root(x):\n    return goods.double(x)\n"})
    assert "digest" in child("record", cases, site, "0")["one"]
    assert told(cases, site) == []
    (site / "goods" / "__init__.py").write_text(GOODS.replace("x * 2", "x * 3"))
    assert any("double" in one for one in told(cases, site))


def test_the_summary_is_for_people(starts: dict[str, dict[str, Any]]) -> None:
    names = [case[0] for case in CHANGED]
    summary = starts["recorded"][f"changed{names.index('a file')}"]["summary"]
    assert any(line.startswith("the file ") for line in summary)
    summary = starts["recorded"][f"changed{names.index('a setting of a library')}"]["summary"]
    assert "the package goods 1.0: 1 file whose code ran" in summary
    assert "what goods holds: LIMIT" in summary
    json.dumps(summary)
