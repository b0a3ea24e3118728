"""The table: everything that may change between two starts of a program of `rewarm.jit`, and what it comes to.

Data only, so that the page docs/soundness.md and the tests are made of the same rows.
"""

from __future__ import annotations

from soundness_case import Case
from soundness_code import CODE
from soundness_held import HELD
from soundness_jax import JAX, LIBRARIES
from soundness_outside import MODULES, OUTSIDE, PYTHON
from soundness_places import PLACES
from soundness_process import PROCESS
from soundness_same import SAME
from soundness_settings import SETTINGS, SETTINGS_KEPT
from soundness_values import VALUES

CHANGES: dict[str, list[Case]] = {
    "Code": CODE,
    "Values": VALUES,
    "Modules and registries": MODULES,
    "The world outside": OUTSIDE,
    "State of Python and of its library": PYTHON,
    "JAX": JAX,
    "Libraries": LIBRARIES,
    "What libraries hold": HELD,
    "Settings": SETTINGS,
    "Places, tables and registries": PLACES,
    "What a trace changes": PROCESS,
}
SAME_PROGRAM = [*SAME, *SETTINGS_KEPT]
