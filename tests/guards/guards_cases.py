"""Programs for the guards: what changes between two starts, and what refuses."""

from __future__ import annotations

F = "def root(x):\n    return {}\n"

# Name, source, the next start's source, and a word of what is told.
CHANGED = [
    ("a number", F.format("x + 1"), F.format("x + 2"), "case.py: function root"),
    ("a helper", "def h(x): return x\n" + F.format("h(x)"), "def h(x): return -x\n" + F.format("h(x)"), "function h"),
    ("a value", "scale = 1.0\n" + F.format("x * scale"), "scale = 2.0\n" + F.format("x * scale"), "the value of scale"),
    ("a default", "def root(x, k=1): return x + k", "def root(x, k=2): return x + k", "default 0"),
    ("a keyword", "def root(x, *, k=1): return x + k", "def root(x, *, k=2): return x + k", "default k"),
    (
        "a closure",
        "def make(k):\n    def f(x): return x * k\n    return f\nroot = make(2)",
        "def make(k):\n    def f(x): return x * k\n    return f\nroot = make(3)",
        "the value of k",
    ),
    (
        "a decorator",
        "def d(f):\n    def g(x): return f(x)\n    return g\n@d\n" + F.format("x"),
        "def d(f):\n    def g(x): return f(x) + 1\n    return g\n@d\n" + F.format("x"),
        "d.<locals>.g",
    ),
    (
        "a method",
        "class A:\n    def f(self, x): return x\na = A()\n" + F.format("a.f(x)"),
        "class A:\n    def f(self, x): return x + 1\na = A()\n" + F.format("a.f(x)"),
        "A.f",
    ),
    (
        "an override",
        "class A:\n    def f(self, x): return x\nclass B(A):\n    pass\nb = B()\n" + F.format("b.f(x)"),
        "class A:\n    def f(self, x): return x\nclass B(A):\n    def f(self, x): return 1\nb = B()\n"
        + F.format("b.f(x)"),
        "B",
    ),
    (
        "an attribute, nested",
        "class A: pass\na = A(); a.b = A(); a.b.k = 1\n" + F.format("x + a.b.k"),
        "class A: pass\na = A(); a.b = A(); a.b.k = 2\n" + F.format("x + a.b.k"),
        "the value of a",
    ),
    (
        "a slot",
        "class A:\n    __slots__ = ('k',)\na = A(); a.k = 1\n" + F.format("x + a.k"),
        "class A:\n    __slots__ = ('k',)\na = A(); a.k = 2\n" + F.format("x + a.k"),
        "the value of a",
    ),
    (
        "a class attribute, set later",
        "class A:\n    k = 1\na = A()\n" + F.format("x + a.k"),
        "class A:\n    k = 1\nA.k = 2\na = A()\n" + F.format("x + a.k"),
        "value of a",
    ),
    (
        "a method of one instance",
        "class A:\n    def f(self): return 1\na = A()\n" + F.format("x + a.f()"),
        "class A:\n    def f(self): return 1\na = A(); a.f = lambda: 2\n" + F.format("x + a.f()"),
        "value of a",
    ),
    (
        "an argument of partial",
        "import functools\ndef f(k, x): return x + k\ng = functools.partial(f, 1)\n" + F.format("g(x)"),
        "import functools\ndef f(k, x): return x + k\ng = functools.partial(f, 2)\n" + F.format("g(x)"),
        "value of g",
    ),
    (
        "a dictionary filled elsewhere",
        "D = {}\nD['k'] = 1\n" + F.format("x + D['k']"),
        "D = {}\nD['k'] = 2\n" + F.format("x + D['k']"),
        "value of D",
    ),
    (
        "a lambda in a dictionary",
        "D = {'f': lambda x: x}\n" + F.format("D['f'](x)"),
        "D = {'f': lambda x: x + 1}\n" + F.format("D['f'](x)"),
        "<lambda>",
    ),
    (
        "an attribute of a function",
        "def f(x): return x * f.k\nf.k = 1\n" + F.format("f(x)"),
        "def f(x): return x * f.k\nf.k = 2\n" + F.format("f(x)"),
        "attribute k",
    ),
    (
        "code of text, held in a global",
        "ns = {}\nexec('def f(x): return x', ns)\nf = ns['f']\n" + F.format("f(x)"),
        "ns = {}\nexec('def f(x): return x + 1', ns)\nf = ns['f']\n" + F.format("f(x)"),
        "function f",
    ),
    (
        "an attribute made when it is asked for",
        "class A:\n    held = {'k': 1}\n    def __getattr__(self, n): return A.held[n]\na = A()\n"
        + F.format("x + a.k"),
        "class A:\n    held = {'k': 2}\n    def __getattr__(self, n): return A.held[n]\na = A()\n"
        + F.format("x + a.k"),
        "value of a",
    ),
    (
        "a property over a global",
        "k = 1\nclass A:\n    @property\n    def k(self): return k\na = A()\n" + F.format("x + a.k"),
        "k = 2\nclass A:\n    @property\n    def k(self): return k\na = A()\n" + F.format("x + a.k"),
        "value of k",
    ),
    (
        "a registry on a metaclass",
        "class M(type):\n    reg = {'k': 1}\nclass A(metaclass=M): pass\n" + F.format("x + type(A).reg['k']"),
        "class M(type):\n    reg = {'k': 2}\nclass A(metaclass=M): pass\n" + F.format("x + type(A).reg['k']"),
        "value of A",
    ),
    (
        "a subclass of int with an attribute",
        "class I(int): pass\ni = I(1); i.k = 1\n" + F.format("x + i.k"),
        "class I(int): pass\ni = I(1); i.k = 2\n" + F.format("x + i.k"),
        "value of i",
    ),
    (
        "a variable of contexts",
        "import contextvars\nv = contextvars.ContextVar('v'); v.set(1)\n" + F.format("x + v.get()"),
        "import contextvars\nv = contextvars.ContextVar('v'); v.set(2)\n" + F.format("x + v.get()"),
        "value of v",
    ),
    (
        "the default of a variable of contexts",
        "import contextvars\nv = contextvars.ContextVar('v', default=1)\n" + F.format("x + v.get()"),
        "import contextvars\nv = contextvars.ContextVar('v', default=2)\n" + F.format("x + v.get()"),
        "value of v",
    ),
    (
        "what a function of Python's library calls, patched",
        "import statistics\n" + F.format("statistics.fmean([x, 2])"),
        "import statistics\nstatistics.fsum = lambda values: 5.0\n" + F.format("statistics.fmean([x, 2])"),
        "statistics.fsum",
    ),
    (
        "an operator of a class of Python's library, patched",
        "import fractions\nh = fractions.Fraction(1, 2)\n" + F.format("x + float(h + h)"),
        "import fractions\nfractions.Fraction.__add__ = lambda a, b: 5\nh = fractions.Fraction(1, 2)\n"
        + F.format("x + float(h + h)"),
        "the methods of fractions.Fraction",
    ),
    (
        "an override in a class of Python's library",
        "import fractions\nh = fractions.Fraction(1, 2)\n" + F.format("x + float(h)"),
        "import fractions\nfractions.Fraction.__float__ = lambda a: 5.0\nh = fractions.Fraction(1, 2)\n"
        + F.format("x + float(h)"),
        "the methods of fractions.Fraction",
    ),
    (
        "an array in a setting of a library",
        "import goods, numpy\ngoods.config.strict = numpy.array([1])\n" + F.format("goods.configured(x)"),
        "import goods, numpy\ngoods.config.strict = numpy.array([0])\n" + F.format("goods.configured(x)"),
        "the value of goods.config",
    ),
    (
        "a module in a zip file",
        "import sys, zipfile\np = __file__.replace('case.py', 'code.zip')\n"
        "with zipfile.ZipFile(p, 'w') as z:\n    z.writestr('zipped_goods.py', 'def g(x): return x + 1')\n"
        "sys.path.insert(0, p)\nimport zipped_goods\nsys.path.remove(p)\n" + F.format("zipped_goods.g(x)"),
        "import sys, zipfile\np = __file__.replace('case.py', 'code.zip')\n"
        "with zipfile.ZipFile(p, 'w') as z:\n    z.writestr('zipped_goods.py', 'def g(x): return x + 2')\n"
        "sys.path.insert(0, p)\nimport zipped_goods\nsys.path.remove(p)\n" + F.format("zipped_goods.g(x)"),
        "function g",
    ),
    (
        "a variable of threads",
        "import threading\nv = threading.local(); v.k = 1\n" + F.format("x + v.k"),
        "import threading\nv = threading.local(); v.k = 2\n" + F.format("x + v.k"),
        "value of v",
    ),
    (
        "what a weak reference refers to",
        "import weakref\nclass A: pass\na = A(); a.k = 1\nr = weakref.ref(a)\n" + F.format("x + r().k"),
        "import weakref\nclass A: pass\na = A(); a.k = 2\nr = weakref.ref(a)\n" + F.format("x + r().k"),
        "value of r",
    ),
    (
        "a weak dictionary",
        "import weakref\nclass A: pass\na = A(); a.k = 1\nd = weakref.WeakValueDictionary(a=a)\n"
        + F.format("x + d['a'].k"),
        "import weakref\nclass A: pass\na = A(); a.k = 2\nd = weakref.WeakValueDictionary(a=a)\n"
        + F.format("x + d['a'].k"),
        "value of d",
    ),
    (
        "a registry of singledispatch",
        "import functools\n@functools.singledispatch\ndef f(x): return 1\n@f.register\ndef _(x: int): return 2\n"
        + F.format("f(x)"),
        "import functools\n@functools.singledispatch\ndef f(x): return 1\n@f.register\ndef _(x: int): return 3\n"
        + F.format("f(x)"),
        "function _",
    ),
    (
        "an array",
        "import array\na = array.array('d', [1])\n" + F.format("x + a[0]"),
        "import array\na = array.array('d', [2])\n" + F.format("x + a[0]"),
        "value of a",
    ),
    (
        "what a cached function calls, which did not run",
        "import functools\ndef g(n): return n\n@functools.lru_cache\ndef f(n): return g(n)\n"
        "def before(): f(2)\n" + F.format("f(x)"),
        "import functools\ndef g(n): return n + 1\n@functools.lru_cache\ndef f(n): return g(n)\n"
        "def before(): f(2)\n" + F.format("f(x)"),
        "function g",
    ),
    (
        "sys.argv",
        "import sys\nsys.argv = ['a', '1']\n" + F.format("x + int(sys.argv[1])"),
        "import sys\nsys.argv = ['a', '2']\n" + F.format("x + int(sys.argv[1])"),
        "sys.argv",
    ),
    (
        "the environment",
        "import os\nos.environ['GUARDED_A'] = '1'\n" + F.format("x + int(os.environ['GUARDED_A'])"),
        "import os\nos.environ['GUARDED_A'] = '2'\n" + F.format("x + int(os.environ['GUARDED_A'])"),
        "the environment variable GUARDED_A",
    ),
    (
        "a variable that was not set",
        "import os\n" + F.format("x + int(os.getenv('GUARDED_B', '0'))"),
        "import os\nos.environ['GUARDED_B'] = '2'\n" + F.format("x + int(os.getenv('GUARDED_B', '0'))"),
        "the environment variable GUARDED_B",
    ),
    (
        "whether a variable is set",
        "import os\n" + F.format("'GUARDED_C' in os.environ"),
        "import os\nos.environ['GUARDED_C'] = ''\n" + F.format("'GUARDED_C' in os.environ"),
        "the environment variable GUARDED_C",
    ),
    (
        "a file",
        "p = __file__.replace('case.py', 'data')\nopen(p, 'w').write('1')\n" + F.format("x + int(open(p).read())"),
        "p = __file__.replace('case.py', 'data')\nopen(p, 'w').write('2')\n" + F.format("x + int(open(p).read())"),
        "the file ",
    ),
    (
        "what was declared",
        "D = {'k': 1}\nimport goods\ngoods.REGISTRY['f'] = lambda x: x + D['k']\n"
        "DEPENDS_ON = (goods.REGISTRY['f'],)\n" + F.format("goods.dispatch('f', x)"),
        "D = {'k': 2}\nimport goods\ngoods.REGISTRY['f'] = lambda x: x + D['k']\n"
        "DEPENDS_ON = (goods.REGISTRY['f'],)\n" + F.format("goods.dispatch('f', x)"),
        "value of D",
    ),
    (
        "a function of a library, patched",
        "import goods\n" + F.format("goods.double(x)"),
        "import goods\nkept = goods.double\ngoods.double = lambda x: x\nroot = None\ndef root(x):\n"
        "    return kept(x)\n",
        "goods.double",
    ),
    (
        "an inner function of a library, patched",
        "import goods, goods.part\ngoods.part.inner = goods.part.first\n" + F.format("goods.part.outer(x)"),
        "import goods, goods.part\ngoods.part.inner = lambda x: x\n" + F.format("goods.part.outer(x)"),
        "goods.part.inner",
    ),
    (
        "a method of a library, patched",
        "import goods\n" + F.format("goods.Thing().get(x)"),
        "import goods\ngoods.Thing.get = lambda self, x: x\n" + F.format("goods.Thing().get(x)"),
        "goods.Thing.get",
    ),
    (
        "a setting of a library",
        "import goods\ngoods.LIMIT = 7\n" + F.format("goods.limited(x)"),
        "import goods\ngoods.LIMIT = 8\n" + F.format("goods.limited(x)"),
        "the value of goods.LIMIT",
    ),
    (
        "a setting in an object of a library",
        "import goods\ngoods.config.strict = False\n" + F.format("goods.configured(x)"),
        "import goods\ngoods.config.strict = True\n" + F.format("goods.configured(x)"),
        "the value of goods.config",
    ),
    (
        "state of a library, by an adapter",
        "import goods\nfrom rewarm.guards import Adapter\ndef held(): return [1]\n"
        "ADAPTERS = (Adapter('goods', held),)\n" + F.format("goods.double(x)"),
        "import goods\nfrom rewarm.guards import Adapter\ndef held(): return [2]\n"
        "ADAPTERS = (Adapter('goods', held),)\n" + F.format("goods.double(x)"),
        "the state of goods",
    ),
    (
        "a class that says what counts",
        "class A:\n    def __init__(self, k): self.k = k; self.at = object()\n"
        "    def __rewarm_digest__(self): return ('A', self.k)\na = A(1)\n" + F.format("x + a.k"),
        "class A:\n    def __init__(self, k): self.k = k; self.at = object()\n"
        "    def __rewarm_digest__(self): return ('A', self.k)\na = A(2)\n" + F.format("x + a.k"),
        "value of a",
    ),
    (
        "a method of a class that says what counts",
        "class A:\n    def __init__(self, k): self.k = k; self.at = object()\n    def f(self, x): return x\n"
        "    def __rewarm_digest__(self): return self.k\nclass B(A): pass\na = B(1)\n" + F.format("a.f(x)"),
        "class A:\n    def __init__(self, k): self.k = k; self.at = object()\n    def f(self, x): return -x\n"
        "    def __rewarm_digest__(self): return self.k\nclass B(A): pass\na = B(1)\n" + F.format("a.f(x)"),
        "function A.f",
    ),
    (
        "how a class is taken apart",
        "class A: pass\na = A()\ndef companions(cls): return [lambda a: 1]\n" + F.format("a"),
        "class A: pass\na = A()\ndef companions(cls): return [lambda a: 2]\n" + F.format("a"),
        "<lambda>",
    ),
]

