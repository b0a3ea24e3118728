"""Explaining misses: every kind of finding, through a real cache, store and catalogue, with programs of JAX."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from records import evidence, lowered

from rewarm.cache import CompileCache, Request
from rewarm.coordination import SingleFlight
from rewarm.errors import StoreError
from rewarm.explain import Catalogue, Explainer
from rewarm.explain import explainer as module
from rewarm.explain.explainer import INLINE_BYTES
from rewarm.identity import KeyComponents, component
from rewarm.ledger import Event, Ledger, Seconds
from rewarm.ledger.explanation import KINDS, Explanation
from rewarm.policy import Thresholds
from rewarm.store import LocalStore

np = pytest.importorskip("numpy")
jax = pytest.importorskip("jax")
jnp = jax.numpy
pytestmark = pytest.mark.contract

ONE = np.ones((4, 4), np.float32)
OPTIONS = {"xla_cpu_max_isa": "AVX2"}


class Checking:
    """An observer that hears of every miss with an explanation."""

    def missed(self, program: str, key: str | None, reason: str, explanation: Explanation | None) -> None:
        assert program
        assert key is None or len(key) == 64
        assert (explanation is None) == (reason == "contents are checked")

    def finished(self, event: Event) -> None:
        pass


def request(function: Callable[..., Any], *arguments: Any, **changes: Any) -> Request[bytes]:
    """A request for what JAX makes of `function`; `changes` are values of components, or fields of the request."""
    return request_of(lowered(function, *(arguments or (ONE,))), **changes)


def request_of(lowered_module: Any, **changes: Any) -> Request[bytes]:
    """A request for a module."""
    said = evidence(lowered_module)
    rows: dict[str, Any] = {
        "program": said.canonical,
        "callbacks": "none",
        "options": OPTIONS,
        "inputs": [],
        "toolchain": {"jaxlib/x.so": "a" * 64},
        "target": {"platform": "cpu", "shape": [1, 1], "threads": 2},
        "salt": {"salt": "", "custom_hook": "", "flags": []},
    }
    name = changes.pop("name", "jit_step")
    given = {row: changes.pop(row) for row in list(changes) if row in rows}
    components = KeyComponents.of({row: component(row, value) for row, value in {**rows, **given}.items()})
    made: Request[bytes] = Request(
        program=name,
        components=components,
        unkeyable=None,
        key_seconds=0.0,
        compile=lambda: b"code",
        serialise=bytes,
        load=bytes,
        same=lambda one, other: one == other,
        producer={"jax": "0.10.2", "jaxlib": "0.10.2"},
        target="cpu x1",
        evidence=said,
    )
    return made._replace(**changes)


class Bench:
    """A cache over a directory; each `ask` is one request, and gives its event."""

    def __init__(self, root: Path, store: Any = None, catalogue: Any = None, **settings: Any) -> None:
        root.mkdir(exist_ok=True)
        self.root = root
        self.store = store if store is not None else LocalStore(root)
        self.catalogue = catalogue if catalogue is not None else Catalogue(root)
        self.ledger = Ledger()
        closed = settings.pop("closed", "")
        used = None if closed else self.store
        self.cache = CompileCache(
            used,
            ledger=self.ledger,
            flights=SingleFlight(),
            observer=Checking(),
            explainer=Explainer(used, self.catalogue),
            closed=closed,
            **{"thresholds": Thresholds(0.0, 0), **settings},
        )

    def file(self, event: Event) -> Path:
        """Where the entry of an event lies."""
        assert event.key is not None
        return Path(self.store.path(event.key))

    def serve(self, asked: Request[bytes]) -> Event:
        self.cache.resolve(asked)
        return self.ledger.events()[-1]

    def ask(self, function: Callable[..., Any], *arguments: Any, **changes: Any) -> Event:
        return self.serve(request(function, *arguments, **changes))

    def why(self, function: Callable[..., Any], *arguments: Any, **changes: Any) -> Explanation:
        said = self.ask(function, *arguments, **changes).explanation
        assert said is not None
        assert len(said.summary.splitlines()) == 1
        return said


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "cache")


def kinds(said: Explanation) -> list[str]:
    assert {finding.kind for finding in said.findings} <= set(KINDS)
    return [finding.kind for finding in said.findings]


def text(said: Explanation, kind: str) -> str:
    return " / ".join(finding.text for finding in said.findings if finding.kind == kind)


def scaled(number: float) -> Callable[[Any], Any]:
    return lambda x: jnp.sin(x) * number


def large(number: float = 2.0, last: Callable[[Any], Any] = jnp.sin, axis: int = 0) -> Callable[[Any], Any]:
    """A program above the size up to which lines are compared at once."""

    def function(x: Any) -> Any:
        for step in range(120):
            x = jnp.tanh(x * (step + 1.5)) + x[::-1]
        return (last(x) * number).sum(axis=axis)

    return function


# ---------------------------------------------------------------------------------------------------------------
# Every kind of finding


def test_new(bench: Bench) -> None:
    said = bench.why(scaled(2.0))
    assert kinds(said) == ["new"]
    assert (said.nearest, said.differs, said.changes) == (None, (), ())
    bench.ask(lambda x: x @ x, name="jit_matmul")
    assert kinds(bench.why(lambda x: jnp.cumsum(x) - 1, name="jit_third")) == ["new"]


def test_removed(bench: Bench) -> None:
    event = bench.ask(scaled(2.0))
    bench.file(event).unlink()
    said = bench.why(scaled(2.0))
    assert kinds(said) == ["removed"]
    assert (said.nearest, said.differs) == (event.key, ())


def test_quarantined(bench: Bench) -> None:
    event = bench.ask(scaled(2.0))
    bench.file(event).write_bytes(b"not an entry")
    said = bench.why(scaled(2.0))
    assert kinds(said) == ["quarantined"]
    assert "not an entry of rewarm" in said.summary
    assert said.nearest == event.key


def test_not_stored(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "cache", thresholds=Thresholds(60.0, 0))
    bench.ask(scaled(2.0))
    said = bench.why(scaled(2.0))
    assert kinds(said) == ["not stored"]
    assert "compiled faster than min_compile_seconds" in said.summary


def test_unkeyable(bench: Bench) -> None:
    said = bench.why(scaled(2.0), components=None, evidence=None, unkeyable="custom_partitioning: a lock")
    assert kinds(said) == ["unkeyable"]
    assert "custom_partitioning: a lock" in said.summary


def test_bypassed(bench: Bench) -> None:
    said = bench.why(scaled(2.0), bypass="the options ask the compiler to write: xla_dump_to")
    assert kinds(said) == ["bypassed"]
    assert "xla_dump_to" in said.summary


def test_unfinished_without_a_store(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "cache", closed="jax_compilation_cache_max_size is 0")
    said = bench.why(scaled(2.0))
    assert kinds(said) == ["unfinished"]
    assert "jax_compilation_cache_max_size is 0" in said.summary


def test_constants(bench: Bench) -> None:
    first = bench.ask(scaled(2.0))
    said = bench.why(scaled(3.0))
    assert (kinds(said), said.nearest, said.differs) == (["constants"], first.key, ("program",))
    (change,) = said.changes
    assert ("2.000000e+00" in change.before, "3.000000e+00" in change.after) == (True, True)


def test_varying_constant(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (2.0, 3.0, 4.0):
        monkeypatch.setattr(module, "_STARTED", number)  # as in a process of its own
        assert "varying constant" not in kinds(bench.why(scaled(number))) or number == 4.0
    monkeypatch.setattr(module, "_STARTED", 5.0)
    said = bench.why(scaled(5.0))
    assert kinds(said) == ["constants", "varying constant"]
    assert "each of the 3 runs" in text(said, "varying constant")


def test_constants_of_a_loop_are_no_varying_constant(bench: Bench) -> None:
    for number in (2.0, 3.0, 4.0, 5.0):
        assert "varying constant" not in kinds(bench.why(scaled(number)))


def test_signature(bench: Bench) -> None:
    import jax

    plain, other = (jax.jit(lambda x: x + 1, donate_argnums=which).lower(ONE).compiler_ir() for which in ((), (0,)))
    bench.serve(request_of(plain))
    said = Explainer(bench.store, bench.catalogue).explain(request_of(other), "not in the store", None)
    assert kinds(said) == ["signature"]


def test_meanwhile(bench: Bench) -> None:
    """Another process stores it after this one has looked."""
    bench.ask(scaled(2.0))
    said = Explainer(bench.store, bench.catalogue).explain(request(scaled(2.0)), "not in the store", None)
    assert kinds(said) == ["meanwhile"]


def test_shapes(bench: Bench) -> None:
    sizes = (4, 8, 12)
    for size in sizes:
        bench.ask(jnp.sin, np.ones(size, np.float32))
    said = bench.why(jnp.sin, np.ones(16, np.float32))
    assert set(kinds(said)) == {"shapes"}
    assert "now (tensor<16xf32>) -> tensor<16xf32>" in text(said, "shapes")
    assert all(f"(tensor<{size}xf32>)" in text(said, "shapes").partition("seen before")[2] for size in sizes)


def test_types(bench: Bench) -> None:
    def summed(x: Any) -> Any:
        return jnp.cumsum(x * 2)

    bench.ask(summed, np.ones(4))
    jax.config.update("jax_enable_x64", True)
    try:
        said = bench.why(summed, np.ones(4))
    finally:
        jax.config.update("jax_enable_x64", False)
    assert kinds(said) == ["types"]


def ordered(first: Callable[[Any], Any], second: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        parts = {first.__name__: first(x), second.__name__: second(x)}
        return parts["sin"] * 2 + parts["cos"]

    return function


def test_order(bench: Bench) -> None:
    bench.ask(ordered(jnp.sin, jnp.cos))
    said = bench.why(ordered(jnp.cos, jnp.sin))
    assert kinds(said) == ["order"]
    assert "PYTHONHASHSEED" in said.summary


def test_operations(bench: Bench) -> None:
    bench.ask(lambda x: jnp.sin(x) + 1)
    said = bench.why(lambda x: jnp.cos(x) + 1)
    assert kinds(said) == ["operations"]
    assert "stablehlo.sine" in said.summary
    assert "stablehlo.cosine" in said.summary


def test_operands(bench: Bench) -> None:
    bench.ask(lambda x, y: x - y, ONE, ONE)
    said = bench.why(lambda x, y: y - x, ONE, ONE)
    assert kinds(said) == ["operands"]
    assert len(said.changes) == 1


def test_names(bench: Bench) -> None:
    """As with metadata_in_key, where source locations and names make another program of the same operations."""
    bench.ask(scaled(2.0))
    said = bench.why(scaled(2.0), program=b"the same with other names")
    assert (kinds(said), said.changes) == (["names"], ())


def test_renamed(bench: Bench) -> None:
    bench.ask(scaled(2.0), name="jit_before")
    said = bench.why(scaled(3.0))
    assert kinds(said) == ["constants", "renamed"]
    assert "jit_before" in said.summary


def test_described(bench: Bench) -> None:
    """The same program was compiled ahead, for a machine that is said to be like this one."""

    def asked(threads: int, producer: dict[str, str]) -> Any:
        made = request(scaled(2.0))
        assert made.components is not None
        rows = {row.name: row for row in made.components.rows}
        target = component("target", {**rows["target"].value, "threads": threads})
        return made._replace(
            components=KeyComponents.of({**rows, "target": target}), producer={**made.producer, **producer}
        )

    bench.serve(asked(64, {"ahead": "x86-64-v3 (built in)"}))
    explainer = Explainer(bench.store, bench.catalogue)
    said = explainer.explain(asked(2, {}), "not in the store", None)
    assert kinds(said) == ["described"]
    assert "compiled ahead for x86-64-v3 (built in)" in said.summary
    assert [(one.component, one.item, one.before, one.after) for one in said.changes] == [
        ("target", "threads", "64", "2")
    ]
    assert kinds(explainer.explain(asked(3, {"ahead": "another"}), "not in the store", None)) == []


_SCENES = [
    *(test_new, test_removed, test_quarantined, test_not_stored, test_unkeyable, test_bypassed),
    *(test_unfinished_without_a_store, test_constants, test_varying_constant, test_shapes, test_types, test_order),
    *(test_operations, test_operands, test_names, test_renamed, test_signature, test_meanwhile),
    test_described,
]


def test_every_kind_has_a_test() -> None:
    assert len(_SCENES) == len(KINDS)
    for kind in KINDS:
        assert any(f'"{kind}"' in str(scene.__code__.co_consts) or kind in _words(scene) for scene in _SCENES), kind


def _words(scene: Any) -> list[str]:
    return [word for word in scene.__code__.co_consts if isinstance(word, str)] + [
        word for several in scene.__code__.co_consts if isinstance(several, tuple) for word in several
    ]


# ---------------------------------------------------------------------------------------------------------------
# What else is said


def test_the_component_is_named_with_both_values(bench: Bench) -> None:
    bench.ask(scaled(2.0))
    said = bench.why(scaled(2.0), options={"xla_cpu_max_isa": "AVX512"})
    assert (said.differs, kinds(said)) == (("options",), [])
    assert "the same program as" in said.summary
    assert "options differs (xla_cpu_max_isa AVX2 → AVX512)" in said.summary


def test_several_components(bench: Bench) -> None:
    bench.ask(scaled(2.0))
    said = bench.why(scaled(3.0), salt={"salt": "x"}, target={"platform": "cpu", "shape": [1, 4], "threads": 2})
    assert said.differs == ("program", "target", "salt")
    assert {change.component for change in said.changes} == {"program", "target", "salt"}


def test_a_salt_of_several_lines_is_told_on_one(bench: Bench) -> None:
    bench.ask(scaled(2.0))
    assert bench.why(scaled(2.0), salt={"salt": "one\ntwo"}).differs == ("salt",)


def test_the_same_program_under_another_name_is_a_hit(bench: Bench) -> None:
    bench.ask(scaled(2.0), name="jit_before")
    event = bench.ask(scaled(2.0), name="jit_after")
    assert (event.outcome, event.explanation) == ("hit", None)


def test_it_is_compared_with_what_was_not_stored(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "cache", thresholds=Thresholds(60.0, 0))
    bench.ask(scaled(2.0))
    said = bench.why(scaled(3.0))
    assert kinds(said) == ["constants"]
    assert "which was not stored (compiled faster than min_compile_seconds)" in said.summary


def test_another_operation_is_no_other_constant_where_lines_are_not_kept(tmp_path: Path) -> None:
    """Programs that were not stored are compared by their shapes, and these do not tell what a constant is."""
    bench = Bench(tmp_path / "cache", thresholds=Thresholds(60.0, 0))
    bench.ask(lambda x: jnp.sin(x) + 1)
    assert kinds(bench.why(lambda x: jnp.cos(x) + 1)) == ["operations"]


def test_another_operation_of_a_large_program_is_no_other_constant(bench: Bench) -> None:
    bench.ask(large(last=jnp.sin))
    assert kinds(bench.why(large(last=jnp.cos))) == ["operations"]
    said = bench.why(large(last=jnp.tan))
    assert "varying constant" not in kinds(said)


def test_a_large_program_is_told_by_its_shape(bench: Bench) -> None:
    first = bench.ask(large(2.0))
    asked = request(large(3.0))
    assert asked.evidence is not None
    assert len(asked.evidence.canonical) > INLINE_BYTES
    said = bench.serve(asked).explanation
    assert said is not None
    assert (said.nearest, said.differs, said.changes, kinds(said)) == (first.key, ("program",), (), ["constants"])
    said = bench.why(large(3.0), np.ones((8, 4), np.float32))
    assert set(kinds(said)) == {"shapes"}
    assert "seen before: (tensor<4x4xf32>)" in text(said, "shapes")


def test_checking_contents_is_no_miss_to_explain(tmp_path: Path) -> None:
    Bench(tmp_path / "cache").ask(scaled(2.0))
    event = Bench(tmp_path / "cache", check_contents=True).ask(scaled(2.0))
    assert (event.reason, event.not_stored, event.explanation) == ("contents are checked", "already stored", None)
    bench = Bench(tmp_path / "cache")
    bench.file(event).unlink()
    assert kinds(bench.why(scaled(2.0))) == ["removed"], "that it was checked since does not count"


class Unreadable(LocalStore):
    """A store on a disk that fails."""

    def get(self, key: str, *, use: bool = True) -> bytes | None:  # noqa: ARG002
        raise StoreError(5, "Input/output error", str(self.path(key)))


def test_a_store_that_cannot_be_read_is_not_told_as_an_entry_that_is_gone(tmp_path: Path) -> None:
    Bench(tmp_path / "cache").ask(scaled(2.0))
    said = Bench(tmp_path / "cache", store=Unreadable(tmp_path / "cache")).why(scaled(2.0))
    assert "removed" not in kinds(said)
    assert "Input/output error" in said.summary


def test_what_does_not_compile_is_told(bench: Bench) -> None:
    def fail() -> bytes:
        raise RuntimeError("no")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="no"):
            bench.ask(scaled(2.0), compile=fail)
    said = bench.ledger.events()[-1].explanation
    assert said is not None
    assert kinds(said) == ["not stored"]
    assert "does not compile" in said.summary


def test_the_time_of_a_miss_counts_what_explaining_took(bench: Bench) -> None:
    event = bench.ask(scaled(2.0))
    assert 0 < event.seconds.explain < 1
    assert bench.ledger.stats().seconds_overhead >= event.seconds.explain


# ---------------------------------------------------------------------------------------------------------------
# Nothing is raised


class Raising:
    """A store or a catalogue each of whose methods raises."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        def fail(*arguments: Any, **named: Any) -> Any:
            raise self._error

        return fail


