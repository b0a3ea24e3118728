"""Outlines: plain values that say what a tree is made of, for digests that are the same in each process.

Not promised: that two trees of one outline are equal; what is said of a node's own data is whoever asks's to choose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def name_of_class(kind: type) -> str:
    """Module and name of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"


def outline_of_tree(tree: Any, told: Callable[[Any], Any]) -> Any:
    """The nodes of a `PyTreeDef`: the class of each, what `told` says of its auxiliary data, and its children."""
    node = tree.node_data()
    if node is None:
        return "leaf" if tree.num_leaves else "none"
    kind, auxiliary = node
    return [name_of_class(kind), told(auxiliary), *(outline_of_tree(child, told) for child in tree.children())]