# The same program in other words.
SAME = [
    ("a comment", F.format("x + 1"), "# said\n" + F.format("x + 1  # more")),
    ("lines", "k = 1\n" + F.format("x + k"), "\n\n\nk = 1\n\n\n" + F.format("x + k")),
    ("a docstring", 'def root(x):\n    """One."""\n    return x', 'def root(x):\n    """Two."""\n    return x'),
    (
        "another function in the file",
        "def other(): return 1\n" + F.format("x"),
        "def other(): return 2\n" + F.format("x"),
    ),
    ("another value in the file", "other = 1\n" + F.format("x"), "other = 2\n" + F.format("x")),
    (
        "a file that is not read",
        "p = __file__.replace('case.py', 'other')\nopen(p, 'w').write('1')\n" + F.format("x"),
        "p = __file__.replace('case.py', 'other')\nopen(p, 'w').write('2')\n" + F.format("x"),
    ),
    ("a variable that is not read", F.format("x"), "import os\nos.environ['GUARDED_D'] = '1'\n" + F.format("x")),
    (
        "what an idle method mentions and cannot be told",
        "import time\nclass A:\n    def f(self, x): return x\n    def log(self): return time.time()\na = A()\n"
        + F.format("a.f(x)"),
        "import time\nclass A:\n    def f(self, x): return x\n    def log(self): return time.time()\na = A()\n"
        + F.format("a.f(x)"),
    ),
    (
        "classes of dataclasses, namedtuples and enumerations",
        "import dataclasses, enum, typing\n@dataclasses.dataclass(frozen=True)\nclass A:\n    k: int = 1\n"
        "class T(typing.NamedTuple):\n    k: int\nclass E(enum.Enum):\n    one = 1\n"
        + F.format("A(x).k + T(x).k + E.one.value + hash(A(1) == A(2)) * 0 if False else A(x).k + T(x).k"),
        "import dataclasses, enum, typing\n@dataclasses.dataclass(frozen=True)\nclass A:\n    k: int = 1\n"
        "class T(typing.NamedTuple):\n    k: int\nclass E(enum.Enum):\n    one = 1\n"
        + F.format("A(x).k + T(x).k + E.one.value + hash(A(1) == A(2)) * 0 if False else A(x).k + T(x).k"),
    ),
    (
        "a class made while it runs",
        "import dataclasses\ndef root(x):\n    @dataclasses.dataclass\n    class A:\n        k: int = 1\n    return A(x).k\n",  # noqa: E501
        "import dataclasses\ndef root(x):\n    @dataclasses.dataclass\n    class A:\n        k: int = 1\n    return A(x).k\n",  # noqa: E501
    ),
    (
        "a cache of a library that fills",
        "import goods\n" + F.format("goods.remembered(x)"),
        "import goods\ngoods.remembered(5)\ngoods.remembered(6)\n" + F.format("goods.remembered(x)"),
    ),
    (
        "log lines",
        *["import logging\nl = logging.getLogger(__name__)\ndef root(x):\n    l.warning('said %s', x)\n    return x\n"]
        * 2,
    ),
    (
        "locks and streams",
        *[
            "import threading, sys\nl = threading.Lock()\ndef root(x):\n    with l:\n        print('', end='', file=sys.stderr)\n        return x\n"  # noqa: E501
        ]
        * 2,
    ),
]