ERRORS = [OSError(28, "No space left"), StoreError(5, "bad", "x"), KeyError("x"), RecursionError(), AssertionError()]


def event_of(asked: Request[Any]) -> Event:
    assert asked.components is not None
    key = asked.components.key()
    return Event("jit_step", key, "miss", None, "", True, None, Seconds(), 0.0, 0, 0, None, 1.0)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_catalogue_that_raises_is_quiet(tmp_path: Path, error: Exception) -> None:
    explainer = Explainer(LocalStore(tmp_path), Raising(error))  # type: ignore[arg-type]
    asked = request(scaled(2.0))
    said = explainer.explain(asked, "not in the store", None)
    assert kinds(said) == ["unfinished"]
    assert type(error).__name__ in said.summary
    explainer.remember(asked, event_of(asked))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_store_that_raises_is_quiet(tmp_path: Path, error: Exception) -> None:
    Bench(tmp_path / "cache").ask(scaled(2.0))
    explainer = Explainer(Raising(error), Catalogue(tmp_path / "cache"))
    assert isinstance(explainer.explain(request(scaled(3.0)), "not in the store", None), Explanation)


@pytest.mark.parametrize("field", ["signature", "source"])
def test_evidence_that_raises_is_quiet(bench: Bench, field: str) -> None:
    def fail() -> Any:
        raise ValueError("cannot be told")

    bench.ask(scaled(2.0))
    asked = request(scaled(3.0))
    assert asked.evidence is not None
    whole = asked.evidence
    changed = whole._replace(signature=fail) if field == "signature" else whole._replace(source=fail)
    hurt = asked._replace(evidence=changed)
    explainer = Explainer(bench.store, bench.catalogue)
    assert kinds(explainer.explain(hurt, "not in the store", None)) == ["unfinished"]
    explainer.remember(hurt, event_of(hurt))


