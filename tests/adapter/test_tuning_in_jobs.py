"""Tuning in jobs of several processes: all end with one choice, and nobody waits for one who does not come."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import each, in_its_own, in_one, run

KERNEL = """
import jax, jax.numpy as jnp

def summed(x, *, chunk):
    begin = jnp.zeros(chunk, jnp.float16).sum().astype(jnp.float32)
    return jax.lax.fori_loop(0, 4096 // chunk, lambda _, total: jnp.sum(jnp.tanh(x + 0 * total)), begin)

import rewarm
chunked = rewarm.tunable(summed, space={"chunk": [64, 4096]}, default={"chunk": 64})
"""

BEGIN = """
    sys.path.insert(0, folder)
    from ranked import chunked
    import jax.numpy as jnp
    x = jnp.asarray(np.random.default_rng(0).standard_normal(1 << 16), jnp.float32)

    def taken():
        text = jax.jit(lambda x: chunked(x)).lower(x).as_text()
        return [c for c in (64, 4096) if f"tensor<{c}xf16>" in text]
"""


@pytest.fixture(autouse=True)
def kernel(tmp_path: Path) -> None:
    """The module that all ranks import."""
    (tmp_path / "ranked.py").write_text(KERNEL)


TOGETHER = (
    BEGIN
    + """
    tuned = rewarm.tune(chunked, None, x, budget=15)
    say(winner=tuned.winner["chunk"], measured=tuned.measured, taken=taken())
"""
)


@pytest.mark.parametrize("share", [True, pytest.param(False, marks=pytest.mark.campaign)])
def test_one_process_measures_and_all_have_its_choice(tmp_path: Path, share: bool) -> None:
    environment = in_one(tmp_path / "cache") if share else in_its_own(tmp_path)
    said = run(tmp_path, TOGETHER, 2, environment)
    assert each(said, "winner") == [4096, 4096]
    assert each(said, "measured") == [True, False]
    assert each(said, "taken") == [[4096], [4096]]


ALONE = (
    BEGIN
    + """
    if rank == 0:
        time.sleep(8)     # it comes too late, and obeys
        tuned = rewarm.tune(chunked, None, x, budget=10)
    else:
        from rewarm.jax_adapter.tuner import ranks as those
        those._BESIDE = 0.0
        tuned = rewarm.tune(chunked, None, x, deadline=2)
    say(winner=tuned.winner["chunk"], taken=taken())
"""
)


def test_one_that_is_late_leaves_all_with_the_default(tmp_path: Path) -> None:
    said = run(tmp_path, ALONE, 2, in_its_own(tmp_path))
    assert each(said, "winner") == [64, 64]
    assert each(said, "taken") == [[64], [64]]


# The second start: only one of them knows a winner, in a directory of its own; all use it, or none.
LATER = (
    BEGIN
    + """
    say(taken=taken())
"""
)


def test_at_a_later_start_all_use_what_one_knows(tmp_path: Path) -> None:
    first = run(tmp_path, TOGETHER, 2, in_its_own(tmp_path))
    assert each(first, "winner") == [4096, 4096]
    said = run(tmp_path, LATER, 2, in_its_own(tmp_path))
    assert each(said, "taken")[0] == each(said, "taken")[1] == [4096]
