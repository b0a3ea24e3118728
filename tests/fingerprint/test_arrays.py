"""numpy: arrays by content, functions by name, hidden state refused."""

from __future__ import annotations

import types
from typing import Any

import pytest

from rewarm.errors import NotFingerprintableError
from rewarm.fingerprint import fingerprint

np: Any = pytest.importorskip("numpy")


def digest(value: object) -> str:
    return fingerprint(value).digest


def root_of(source: str, **held: object) -> Any:
    module = types.ModuleType("case")
    module.__dict__.update(held)
    exec(source, module.__dict__)
    return module.root


DISTINCT = {
    "floats": lambda: np.arange(3.0),
    "other floats": lambda: np.array([0.0, 1.0, 3.0]),
    "singles": lambda: np.arange(3, dtype="f4"),
    "integers": lambda: np.arange(3),
    "unsigned": lambda: np.arange(3, dtype="u8"),
    "the other byte order": lambda: np.arange(3, dtype=">i8"),
    "two dimensions": lambda: np.arange(3.0).reshape(1, 3),
    "two dimensions, standing": lambda: np.arange(3.0).reshape(3, 1),
    "none": lambda: np.zeros(0),
    "none in two dimensions": lambda: np.zeros((0, 2)),
    "no dimensions": lambda: np.array(1.0),
    "scalar": lambda: np.float64(1.0),
    "single": lambda: np.float32(1.0),
    "true": lambda: np.True_,
    "minus zero": lambda: np.float64(-0.0),
    "zero": lambda: np.float64(0.0),
    "python's": lambda: 1.0,
    "dates": lambda: np.array(["2020-01-01"], dtype="M8[D]"),
    "dates in seconds": lambda: np.array(["2020-01-01"], dtype="M8[s]"),
    "texts": lambda: np.array(["a"]),
    "longer texts": lambda: np.array(["a"], dtype="U2"),
    "objects": lambda: np.array([1, "a", None], dtype=object),
    "other objects": lambda: np.array([1, "a", 2], dtype=object),
    "fields": lambda: np.array([(1, 2)], dtype="i1,i2"),
    "other fields": lambda: np.array([(1, 3)], dtype="i1,i2"),
    "named fields": lambda: np.array([(1, 2)], dtype=[("a", "i1"), ("b", "i2")]),
    "aligned fields": lambda: np.array([(1, 2)], dtype=np.dtype("i1,i2", align=True)),
    "dtype": lambda: np.dtype("f8"),
    "dtype of fields": lambda: np.dtype("i1,i2"),
    "dtype of parts": lambda: np.dtype(("i1", (2,))),
    "dtype with metadata": lambda: np.dtype("f8", metadata={"a": 1}),
    "type": lambda: np.float64,
    "ufunc": lambda: np.add,
    "another ufunc": lambda: np.multiply,
    "function of Python": lambda: np.linalg.norm,
    "function of C": lambda: np.zeros,
    "dispatched": lambda: np.sum,
    "method of a ufunc": lambda: np.add.reduce,
}


def test_each_of_these_values_has_a_digest_of_its_own() -> None:
    found: dict[str, str] = {}
    for name, make in DISTINCT.items():
        first, second = digest(make()), digest(make())
        assert first == second, name
        assert first not in found, f"{name} and {found[first]}"
        found[first] = name


def test_the_layout_does_not_count() -> None:
    table = np.arange(6.0).reshape(2, 3)
    assert digest(table) == digest(np.asfortranarray(table)) == digest(table.T.copy().T)
    assert digest(np.arange(3.0)) == digest(np.repeat(np.arange(3.0), 2)[::2])


def test_gaps_between_fields_do_not_count() -> None:
    kind = np.dtype([("a", "i1"), ("b", "i8")], align=True)
    first = np.frombuffer(b"\1" + b"\7" * 7 + b"\2" + b"\0" * 7, dtype=kind)
    second = np.frombuffer(b"\1" + b"\0" * 7 + b"\2" + b"\0" * 7, dtype=kind)
    assert first.tobytes() != second.tobytes()
    assert digest(first) == digest(second)


def test_types_of_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kinds = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4, ml_dtypes.uint4]
    made = (
        [digest(np.zeros(2, kind)) for kind in kinds]
        + [digest(kind) for kind in kinds]
        + [digest(kind(0)) for kind in kinds]
    )
    assert len(set(made)) == len(made)
    assert digest(np.ones(2, kinds[0])) != made[0]


@pytest.mark.parametrize(
    ("source", "way"),
    [
        ("def root(x): return np.random.rand(x)", "np.random"),
        ("def root(x):\n    import numpy\n    return numpy.random.rand(x)", "numpy.random"),
        ("def root(x):\n    from numpy.random import default_rng\n    return default_rng()", "numpy.random"),
        ("from numpy import random\ndef root(x): return random.rand(x)", "random"),
        ("from numpy.random import default_rng\ndef root(x): return default_rng()", "default_rng"),
        ("rng = np.random.default_rng(0)\ndef root(x): return rng.random()", "rng"),
        ("def root(x): return np.load(x)", "np.load"),
        ("def root(x): return np.fromfile(x)", "np.fromfile"),
        ("load = np.load\ndef root(x): return load(x)", "load"),
        ("def root(x): return (lambda m: m.random.rand())(np)", "random"),
        ("def root(x): return getattr(np, 'load')(x)", "load"),
        ("root = [np, (lambda m: m.load('a'))]", "load"),
        ("root = [np, 'load', lambda m, k: getattr(m, k)]", "load"),
        ("root = np.arange(3, dtype=np.longdouble)", "bytes"),
        ("class A(np.ndarray): pass\nroot = np.arange(3).view(A)", "array"),
        ("root = np.ma.masked_array([1], mask=[True])", "array"),
        ("root = np.frompyfunc(lambda x: x, 1, 1)", "C"),
        ("root = np.nditer([1])", "C"),
    ],
)
def test_refused(source: str, way: str) -> None:
    with pytest.raises(NotFingerprintableError) as caught:
        fingerprint(root_of(source, np=np), name="root")
    assert way in str(caught.value)


def test_numpy_as_a_value_counts_as_a_whole() -> None:
    def use(xp: Any, x: Any) -> Any:
        return xp.sum(x)

    assert len(digest((use, np))) == 64


def test_an_array_that_is_shared() -> None:
    table = np.arange(3.0)
    assert digest([table, table]) != digest([table, table.copy()])
