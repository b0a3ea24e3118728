"""Changes of what an installed library holds, which only its own code reads, and of what was put in its place."""

from __future__ import annotations

import base64
import hashlib
import textwrap
from collections.abc import Mapping

from soundness_case import PROOF, Case, case

_LIBRARY = """
import argparse, dataclasses, decimal, pathlib, threading, types
import jax, numpy as np
BIG = {i: 1.0 for i in range(100)}
TABLE = np.ones((600, 600), np.float32)
@dataclasses.dataclass(slots=True)
class Config:
    k: float = 1.0
CONFIG = Config()
NAMES = types.SimpleNamespace(k=1.0)
ARGS = argparse.Namespace(k=1.0)
LAYERS = range(2)
LOCAL = threading.local()
LOCAL.k = 1.0
STATE = {"k": 1.0, "calls": 0}
EPS = decimal.Decimal("1.0")
PATH = pathlib.Path("data")
HOOK = None
METHOD = None
DEEP = [[[[[[[1.0]]]]]]]
class Layer:
    table = np.ones(3, np.float32)
class User:
    def __init__(self, k): self.k = k
    def get(self): return self.k
class Options(dict): pass
OPTIONS = Options(k=1.0)
def make(k):
    def inner(x): return x * k
    return inner
def given(x, k=1.0): return x * k
def put(name, value): globals()[name] = value
def use_big(x): return x * BIG[7]
def use_table(x): return x * float(TABLE[0, 0])
def use_config(x): return x * CONFIG.k
def use_names(x): return x * NAMES.k
def use_args(x): return x * ARGS.k
def use_layers(x):
    for _ in LAYERS: x = x * 2
    return x
def use_local(x): return x * LOCAL.k
def use_state(x):
    STATE["calls"] += 1
    return x * STATE["k"]
def use_eps(x): return x + float(EPS)
def use_path(x): return x + len(PATH.name)
def use_hook(x): return HOOK(x)
def use_method(x): return x * METHOD()
def use_deep(x): return x * DEEP[0][0][0][0][0][0][0]
def use_given(x): return given(x)
def use_class(x): return x * float(Layer.table[0])
def use_options(x): return x * OPTIONS["k"]
def use_softmax(x): return jax.nn.softmax(x)
class Count:
    total = 0.0
COUNT = Count()
def use_count(x): return x + len(memoryview(COUNT.kept))
"""


def package(name: str, text: str) -> Mapping[str, str]:
    """The files of an installed distribution of one module, as an installer leaves them, in a folder of the program."""
    text = textwrap.dedent(text).lstrip("\n")
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    return {
        f"site-packages/{name}.py": text,
        f"site-packages/{name}-1.0.dist-info/RECORD": f"{name}.py,sha256={digest},{len(text.encode())}\n",
    }


FILES = package("soundness_lib", _LIBRARY)
HEAD = """
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'site-packages'))
import soundness_lib as lib
"""
_SET = """
import decimal, functools, pathlib
lib.BIG[7] = 2.0
lib.TABLE[:] = 2.5
lib.CONFIG.k = 3.0
lib.NAMES.k = 3.5
lib.ARGS.k = 4.0
lib.put('LAYERS', range(3))
lib.LOCAL.k = 4.5
lib.STATE['k'] = 5.0
lib.put('EPS', decimal.Decimal('5.5'))
lib.put('PATH', pathlib.Path('data'))
lib.put('HOOK', lib.make(6.0))
lib.put('METHOD', lib.User(6.5).get)
lib.DEEP[0][0][0][0][0][0][0] = 7.0
lib.given.__defaults__ = (7.5,)
lib.Layer.table = np.full(3, 8.0, np.float32)
lib.OPTIONS['k'] = 8.5
jax.nn.softmax = functools.partial(jax.nn.softmax, axis=-1)
lib.COUNT.kept = memoryview(b'9')
"""
_ARGS = "ARGS = (np.arange(1, 5, dtype=np.float32).reshape(2, 2),)\n"


def _held(use: str, change: str, old: str, new: str, **rest: object) -> Case:
    program = f"{HEAD}{_SET}def f(x): return lib.use_{use}(x)\n{_ARGS}"
    return case(f"a library holds {change}", program, (old, new), files=FILES, **rest)


HELD: list[Case] = [
    _held("big", "a dictionary of a hundred items", "[7] = 2.0", "[7] = 2.25"),
    _held("table", "an array of more than a megabyte", "[:] = 2.5", "[:] = 2.75"),
    _held("config", "a dataclass with slots", "CONFIG.k = 3.0", "CONFIG.k = 3.25"),
    _held("names", "a SimpleNamespace", "NAMES.k = 3.5", "NAMES.k = 3.75"),
    _held("args", "an argparse.Namespace", "ARGS.k = 4.0", "ARGS.k = 4.25"),
    _held("layers", "a range", "range(3)", "range(4)"),
    _held("local", "a threading.local", "LOCAL.k = 4.5", "LOCAL.k = 4.75"),
    _held("state", "a dictionary in which a counter grows", "['k'] = 5.0", "['k'] = 5.25"),
    _held("eps", "a Decimal", "Decimal('5.5')", "Decimal('5.75')"),
    _held("path", "a path", "Path('data')", "Path('more/dates')"),
    _held("hook", "a closure that it made", "make(6.0)", "make(6.25)"),
    _held("method", "a bound method", "User(6.5)", "User(6.75)"),
    _held("deep", "a number seven lists deep", "= 7.0", "= 7.25"),
    _held("given", "a function with other defaults", "(7.5,)", "(7.75,)"),
    _held("class", "an array in a class", "8.0, np.float32", "8.25, np.float32"),
    _held("options", "an instance of a class derived from dict", "['k'] = 8.5", "['k'] = 8.75"),
    _held("softmax", "a partial that stands for a function of JAX's", "axis=-1", "axis=-2"),
    _held(
        "count",
        "an object whose content is in C",
        "memoryview(b'9')",
        "memoryview(b'99')",
        expect=PROOF,
        note="of an object of a type that is not known and is written in C, only the type counts",
    ),
]
