"""Shows the tuning: run by hand, on the machine that is meant, whenever a check says that something is not tuned.

    pytest --rewarm-tuned-dump=tuning.lock tune_kernels.py      # and commit tuning.lock

pytest does not collect this file by itself: its name is no test's.
"""

from __future__ import annotations

import jax.numpy as jnp
from kernels import total

import rewarm


def test_tune_total() -> None:
    tuned = rewarm.tune(total, None, jnp.linspace(-0.5, 1.5, 65536), budget=10)
    assert not tuned.not_kept
