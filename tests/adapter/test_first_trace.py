"""A program's first trace comes before JAX has looked for its plugins: what the environment turns on is on for it."""

from __future__ import annotations

from pathlib import Path

from conftest import Program

LOOK = """
    import jax, numpy as np
    from rewarm.jax_adapter import activation, seam

    seen = []
    def f(x):
        seen.append(activation.session() is not None)
        return x + 1

    assert not seam.backends_are_up()
    jax.jit(f)(np.ones(2, np.float32))
    print(seen)
"""


def test_rewarm_is_on_in_the_first_trace(program: Program, cache: Path) -> None:
    done = program(LOOK, REWARM_DIR=str(cache))
    assert done.out == "[True]\n"
    assert done.stats["stored"] > 0


def test_rewarm_that_is_off_stays_off(program: Program, cache: Path) -> None:
    for asked in ({"REWARM_DIR": str(cache), "REWARM": "0"}, {}):
        assert program(LOOK, REWARM_STATS="", **asked).out == "[False]\n"
    assert not cache.exists()


def test_a_program_that_turned_it_off_has_the_last_word(program: Program, cache: Path) -> None:
    source = LOOK.replace("seen = []", "import rewarm; rewarm.disable(); seen = []")
    assert program(source, REWARM_STATS="", REWARM_DIR=str(cache)).out == "[False]\n"


def test_turned_on_before_jax_was_imported(program: Program, cache: Path) -> None:
    source = LOOK.replace("import jax, numpy", f"import rewarm; rewarm.enable({str(cache)!r}); import jax, numpy", 1)
    assert program(source).out == "[True]\n"
