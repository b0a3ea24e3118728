"""Changes of values: what the function captures and names."""

from __future__ import annotations

from soundness_case import PROOF, REFUSED, Case, case

_NUMBERS = """
    import decimal, fractions, datetime, re, types, collections, pathlib, array, contextvars, threading, weakref
    WHOLE = 3
    REAL = 0.0
    TEXT = "ab"
    RAW = b"cd"
    ROW = (1.0, 2.0)
    LIST = [3.0, [4.0]]
    ORDERED = {"a": 1.0, "b": 2.0}
    NUMBERS = {5, 6}
    FROZEN = frozenset({7.0})
    QUEUE = collections.deque([8.0, 9.0], maxlen=4)
    CHAIN = collections.ChainMap({}, {"a": 10.0})
    DEFAULTS = collections.defaultdict(lambda: 11.0)
    SIMPLE = types.SimpleNamespace(a=12.0)
    PROXY = types.MappingProxyType({"a": 13.0})
    RANGE = range(14)
    EXACT = decimal.Decimal("15.5")
    RATIO = fractions.Fraction(16, 5)
    DAY = datetime.date(2017, 1, 17)
    PATTERN = re.compile("a+")
    PATH = pathlib.PurePosixPath("a/b/c")
    TABLE = np.array([18.0, 19.0, 20.0, 21.0], np.float32)
    STRONG = np.float32(22)
    FIELDS = np.array([(27.0, 28)], dtype=[("a", "f4"), ("b", "i4")])
    ON_DEVICE = jnp.array([29.0, 30.0, 31.0, 32.0])
    KEY = jax.random.key(33)
    CELLS = array.array("d", [34.0])
    BYTES = bytearray(b"5")
    CONTEXT = contextvars.ContextVar("context", default=36.0)
    LOCAL = threading.local(); LOCAL.a = 37.0
    class Held:
        a = 38.0
        def __init__(self, b): self.b = b
        def get(self): return self.b
    HELD = Held(39.0)
    REFERENCE = weakref.ref(HELD)
    WEAK = weakref.WeakValueDictionary(a=HELD)
    METHOD = Held(40.0).get
    class Number(int): pass
    NUMBER = Number(1); NUMBER.a = 41.0
    NESTED = {"a": [{"b": Held(43.0)}]}
    STRIPES = np.arange(8, dtype=np.float32)[::2]
    ABSTRACT = jax.ShapeDtypeStruct((4,), jnp.float32)
    SLICE = slice(0, 4)
    ITEMS = [lambda x: x * 44.0]
    THUNKS = {"a": Held}

    def f(x):
        x = x * WHOLE + jnp.copysign(x, REAL) + len(TEXT) + RAW[0] + sum(ROW)
        x = x + LIST[0] + LIST[1][0] + next(iter(ORDERED.values())) + len(NUMBERS) + min(NUMBERS) + min(FROZEN)
        x = x + QUEUE.maxlen + QUEUE[0] + CHAIN["a"] + DEFAULTS.default_factory() + SIMPLE.a + PROXY["a"]
        x = x + len(RANGE) + float(EXACT) + RATIO.numerator + DAY.day + bool(PATTERN.match("b")) + len(PATH.parts)
        x = x + TABLE * STRONG + FIELDS["a"][0] + ON_DEVICE
        x = x + jax.random.normal(KEY, (4,)) + CELLS[0] + BYTES[0] + CONTEXT.get() + LOCAL.a + HELD.a + HELD.b
        x = x + REFERENCE().b + WEAK["a"].b + METHOD() + NUMBER.a + NESTED["a"][0]["b"].b + STRIPES
        x = x + jnp.zeros(ABSTRACT.shape, ABSTRACT.dtype) + x[SLICE] + ITEMS[0](x) + THUNKS["a"](1.0).b
        return x
"""


def _of(old: str, new: str, change: str, **rest: object) -> Case:
    return case(change, _NUMBERS, (old, new), **rest)  # type: ignore[arg-type]