def test_evidence_that_is_no_program_is_quiet(bench: Bench) -> None:
    asked = request(scaled(3.0))
    assert asked.evidence is not None
    hurt = asked._replace(evidence=asked.evidence._replace(canonical=b"not bytecode"))
    explainer = Explainer(bench.store, bench.catalogue)
    assert kinds(explainer.explain(hurt, "not in the store", None)) == ["unfinished"]
    explainer.remember(hurt, event_of(hurt))


def test_a_summary_of_an_error_of_several_lines_is_one_line(tmp_path: Path) -> None:
    explainer = Explainer(LocalStore(tmp_path), Raising(ValueError("one\ntwo")))  # type: ignore[arg-type]
    said = explainer.explain(request(scaled(2.0)), "not in the store", None)
    assert len(said.summary.splitlines()) == 1


def test_an_entry_that_was_damaged_leaves_the_components(bench: Bench) -> None:
    first = bench.ask(scaled(2.0))
    bench.file(first).write_bytes(b"x")
    said = bench.why(scaled(3.0))
    assert (said.nearest, said.differs, kinds(said)) == (first.key, ("program",), ["constants"])
    assert bench.file(first).exists(), "explaining changes nothing"


def test_a_value_that_is_lost_leaves_the_component(bench: Bench) -> None:
    import shutil

    bench.ask(scaled(2.0))
    shutil.rmtree(bench.root / "explain" / "values")
    said = bench.why(scaled(2.0), options={"xla_cpu_max_isa": "AVX512"})
    assert said.differs == ("options",)
    assert "not kept" in said.summary


