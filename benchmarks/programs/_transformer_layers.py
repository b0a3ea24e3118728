"""The transformer of examples/transformer.py with as many layers as its argument says, for two steps.

Not one of the programs that other benchmarks run by themselves (hence its name); `restart.py` does.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from _result import print_result


def main() -> None:
    """Trains for two steps; the result is every loss and every final parameter."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
    transformer = importlib.import_module("transformer")
    outcome = transformer.train(transformer.Config(layers=int(sys.argv[1]), steps=2))
    print_result([outcome.losses, outcome.held_out_loss, outcome.parameters])


if __name__ == "__main__":
    main()
