"""A table of changes to code: each must change the digest, or must not, in fresh processes that differ in all else."""

from __future__ import annotations

import json
import sys

import pytest

from conftest import clean_environment, execute

# Runs in a fresh process: each source becomes a module, and `root` in it is looked at.
DRIVER = r"""
import json, sys, types
from rewarm.errors import NotFingerprintableError
from rewarm.fingerprint import fingerprint

file, salt, lines = sys.argv[1], sys.argv[2], int(sys.argv[3])
helpers = types.ModuleType("helpers")
sys.modules["helpers"] = helpers
found = {}
for source in json.load(open(file)):
    helpers.__dict__.update(scale=2.0, unused=1)
    module = sys.modules["case"] = types.ModuleType("case")
    exec(compile("\n" * lines + source, f"/somewhere/{salt}.py", "exec"), module.__dict__)
    try:
        found[source] = fingerprint(module.root).digest
    except NotFingerprintableError as error:
        found[source] = f"refused: {error}"
print(json.dumps(found))
"""

F = "def root(x):\n    return {}\n"

# name, source, another source
DIFFERENT = [
    ("a number in the code", F.format("x + 1"), F.format("x + 2")),
    ("an operation", F.format("x + 1"), F.format("x - 1")),
    ("int and float", F.format("x + 1"), F.format("x + 1.0")),
    ("the sign of zero", F.format("x * 0.0"), F.format("x * -0.0")),
    ("bool and int", F.format("x is True"), F.format("x is 1")),
    ("a frozenset", F.format("x in {1, 2, 3}"), F.format("x in {1, 2, 4}")),
    ("a name that is read", "a = b = 1\n" + F.format("a"), "a = b = 1\n" + F.format("b")),
    ("an attribute that is read", F.format("x.a"), F.format("x.b")),
    ("a default", "def root(x, k=1): return k", "def root(x, k=2): return k"),
    ("a keyword default", "def root(x, *, k=1): return k", "def root(x, *, k=2): return k"),
    ("keyword or positional", "def root(x, *, k=1): return k", "def root(x, k=1): return k"),
    ("positional only", "def root(x, /): return x", "def root(x): return x"),
    ("a generator", "def root(x):\n    return x", "async def root(x):\n    return x"),
    ("a global", "K = 2\n" + F.format("x * K"), "K = 3\n" + F.format("x * K")),
    ("a global that is missing", "K = 2\n" + F.format("x * K"), F.format("x * K")),
    ("a global that hides a builtin", F.format("len(x)"), "def len(x): return 3\n" + F.format("len(x)")),
    (
        "a global of nested code",
        "K = 2\ndef root(x):\n    def lower(y): return y * K\n    return lower",
        "K = 3\ndef root(x):\n    def lower(y): return y * K\n    return lower",
    ),
    (
        "a global of a lambda in a comprehension",
        "K = 2\n" + F.format("[(lambda: i * K) for i in x]"),
        "K = 3\n" + F.format("[(lambda: i * K) for i in x]"),
    ),
    (
        "a constant of nested code",
        "def root(x):\n    def lower(y): return y * 2\n    return lower",
        "def root(x):\n    def lower(y): return y * 3\n    return lower",
    ),
    (
        "a global of a class in a function",
        "K = 2\ndef root(x):\n    class A:\n        k = K\n    return A",
        "K = 3\ndef root(x):\n    class A:\n        k = K\n    return A",
    ),
    (
        "a helper two calls away",
        "def b(x): return x + 1\ndef a(x): return b(x)\n" + F.format("a(x)"),
        "def b(x): return x + 2\ndef a(x): return b(x)\n" + F.format("a(x)"),
    ),
    (
        "a closure",
        "def make(k):\n    def f(x): return x * k\n    return f\nroot = make(2)",
        "def make(k):\n    def f(x): return x * k\n    return f\nroot = make(3)",
    ),
    (
        "an empty cell",
        "def make():\n    def f(x): return k\n    return f\n    k = 1\nroot = make()",
        "def make():\n    def f(x): return k\n    k = 1\n    return f\nroot = make()",
    ),
    (
        "the function in a closure",
        "def make(g):\n    def f(x): return g(x)\n    return f\nroot = make(lambda x: x)",
        "def make(g):\n    def f(x): return g(x)\n    return f\nroot = make(lambda x: -x)",
    ),
    (
        "an exception handler",
        "def root(x):\n    try: return x()\n    except ValueError: return 1",
        "def root(x):\n    try: return x()\n    except TypeError: return 1",
    ),
    ("lists or names of arguments", "def root(*x): return x", "def root(**x): return x"),
    (
        "where exceptions go",
        "def root(x):\n    try: return x()\n    except ValueError: return 1",
        "def root(x):\n    try: return x()\n    except ValueError: return 1\n"
        "root.__code__ = root.__code__.replace(co_exceptiontable=b'')",
    ),
    (
        "an empty cell and one with nothing",
        "def make():\n    def f(x): return k\n    return f\n    k = 1\nroot = make()",
        "def make(k):\n    def f(x): return k\n    return f\nroot = make(None)",
    ),
    ("an attribute of a function", "def root(x): return root.k\nroot.k = 1", "def root(x): return root.k\nroot.k = 2"),
    (
        "a module's attribute",
        "import helpers\nhelpers.scale = 2\n" + F.format("helpers.scale"),
        "import helpers\nhelpers.scale = 3\n" + F.format("helpers.scale"),
    ),
    (
        "a module's attribute, imported inside",
        "import helpers as h\nh.scale = 2\ndef root(x):\n    import helpers\n    return helpers.scale",
        "import helpers as h\nh.scale = 3\ndef root(x):\n    import helpers\n    return helpers.scale",
    ),
    (
        "a module's attribute, imported inside by another name",
        "import helpers as h\nh.scale = 2\ndef root(x):\n    import helpers as g\n    return [g.scale for _ in x]",
        "import helpers as h\nh.scale = 3\ndef root(x):\n    import helpers as g\n    return [g.scale for _ in x]",
    ),
    (
        "a module's attribute, imported from inside",
        "import helpers as h\nh.scale = 2\ndef root(x):\n    from helpers import scale\n    return scale",
        "import helpers as h\nh.scale = 3\ndef root(x):\n    from helpers import scale\n    return scale",
    ),
    (
        "a module's attribute, imported outside of where it is used",
        "import helpers as h\nh.scale = 2\ndef root(x):\n"
        "    import helpers as g\n    def f(): return g.scale\n    return f",
        "import helpers as h\nh.scale = 3\ndef root(x):\n"
        "    import helpers as g\n    def f(): return g.scale\n    return f",
    ),
    (
        "a module in a closure",
        "import helpers\nhelpers.scale = 2\ndef make(m):\n    return lambda x: x * m.scale\nroot = make(helpers)",
        "import helpers\nhelpers.scale = 3\ndef make(m):\n    return lambda x: x * m.scale\nroot = make(helpers)",
    ),
    (
        "a module in a closure of nested code",
        "import helpers\nhelpers.scale = 2\n"
        "def make(m):\n    return lambda x: lambda: x * m.scale\nroot = make(helpers)",
        "import helpers\nhelpers.scale = 3\n"
        "def make(m):\n    return lambda x: lambda: x * m.scale\nroot = make(helpers)",
    ),
    ("a pure function", "import math\n" + F.format("math.sin(x)"), "import math\n" + F.format("math.cos(x)")),
    (
        "a function by the same name",
        "from math import sin as f\n" + F.format("f(x)"),
        "from math import cos as f\n" + F.format("f(x)"),
    ),
    (
        "a method",
        "class A:\n    def m(self): return 1\nroot = A()",
        "class A:\n    def m(self): return 2\nroot = A()",
    ),
    ("a class attribute", "class A:\n    k = 1\n" + F.format("A.k"), "class A:\n    k = 2\n" + F.format("A.k")),
    (
        "a base class",
        "class B:\n    def m(self): return 1\nclass A(B): pass\nroot = A()",
        "class B:\n    def m(self): return 2\nclass A(B): pass\nroot = A()",
    ),
    (
        "the order of bases",
        "class B:\n    k = 1\nclass C:\n    k = 2\nclass A(B, C): pass\nroot = A",
        "class B:\n    k = 1\nclass C:\n    k = 2\nclass A(C, B): pass\nroot = A",
    ),
    (
        "a metaclass",
        "class M(type):\n    def __call__(cls): return 1\nclass A(metaclass=M): pass\nroot = A",
        "class M(type):\n    def __call__(cls): return 2\nclass A(metaclass=M): pass\nroot = A",
    ),
    (
        "a property",
        "class A:\n    @property\n    def m(self): return 1\nroot = A()",
        "class A:\n    @property\n    def m(self): return 2\nroot = A()",
    ),
    (
        "a cached property",
        "import functools\nclass A:\n    @functools.cached_property\n    def m(self): return 1\nroot = A()",
        "import functools\nclass A:\n    @functools.cached_property\n    def m(self): return 2\nroot = A()",
    ),
    (
        "a static method and a class method",
        "class A:\n    @staticmethod\n    def m(x): return 1\nroot = A()",
        "class A:\n    @classmethod\n    def m(x): return 1\nroot = A()",
    ),
    (
        "a method of C that was borrowed",
        "class A:\n    __hash__ = object.__hash__\nroot = A()",
        "class A:\n    __hash__ = int.__hash__\nroot = A()",
    ),
    (
        "an instance's attribute",
        "class A:\n    def __init__(self, k): self.k = k\nroot = A(1)",
        "class A:\n    def __init__(self, k): self.k = k\nroot = A(2)",
    ),
    (
        "a slot",
        "class A:\n    __slots__ = ('k',)\n    def __init__(self, k): self.k = k\nroot = A(1)",
        "class A:\n    __slots__ = ('k',)\n    def __init__(self, k): self.k = k\nroot = A(2)",
    ),
    (
        "a slot that is not set",
        "class A:\n    __slots__ = ('k',)\nroot = A()\nroot.k = None",
        "class A:\n    __slots__ = ('k',)\nroot = A()",
    ),
    ("a bound method's object", "root = [1].count", "root = [2].count"),
    (
        "a bound method's state",
        "class A:\n    def __init__(self, k): self.k = k\n    def m(self, x): return self.k\nroot = A(1).m",
        "class A:\n    def __init__(self, k): self.k = k\n    def m(self, x): return self.k\nroot = A(2).m",
    ),
    (
        "a partial's argument",
        "import functools\nroot = functools.partial(lambda k, x: k, 1)",
        "import functools\nroot = functools.partial(lambda k, x: k, 2)",
    ),
    (
        "a partial's keyword",
        "import functools\nroot = functools.partial(lambda x, k: k, k=1)",
        "import functools\nroot = functools.partial(lambda x, k: k, k=2)",
    ),
    (
        "an attribute of a partial",
        "import functools\np = functools.partial(int)\np.k = 1\n" + F.format("p.k"),
        "import functools\np = functools.partial(int)\np.k = 2\n" + F.format("p.k"),
    ),
    (
        "an attribute of a cached function",
        "import functools\n@functools.cache\ndef root(x): return root.k\nroot.k = 1",
        "import functools\n@functools.cache\ndef root(x): return root.k\nroot.k = 2",
    ),
    (
        "a partial method",
        "import functools\nclass A:\n    def m(self, k): return k\n    p = functools.partialmethod(m, 1)\nroot = A",
        "import functools\nclass A:\n    def m(self, k): return k\n    p = functools.partialmethod(m, 2)\nroot = A",
    ),
    (
        "a function behind a cache",
        "import functools\n@functools.lru_cache\ndef root(x): return 1",
        "import functools\n@functools.lru_cache\ndef root(x): return 2",
    ),
    (
        "a function of a singledispatch",
        "import functools\n@functools.singledispatch\ndef root(x): return 1\n@root.register(int)\ndef f(x): return 2",
        "import functools\n@functools.singledispatch\ndef root(x): return 1\n@root.register(int)\ndef f(x): return 3",
    ),
    (
        "a type of a singledispatch",
        "import functools\n@functools.singledispatch\ndef root(x): return 1\n@root.register(int)\ndef f(x): return 2",
        "import functools\n@functools.singledispatch\ndef root(x): return 1\n@root.register(str)\ndef f(x): return 2",
    ),
    (
        "a function of a singledispatchmethod",
        "import functools\nclass root:\n    @functools.singledispatchmethod\n    def m(self, x): return 1",
        "import functools\nclass root:\n    @functools.singledispatchmethod\n    def m(self, x): return 2",
    ),
    (
        "what functools.wraps hides",
        "import functools, math\n@functools.wraps(math.sin)\ndef root(x): return 1",
        "import functools, math\n@functools.wraps(math.sin)\ndef root(x): return 2",
    ),
    (
        "a context manager",
        "import contextlib\n@contextlib.contextmanager\ndef root(): yield 1",
        "import contextlib\n@contextlib.contextmanager\ndef root(): yield 2",
    ),
    (
        "a member of an enum",
        "import enum\nclass E(enum.Enum):\n    A = 1\n    B = 2\nroot = E.A",
        "import enum\nclass E(enum.Enum):\n    A = 1\n    B = 2\nroot = E.B",
    ),
    (
        "the value of another member",
        "import enum\nclass E(enum.IntEnum):\n    A = 1\n    B = 2\nroot = E.A",
        "import enum\nclass E(enum.IntEnum):\n    A = 1\n    B = 3\nroot = E.A",
    ),
    (
        "a field of a dataclass",
        "import dataclasses\n@dataclasses.dataclass\nclass D:\n    a: int = 1\nroot = D()",
        "import dataclasses\n@dataclasses.dataclass\nclass D:\n    a: int = 2\nroot = D(1)",
    ),
    (
        "a frozen dataclass's value",
        "import dataclasses\n@dataclasses.dataclass(frozen=True, slots=True)\nclass D:\n    a: int\nroot = D(1)",
        "import dataclasses\n@dataclasses.dataclass(frozen=True, slots=True)\nclass D:\n    a: int\nroot = D(2)",
    ),
    (
        "a value of a namedtuple",
        "import collections\nN = collections.namedtuple('N', 'a b')\nroot = N(1, 2)",
        "import collections\nN = collections.namedtuple('N', 'a b')\nroot = N(1, 3)",
    ),
    (
        "a field of a namedtuple",
        "import collections\nN = collections.namedtuple('N', 'a b')\nroot = N(1, 2)",
        "import collections\nN = collections.namedtuple('N', 'b a')\nroot = N(1, 2)",
    ),
    (
        "a virtual subclass",
        "import abc\nclass A(abc.ABC): pass\nclass B: pass\n" + F.format("isinstance(x, A)"),
        "import abc\nclass A(abc.ABC): pass\nclass B: pass\nA.register(B)\n" + F.format("isinstance(x, A)"),
    ),
    (
        "a name that is read",
        "def fast(x): return x\n" + F.format("fast.__name__"),
        "def slow(x): return x\nfast = slow\n" + F.format("fast.__name__"),
    ),
    (
        "a name that a string shows",
        "class Fast: pass\nK = Fast\n" + F.format("f'{K}'"),
        "class Slow: pass\nK = Slow\n" + F.format("f'{K}'"),
    ),
    (
        "a docstring that is read",
        "def f(x):\n    'one'\n" + F.format("f.__doc__"),
        "def f(x):\n    'two'\n" + F.format("f.__doc__"),
    ),
    (
        "a string that could be a docstring and is returned by a generator",
        "def root(x):\n    return ('one' for _ in x)",
        "def root(x):\n    return ('two' for _ in x)",
    ),
    (
        "code that also warns and logs",
        "import logging, warnings, os\ndef root(x):\n    warnings.warn('a')\n    logging.info(os.path.join('a', x))",
        "import logging, warnings, os\ndef root(x):\n    warnings.warn('a')\n    logging.info(os.path.join('b', x))",
    ),
    ("one list in two places", "a = [1]\nroot = (a, a)", "a = [1]\nroot = (a, [1])"),
    ("one sentinel in two places", "a = object()\nroot = (a, a)", "a = object()\nroot = (a, object())"),
    (
        "which of two equal lists",
        "a, b = [1], [1]\nroot = [a, b, a]",
        "a, b = [1], [1]\nroot = [a, b, b]",
    ),
    ("a list in itself", "root = []\nroot.append(root)", "root = [[]]\nroot[0].append(root)"),
    (
        "who calls whom",
        "def a(x): return b(x)\ndef b(x): return a(x)\nroot = a",
        "def a(x): return b(x)\ndef b(x): return b(x)\nroot = a",
    ),
    (
        "an object in a set",
        "class A: pass\na, b = A(), A()\nb.k = 1\nroot = ({a, b}, a)",
        "class A: pass\na, b = A(), A()\nb.k = 1\nroot = ({a, b}, b)",
    ),
    ("the order of a dictionary", "root = {'a': 1, 'b': 2}", "root = {'b': 2, 'a': 1}"),
    (
        "the order of an ordered dictionary",
        "import collections\nroot = collections.OrderedDict(a=1, b=2)",
        "import collections\nroot = collections.OrderedDict(a=1, b=2)\nroot.move_to_end('a')",
    ),
    (
        "the context of decimals",
        "import decimal\nD = decimal.Decimal\ndecimal.getcontext().prec = 28\n" + F.format("D(1) / x"),
        "import decimal\nD = decimal.Decimal\ndecimal.getcontext().prec = 9\n" + F.format("D(1) / x"),
    ),
    (
        "a logger's level",
        "import logging\nroot = logging.getLogger('a')\nroot.setLevel(10)",
        "import logging\nroot = logging.getLogger('a')\nroot.setLevel(20)",
    ),
    (
        "what a getter gets",
        "import operator\nroot = operator.attrgetter('a')",
        "import operator\nroot = operator.attrgetter('b')",
    ),
    (
        "a mapping behind a proxy",
        "import types\nroot = types.MappingProxyType({'a': 1})",
        "import types\nroot = types.MappingProxyType({'a': 2})",
    ),
]