# ---------------------------------------------------------------------------------------------------------------
# What it costs


class Counting:
    """A catalogue or a store that counts what it is asked for."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name != "tier":
            self.asked.append(name)
        return getattr(self._real, name)


def test_a_hit_asks_the_catalogue_for_nothing(tmp_path: Path) -> None:
    Bench(tmp_path / "cache").ask(scaled(2.0))
    catalogue, store = Counting(Catalogue(tmp_path / "cache")), Counting(LocalStore(tmp_path / "cache"))
    event = Bench(tmp_path / "cache", catalogue=catalogue, store=store).ask(scaled(2.0))
    assert (event.outcome, event.seconds.explain) == ("hit", 0.0)
    assert (catalogue.asked, store.asked) == ([], ["get"])


def test_a_key_that_is_remembered_costs_one_look_up(bench: Bench) -> None:
    bench.file(bench.ask(scaled(2.0))).unlink()
    catalogue, store = Counting(bench.catalogue), Counting(bench.store)
    asked = request(scaled(2.0))
    said = Explainer(store, catalogue).explain(asked, "not in the store", None)  # type: ignore[arg-type]
    assert kinds(said) == ["removed"]
    assert (catalogue.asked, store.asked) == (["alike"], ["get"])


def test_a_miss_reads_one_entry_at_most(bench: Bench) -> None:
    for number in range(20):
        bench.ask(scaled(float(number)))
    catalogue, store = Counting(bench.catalogue), Counting(bench.store)
    Explainer(store, catalogue).explain(request(scaled(99.0)), "not in the store", None)  # type: ignore[arg-type]
    assert (catalogue.asked, store.asked) == (["alike"], ["get"])


def test_budget(bench: Bench) -> None:
    """Medians, since the machine may be busy; the first of each pays for imports."""

    def function(number: float) -> Callable[[Any], Any]:
        def chain(x: Any) -> Any:
            for step in range(20):
                x = jnp.tanh(x) * (number + step)
            return x

        return chain

    explainer = Explainer(bench.store, bench.catalogue)
    explaining, remembering = [], []
    for number in range(9):
        asked = request(function(float(number)))
        start = time.perf_counter()
        said = explainer.explain(asked, "not in the store", None)
        explaining.append(time.perf_counter() - start)
        assert number == 0 or said.changes
        bench.serve(asked)
        start = time.perf_counter()
        explainer.remember(asked, event_of(asked))
        remembering.append(time.perf_counter() - start)
    assert statistics.median(explaining[1:]) < 0.05
    assert statistics.median(remembering[1:]) < 0.02
