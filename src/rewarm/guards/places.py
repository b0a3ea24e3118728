"""Whose a file is, by where it lies: a first look, which costs nothing; `owners.py` asks for proof.

Not promised: that a file in a site folder is what its distribution installed.
"""

from __future__ import annotations

import functools
import os
import sys

# The packages that JAX is made of; what they keep in their modules changes by itself (caches, counters, registries).
JAX = frozenset({"jax", "jaxlib", "numpy", "ml_dtypes", "scipy", "opt_einsum"})
_SITES = ("/site-packages/", "/dist-packages/")
_STDLIB = os.path.dirname(os.path.realpath(os.__file__)) + "/"  # noqa: PTH120 - text is compared with text
# Where Python may keep its own library in one file; other such files hold code of the user's.
_NAME = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
_ZIPPED = tuple(path + os.sep for path in sys.path if os.path.basename(path) == _NAME)  # noqa: PTH119 - text again


@functools.lru_cache(maxsize=1 << 16)
def kind_of_file(file: str) -> str:
    """`"python"`, `"jax"`, `"library"`, `"made"` (code that was made from text, without a file) or `"user"`."""
    if file.startswith("<frozen ") or file.startswith(_ZIPPED or ("<frozen ",)):
        return "python"
    if file.startswith("<"):
        return "made"
    for site in _SITES:
        if site in file:
            top = file.rpartition(site)[2].partition("/")[0].removesuffix(".py")
            return "jax" if top in JAX else "library"
    real = os.path.realpath(file)
    if real.startswith(_STDLIB):
        return "python"
    return kind_of_file(real) if real != file else "user"


@functools.cache
def kind_of_module(module: str) -> str:
    """The same of the file of a module that is imported; of one without a file, `"python"`."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return kind_of_file(file) if isinstance(file, str) else "python"
