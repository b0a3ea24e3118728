"""What has no fingerprint, and that the message says where it is and why."""

from __future__ import annotations

import pickle
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from rewarm.errors import NotFingerprintableError, RewarmError
from rewarm.fingerprint import fingerprint

ARROW = " \N{RIGHTWARDS ARROW} "


def root_of(source: str, **held: object) -> Any:
    """`root` of a module with this source."""
    module = types.ModuleType("case")
    module.__dict__.update(held)
    exec(compile(source, "case.py", "exec"), module.__dict__)
    return module.root


def refusal(value: object, **settings: Any) -> NotFingerprintableError:
    with pytest.raises(NotFingerprintableError) as caught:
        fingerprint(value, name="root", **settings)
    assert "\n" not in str(caught.value)
    assert " at 0x" not in str(caught.value)
    return caught.value


F = "def root(x): return {}"

# name, source, the end of the path, a word of the reason
TABLE = [
    ("global", "n = 0\ndef root(x):\n    global n\n    n += 1", "root", "global n"),
    ("del global", "n = 0\ndef root(x):\n    global n\n    del n", "root", "global n"),
    (
        "nested global",
        "n = 0\ndef root(x):\n    def f():\n        global n\n        n = 1\n    f()",
        "root",
        "global n",
    ),
    (
        "nonlocal",
        "def make():\n    n = 0\n    def f():\n        nonlocal n\n        n += 1\n    return f\nroot = make()",
        "root",
        "nonlocal n",
    ),
    (
        "nested nonlocal",
        "def make():\n    n = 0\n    def f():\n        def g():\n"
        "            nonlocal n\n            n += 1\n        g()\n"
        "    return f\nroot = make()",
        "root",
        "nonlocal n",
    ),
    ("open", F.format("open(x)"), "root → global open", "C function of"),
    ("open inside", "def root(x):\n    return lambda: open(x)", "root → global open", "C function of"),
    ("eval", F.format("eval(x)"), "root → global eval", "eval"),
    ("exec", F.format("exec(x)"), "root → global exec", "exec"),
    ("globals", F.format("globals()[x]"), "root → global globals", "globals"),
    ("locals", F.format("locals()"), "root → global locals", "locals"),
    ("vars", F.format("vars(x)"), "root → global vars", "vars"),
    ("id", F.format("id(x)"), "root → global id", "id"),
    ("hash", F.format("hash(x)"), "root → global hash", "hash"),
    ("__hash__", F.format("x.__hash__()"), "root", "__hash__"),
    ("__import__", F.format("__import__(x)"), "root → global __import__", "__import__"),
    ("input", F.format("input()"), "root → global input", "input"),
    ("time", "import time\n" + F.format("time.time()"), "root → global time.time", "C function of time"),
    ("getpid", "import os\n" + F.format("os.getpid()"), "root → global os.getpid", "C function of"),
    ("random", "import random\n" + F.format("random.random()"), "root → global random.random → self", ""),
    ("environ", "import os\n" + F.format("os.environ['A']"), "root → global os.environ", "environ"),
    ("environ from", "from os import environ\n" + F.format("environ['A']"), "root → global environ", "environ"),
    ("environ inside", "def root(x):\n    import os\n    return os.environ", "root → import os.environ", "environ"),
    ("getenv", "import os\n" + F.format("os.getenv('A')"), "global os.getenv → global environ", "environ"),
    (
        "getenv by from",
        "from os import getenv\n" + F.format("getenv('A')"),
        "global getenv → global environ",
        "environ",
    ),
    ("environ held", "import os\nroot = [os.environ]", "root → item 0", "environ"),
    ("getattr of a module", "import sample\n" + F.format("getattr(sample, x)"), "root → global sample", "value"),
    ("getattr of an environment", "import os\n" + F.format("getattr(os, 'environ')"), "root → global os", "value"),
    (
        "module in another variable",
        "import sample\ndef root(x):\n    m = sample\n    return m.k",
        "root → global sample",
        "value",
    ),
    ("module set", "import sample\ndef root(x):\n    sample.k = x", "root → global sample", "value"),
    ("module held", "import sample\nroot = {'a': sample}", "root → value 'a'", "value"),
    ("module as default", "import sample\ndef root(x, m=sample): return m.k", "root → default 0", "value"),
    ("module in a class", "import sample\nclass root:\n    m = sample", "root → attribute m", "value"),
    (
        "module's namespace",
        "import sample\n" + F.format("sample.__dict__[x]"),
        "root → global sample.__dict__",
        "namespace",
    ),
    (
        "module's own attribute",
        "import sample\n" + F.format("sample.__class__"),
        "global sample.__class__",
        "module object",
    ),
    ("made attribute", "import lazy\n" + F.format("lazy.other"), "root → global lazy.other", "when it is asked"),
    ("own kind of module", "import strange\n" + F.format("strange.k"), "root → global strange.k", "own kind"),
    (
        "late import",
        "def root(x):\n    import not_there\n    return not_there.k",
        "root → import not_there",
        "only when",
    ),
    (
        "late part",
        "def root(x):\n    import sample.part\n    return sample.part.k",
        "root → import sample.part",
        "only when",
    ),
    (
        "late part from",
        "def root(x):\n    from sample import part\n    return part",
        "root → import sample.part",
        "only when",
    ),
    (
        "import in class",
        "def root(x):\n    class A:\n        import sample\n    return A",
        "root → import sample",
        "value",
    ),
    (
        "import into an outer variable",
        "def root(x):\n    m = None\n    def f():\n"
        "        nonlocal m\n        import sample as m\n    f()\n    return m.k",
        "root → import sample",
        "value",
    ),
    ("all builtins", "import builtins\nroot = [builtins]", "root → item 0", "builtin"),
    ("__builtins__", F.format("__builtins__"), "root → global __builtins__", "imports"),
    ("globals of a function", F.format("x.__globals__"), "root", "__globals__"),
    ("globals by a string", F.format("getattr(x, '__globals__')"), "root", "__globals__"),
    (
        "globals by a list of strings",
        F.format("[getattr(x, name) for name in ('a', '__globals__')]"),
        "root",
        "__globals__",
    ),
    ("globals by a format", F.format("'{0.__globals__}'.format(x)"), "root", "__globals__"),
    ("frame", "import sys\n" + F.format("sys._getframe()"), "root → global sys._getframe", "C function of sys"),
    ("line number", F.format("x.__traceback__"), "root", "__traceback__"),
    ("annotations", F.format("x.__annotations__"), "root", "__annotations__"),
    ("the module of a C function", F.format("len.__self__.open(x)"), "root", "__self__"),
    ("generator", "root = (i for i in 'abc')", "root", "position"),
    ("iterator", "root = iter([1])", "root", "C"),
    ("counter", "import itertools\nroot = itertools.count()", "root", "C"),
    ("held file", "root = {'f': open('/dev/null')}", "root → value 'f'", "open file"),
    (
        "lock",
        "import threading\nclass A: pass\nroot = A()\nroot.lock = threading.Lock()",
        "root → attribute lock",
        "lock",
    ),
    ("local", "import threading\nroot = threading.local()", "root", "thread"),
    ("context variable", "import contextvars\nroot = contextvars.ContextVar('a')", "root", "context"),
    ("code", "root = (lambda: 1).__code__", "root", "globals"),
    (
        "method that reads",
        "class A:\n    def load(self): return open('a')\nroot = A()",
        "class → attribute load → global open",
        "",
    ),
    (
        "base that reads",
        "class B:\n    def m(self): return open('a')\nclass root(B): pass",
        "base B → attribute m → global open",
        "",
    ),
    ("exception", "root = ValueError(1)", "root", "C"),
    ("unknown type of C", "import _random\nroot = _random.Random()", "root", "C"),
    ("derived from C", "import random\nroot = random.Random(1)", "root", "C"),
    ("class of C", "import _random\n" + F.format("_random.Random"), "root → global _random.Random", "C"),
    (
        "path that is read",
        "import pathlib\nP = pathlib.Path('a')\n" + F.format("P.read_text()"),
        "'read_text'",
        "file system",
    ),
    (
        "path that is read by name",
        "import pathlib\nP = pathlib.Path('a')\nK = 'stat'\n" + F.format("getattr(P, K)()"),
        "'stat'",
        "file",
    ),
    ("clock of a date", "import datetime\nD = datetime.date(2020, 1, 1)\n" + F.format("D.today()"), "'today'", "clock"),
    (
        "path and a name that is made",
        "import pathlib\nP = pathlib.Path('a')\n" + F.format("getattr(P, 'read_' + x)()"),
        "'getattr'",
        "file system",
    ),
    (
        "path and a getter by another name",
        "import pathlib, operator\nP, G = pathlib.Path('a'), operator.attrgetter\n" + F.format("G('read_' + x)(P)()"),
        "'attrgetter'",
        "file system",
    ),
    ("clock", "import datetime\n" + F.format("datetime.datetime.now()"), "root → global datetime.datetime", "C"),
    ("decimal context", "import decimal\n" + F.format("decimal.getcontext()"), "global decimal.getcontext", "outside"),
    ("working directory", "import contextlib\n" + F.format("contextlib.chdir"), "global contextlib.chdir", "outside"),
    ("type hints", "import typing\n" + F.format("typing.get_type_hints(x)"), "root", "get_type_hints"),
]


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of the user: a plain one, one that makes attributes, one of its own type."""

    class Strange(types.ModuleType):
        @property
        def k(self) -> int:
            return len(sys.modules)

    for name, kind in (("sample", types.ModuleType), ("lazy", types.ModuleType), ("strange", Strange)):
        module = kind(name)
        if name != "strange":
            module.k = 1  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["lazy"].__getattr__ = lambda _: 1  # type: ignore[method-assign]


@pytest.mark.parametrize(("source", "way", "reason"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("modules")
def test_refused(source: str, way: str, reason: str) -> None:
    error = refusal(root_of(source))
    if way.startswith("'"):
        assert way in error.found
    else:
        assert error.path.endswith(way.replace(" → ", ARROW))
    assert error.path.startswith("root")
    assert reason in error.reason


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: weakref.ref(refusal), "weak"),
        (sys._getframe, "frame"),
        (threading.RLock, "lock"),
        (lambda: memoryview(b"a"), "memory"),
        (lambda: sys, "module"),
    ],
    ids=["weak reference", "frame", "rlock", "memoryview", "module"],
)
def test_refused_objects(make: Callable[[], object], reason: str) -> None:
    assert reason in refusal([make()]).reason


def test_what_a_call_sets_for_itself_is_no_state() -> None:
    source = "def root(x):\n    n = 0\n    def f():\n        nonlocal n\n        n += 1\n    f()\n    return n"
    assert len(fingerprint(root_of(source)).digest) == 64


def test_two_elements_of_a_set_that_are_alike() -> None:
    class Plain:
        pass

    assert "alike" in refusal({Plain(), Plain()}).reason
    assert fingerprint({Plain()}).digest == fingerprint({Plain()}).digest


def test_too_many_objects() -> None:
    assert "100000 objects" in refusal(list(range(100_001))).reason
    doubled: tuple[object, ...] = ()
    for _ in range(60):
        doubled = (doubled, doubled)
    assert "100000 objects" in refusal(doubled).reason


def test_too_many_bytes() -> None:
    numpy = pytest.importorskip("numpy")
    # Zeros that nobody touched take no memory.
    assert "256 MB" in refusal([numpy.zeros(1 << 20), numpy.zeros(300 << 20, dtype="u1")]).reason
    assert "256 MB" in refusal([b"a" * (129 << 20)] * 2).reason


@pytest.mark.parametrize("depth", [10_000, 90_000])
def test_depth_is_not_bounded_by_the_recursion_limit(depth: int) -> None:
    nested: list[Any] = []
    for _ in range(depth):
        nested = [nested]
    other: list[Any] = [[]]
    for _ in range(depth):
        other = [other]
    assert fingerprint(nested).digest != fingerprint(other).digest
    for _ in range(depth):  # freed step by step
        nested, other = nested[0], other[0]


def test_sets_inside_sets_are_bounded() -> None:
    nested: frozenset[Any] = frozenset()
    for _ in range(10):
        nested = frozenset([nested])
    assert fingerprint(nested).digest != fingerprint(frozenset([nested])).digest
    for _ in range(10_000):
        nested = frozenset([nested])
    assert "sets" in refusal(nested).reason


def test_a_long_way_is_shortened() -> None:
    nested: list[Any] = [open]
    for _ in range(1000):
        nested = [nested]
    assert len(refusal(nested).path) < 300
    assert "more)" in refusal(nested).path


def test_a_set_that_holds_itself_ends() -> None:
    class Holder:
        pass

    one = Holder()
    one.held = {one, "a"}  # type: ignore[attr-defined]
    assert len(fingerprint(one).digest) == 64
    assert len(fingerprint(one.held).digest) == 64  # type: ignore[attr-defined]


def test_no_code_of_the_users_runs() -> None:
    class Trap:
        def __getattribute__(self, name: str) -> object:
            raise AssertionError(name)

        def __hash__(self) -> int:
            return 1

        def __repr__(self) -> str:
            raise AssertionError("repr")

        __str__ = __repr__

        def __eq__(self, other: object) -> bool:
            raise AssertionError("eq")

        def __len__(self) -> int:
            raise AssertionError("len")

        def __bool__(self) -> bool:
            raise AssertionError("bool")

    class Numbers(int):
        def __int__(self) -> int:
            raise AssertionError("int")

        __index__ = __int__  # type: ignore[assignment]

        def bit_length(self) -> int:
            raise AssertionError("bit_length")

    class Items(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            raise AssertionError("items")

        def __iter__(self) -> Any:
            raise AssertionError("iter")

    for value in ([Trap(), Trap()], {Trap(): 1}, {Trap()}, Numbers(300), Items(a=1)):
        assert len(fingerprint(value).digest) == 64
    assert fingerprint(Numbers(300)).digest != fingerprint(Numbers(301)).digest
    assert fingerprint(Items(a=1)).digest != fingerprint(Items(a=2)).digest


def test_the_error() -> None:
    error = refusal(root_of(F.format("open(x)")))
    assert isinstance(error, RewarmError)
    assert isinstance(error, TypeError)
    assert str(error).startswith("no fingerprint for open (")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.path, copy.found, copy.reason, str(copy)) == (error.path, error.found, error.reason, str(error))