LONG = "def root(x):\n    y = x + 1\n    return y\n"

# name, source, another source
SAME = [
    ("lines before", LONG, "\n\n# a comment\n\n" + LONG),
    ("lines between", LONG, "def root(x):\n    y = x + 1\n\n    # a comment\n    return y\n"),
    ("a docstring", "def root(x):\n    return x, None, 2.5", 'def root(x):\n    "one"\n    return x, None, 2.5'),
    ("another docstring", 'def root(x):\n    "one"\n    return x', 'def root(x):\n    "two, longer"\n    return x'),
    ("another docstring of a class", 'class A:\n    "one"\nroot = A()', 'class A:\n    "two, longer"\nroot = A()'),
    ("another name", "def root(x): return x", "def another(x): return x\nroot = another"),
    ("another name of a class", "class A:\n    k = 1\nroot = A()", "class B:\n    k = 1\nroot = B()"),
    ("the order of methods", "class A:\n    a = 1\n    b = 2\nroot = A", "class A:\n    b = 2\n    a = 1\nroot = A"),
    ("annotations", "def root(x): return x", "def root(x: int) -> 'str': return x"),
    ("annotations of a class", "class A:\n    k: int = 1\nroot = A", "class A:\n    k: 'str' = 1\nroot = A"),
    ("an unused global", "K = 1\n" + F.format("x"), "K = 2\n" + F.format("x")),
    ("an attribute as another global", "K = 1\n" + F.format("x.K"), "K = 2\n" + F.format("x.K")),
    (
        "an unused attribute of a module",
        "import helpers\nhelpers.unused = 1\n" + F.format("helpers.scale"),
        "import helpers\nhelpers.unused = 2\n" + F.format("helpers.scale"),
    ),
    (
        "an unused attribute of a module in nested code",
        "import helpers\nhelpers.unused = 1\ndef root(x):\n    return lambda: helpers.scale",
        "import helpers\nhelpers.unused = 2\ndef root(x):\n    return lambda: helpers.scale",
    ),
    ("a set written in another order", "root = {'a', 'b', 'c'}", "root = {'c', 'b', 'a'}"),
    ("a set in code", F.format("x in {'a', 'b', 'c'}"), F.format("x in {'c', 'b', 'a'}")),
    ("the same string made in another way", "root = ['ab' * 3, 'ab' * 3]", "root = [''.join(['ab'] * 3), 'ababab']"),
    ("the same tuple twice or once", "a = (1, [])[:1]\nroot = (a, a)", "root = (tuple([1]), tuple([1]))"),
    (
        "a function that has run",
        "def root(x): return x + 1\n",
        "def root(x): return x + 1\nfor i in range(5000): root(i)",
    ),
    (
        "a function that has run with globals and attributes",
        "import math\nK = 1\ndef root(x): return math.sin(x) + K + x.real",
        "import math\nK = 1\ndef root(x): return math.sin(x) + K + x.real\nfor i in range(5000): root(i)",
    ),
    (
        "a function that was traced",
        "def root(x): return x + 1\n",
        "import sys\ndef root(x): return x + 1\nsys.settrace(lambda *_: None)\nroot(1)\nsys.settrace(None)",
    ),
    (
        "a cache that was filled",
        "import functools\n@functools.lru_cache\ndef root(x): return x",
        "import functools\n@functools.lru_cache\ndef root(x): return x\nroot(1)",
    ),
    (
        "a singledispatch that was called",
        "import functools\n@functools.singledispatch\ndef root(x): return 1",
        "import functools\n@functools.singledispatch\ndef root(x): return 1\nroot(2)",
    ),
    (
        "a set of functions",
        "def a(x): return 1\ndef b(x): return 2\ndef c(x): return 3\nroot = {a, b, c}",
        "def c(x): return 3\ndef b(x): return 2\ndef a(x): return 1\nroot = {c, a, b}",
    ),
    (
        "a copied enum flag",
        "import enum\nclass E(enum.Flag):\n    A = 1\n    B = 2\nroot = E.A",
        "import enum\nclass E(enum.Flag):\n    A = 1\n    B = 2\nE.A | E.B\nroot = E.A",
    ),
]

