"""What a trace returns beside its program: the tree of the results and the types of its leaves.

Not promised: that two results of one digest are equal in every way: what is in a node of the tree and cannot be
identified counts by its class.

The key of an executable says nothing of it. JAX puts the results into the tree that a trace gave, and types them weak
or not as it did; so a start without a trace may be believed only where these are as they were, too.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from rewarm.errors import NotFingerprintableError
from rewarm.fingerprint import fingerprint
from rewarm.jax_adapter import seam
from rewarm.jax_adapter.jax_values import companions, reducers
from rewarm.jax_adapter.trace_free.outlines import name_of_class, outline_of_tree


def results_of(traced: Any, tree: Any) -> str:
    """The digest for what `jitted.trace` returned and the tree of its results."""
    leaves = [seam.type_of_result(aval) for aval in traced.jaxpr.out_avals]
    return hashlib.sha256(json.dumps([outline_of_tree(tree, _held), leaves]).encode()).hexdigest()


def _held(value: Any) -> Any:
    """What is in a node, by content; what cannot be identified by its class, in tuples and dicts one by one."""
    if value is None:
        return None
    try:
        found = fingerprint(value, name="its results", reducers=reducers(), companions=companions)
    except NotFingerprintableError:
        found = None
    if found is not None and not found.unordered:
        return found.digest
    if type(value) in (tuple, list):
        return [_held(one) for one in value]
    if type(value) is dict:
        return [[_held(one), _held(other)] for one, other in value.items()]
    return [name_of_class(type(value)), str(getattr(value, "__qualname__", ""))]
