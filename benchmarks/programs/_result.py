"""The line by which two runs of a benchmark program are compared bit by bit."""

from __future__ import annotations

import hashlib
from typing import Any

import jax
import numpy as np


def print_result(tree: Any) -> None:
    """Prints `RESULT` and a SHA-256 of every array in the tree, with its name, shape and type."""
    sha = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = np.asarray(leaf)
        if not np.issubdtype(array.dtype, np.floating) or not np.isfinite(array).all():
            raise ValueError(f"{jax.tree_util.keystr(path)}: a result must be made of finite floats")
        sha.update(f"{jax.tree_util.keystr(path)} {array.shape} {array.dtype.str}\n".encode())
        sha.update(array.tobytes())
    print(f"RESULT {sha.hexdigest()}", flush=True)