CASES = [(f"{name}: different", a, b, False) for name, a, b in DIFFERENT]
CASES += [(f"{name}: same", a, b, True) for name, a, b in SAME]


@pytest.fixture(scope="module")
def digests(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """Source to digest, as three processes see it."""
    place = tmp_path_factory.mktemp("changes")
    (place / "driver.py").write_text(DRIVER)
    sources = sorted({source for _, a, b, _ in CASES for source in (a, b)})
    found = []
    for seed, lines in ((0, 0), (1, 300), (4242, 7)):
        folder = place / f"cwd_{seed}"
        folder.mkdir()
        # Another order too, so that nothing that an earlier case left behind can count.
        ordered = sources if seed != 1 else sources[::-1]
        (folder / "sources.json").write_text(json.dumps(ordered))
        command = [sys.executable, str(place / "driver.py"), str(folder / "sources.json"), f"salt{seed}", str(lines)]
        run = execute(command, env=clean_environment(PYTHONHASHSEED=str(seed)), cwd=folder)
        assert run.code == 0, run.err[-3000:]
        found.append(run.json)
    return found


@pytest.mark.parametrize(("name", "a", "b", "same"), CASES, ids=[name for name, *_ in CASES])
def test_a_change_counts_or_not(digests: list[dict[str, str]], name: str, a: str, b: str, same: bool) -> None:
    for source in (a, b):
        seen = {run[source] for run in digests}
        assert len(seen) == 1, f"processes disagree: {seen}"
        assert len(seen.pop()) == 64, digests[0][source]
    assert (digests[0][a] == digests[0][b]) is same


def test_the_table_has_no_case_twice() -> None:
    pairs = [(a, b) for _, a, b, _ in CASES]
    assert len(set(pairs)) == len(pairs)
