"""Changes of where captured arrays of JAX lie, and of tables and registries that a function's code leads to."""

from __future__ import annotations

from soundness_case import REFUSED, Case, case

_ARRAYS = """
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((2,), ('d',), axis_types=(jax.sharding.AxisType.Auto,))
V = np.arange(4, dtype=np.float32)
SPREAD = jax.device_put(V, NamedSharding(mesh, P()))
LAID = jax.device_put(V, jax.devices()[0])
FREE = jax.device_put(V)
def spread(x): return x + len(SPREAD.sharding.spec)
def laid(x): return x + list(LAID.devices())[0].id
def free(x): return x + FREE.committed
def calls(jit):
    for f in (spread, laid, free):
        yield jit(f), (V,)
"""
_TWO = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}


def _array(change: str, old: str, new: str) -> Case:
    return case(f"a captured array of JAX's: {change}", _ARRAYS, (old, new), env=_TWO)


PLACES: list[Case] = [
    _array("how it is spread over devices", "P())", "P('d'))"),
    _array("on which device it is", "devices()[0]", "devices()[1]"),
    _array("whether it was put there", "FREE = jax.device_put(V)", "FREE = jax.device_put(V, jax.devices()[0])"),
    case(
        "a class of numpy's is registered with an abstract class of Python's",
        """
        import collections.abc
        A = np.ones(3)
        def f(x): return x + (2.0 if isinstance(A, collections.abc.Sequence) else 1.0)
        """,
        ("def f", "collections.abc.Sequence.register(np.ndarray)\ndef f"),
    ),
    case(
        "how a class of Python's is copied, by copyreg",
        """
        import copy, copyreg, datetime
        D = datetime.timedelta(3)
        def f(x): return x + copy.copy(D).days
        """,
        ("def f", "copyreg.pickle(datetime.timedelta, lambda t: (datetime.timedelta, (t.days + 1,)))\ndef f"),
    ),
    case(
        "how JAX takes a class of Python's apart, by a closure",
        """
        import datetime
        def make(k):
            def flatten(n): return (n.year * k,), None
            return flatten
        D = datetime.date(3, 1, 1)
        jax.tree_util.register_pytree_node(datetime.date, make(2.0), lambda a, c: None)
        def f(x): return x * jax.tree_util.tree_leaves(D)[0] + len(make(1.0)(D))
        """,
        ("make(2.0)", "make(3.0)"),
    ),
    case(
        "a class of Python's is one that JAX takes apart",
        "R = range(3)\ndef f(x): return x + len(jax.tree_util.tree_leaves(R))\n",
        (
            "def f",
            "jax.tree_util.register_pytree_node(range, lambda r: ((r.start, r.stop), None), lambda a, c: range(*c))\n"
            "def f",
        ),
    ),
    case(
        "the lowering rule of one of JAX's primitives is another closure",
        """
        from jax.interpreters import mlir
        from jax._src.lax import lax as inside
        def make(k): return lambda x, **_: x * k
        mlir.register_lowering(inside.tan_p, mlir.lower_fun(make(2.0), multiple_results=False))
        def f(x): return jnp.tan(x) + make(1.0)(x)
        """,
        ("make(2.0)", "make(3.0)"),
    ),
    case(
        "a closure that was made before, and hides in C",
        """
        def make(k):
            def inner(a): return a * k
            return inner
        KEPT = map(make(2.0), [1.0] * 1000)
        class Kept:
            def __rewarm_digest__(self): return 0
            def get(self): return next(KEPT)
        kept = Kept()
        def f(x): return x * kept.get() + make(1.0)(x)
        """,
        ("make(2.0)", "make(3.0)"),
        expect=REFUSED,
    ),
    case(
        "the time zone",
        "import datetime\ndef f(x): return x + datetime.datetime(2020, 1, 1).timestamp() % 86400 / 3600\n",
        env={"TZ": "UTC"},
        env_b={"TZ": "Asia/Tokyo"},
    ),
    case(
        "the time, by numpy.datetime64",
        "def f(x): return x + int(np.datetime64('now', 's').astype(int) % 997)\n",
        ("997", "1009"),
        varies=True,
        expect=REFUSED,
    ),
    case(
        "a docstring, by inspect.getdoc",
        """
        import inspect
        def g(a):
            'two'
            return a
        def f(x): return x + len(inspect.getdoc(g))
        """,
        ("'two'", "'three'"),
    ),
    case(
        "the name of a class, in what pickle writes",
        "import pickle\nclass C: pass\nkind = C\ndef f(x): return x + len(pickle.dumps(kind))\n",
        ("class C: pass\nkind = C", "class Cdd: pass\nkind = Cdd"),
    ),
    case(
        "the bound of a type variable",
        "import typing\nT = typing.TypeVar('T', bound=int)\n"
        "def f(x): return x + (1.0 if T.__bound__ is int else 2.0)\n",
        ("bound=int", "bound=float"),
    ),
    case(
        "the handlers of a logger that is a global",
        "import logging\nlog = logging.getLogger('a')\ndef f(x): return x + len(log.handlers)\n",
        ("def f", "log.addHandler(logging.NullHandler())\ndef f"),
    ),
    case(
        "the size of numpy's buffers",
        "np.setbufsize(8192)\ndef f(x): return x + np.getbufsize()\n",
        ("8192", "16384"),
    ),
    case(
        "an annotation, by inspect.signature",
        """
        import inspect
        def g(a: int): return a
        def f(x): return x + (1.0 if inspect.signature(g).parameters['a'].annotation is int else 2.0)
        """,
        ("a: int", "a: float"),
    ),
    case(
        "an annotation, by a function of inspect under another name",
        """
        from inspect import signature as s
        class A:
            def g(self, a: 'list[int]'): return a
        def f(x): return x + len(s(A.g).parameters['a'].annotation)
        """,
        ("list[int]", "list[float]"),
    ),
    case(
        "an annotation, by Signature.from_callable",
        """
        import inspect, typing
        def g(a: typing.Optional[int]): return a
        def f(x):
            a = inspect.Signature.from_callable(g).parameters['a'].annotation
            return x + (1.0 if a == typing.Optional[int] else 2.0)
        """,
        ("g(a: typing.Optional[int])", "g(a: typing.Optional[float])"),
    ),
]
