"""Whose code counts by name: only of installations that can be proven unmodified."""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib
import json
import shutil
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rewarm.errors import NotFingerprintableError
from rewarm.fingerprint import Trusted, fingerprint

CODE = """
import functools
K = 2
def double(x): return x * K
def plain(x): return x
def load(path): return path
def make(k):
    def inner(x): return x * k
    return inner
def keep(f):
    @functools.wraps(f)
    def inner(x): return f(x)
    return inner
class Thing:
    def __init__(self, k): self.k = k
    def get(self): return self.k * K
class Slotted:
    __slots__ = ("k",)
thing = Thing(1)
limit = 7
def __getattr__(name):
    if name == "late":
        return 5
    raise AttributeError(name)
"""


class Wheel:
    """One distribution, `goods`, in a directory of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.info = place / "goods-1.0.dist-info"
        (place / "goods").mkdir()
        self.info.mkdir()
        self.write("goods/__init__.py", CODE)
        self.write("goods/part.py", "def f(x): return x\n")
        self.record()

    def write(self, name: str, text: str) -> None:
        (self.place / name).write_text(text)

    def record(self, *more: str) -> None:
        rows = [f"{path},{self.hash(path)},{(self.place / path).stat().st_size}" for path in self.files()]
        self.info.joinpath("RECORD").write_text("\n".join([*rows, "goods-1.0.dist-info/RECORD,,", *more]) + "\n")

    def files(self) -> list[str]:
        return sorted(path.relative_to(self.place).as_posix() for path in self.place.glob("goods/*.py"))

    def hash(self, path: str) -> str:
        digest = hashlib.sha256((self.place / path).read_bytes()).digest()
        return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def load(self) -> Any:
        for name in [name for name in sys.modules if name.partition(".")[0] == "goods"]:
            del sys.modules[name]
        importlib.invalidate_caches()
        return importlib.import_module("goods")

    def digest(self, make: Callable[[Any], object]) -> str:
        """Of something made of the module, as the next process sees it."""
        return fingerprint(make(self.load()), trusted=Trusted({"goods"})).digest


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wheel]:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Wheel(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "goods"]:
        del sys.modules[name]


def part_of(value: object, **rules: Any) -> str:
    """The text for the root."""
    return next(iter(fingerprint(value, trusted=Trusted({"goods"}), **rules).parts.values()))


def test_a_function_counts_by_name(wheel: Wheel) -> None:
    goods = wheel.load()
    assert part_of(goods.double) == "goods.double"
    assert part_of(goods.Thing) == "goods.Thing"
    assert wheel.digest(lambda goods: goods.double) != wheel.digest(lambda goods: goods.plain)


def test_the_globals_of_trusted_code_are_not_followed(wheel: Wheel) -> None:
    def changed(goods: Any) -> object:
        goods.K = 3
        return goods.double

    assert wheel.digest(changed) == wheel.digest(lambda goods: goods.double)
    assert fingerprint(changed(wheel.load())).digest != fingerprint(wheel.load().double).digest  # not trusted: followed


def test_another_content_of_the_wheel_counts(wheel: Wheel) -> None:
    before = wheel.digest(lambda goods: goods.plain)
    wheel.write("goods/part.py", "def f(x): return -x\n")
    wheel.record()
    assert wheel.digest(lambda goods: goods.plain) != before


def test_rows_that_installers_add_do_not_count(wheel: Wheel) -> None:
    before = wheel.digest(lambda goods: goods.plain)
    wheel.record(
        "../../../bin/goods.py,sha256=AAAA,7",
        "goods/__pycache__/part.cpython-312.pyc,,",
        "goods-1.0.dist-info/INSTALLER,sha256=A,4",
    )
    assert wheel.digest(lambda goods: goods.plain) == before


def _editable(wheel: Wheel) -> None:
    (wheel.info / "direct_url.json").write_text(json.dumps({"url": "file:///x", "dir_info": {"editable": True}}))


def _local(wheel: Wheel) -> None:
    (wheel.info / "direct_url.json").write_text(json.dumps({"url": "file:///x", "dir_info": {}}))


def _unreadable(wheel: Wheel) -> None:
    (wheel.info / "direct_url.json").write_bytes(b"\xff{")


def _no_record(wheel: Wheel) -> None:
    (wheel.info / "RECORD").unlink()


def _no_info(wheel: Wheel) -> None:
    wheel.info.rename(wheel.place / "elsewhere")


def _two(wheel: Wheel) -> None:
    shutil.copytree(wheel.info, wheel.place / "goods-2.0.dist-info")


def _changed(wheel: Wheel) -> None:
    text = (wheel.place / "goods/__init__.py").read_text()
    wheel.write("goods/__init__.py", text.replace("K = 2", "K = 3"))


def _another_file_grew(wheel: Wheel) -> None:
    wheel.write("goods/part.py", "def f(x): return x  # longer\n")


def _another_file_went(wheel: Wheel) -> None:
    (wheel.place / "goods/part.py").unlink()


def _not_in_record(wheel: Wheel) -> None:
    record = wheel.info / "RECORD"
    record.write_text("".join(line for line in record.read_text().splitlines(True) if "__init__" not in line))


def _no_hash(wheel: Wheel) -> None:
    record = wheel.info / "RECORD"
    record.write_text(record.read_text().replace(wheel.hash("goods/part.py"), ""))


def _empty(wheel: Wheel) -> None:
    (wheel.info / "RECORD").write_text("")


DOUBTS = [
    _editable, _local, _unreadable, _no_record, _no_info, _two, _changed, _another_file_grew, _another_file_went,
    _not_in_record, _no_hash, _empty,
]  # fmt: skip


@pytest.mark.parametrize("doubt", DOUBTS, ids=lambda doubt: doubt.__name__.strip("_"))
def test_code_in_doubt_is_followed(wheel: Wheel, doubt: Callable[[Wheel], None]) -> None:
    doubt(wheel)
    assert part_of(wheel.load().double).startswith("code ")
    one = wheel.digest(lambda goods: goods.double)
    wheel.write("goods/__init__.py", CODE.replace("K = 2", "K = 4"))
    assert wheel.digest(lambda goods: goods.double) != one


def test_a_module_that_is_not_of_the_wheel_is_followed(wheel: Wheel) -> None:
    wheel.write("goods/mine.py", "K = 1\ndef f(x): return K\n")
    wheel.load()
    mine = importlib.import_module("goods.mine")
    assert part_of(mine.f).startswith("code ")


def test_a_forged_name_does_not_help(wheel: Wheel) -> None:
    goods = wheel.load()

    @functools.wraps(goods.double)
    def mine(x: Any) -> Any:
        return x * 3

    assert (mine.__module__, mine.__qualname__) == ("goods", "double")
    assert part_of(mine).startswith("code ")
    goods.double = mine
    assert part_of(goods.double).startswith("code ")

    scope: dict[str, Any] = {"__name__": "goods", "K": 1}
    exec("def double(x): return x * K", scope)
    assert part_of(scope["double"]).startswith("code ")

    mine_class = type("Thing", (), {"__module__": "goods", "k": 1})
    another = type("Thing", (), {"__module__": "goods", "k": 2})
    trusted = Trusted({"goods"})
    assert fingerprint(mine_class, trusted=trusted).digest != fingerprint(another, trusted=trusted).digest


def test_what_the_user_put_into_a_trusted_module_is_followed(wheel: Wheel) -> None:
    def digest(k: int) -> str:
        goods = wheel.load()
        goods.mine = lambda x: x * k
        module = types.ModuleType("case")
        module.goods = goods  # type: ignore[attr-defined]
        exec("def root(x): return goods.mine(x)", module.__dict__)
        return fingerprint(module.root, trusted=Trusted({"goods"})).digest

    assert digest(1) == digest(1) != digest(2)


def test_a_closure_of_trusted_code_counts_with_what_it_holds(wheel: Wheel) -> None:
    assert wheel.digest(lambda goods: goods.make(1)) == wheel.digest(lambda goods: goods.make(1))
    assert wheel.digest(lambda goods: goods.make(1)) != wheel.digest(lambda goods: goods.make(2))
    one, other = (lambda x: x + 1), (lambda x: x + 2)
    assert wheel.digest(lambda goods: goods.keep(one)) == wheel.digest(lambda goods: goods.keep(one))
    assert wheel.digest(lambda goods: goods.keep(one)) != wheel.digest(lambda goods: goods.keep(other))
    with pytest.raises(NotFingerprintableError, match="global eval"):
        wheel.digest(lambda goods: goods.keep(lambda x: [eval(x)]))


def test_a_module_level_wrapper_of_foreign_code_is_followed(wheel: Wheel) -> None:
    def patched(k: int) -> Callable[[Any], object]:
        def put(goods: Any) -> object:
            inner = goods.keep(lambda x: x * k)
            inner.__code__ = inner.__code__.replace(co_qualname="double")
            goods.double = inner
            return inner

        return put

    assert wheel.digest(patched(1)) != wheel.digest(patched(2))


def test_an_instance_of_a_trusted_class_counts_by_state(wheel: Wheel) -> None:
    assert wheel.digest(lambda goods: goods.Thing(1)) == wheel.digest(lambda goods: goods.thing)
    assert wheel.digest(lambda goods: goods.Thing(1)) != wheel.digest(lambda goods: goods.Thing(2))
    assert wheel.digest(lambda goods: goods.Thing(1).get) != wheel.digest(lambda goods: goods.Thing(2).get)

    def slotted(k: int) -> Callable[[Any], object]:
        def make(goods: Any) -> object:
            made = goods.Slotted()
            made.k = k
            return made

        return make

    assert wheel.digest(slotted(1)) == wheel.digest(slotted(1)) != wheel.digest(slotted(2))


def test_a_trusted_module_as_a_value(wheel: Wheel) -> None:
    assert part_of(wheel.load()) == "goods"
    assert wheel.digest(lambda goods: [goods]) == wheel.digest(lambda goods: [goods])
    with pytest.raises(NotFingerprintableError, match="module"):
        fingerprint([wheel.load()])


def test_attributes_that_a_trusted_module_makes(wheel: Wheel) -> None:
    def digest(name: str) -> str:
        module = types.ModuleType("case")
        module.goods = wheel.load()  # type: ignore[attr-defined]
        exec(f"def root(x): return goods.{name}", module.__dict__)
        return next(reversed(fingerprint(module.root, trusted=Trusted({"goods"})).parts.values()))

    assert digest("late") == "5"
    assert digest("never") == "attribute"


def test_a_wheel_is_looked_at_once(wheel: Wheel) -> None:
    goods, trusted = wheel.load(), Trusted({"goods"})
    before = fingerprint(goods.plain, trusted=trusted).digest
    _changed(wheel)  # the code in memory is still the old
    assert fingerprint(goods.plain, trusted=trusted).digest == before
    assert fingerprint(goods.plain, trusted=Trusted({"goods"})).digest != before


def test_a_module_that_took_a_name_of_pythons(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bisect.py").write_text("K = 1\ndef f(x): return K\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "bisect", raising=False)
    bisect: Any = importlib.import_module("bisect")
    assert bisect.__file__.startswith(str(tmp_path))
    found = fingerprint(bisect.f, trusted=Trusted())
    assert found.parts["value \N{RIGHTWARDS ARROW} global K"] == "1"
    monkeypatch.undo()
    sys.modules.pop("bisect", None)
