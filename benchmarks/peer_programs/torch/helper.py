"""A helper of the program beside it, in which `peers.py` makes its edits."""

from __future__ import annotations

import torch


def scaled(x: torch.Tensor) -> torch.Tensor:
    """Returns the values times a constant."""
    factor = 0.25
    return x * factor