VALUES: list[Case] = [
    _of("WHOLE = 3", "WHOLE = 4", "a global number"),
    _of("REAL = 0.0", "REAL = -0.0", "0.0 becomes -0.0, which is equal"),
    case(
        "True becomes 1.0, which is equal",
        """
        K = True
        def f(x): return x * K
        ARGS = (np.ones(3, np.int32),)
        """,
        ("K = True", "K = 1.0"),
    ),
    case(
        "2 becomes 2.0, which is equal",
        """
        K = 2
        def f(x): return x * K
        ARGS = (np.ones(3, np.int32),)
        """,
        ("K = 2", "K = 2.0"),
    ),
    case(
        "2 becomes an equal NumPy number",
        """
        K = 2
        def f(x): return x * K
        ARGS = (np.ones(3, np.int8),)
        """,
        ("K = 2", "K = np.int64(2)"),
    ),
    case(
        "nan becomes another nan",
        """
        import math, struct
        K = float('nan')
        def f(x): return x + math.copysign(1.0, K)
        """,
        ("float('nan')", "-float('nan')"),
    ),
    _of('TEXT = "ab"', 'TEXT = "abc"', "a global string"),
    _of('RAW = b"cd"', 'RAW = b"dd"', "bytes"),
    _of("(1.0, 2.0)", "(1.0, 2.5)", "a tuple"),
    _of("[3.0, [4.0]]", "[3.0, [4.5]]", "a list in a list"),
    _of('{"a": 1.0, "b": 2.0}', '{"b": 2.0, "a": 1.0}', "the order of a dictionary"),
    _of("{5, 6}", "{4, 6}", "a set of numbers"),
    _of("frozenset({7.0})", "frozenset({7.5})", "a frozenset"),
    _of("maxlen=4", "maxlen=5", "maxlen of a deque"),
    _of('"a": 10.0', '"a": 10.5', "a ChainMap"),
    _of("lambda: 11.0", "lambda: 11.5", "the factory of a defaultdict"),
    _of("(a=12.0)", "(a=12.5)", "a SimpleNamespace"),
    _of('"a": 13.0', '"a": 13.5', "what stands behind a MappingProxyType"),
    _of("range(14)", "range(15)", "a range"),
    _of('"15.5"', '"15.75"', "a Decimal"),
    _of("(16, 5)", "(17, 5)", "a Fraction"),
    _of("1, 17)", "1, 18)", "a date"),
    _of('"a+"', '"[ab]+"', "a compiled regular expression"),
    _of("a/b/c", "a/b", "a path"),
    _of("21.0]", "21.5]", "an element of a captured NumPy array"),
    _of("STRONG = np.float32(22)", "STRONG = np.float32(22.5)", "a NumPy scalar"),
    case(
        "the mask of a masked array",
        """
        M = np.ma.masked_array([1.0, 2.0], [0, 1])
        def f(x): return x + M.filled(0).sum()
        """,
        ("[0, 1]", "[1, 0]"),
        expect=REFUSED,
    ),
    _of("(27.0, 28)", "(27.5, 28)", "a structured array"),
    _of("31.0, 32.0", "31.0, 32.5", "an element of a captured JAX array"),
    _of("key(33)", "key(34)", "a captured random key"),
    _of("[34.0]", "[34.5]", "an array.array"),
    _of('b"5"', 'b"6"', "a bytearray"),
    _of("default=36.0", "default=36.5", "the default of a context variable"),
    _of("LOCAL.a = 37.0", "LOCAL.a = 37.5", "a thread-local"),
    _of("a = 38.0", "a = 38.5", "an attribute of a class"),
    _of("Held(39.0)", "Held(39.5)", "an attribute of an object"),
    _of(
        "WEAK = weakref.WeakValueDictionary(a=HELD)",
        "OTHER = Held(39.5)\nWEAK = weakref.WeakValueDictionary(a=OTHER)",
        "a WeakValueDictionary",
    ),
    _of(
        "REFERENCE = weakref.ref(HELD)",
        "OTHER = Held(39.5)\nREFERENCE = weakref.ref(OTHER)",
        "the referent of a weak reference",
    ),
    _of("Held(40.0)", "Held(40.5)", "the object of a bound method"),
    _of("NUMBER.a = 41.0", "NUMBER.a = 41.5", "an attribute of a subclass of int"),
    _of("Held(43.0)", "Held(43.5)", "an object in a dictionary in a list in a dictionary"),
    _of("[::2]", "[1::2]", "a view of another part of one array"),
    _of("SLICE = slice(0, 4)", "SLICE = slice(None, None, -1)", "a slice"),
    _of("x * 44.0", "x * 44.5", "a lambda in a list"),
    _of(
        '{"a": Held}',
        '{"a": type("Held", (Held,), {"__init__": lambda self, b: setattr(self, "b", b + 1)})}',
        "a class in a dictionary",
    ),
    case(
        "an attribute added to a module made by hand",
        """
        import types
        M = types.ModuleType("made")
        M.a = 1.0
        def f(x): return x + M.a
        """,
        ("M.a = 1.0", "M.a = 2.0"),
    ),
    case(
        "a captured array is weakly typed",
        """
        K = jnp.float32(2)
        def f(x): return x * K
        ARGS = (np.ones(3, np.float16),)
        """,
        ("jnp.float32(2)", "jnp.asarray(2.0)"),
    ),
    case(
        "a captured NumPy number is of another type",
        """
        K = np.float32(2)
        def f(x): return x * K
        ARGS = (np.ones(3, np.float16),)
        """,
        ("np.float32(2)", "np.float16(2)"),
    ),
    case(
        "a captured array lies in another order",
        """
        A = np.ones((2, 3), np.float32)
        def f(x): return x * A.strides[0]
        """,
        ("np.ones((2, 3), np.float32)", "np.ones((2, 3), np.float32, order='F')"),
        expect=REFUSED,
    ),
    case(
        "whether a captured array may be written to",
        """
        A = np.ones(3)
        A.flags.writeable = True
        def f(x): return x + A.flags.writeable
        """,
        ("writeable = True", "writeable = False"),
        expect=REFUSED,
    ),
    case(
        "a slot",
        """
        class A:
            __slots__ = ('a',)
        a = A()
        a.a = 1.0
        def f(x): return x + a.a
        """,
        ("a.a = 1.0", "a.a = 2.0"),
    ),
    case(
        "a slot that is not set",
        """
        class A:
            __slots__ = ('a',)
        a = A()
        a.a = 1.0
        def f(x): return x + hasattr(a, 'a')
        """,
        ("a.a = 1.0\n", ""),
    ),
    case(
        "the order of an object's attributes",
        """
        class A: pass
        a = A()
        a.b, a.c = 1.0, 2.0
        def f(x): return x + list(vars(a).values())[0]
        """,
        ("a.b, a.c = 1.0, 2.0", "a.c, a.b = 2.0, 1.0"),
    ),
    case(
        "the order of a class's attributes",
        """
        class A:
            b = 1.0
            c = 2.0
        def f(x): return x + [v for v in vars(A).values() if isinstance(v, float)][0]
        """,
        ("    b = 1.0\n    c = 2.0\n", "    c = 2.0\n    b = 1.0\n"),
    ),
    case(
        "a global is rebound between two functions' definitions and the call",
        """
        k = 1.0
        def f(x): return x + k
        k = 2.0
        """,
        ("k = 2.0", "k = 3.0"),
    ),
    case(
        "a closure is rebound after jit",
        """
        def make(k):
            def f(x): return x + k
            def put(v):
                nonlocal k
                k = v
            return f, put
        f, put = make(1.0)
        def calls(jit):
            g = jit(f)
            put(2.0)
            yield g, (jnp.ones(3),)
        """,
        ("put(2.0)", "put(3.0)"),
    ),
    case(
        "an object is changed after the first call, before a call of another shape",
        """
        class A: k = 1.0
        a = A()
        def f(x): return x + a.k
        def calls(jit):
            g = jit(f)
            yield g, (jnp.ones(3),)
            a.k = 2.0
            yield g, (jnp.ones(4),)
        """,
        ("a.k = 2.0", "a.k = 3.0"),
    ),
    case(
        "a captured array is written to after jit",
        """
        A = np.ones(3, np.float32)
        def f(x): return x + A
        def calls(jit):
            g = jit(f)
            A[0] = 2.0
            yield g, (jnp.ones(3),)
        """,
        ("A[0] = 2.0", "A[0] = 3.0"),
    ),
    case(
        "two names hold one list, or two equal ones",
        """
        A = [1.0]
        B = A
        def f(x): return x + (A is B)
        """,
        ("B = A", "B = [1.0]"),
    ),
    case(
        "a string is interned or not, compared by is",
        """
        A = 'ab'
        B = A
        def f(x): return x + (A is B)
        """,
        ("B = A", "B = ''.join(['a', 'b'])"),
        expect=PROOF,
        note="whether two equal strings are one object does not count",
    ),
    case(
        "a set of strings that the function goes through, under another hash seed",
        """
        S = {'a', 'bb', 'ccc', 'dddd', 'eeeee'}
        def f(x): return x + sum(i * len(s) for i, s in enumerate(S))
        """,
        env={"PYTHONHASHSEED": "1"},
        env_b={"PYTHONHASHSEED": "2"},
    ),
    case(
        "a set of objects in the code, under another hash seed",
        """
        def f(x): return x + sum(i * len(s) for i, s in enumerate({'a', 'bb', 'ccc', 'dddd', 'eeeee'}))
        """,
        env={"PYTHONHASHSEED": "1"},
        env_b={"PYTHONHASHSEED": "2"},
    ),
    case(
        "a set of strings given to a function of C, under another hash seed",
        """
        S = {'a', 'bb', 'ccc', 'dddd', 'eeeee'}
        def f(x): return x + sum(i * len(s) for i, s in enumerate(list(S)))
        """,
        env={"PYTHONHASHSEED": "1"},
        env_b={"PYTHONHASHSEED": "2"},
    ),
    case(
        "keys of two dictionaries put together by |, under another hash seed",
        """
        A, B = {'a': 1, 'bb': 2, 'ccc': 3}, {'dddd': 4, 'eeeee': 5}
        def f(x): return x + sum(i * len(s) for i, s in enumerate(A.keys() | B.keys()))
        """,
        env={"PYTHONHASHSEED": "1"},
        env_b={"PYTHONHASHSEED": "2"},
    ),
    case(
        "a set made of a list by another name of set, under another hash seed",
        """
        kind = type({1})
        L = ['a', 'bb', 'ccc', 'dddd', 'eeeee']
        def f(x): return x + sum(i * len(s) for i, s in enumerate(kind(L)))
        """,
        env={"PYTHONHASHSEED": "1"},
        env_b={"PYTHONHASHSEED": "2"},
    ),
    case(
        "the position of a generator",
        """
        g = (n for n in (1.0, 2.0, 3.0))
        next(g)
        def f(x): return x + next(g)
        """,
        ("next(g)\ndef", "next(g); next(g)\ndef"),
        expect=REFUSED,
    ),
    case(
        "the position of an iterator",
        """
        g = iter([1.0, 2.0, 3.0])
        next(g)
        def f(x): return x + g.__reduce__()[2]
        """,
        ("next(g)\ndef", "next(g); next(g)\ndef"),
        expect=REFUSED,
    ),
    case(
        "itertools.count",
        """
        import itertools
        c = itertools.count(1)
        def f(x): return x + next(c)
        """,
        ("count(1)", "count(2)"),
        expect=REFUSED,
    ),
    case(
        "a memoryview",
        """
        m = memoryview(b'a')
        def f(x): return x + m[0]
        """,
        ("b'a'", "b'b'"),
        expect=REFUSED,
    ),
    case(
        "io.BytesIO",
        """
        import io
        m = io.BytesIO(b'a')
        def f(x): return x + len(m.getvalue())
        """,
        ("b'a'", "b'bb'"),
        expect=REFUSED,
    ),
    case(
        "a queue",
        """
        import queue
        q = queue.SimpleQueue()
        q.put(1)
        def f(x): return x + q.qsize()
        """,
        ("q.put(1)", "q.put(1); q.put(1)"),
        expect=REFUSED,
    ),
    case(
        "a function of ctypes",
        """
        import ctypes
        k = ctypes.c_double(1.0)
        def f(x): return x + k.value
        """,
        ("(1.0)", "(2.0)"),
        expect=REFUSED,
    ),
    case(
        "a method of an object that stands in the way",
        """
        import itertools
        class A:
            def __init__(self, k):
                self.k, self.ids = k, itertools.count()
        a = A(1.0)
        def f(x): return x + a.k
        """,
        ("A(1.0)", "A(2.0)"),
        expect=REFUSED,
    ),
    case(
        "what a cached function kept before a global was rebound",
        """
        import functools
        K = 1.0
        @functools.lru_cache
        def inner(n): return n * K
        inner(3.0)
        K = 2.0
        def f(x): return x + inner(3.0)
        """,
        ("inner(3.0)\nK = 2.0\n", "K = 2.0\ninner(3.0)\n"),
        expect=PROOF,
        note="what a cache holds cannot be read",
    ),
    case(
        "a meta field of a registered dataclass that is an argument",
        """
        import dataclasses
        @dataclasses.dataclass
        class A:
            w: object
            k: float
        jax.tree_util.register_dataclass(A, ["w"], ["k"])
        def f(a): return a.w * a.k
        ARGS = (A(np.ones(3, np.float32), 2.0),)
        """,
        ("2.0),)", "3.0),)"),
    ),
    case(
        "which fields of a registered dataclass are leaves",
        """
        import dataclasses
        @dataclasses.dataclass
        class A:
            w: object
            v: object
        jax.tree_util.register_dataclass(A, ["w", "v"], [])
        def f(x): return jax.tree_util.tree_leaves(A(x, x * 2))[0]
        """,
        ('["w", "v"]', '["v", "w"]'),
    ),
    case(
        "a mutable default of a dataclass's field",
        """
        import dataclasses
        @dataclasses.dataclass
        class A:
            k: list = dataclasses.field(default_factory=lambda: [1.0])
        def f(x): return x + A().k[0]
        """,
        ("[1.0]", "[2.0]"),
    ),
    case(
        "a UserDict",
        """
        import collections
        D = collections.UserDict(a=1.0)
        def f(x): return x + D["a"]
        """,
        ("a=1.0", "a=2.0"),
    ),
    case(
        "a heap",
        """
        import heapq
        H = [3.0, 1.0, 2.0]
        heapq.heapify(H)
        def f(x): return x + H[0]
        """,
        ("1.0", "1.5"),
    ),
    case(
        "a Counter's order",
        """
        import collections
        C = collections.Counter("aab")
        def f(x): return x + list(C.values())[0]
        """,
        ('"aab"', '"baa"'),
    ),
]
