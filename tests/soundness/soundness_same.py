"""Edits and surroundings that change nothing: the trace must be skipped."""

from __future__ import annotations

from soundness_case import SKIPPED, Case, case
from soundness_held import FILES as HELD_FILES
from soundness_held import HEAD as HELD_HEAD
from soundness_jax import EQUINOX, FLAX, HAIKU, NNX, NUMPYRO, OPTAX

_MAIN = """
    import helper
    HEIGHT = 2.0
    unused = 1.0

    def other(x):
        return x * 3

    class Idle:
        def rest(self):
            return 1

    class Model:
        scale = 3.0
        def apply(self, x):
            # said
            return x * self.scale
        def __repr__(self):
            return "model"

    model = Model()

    def f(x):
        total = helper.g(x) + HEIGHT
        return model.apply(total)
"""
_FILES = {
    "helper.py": 'def g(x):\n    """Adds."""\n    return x + 1\n\ndef more(x):\n    return x\n',
    "idle.py": "K = 1\n",
    "data": "1",
}


_BLACKJAX = """
    import blackjax
    def density(x): return -(x**2).sum()
    nuts = blackjax.nuts(density, 0.1, jnp.ones(2))
    def f(key, state): return nuts.step(key, state)
    ARGS = (jax.random.key(0), nuts.init(jnp.zeros(2)))
"""
_DIFFRAX = """
    import diffrax
    term = diffrax.ODETerm(lambda t, y, args: -y)
    def f(y): return diffrax.diffeqsolve(term, diffrax.Tsit5(), 0.0, 1.0, 0.1, y, throw=False).ys
"""


def _same(change: str, *edits: tuple[str, str], **rest: object) -> Case:
    return case(change, _MAIN, *edits, expect=SKIPPED, files=_FILES, **rest)  # type: ignore[arg-type]


def _kept(change: str, program: str, *edits: tuple[str, str], **rest: object) -> Case:
    return case(change, program, *edits, expect=SKIPPED, **rest)


