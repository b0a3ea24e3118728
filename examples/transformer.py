"""Trains a small causal transformer language model, byte by byte, on English text.

    REWARM_DIR=~/.cache/demo REWARM_STATS=1 python examples/transformer.py      # run it twice

An ordinary JAX program: flax for the model, optax for the optimiser, one jitted training step. The text is
the language reference that Python itself ships, so there is nothing to download. The losses are printed with
all of their digits and the final parameters as a digest, so that two runs can be compared bit by bit.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator
from pydoc_data.topics import topics
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState

Batch = tuple[jax.Array | np.ndarray, jax.Array | np.ndarray]

VOCABULARY = 256  # every byte is a token


@dataclasses.dataclass(frozen=True)
class Config:
    """The size of the model and the length of the run."""

    layers: int = 4
    width: int = 128
    heads: int = 4
    context: int = 64
    batch: int = 8
    steps: int = 20
    dropout: float = 0.1
    learning_rate: float = 1e-3
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one training run computed: a loss for each step, the held-out loss and the final parameters."""

    losses: list[np.ndarray]
    held_out_loss: np.ndarray
    parameters: Any


class Block(nn.Module):
    """One pre-norm transformer block: causal self-attention, then a feed-forward layer."""

    config: Config

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        """Returns x with the block's two residual updates added."""
        config = self.config
        mask = nn.make_causal_mask(jnp.ones(x.shape[:2], dtype=jnp.int32))
        attention = nn.MultiHeadDotProductAttention(
            num_heads=config.heads, dropout_rate=config.dropout, deterministic=not train
        )
        x = x + attention(nn.LayerNorm()(x), mask=mask)
        hidden = nn.gelu(nn.Dense(4 * config.width)(nn.LayerNorm()(x)))
        hidden = nn.Dense(config.width)(hidden)
        return x + nn.Dropout(config.dropout, deterministic=not train)(hidden)


class LanguageModel(nn.Module):
    """Predicts each next byte of a text from the bytes before it."""

    config: Config

    @nn.compact
    def __call__(self, tokens: jax.Array, train: bool) -> jax.Array:
        """Returns the logits of the byte that follows each position."""
        config = self.config
        embed = nn.Embed(VOCABULARY, config.width)
        place = nn.Embed(config.context, config.width)
        x = embed(tokens) + place(jnp.arange(tokens.shape[1]))
        for _ in range(config.layers):
            x = Block(config)(x, train)
        return embed.attend(nn.LayerNorm()(x))


def read_text() -> np.ndarray:
    """Returns Python's own language reference as one array of bytes."""
    text = "\n\n".join(topics[name] for name in sorted(topics))
    return np.frombuffer(text.encode("utf-8"), dtype=np.uint8).astype(np.int32)


def batches(text: np.ndarray, config: Config, seed: int) -> Iterator[Batch]:
    """Yields batches of windows drawn from the text: the inputs, and the same moved on by one byte."""
    draw = np.random.default_rng(seed)
    offsets = np.arange(config.context)
    while True:
        starts = draw.integers(0, len(text) - config.context - 1, size=(config.batch, 1))
        yield text[starts + offsets], text[starts + offsets + 1]


def create_state(config: Config, key: jax.Array) -> TrainState:
    """Initialises the parameters and the optimiser: AdamW, warmed up and decayed, with clipped gradients."""
    model = LanguageModel(config)
    tokens = jnp.zeros((config.batch, config.context), dtype=jnp.int32)
    parameters = jax.jit(functools.partial(model.init, train=False))(key, tokens)["params"]
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, config.learning_rate, max(1, config.steps // 10), max(2, config.steps)
    )
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=0.01))
    return TrainState.create(apply_fn=model.apply, params=parameters, tx=optimiser)


def mean_loss(logits: jax.Array, targets: jax.Array | np.ndarray) -> jax.Array:
    """Returns the mean cross-entropy of the targets, in nats a byte."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


@functools.partial(jax.jit, donate_argnums=0)
def train_step(state: TrainState, batch: Batch, key: jax.Array) -> tuple[TrainState, jax.Array]:
    """Takes one optimiser step on one batch; the old state's memory is donated to the new state."""
    tokens, targets = batch
    dropout_key = jax.random.fold_in(key, state.step)

    def loss_of(parameters: Any) -> jax.Array:
        logits = state.apply_fn({"params": parameters}, tokens, train=True, rngs={"dropout": dropout_key})
        return mean_loss(logits, targets)

    loss, gradients = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=gradients), loss


@jax.jit
def eval_step(state: TrainState, batch: Batch) -> jax.Array:
    """Returns the loss on one batch without dropout."""
    tokens, targets = batch
    return mean_loss(state.apply_fn({"params": state.params}, tokens, train=False), targets)


def train(config: Config, report: Callable[[int, np.ndarray], None] = lambda _step, _loss: None) -> Outcome:
    """Trains a model from scratch on nine tenths of the text and evaluates it on the rest."""
    text = read_text()
    split = len(text) * 9 // 10
    init_key, dropout_key = jax.random.split(jax.random.key(config.seed))
    state = create_state(config, init_key)
    train_batches = batches(text[:split], config, seed=config.seed)
    losses = []
    for step in range(1, config.steps + 1):
        state, loss = train_step(state, next(train_batches), dropout_key)
        losses.append(np.asarray(loss))
        report(step, losses[-1])
    held_out_loss = eval_step(state, next(batches(text[split:], config, seed=config.seed)))
    return Outcome(losses, np.asarray(held_out_loss), jax.device_get(state.params))


def digest(tree: Any) -> str:
    """Returns the SHA-256 of all the arrays of a tree, with their names, shapes and types."""
    sha = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = np.asarray(leaf)
        sha.update(f"{jax.tree_util.keystr(path)} {array.shape} {array.dtype.str}\n".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()


def parse_arguments() -> Config:
    """Reads the command line: an option for each field of Config."""
    parser = argparse.ArgumentParser(description="Train a small byte-level transformer on English text.")
    for field in dataclasses.fields(Config):
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=type(field.default),
            default=field.default,
            help="default: %(default)s",
        )
    return Config(**vars(parser.parse_args()))


def main() -> None:
    """Trains, and prints what is needed to compare two runs bit by bit."""
    outcome = train(parse_arguments(), report=lambda step, loss: print(f"step {step:4d}  loss {loss:.9g}", flush=True))
    count = sum(leaf.size for leaf in jax.tree_util.tree_leaves(outcome.parameters))
    print(f"held-out loss {outcome.held_out_loss:.9g}")
    print(f"parameters {count}  sha256 {digest(outcome.parameters)}")


if __name__ == "__main__":
    main()
