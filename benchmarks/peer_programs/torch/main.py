"""The forward pass of a small transformer in PyTorch, through `torch.compile`: what `../jax/main.py` does.

Prints `READY`, `FIRST` and `RESULT` as that does, and `MISSED` with how many graphs were not in torch.compile's caches.
"""

# ruff: noqa: E402  # the time that imports take is measured

from __future__ import annotations

import time

STARTED = time.perf_counter()

import hashlib
import sys

import numpy as np
import torch
from helper import scaled
from torch._dynamo.utils import counters

WIDTH, TOKENS = 64, 32


def normal(x: torch.Tensor) -> torch.Tensor:
    """Each row less its mean, over its deviation."""
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5)


def forward(x: torch.Tensor, layers: list[dict[str, torch.Tensor]]) -> torch.Tensor:
    """Attention and a feed-forward layer, as often as there are weights."""
    for layer in layers:
        y = normal(x)
        query, key, value = y @ layer["query"], y @ layer["key"], y @ layer["value"]
        x = x + torch.softmax(scaled(query @ key.T), dim=-1) @ value
        x = x + torch.tanh(normal(x) @ layer["up"]) @ layer["down"]
    return normal(x)


def weights(count: int) -> tuple[torch.Tensor, list[dict[str, torch.Tensor]]]:
    """The same numbers at every start."""
    draw = np.random.default_rng(0)
    shapes = {"query": (WIDTH, WIDTH), "key": (WIDTH, WIDTH), "value": (WIDTH, WIDTH)}
    shapes |= {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    layers = [
        {name: torch.from_numpy(draw.standard_normal(shape, np.float32) * 0.1) for name, shape in shapes.items()}
        for _ in range(count)
    ]
    return torch.from_numpy(draw.standard_normal((TOKENS, WIDTH), np.float32)), layers


def main() -> None:
    """Call it once."""
    arguments = weights(int(sys.argv[1]))
    begun = time.perf_counter()
    print(f"READY {begun - STARTED}")
    with torch.no_grad():
        result = torch.compile(forward)(*arguments).numpy()
    print(f"FIRST {time.perf_counter() - begun}")
    missed = counters["aot_autograd"]["autograd_cache_miss"] + counters["inductor"]["fxgraph_cache_miss"]
    print(f"MISSED {missed}")
    print(f"RESULT {hashlib.sha256(result.tobytes()).hexdigest()}", flush=True)


if __name__ == "__main__":
    main()