SAME: list[Case] = [
    _same("nothing: all files are written anew, at another time, and there are no .pyc files"),
    _same("a comment is edited", ("# said", "# said again, at length")),
    _same("a comment is added above", ("import helper\n", "import helper\n# more\n")),
    _same("a docstring is edited", ("Adds.", "Adds one.")),
    _same("a docstring is taken out", ('    """Adds."""\n', "")),
    _same("a docstring is added", ("def f(x):\n", 'def f(x):\n    """Said."""\n')),
    _same("blank lines", ("def f(x):", "\n\n\ndef f(x):\n")),
    _same(
        "the function is moved below others",
        ("return model.apply(total)\n", "return model.apply(total)\nkept = f\ndef last(x): return x\n"),
    ),
    _same(
        "an expression stands in parentheses, over two lines",
        ("helper.g(x) + HEIGHT", "(helper.g(x)\n        + HEIGHT)"),
    ),
    _same("another way to write a number", ("HEIGHT = 2.0", "HEIGHT = 2e0")),
    _same("a value that is computed to the same", ("HEIGHT = 2.0", "HEIGHT = 1.0 + 1.0")),
    _same("another function of the file", ("return x * 3", "return x * 4")),
    _same("a function is added to the file", ("def other", "def another(x): return -x\ndef other")),
    _same("a global that is not read", ("unused = 1.0", "unused = 2.0")),
    _same("a class that is not used", ("return 1\n", "return 2\n")),
    _same("another function of a module that is used", ("return x\n", "return x * 2\n")),
    _same("a module that is not used", ("K = 1", "K = 2")),
    _same("a file that is not read", more={"data": "2"}),
    _same("one more module beside it", more={"extra.py": "K = 1\n"}),
    _same("one more import", ("import helper\n", "import helper\nimport idle\n")),
    _same("another import of a library of Python's", ("import helper\n", "import helper\nimport json, logging\n")),
    _same("an import of a submodule of JAX", ("import helper\n", "import helper\nimport jax.scipy.special\n")),
    _same(
        "JAX ran other programs before",
        ("HEIGHT = 2.0", "HEIGHT = 2.0\njnp.linalg.norm(jnp.sin(jnp.ones(7)))\njax.jit(lambda x: x + 1)(1)"),
    ),
    _same(
        "the function was traced before, for another shape",
        ("return model.apply(total)\n", "return model.apply(total)\njax.make_jaxpr(f)(np.ones(9, np.float32))\n"),
    ),
    _same("an annotation of an argument", ("def f(x):", "def f(x: 'jax.Array'):")),
    _same("an annotation of a variable in the function", ("total = helper", "total: 'jax.Array' = helper")),
    _same("a type alias in the file", ("HEIGHT = 2.0", "Number = int | float\nHEIGHT = 2.0")),
    _same("another working directory", cwd="below"),
    _same("another folder, of another name", moved=True),
    _same("arguments of the command line", argv=((), ("--more", "1"))),
    _same(
        "variables of the environment that nobody reads", env_b={"SOUNDNESS_MORE": "1", "HOME": "/nowhere", "LANG": "C"}
    ),
    _same("another hash seed", env_b={"PYTHONHASHSEED": "12345"}),
    _same("modules are not compiled to files (python -B)", flags=("-B",)),
    _same("python -X dev", flags=("-X", "dev")),
    _same("python -W error", flags=("-W", "error::UserWarning")),
    _same("python -u", flags=("-u",)),
    _same("a log level", ("HEIGHT = 2.0", "HEIGHT = 2.0\nimport logging\nlogging.basicConfig(level=logging.INFO)")),
    _same(
        "random numbers are seeded",
        ("HEIGHT = 2.0", "HEIGHT = 2.0\nimport random\nrandom.seed(1); np.random.seed(1)"),
    ),
    _same("garbage is collected", ("HEIGHT = 2.0", "HEIGHT = 2.0\nimport gc\ngc.collect(); gc.freeze()")),
    _same(
        "a thread runs beside",
        (
            "HEIGHT = 2.0",
            "HEIGHT = 2.0\nimport threading, time\nthreading.Thread(target=time.sleep, args=(1,), daemon=True).start()",
        ),
    ),
    _same(
        "how arrays are printed",
        ("HEIGHT = 2.0", "HEIGHT = 2.0\nnp.set_printoptions(precision=3)"),
        retraced=True,
        note="numpy's settings are part of what kind of call it is",
    ),
    _same(
        "a variable in the function has another name",
        ("total = helper", "result = helper"),
        ("apply(total)", "apply(result)"),
        retraced=True,
        note="names of variables count: `locals()` and messages show them",
    ),
    _same(
        "the function that is called has another name",
        ("def g(x)", "def added(x)"),
        ("helper.g(x)", "helper.added(x)"),
        retraced=True,
        note="names that code reads are part of the code",
    ),
    _same(
        "a method that is not called, of a class that is used",
        ('return "model"', 'return "a model"'),
        retraced=True,
        note="all methods of a class count: which are called through operators and by name cannot be told",
    ),
    _same(
        "a result gets a name before it is returned",
        ("return x * self.scale", "y = x * self.scale\n        return y"),
        retraced=True,
        note="code counts as it is written, though the program is the same",
    ),
    _kept(
        "a docstring is edited, in a program that makes text of values",
        """
        def g(x):
            '''Adds.'''
            return x + len(str(1.5))
        def f(x): return g(x)
        """,
        ("Adds.", "Adds one."),
        retraced=True,
        note="where code makes text of values, names and docstrings may be in it",
    ),
    _kept(
        "a set of numbers under another hash seed",
        """
        S = {1, 2, 3}
        def f(x): return x + sum(S)
        """,
        env={"PYTHONHASHSEED": "1"},
        env_b={"PYTHONHASHSEED": "2"},
    ),
    _kept(
        "a set of strings that is only looked in, under another hash seed",
        """
        def f(x): return x + ('a' in {'a', 'bb', 'ccc'})
        """,
        env={"PYTHONHASHSEED": "1"},
        env_b={"PYTHONHASHSEED": "2"},
    ),
    _kept(
        "a dictionary of strings under another hash seed",
        """
        D = {'a': 1, 'bb': 2, 'ccc': 3}
        def f(x): return x + sum(i * v for i, v in enumerate(D.values()))
        """,
        env={"PYTHONHASHSEED": "1"},
        env_b={"PYTHONHASHSEED": "2"},
    ),
    _kept(
        "a set of strings that the code goes through in order, under another hash seed",
        """
        S = {'a', 'bb', 'ccc'}
        def f(x): return x + sum(i * len(s) for i, s in enumerate(sorted(S)))
        """,
        env={"PYTHONHASHSEED": "1"},
        env_b={"PYTHONHASHSEED": "2"},
        retraced=True,
        note="that only sorted() goes through it is not seen",
    ),
    _kept(
        "a file that is read is written anew with the same content",
        """
        def f(x): return x + float(open('data').read())
        """,
        files={"data": "1"},
    ),
    _kept(
        "a variable that is read keeps its value, others change",
        """
        def f(x): return x + float(os.environ.get('SCALE', '1'))
        """,
        env_b={"SOUNDNESS_MORE": "1"},
    ),
    _kept(
        "captured arrays are made in another way, of the same content",
        """
        A = np.arange(4, dtype=np.float32)
        def f(x): return x + A
        """,
        ("np.arange(4, dtype=np.float32)", "np.array([0, 1, 2, 3], np.float32)"),
    ),
    _kept(
        "a list is made in another way, of the same content",
        """
        L = [1.0, 2.0]
        def f(x): return x + sum(L)
        """,
        ("L = [1.0, 2.0]", "L = []\nL.append(1.0)\nL.append(2.0)"),
    ),
    _kept(
        "a cache of the user's that is filled before",
        """
        import functools
        @functools.lru_cache
        def g(n): return n * 2.0
        def f(x): return x + g(3)
        """,
        ("def f", "g(4)\ndef f"),
    ),
    _kept(
        "another thread calls the function",
        """
        def f(x): return x + 1
        import threading
        def calls(jit):
            yield jit(f), (np.ones(3, np.float32),)
        """,
        (
            "yield jit(f)",
            "g = []\n"
            "    one = threading.Thread(target=lambda: g.append(jit(f)))\n"
            "    one.start(); one.join()\n"
            "    yield g[0]",
        ),
    ),
    _kept(
        "flax: an idle function and another hash seed",
        FLAX,
        ("model = Model()", "model = Model()\ndef idle(): return 1"),
        env_b={"PYTHONHASHSEED": "4"},
        needs=("flax",),
    ),
    _kept(
        "nnx: an idle function and another hash seed",
        NNX,
        ("self.scale = 2.0", "self.scale = 2.0  # said"),
        env_b={"PYTHONHASHSEED": "4"},
        needs=("flax",),
    ),
    _kept(
        "haiku: an idle function and another hash seed",
        HAIKU,
        ("model =", "def idle(): return 1\nmodel ="),
        env_b={"PYTHONHASHSEED": "4"},
        needs=("dm-haiku",),
    ),
    _kept(
        "numpyro: an idle function and another hash seed",
        NUMPYRO,
        ("def model", "def idle(): return 1\ndef model"),
        env_b={"PYTHONHASHSEED": "4"},
        needs=("numpyro",),
    ),
    _kept(
        "optax: an idle function and another hash seed",
        OPTAX,
        ("schedule =", "def idle(): return 1\nschedule ="),
        env_b={"PYTHONHASHSEED": "4"},
        needs=("optax",),
    ),
    _kept(
        "equinox: an idle function and another hash seed",
        EQUINOX,
        ("MODEL =", "def idle(): return 1\nMODEL ="),
        env_b={"PYTHONHASHSEED": "4"},
        needs=("equinox",),
    ),
    _kept(
        "blackjax: an idle function and another hash seed",
        _BLACKJAX,
        ("nuts =", "def idle(): return 1\nnuts ="),
        env_b={"PYTHONHASHSEED": "4"},
        needs=("blackjax",),
    ),
    _kept(
        "diffrax: an idle function and another hash seed",
        _DIFFRAX,
        ("term =", "def idle(): return 1\nterm ="),
        env_b={"PYTHONHASHSEED": "4"},
        needs=("diffrax",),
    ),
    _kept(
        "what a function sets it puts back: numpy.errstate, numpy.printoptions, warnings.catch_warnings",
        """
        import warnings
        def f(x):
            with np.errstate(divide='raise'), np.printoptions(precision=2), warnings.catch_warnings():
                warnings.simplefilter('ignore')
                return x + 1
        """,
        ("x + 1", "x + 1  # said"),
    ),
    _kept(
        "a class is registered as a tree in the function, which makes it",
        """
        import dataclasses
        def f(x):
            @jax.tree_util.register_dataclass
            @dataclasses.dataclass
            class C:
                a: object
            return C(x).a + 1
        """,
        ("def f", "idle = 1\ndef f"),
    ),
    _kept(
        "closures that were made before, kept in caches, lists and attributes",
        """
        import functools
        @functools.lru_cache
        def make(k):
            def inner(a): return a * k
            return inner
        make(2.0)
        KEPT = [lambda a, n=n: a * n for n in (1.0, 2.0)]
        class M:
            def __init__(self, k):
                def inner(a): return a * k
                self.g = inner
                self.h = jax.jit(lambda a: a + k)
        m = M(3.0)
        def f(x): return make(2.0)(x) + KEPT[1](x) + m.g(x) + m.h(x)
        """,
        ("def f", "idle = 1\ndef f"),
    ),
    _kept(
        "a warning is shown, with a line of the source",
        """
        import warnings
        def f(x):
            warnings.warn("said")
            return x + 1
        """,
        ("def f", "idle = 1\ndef f"),
    ),
    _kept(
        "a counter in a dictionary of a library's",
        HELD_HEAD + "def f(x): return lib.use_state(x)",
        ("def f", "lib.STATE['calls'] = 7\ndef f"),
        files=HELD_FILES,
    ),
    _kept(
        "a function of a module of Python's that is there when it is asked for",
        """
        import concurrent.futures
        import lineax as lx
        def f(x):
            matrix = lx.MatrixLinearOperator(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
            return lx.linear_solve(matrix, x, throw=False).value
        ARGS = (np.ones(2, np.float32),)
        """,
        ("def f", "concurrent.futures.ThreadPoolExecutor\ndef f"),
        needs=("lineax",),
    ),
    case(
        "an enumeration that is asked for a member by its value",
        """
        import enum
        class Parts(enum.IntFlag):
            LOW, HIGH = 1, 2
        ASKED = 3
        def f(x): return x * int(Parts(ASKED) & Parts.HIGH)
        """,
        ("def f", "idle = 1\ndef f"),
        expect=SKIPPED,
    ),
]
