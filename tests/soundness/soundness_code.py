"""Changes of code: functions, classes, and what Python makes of them."""

from __future__ import annotations

from soundness_case import REFUSED, Case, case

_FUNCTIONS = """
    import functools
    from helpers import outside

    def inner(x):
        return x + 1

    def decorate(function):
        @functools.wraps(function)
        def wrapper(x):
            return function(x) * 2
        return wrapper

    def make(k):
        def made(x):
            return x - k
        return made

    def by_name(x, scale=3.0, *, shift=4.0):
        return x * scale + shift

    twice = functools.partial(by_name, scale=5.0)
    pieces = [lambda x, n=n: x * n for n in (6.0, 7.0)]
    closed = make(8.0)
    def counted(x):
        return x * counted.factor
    counted.factor = 9.0
    def rows(x):
        for n in (10.0, 11.0):
            yield x + n
    def deeper(n, x):
        return x if n == 0 else shallower(n - 1, x)
    def shallower(n, x):
        return deeper(n, x * 1.5)
    space = {}
    exec("def of_text(x): return x + 12.0", space)
    of_text = space["of_text"]

    @decorate
    def f(x):
        total = inner(x) + outside(x) + closed(x) + by_name(x) + twice(x) + counted(x)
        total += sum(piece(x) for piece in pieces) + sum(rows(x)) + deeper(3, x) + of_text(x)
        return total * 1.25
"""
_HELPERS = {
    "helpers.py": "from deeper import LIMIT\ndef outside(x):\n    return x * LIMIT\n",
    "deeper.py": "LIMIT = 13.0\n",
}

_CLASSES = """
    import abc, dataclasses, enum, functools, typing

    class Meta(type):
        def __call__(cls, *args):
            one = super().__call__(*args)
            one.from_meta = 2.0
            return one

    class Descriptor:
        def __get__(self, one, cls):
            return one.raw * 3.0

    REGISTRY = []
    class Base:
        factor = 4.0
        def __init_subclass__(cls, weight=5.0):
            REGISTRY.append(weight)
        def apply(self, x):
            return x + 1.0
    class Mixin:
        def apply(self, x):
            return super().apply(x) * 6.0
    class Model(Mixin, Base, weight=7.0):
        described = Descriptor()
        def __init__(self):
            self.raw = 1.5
        def apply(self, x):
            return super().apply(x) * self.factor
        @property
        def scale(self):
            return self.raw + 8.0
        @staticmethod
        def shift():
            return 9.0
        @classmethod
        def made(cls):
            return cls()
        @functools.cached_property
        def kept(self):
            return self.raw + 10.0
        def __call__(self, x):
            return x * 11.0
        def __getattr__(self, name):
            if name == "asked":
                return 12.0
            raise AttributeError(name)
        def __mul__(self, x):
            return x + 13.0
    class WithMeta(metaclass=Meta):
        pass
    @dataclasses.dataclass(frozen=True)
    class Config:
        width: float = 14.0
        def doubled(self):
            return self.width * 2
    class Row(typing.NamedTuple):
        one: float = 15.0
    class Kind(enum.Enum):
        LOW = 16.0
    class Slotted:
        __slots__ = ("held",)
        def __init__(self):
            self.held = 17.0
    class Pointed:
        __match_args__ = ("a", "b")
        a, b = 18.0, 19.0
    @functools.singledispatch
    def dispatched(value):
        return 20.0
    @dispatched.register
    def _(value: Config):
        return 21.0
    class Abstract(abc.ABC):
        @abc.abstractmethod
        def todo(self): ...
    class Concrete(Abstract):
        def todo(self):
            return 22.0

    def f(x):
        model = Model.made()
        match Pointed():
            case Pointed(first, _):
                x = x + first
        x = model.apply(x) + model.scale + model.described + model.shift() + model.kept + model.asked
        x = model(x) + (model * x) + WithMeta().from_meta + sum(REGISTRY) + Config().width + Config().doubled()
        return x + Row().one + Kind.LOW.value + Slotted().held + dispatched(Config()) + Concrete().todo()
"""

