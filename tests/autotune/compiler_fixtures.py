"""A plugin of pytest for the modules that ask XLA's real compiler: the compiler, and what it looks up."""

from __future__ import annotations

import pytest
from compiler_entries import PLAN, build

from cuda_compilers import Compiler, jax_version, wanted
from rewarm.autotune import targets
from rewarm.jax_adapter.lookups import Lookups, lookups


@pytest.fixture(scope="session")
def compiler() -> Compiler:
    return wanted()


@pytest.fixture(scope="session")
def asked(compiler: Compiler) -> Lookups:
    """What the compiler looks up for each program of the plan, by rewarm's own way."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in compiler.environment().items():
            patch.setenv(name, value)
        return lookups(PLAN, targets.description("h200", jax_version()), build(), build().default)
