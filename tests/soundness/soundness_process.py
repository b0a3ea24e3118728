"""Functions that change their process while they are traced: a start without a trace would not."""

from __future__ import annotations

from soundness_case import REFUSED, Case, case

_F = "def f(x):\n    {}\n    return x + 1\n"


def _changes(change: str, body: str, setup: str = "") -> Case:
    return case(f"the function calls {change}", f"{setup}\n" + _F.format(body), ("x + 1", "x + 2"), expect=REFUSED)


PROCESS: list[Case] = [
    _changes("numpy.seterr", "np.seterr(divide='raise')"),
    _changes("numpy.set_printoptions", "np.set_printoptions(precision=2)"),
    _changes("setLevel of a logger", "logging.getLogger('a').setLevel(10)", "import logging"),
    _changes(
        "addHandler of a logger", "log.addHandler(H)", "import logging\nlog, H = logging.root, logging.NullHandler()"
    ),
    _changes("warnings.simplefilter", "warnings.simplefilter('ignore', BytesWarning)", "import warnings"),
    _changes("random.seed", "random.seed(1)", "import random"),
    _changes("numpy.random.seed", "np.random.seed(1)"),
    _changes("os.chdir", "os.chdir('.')"),
    _changes("locale.setlocale", "locale.setlocale(locale.LC_NUMERIC, 'C')", "import locale"),
    _changes("sys.setrecursionlimit", "sys.setrecursionlimit(5000)"),
    _changes("signal.signal", "signal.signal(signal.SIGUSR1, signal.SIG_IGN)", "import signal"),
    _changes("atexit.register", "atexit.register(bye)", "import atexit\ndef bye(): return None"),
    _changes("decimal.getcontext", "decimal.getcontext().prec = 30", "import decimal"),
    _changes("os.environ[...] = ...", "os.environ['SOUNDNESS_MORE'] = '1'"),
    _changes("gc.disable", "gc.disable()", "import gc"),
    _changes("jax.config.update", "jax.config.update('jax_log_compiles', True)"),
    _changes(
        "jax.tree_util.register_pytree_node",
        "again()",
        "class A: pass\n"
        "def again():\n"
        "    try: jax.tree_util.register_pytree_node(A, flat, make)\n"
        "    except ValueError: pass\n"
        "def flat(a): return ((), None)\n"
        "def make(_, __): return A()\n",
    ),
    _changes(
        "copyreg.pickle",
        "copyreg.pickle(datetime.timedelta, made)",
        "import copyreg, datetime\ndef made(_): return datetime.timedelta, (1,)",
    ),
]