CODE: list[Case] = [
    case("a constant of the function itself", _FUNCTIONS, ("1.25", "1.5"), files=_HELPERS),
    case("a function that it calls", _FUNCTIONS, ("return x + 1\n", "return x + 2\n"), files=_HELPERS),
    case("a function of another module", _FUNCTIONS, ("x * LIMIT", "x / LIMIT"), files=_HELPERS),
    case("a constant of a module that another module takes it from", _FUNCTIONS, ("13.0", "13.5"), files=_HELPERS),
    case("its decorator", _FUNCTIONS, ("function(x) * 2", "function(x) * 3"), files=_HELPERS),
    case("the decorator is taken off", _FUNCTIONS, ("@decorate\n", "# plain\n"), files=_HELPERS),
    case("the code of a closure", _FUNCTIONS, ("return x - k", "return x % k"), files=_HELPERS),
    case("what a closure holds", _FUNCTIONS, ("make(8.0)", "make(8.5)"), files=_HELPERS),
    case("a default", _FUNCTIONS, ("scale=3.0", "scale=3.5"), files=_HELPERS),
    case("a default of a keyword", _FUNCTIONS, ("shift=4.0", "shift=4.5"), files=_HELPERS),
    case("an argument of functools.partial", _FUNCTIONS, ("scale=5.0", "scale=5.5"), files=_HELPERS),
    case(
        "functions made in a loop, by what the loop goes over", _FUNCTIONS, ("(6.0, 7.0)", "(6.0, 7.5)"), files=_HELPERS
    ),
    case(
        "functions made in a loop now share their variable", _FUNCTIONS, ("x, n=n: x * n", "x: x * n"), files=_HELPERS
    ),
    case("an attribute of a function", _FUNCTIONS, ("factor = 9.0", "factor = 9.5"), files=_HELPERS),
    case("a generator", _FUNCTIONS, ("yield x + n", "yield x - n"), files=_HELPERS),
    case("one of two functions that call each other", _FUNCTIONS, ("x * 1.5", "x * 1.75"), files=_HELPERS),
    case("code that was made of text", _FUNCTIONS, ("x + 12.0", "x + 12.5"), files=_HELPERS),
    case("a metaclass", _CLASSES, ("from_meta = 2.0", "from_meta = 2.5")),
    case("a descriptor", _CLASSES, ("raw * 3.0", "raw * 3.5")),
    case("an attribute of a base class", _CLASSES, ("factor = 4.0", "factor = 4.5")),
    case("an argument of a class statement, kept in a registry", _CLASSES, ("weight=7.0", "weight=7.5")),
    case("a method of a base class", _CLASSES, ("x + 1.0", "x + 1.5")),
    case("a method between, found by super()", _CLASSES, ("* 6.0", "* 6.5")),
    case("the order of the base classes", _CLASSES, ("(Mixin, Base, weight", "(Base, Mixin, weight")),
    case("a base class is gone", _CLASSES, ("(Mixin, Base, weight", "(Base, weight")),
    case(
        "a subclass with an override takes its place",
        _CLASSES,
        (
            "        return 22.0\n",
            "        return 22.0\nclass Sub(Concrete):\n    def todo(self): return 22.5\nConcrete = Sub\n",
        ),
    ),
    case("a property", _CLASSES, ("raw + 8.0", "raw + 8.5")),
    case("a static method", _CLASSES, ("return 9.0", "return 9.5")),
    case("a cached property", _CLASSES, ("raw + 10.0", "raw + 10.5")),
    case("__call__", _CLASSES, ("x * 11.0", "x * 11.5")),
    case("__getattr__", _CLASSES, ("return 12.0", "return 12.5")),
    case("an operator", _CLASSES, ("x + 13.0", "x + 13.5")),
    case("a default of a dataclass", _CLASSES, ("width: float = 14.0", "width: float = 14.5")),
    case("a method of a dataclass", _CLASSES, ("self.width * 2", "self.width * 3")),
    case("a default of a NamedTuple", _CLASSES, ("one: float = 15.0", "one: float = 15.5")),
    case("the value of an enumeration", _CLASSES, ("LOW = 16.0", "LOW = 16.5")),
    case("__match_args__", _CLASSES, ('("a", "b")', '("b", "a")')),
    case("a function of singledispatch", _CLASSES, ("return 21.0", "return 21.5")),
    case("a function of singledispatch is registered for another type", _CLASSES, ("value: Config", "value: int")),
    case(
        "a method of one instance is replaced",
        _CLASSES + "\n    Concrete.todo = lambda self: 1.0\n",
        ("self: 1.0", "self: 2.0"),
    ),
    case(
        "the code of a function is another function's",
        """
        def one(x): return x + 1
        def two(x): return x + 2
        one.__code__ = one.__code__
        def f(x): return one(x)
        """,
        ("= one.__code__", "= two.__code__"),
    ),
    case(
        "a default list was appended to",
        """
        def g(x, more=[1.0]): return x + sum(more)
        g.__defaults__[0].append(2.0)
        def f(x): return g(x)
        """,
        ("append(2.0)", "append(3.0)"),
    ),
    case(
        "the class of an instance was set",
        """
        class A:
            k = 1.0
        class B:
            k = 2.0
        a = A()
        a.__class__ = A
        def f(x): return x + a.k
        """,
        ("__class__ = A", "__class__ = B"),
    ),
    case(
        "an assertion under python -O",
        """
        class Bad(Exception): pass
        def f(x):
            try:
                assert x.ndim == 5
            except AssertionError:
                return x + 1
            return x
        """,
        flags=("-O",),
    ),
    case(
        "__debug__ under python -O",
        """
        def f(x): return x + 1 if __debug__ else x
        """,
        flags=("-O",),
    ),
    case(
        "the docstring, which the function reads",
        """
        def f(x):
            '''Four'''
            return x + len(f.__doc__)
        """,
        ("Four", "Three"),
    ),
    case(
        "its name, which it reads",
        """
        def name(x): return x
        def f(x): return x + len(name.__name__)
        """,
        ("def name(x): return x\n", "def names(x): return x\nname = names\n"),
    ),
    case(
        "the line it stands on, which it reads",
        """
        def f(x): return x + f.__code__.co_firstlineno
        """,
        ("def f", "\n\ndef f"),
        expect=REFUSED,
    ),
    case(
        "an annotation, which it reads",
        """
        def g(x: 1): return x
        def f(x): return x + g.__annotations__['x']
        """,
        ("x: 1", "x: 2"),
        expect=REFUSED,
    ),
    case(
        "annotations that typing.get_type_hints reads",
        """
        import typing
        class A:
            a: int
        def f(x): return x + len(typing.get_type_hints(A))
        """,
        ("    a: int\n", "    a: int\n    b: int\n"),
        expect=REFUSED,
    ),
    case(
        "fields of a dataclass, which it goes through",
        """
        import dataclasses
        @dataclasses.dataclass
        class A:
            a: float = 1.0
            b: float = 2.0
        def f(x): return x + sum((i + 1) * getattr(A(), one.name) for i, one in enumerate(dataclasses.fields(A)))
        """,
        ("    a: float = 1.0\n    b: float = 2.0\n", "    b: float = 2.0\n    a: float = 1.0\n"),
    ),
    case(
        "the order of an enumeration's members",
        """
        import enum
        class E(enum.Enum):
            A = 1.0
            B = 2.0
        def f(x): return x + sum((i + 1) * e.value for i, e in enumerate(E))
        """,
        ("    A = 1.0\n    B = 2.0\n", "    B = 2.0\n    A = 1.0\n"),
    ),
    case(
        "a subclass appears, found by __subclasses__()",
        """
        class A: pass
        class B(A):
            k = 1.0
        def f(x): return x + sum(c.k for c in A.__subclasses__())
        """,
        ("def f", "class C(A):\n    k = 2.0\ndef f"),
        expect=REFUSED,
    ),
    case(
        "a wrapped function, behind a cache that had its result",
        """
        import functools
        def part(n): return n + 1.0
        @functools.lru_cache
        def cached(n): return part(n)
        cached(2.0)
        def f(x): return x + cached(2.0)
        """,
        ("n + 1.0", "n + 1.5"),
    ),
    case(
        "what a context manager does",
        """
        import contextlib
        HELD = [0.0]
        @contextlib.contextmanager
        def scope(k):
            HELD.append(k + 1.0)
            yield
            HELD.pop()
        def f(x):
            with scope(1.0):
                return x + HELD[-1]
        """,
        ("k + 1.0", "k + 2.0"),
    ),
    case(
        "the handler of an exception",
        """
        def f(x):
            try:
                return {}['a']
            except KeyError:
                return x + 1
        """,
        ("x + 1", "x + 2"),
    ),
    case(
        "which exception a function raises",
        """
        def g(): raise KeyError
        def f(x):
            try:
                g()
            except KeyError:
                return x + 1
            except ValueError:
                return x + 2
        """,
        ("raise KeyError", "raise ValueError"),
    ),
    case(
        "__eq__, by which a list finds",
        """
        class A:
            def __init__(self, k): self.k = k
            def __eq__(self, other): return self.k == other.k
            __hash__ = None
        L = [A(1), A(2)]
        def f(x): return x + L.index(A(2))
        """,
        ("self.k == other.k", "True"),
    ),
    case(
        "__hash__ and __eq__, by which a dictionary finds",
        """
        class A:
            def __init__(self, k): self.k = k
            def __eq__(self, other): return self.k == other.k
            def __hash__(self): return 1
        D = {A(1): 1.0, A(2): 2.0}
        def f(x): return x + len({A(1): 0, A(3): 0, A(3): 0})
        """,
        ("self.k == other.k", "False"),
    ),
    case(
        "__lt__, by which sorted() sorts",
        """
        class A:
            def __init__(self, k): self.k = k
            def __lt__(self, other): return self.k < other.k
        L = [A(2.0), A(1.0)]
        def f(x): return x + sorted(L)[0].k
        """,
        ("self.k < other.k", "self.k > other.k"),
    ),
    case(
        "__len__, by which an object is true",
        """
        class A:
            def __len__(self): return 1
        a = A()
        def f(x): return x + 1 if a else x
        """,
        ("return 1\n", "return 0\n"),
    ),
    case(
        "a coroutine that it runs to its end",
        """
        async def g(k): return k + 1.0
        def f(x):
            try:
                g(1.0).send(None)
            except StopIteration as end:
                return x + end.value
        """,
        ("k + 1.0", "k + 2.0"),
    ),
    case(
        "code that did not run: a branch on a value that changes",
        """
        ON = False
        def f(x):
            if ON:
                return x + 1
            return x
        """,
        ("ON = False", "ON = True"),
    ),
    case(
        "the object that is jitted, of a class with __call__",
        """
        class A:
            def __init__(self, k): self.k = k
            def __call__(self, x): return x * self.k
        f = A(2.0)
        """,
        ("A(2.0)", "A(3.0)"),
    ),
    case(
        "the object of the method that is jitted",
        """
        class A:
            def __init__(self, k): self.k = k
            def apply(self, x): return x * self.k
        f = A(2.0).apply
        """,
        ("A(2.0)", "A(3.0)"),
    ),
    case(
        "an argument of the partial that is jitted",
        """
        import functools
        def g(k, x): return x * k
        f = functools.partial(g, 2.0)
        """,
        ("(g, 2.0)", "(g, 3.0)"),
    ),
    case(
        "one of several lambdas of one name",
        """
        def calls(jit):
            for g in (jit(lambda x: x + 1), jit(lambda x: x + 2), jit(lambda x: x + 3)):
                yield g, (jnp.ones(3),)
        """,
        ("x + 2", "x + 5"),
    ),
    case(
        "a name that was not defined is defined",
        """
        def f(x):
            try:
                return x + K
            except NameError:
                return x
        """,
        ("def f", "K = 1.0\ndef f"),
    ),
    case(
        "__jax_array__ of a captured object",
        """
        class A:
            def __jax_array__(self): return jnp.ones(4) * 2
        a = A()
        def f(x): return jnp.asarray(a) + x
        """,
        ("* 2", "* 3"),
    ),
    case(
        "__set_name__ of a descriptor",
        """
        class D:
            def __set_name__(self, owner, name): self.k = len(name) + 1.0
            def __get__(self, one, cls): return self.k
        class A:
            d = D()
        def f(x): return x + A().d
        """,
        ("+ 1.0", "+ 2.0"),
    ),
    case(
        "annotations are text (from __future__ import annotations)",
        """
        import dataclasses
        @dataclasses.dataclass
        class A:
            a: float = 1.0
        def f(x): return x + isinstance(dataclasses.fields(A)[0].type, str)
        """,
        ("a: float", "a: 'float'"),
    ),
]