# Name, source, words of the refusal.
REFUSED = [
    ("the time", "import time\n" + F.format("x + time.time()"), ("time.time",)),
    ("the date", "import datetime\n" + F.format("datetime.datetime.now()"), ("now",)),
    ("random numbers", "import random\n" + F.format("random.random()"), ("random",)),
    ("a seeded generator", "import random\nr = random.Random(0)\n" + F.format("r.random()"), ("andom",)),
    ("bytes of the system", "import os\n" + F.format("os.urandom(1)"), ("urandom",)),
    ("a unique id", "import uuid\n" + F.format("uuid.uuid4()"), ("uuid4",)),
    ("the process", "import os\n" + F.format("os.getpid()"), ("getpid",)),
    ("whether a file is there", "import os\n" + F.format("os.path.exists('/x')"), ("stat", "case.py: root")),
    ("a path that is there", "import pathlib\np = pathlib.Path('/x')\n" + F.format("p.exists()"), ("exists",)),
    ("a folder by another way", "import os\n" + F.format("list(os.walk('/nothing'))"), ("scandir",)),
    ("a folder", "import glob\n" + F.format("glob.glob('/*.nothing')"), ("glob",)),
    ("a number of an object", F.format("id(x)"), ("id",)),
    ("a hash", F.format("hash('x')"), ("hash",)),
    (
        "a file that is written",
        "p = __file__.replace('case.py', 'out')\n" + F.format("open(p, 'w').close()"),
        ("written",),
    ),
    ("a generator", "g = (i for i in range(9))\n" + F.format("next(g)"), ("generator", "position")),
    ("an iterator", "g = iter([1, 2])\n" + F.format("next(g)"), ("list_iterator",)),
    ("hidden state of C", "import itertools\nc = itertools.count()\n" + F.format("next(c)"), ("count",)),
    ("all globals", F.format("globals()"), ("globals",)),
    ("code of text", F.format("eval('1')"), ("eval",)),
    ("all of the environment", "import os\n" + F.format("len(dict(os.environ))"), ("environment",)),
    ("a variable that it sets", "n = 0\ndef root(x):\n    global n\n    n += 1\n    return n\n", ("global n",)),
    (
        "a module that is not there",
        "def root(x):\n    try:\n        import nowhere_at_all\n    except ImportError:\n        return x\n",
        ("nowhere_at_all",),
    ),
    (
        "a module as a value",
        "import json\ndef f(m): return m.dumps(1)\n" + F.format("f(json)"),
        ("json", "module used as a value"),
    ),
    (
        "what a registry of a library holds",
        "import goods\ngoods.REGISTRY['f'] = lambda x: x + 1\n" + F.format("goods.dispatch('f', x)"),
        ("<lambda>", "nothing that the traced function names leads to it", "depends_on="),
    ),
    (
        "a patched method of a library",
        "import goods\ngoods.Thing.get = lambda self, x: x\n" + F.format("goods.Thing().get(x)"),
        ("<lambda>", "depends_on="),
    ),
    (
        "a computed attribute of a module",
        "import sys\ndef helper(x): return x\n" + F.format("getattr(sys.modules[__name__], 'hel' + 'per')(x)"),
        ("module",),
    ),
    (
        "the time, behind a cache that knew it",
        "import functools, time\n@functools.lru_cache\ndef f(): return time.time()\ndef before(): f()\n"
        + F.format("x + f()"),
        ("time.time",),
    ),
    (
        "the environment, behind a cache that knew it",
        "import functools, os\n@functools.lru_cache\ndef f(): return os.environ.get('A')\ndef before(): f()\n"
        + F.format("f()"),
        ("environment", "results are kept"),
    ),
    (
        "the time, by a second call in one place",
        "import time\ndef call(f): return f()\ndef root(x):\n    return [call(f) for f in (dict, time.time)]\n",
        ("time",),
    ),
    (
        "a function of another language",
        "import ctypes\nlib = ctypes.CDLL(None)\n" + F.format("lib.getpid()"),
        ("ctypes",),
    ),
    ("random numbers of numpy", "import numpy as np\n" + F.format("np.random.rand()"), ("random",)),
    ("a device", F.format("open('/dev/zero', 'rb').read(1)"), ("/dev/zero", "each process")),
    (
        "a large file",
        "p = __file__.replace('case.py', 'large')\nf = open(p, 'wb'); f.truncate(80 << 20); f.close()\n"
        + F.format("open(p, 'rb').read(1)"),
        ("more than 64 MB",),
    ),
    (
        "the machine, known since before",
        "import platform\nplatform.machine()\n" + F.format("platform.machine()"),
        ("platform",),
    ),
    (
        "a module by its name",
        "import importlib\n" + F.format("importlib.import_module('json').dumps(x)"),
        ("importlib",),
    ),
    ("lines of the source", "import inspect\n" + F.format("inspect.stack()[0].lineno"), ("inspect",)),
    (
        "the source",
        "import inspect\ninspect.getsource(inspect)\n" + F.format("inspect.getsource(inspect.stack)"),
        ("inspect",),
    ),
    ("the number of the thread", "import threading\n" + F.format("threading.get_ident()"), ("get_ident",)),
    ("a limit of Python's", "import sys\n" + F.format("sys.getrecursionlimit()"), ("getrecursionlimit",)),
    (
        "all variables of the context",
        "import contextvars\n" + F.format("len(contextvars.copy_context())"),
        ("copy_context",),
    ),
    (
        "a pickle that names something",
        "import pickle\n" + F.format("pickle.loads(b'cbuiltins\\nlen\\n.')"),
        ("pickle",),
    ),
    (
        "the memory of an array",
        "import numpy as np\na = np.ones((2, 3))\n" + F.format("x * a.strides[0]"),
        ("strides", "memory"),
    ),
    (
        "standard input",
        "import sys\nsys.stdin = open(__file__)\n" + F.format("sys.stdin.readline()"),
        ("TextIOWrapper",),
    ),
    ("a process", "import subprocess\n" + F.format("subprocess.run(['true'])"), ("subprocess",)),
    ("another thread", "import threading\n" + F.format("threading.Thread(target=print).start()"), ("thread",)),
]
