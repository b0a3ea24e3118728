"""The training program of examples/transformer.py (flax and optax), with its result as one line."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from _result import print_result


def main() -> None:
    """Trains with the example's own defaults; the result is every loss and every final parameter."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
    transformer = importlib.import_module("transformer")
    outcome = transformer.train(transformer.Config())
    print(f"first loss {outcome.losses[0]:.9g}, last loss {outcome.losses[-1]:.9g}")
    print_result([outcome.losses, outcome.held_out_loss, outcome.parameters])


if __name__ == "__main__":
    main()
