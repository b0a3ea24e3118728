"""The table: everything that may change between two starts of a program of `rewarm.jit`, and what it comes to.

Data only, so that the page docs/soundness.md and the tests are made of the same rows.
"""

from __future__ import annotations

from soundness_case import Case
from soundness_code import CODE
from soundness_jax import JAX, LIBRARIES
from soundness_outside import MODULES, OUTSIDE, PYTHON
from soundness_same import SAME
from soundness_values import VALUES

CHANGES: dict[str, list[Case]] = {
    "Code": CODE,
    "Values": VALUES,
    "Modules and registries": MODULES,
    "The world outside": OUTSIDE,
    "State of Python and of its library": PYTHON,
    "JAX": JAX,
    "Libraries": LIBRARIES,
}
SAME_PROGRAM = SAME
