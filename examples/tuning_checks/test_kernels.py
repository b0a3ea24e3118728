"""Shows the check: these tests use what was tuned, and fail where nobody has.

    pytest --rewarm-autotune-load=tuning.lock --rewarm-no-tuning test_kernels.py

Without the second option an untuned kernel runs with its default.
"""

from __future__ import annotations

import jax
import numpy as np
from kernels import total


def test_total() -> None:
    x = np.linspace(-1.0, 1.0, 65536, dtype=np.float32) + 0.5
    assert np.isclose(float(jax.jit(total)(x)), float(np.tanh(x).sum()), rtol=1e-3)
