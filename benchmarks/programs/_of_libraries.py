"""One training or sampling step of each library that JAX's users build on, by `rewarm.jit`.

    python _of_libraries.py NAME        NAME: one of the functions below

Prints `RESULT`, `TOLD` and JSON: what became of the call, the seconds that the first call took, and why it was traced.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from _result import print_result

import rewarm

Step = tuple[Callable[..., Any], tuple[Any, ...]]


def flax_linen() -> Step:
    """A small transformer, trained by AdamW with a schedule."""
    import flax.linen as nn
    import optax

    class Block(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = x + nn.SelfAttention(num_heads=4)(nn.LayerNorm()(x))
            return x + nn.Dense(self.width)(nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(x))))

    class Model(nn.Module):
        depth: int = 4
        width: int = 64

        @nn.compact
        def __call__(self, tokens: Any) -> Any:
            x = nn.Embed(100, self.width)(tokens)
            for _ in range(self.depth):
                x = Block(self.width)(x)
            return nn.Dense(100)(nn.LayerNorm()(x))

    model = Model()
    rule = optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 1e-3, 10, 100))

    def loss(parameters: Any, tokens: Any) -> Any:
        logits = model.apply({"params": parameters}, tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    def step(parameters: Any, state: Any, tokens: Any) -> Any:
        value, slope = jax.value_and_grad(loss)(parameters, tokens)
        updates, state = rule.update(slope, state, parameters)
        return optax.apply_updates(parameters, updates), state, value

    tokens = jnp.arange(18).reshape(2, 9)
    parameters = model.init(jax.random.key(0), tokens[:, :-1])["params"]
    return step, (parameters, rule.init(parameters), tokens)


def flax_nnx() -> Step:
    """A module with batch norm and dropout, split and merged, trained by Adam."""
    import optax
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.first = nnx.Linear(8, 16, rngs=rngs)
            self.norm = nnx.BatchNorm(16, rngs=rngs)
            self.drop = nnx.Dropout(0.1, rngs=rngs)
            self.last = nnx.Linear(16, 8, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.last(self.drop(nnx.relu(self.norm(self.first(x)))))

    model = Net(nnx.Rngs(0))
    graph, state = nnx.split((model, nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)))

    def loss(model: Any, x: Any) -> Any:
        return ((model(x) - x) ** 2).mean()

    def step(state: Any, x: Any) -> Any:
        model, optimizer = nnx.merge(graph, state)
        value, slope = nnx.value_and_grad(loss)(model, x)
        optimizer.update(model, slope)
        return nnx.to_pure_dict(nnx.filter_state(nnx.state((model, optimizer)), nnx.Param)), value

    return step, (state, jnp.ones((4, 8)))


def equinox() -> Step:
    """Attention and a dense part, differentiated by its own transformation."""
    import equinox as eqx
    import optax

    class Net(eqx.Module):
        attention: Any
        dense: Any
        norm: Any
        scale: float = eqx.field(static=True, default=1.0)

        def __init__(self, key: Any) -> None:
            first, second = jax.random.split(key)
            self.attention = eqx.nn.MultiheadAttention(2, 16, key=first)
            self.dense = eqx.nn.MLP(16, 16, 32, 2, key=second)
            self.norm = eqx.nn.LayerNorm(16)

        def __call__(self, x: Any) -> Any:
            y = jax.vmap(self.norm)(x)
            x = x + self.attention(y, y, y) * self.scale
            return x + jax.vmap(self.dense)(x)

    rule = optax.adam(1e-3)
    parameters, static = eqx.partition(Net(jax.random.key(0)), eqx.is_inexact_array)

    @eqx.filter_value_and_grad
    def loss(parameters: Any, x: Any) -> Any:
        return jnp.mean((jax.vmap(eqx.combine(parameters, static))(x) - x) ** 2)

    def step(parameters: Any, state: Any, x: Any) -> Any:
        value, slope = loss(parameters, x)
        updates, state = rule.update(slope, state, parameters)
        return jax.tree_util.tree_leaves(eqx.apply_updates(parameters, updates)), value

    return step, (parameters, rule.init(parameters), jnp.ones((2, 5, 16)))


def haiku() -> Step:
    """A transformed function with layer norm, trained by momentum."""
    import haiku as hk
    import optax

    class Net(hk.Module):
        def __call__(self, x: Any) -> Any:
            y = hk.LayerNorm(-1, True, True)(jax.nn.relu(hk.Linear(16)(x)))
            return hk.Linear(x.shape[-1])(y)

    net = hk.transform(lambda x: Net()(x).sum())
    rule = optax.sgd(0.1, momentum=0.9)

    def step(parameters: Any, state: Any, x: Any) -> Any:
        value, slope = jax.value_and_grad(lambda p: net.apply(p, jax.random.key(0), x))(parameters)
        updates, state = rule.update(slope, state)
        return optax.apply_updates(parameters, updates), value

    x = jnp.ones((4, 8))
    parameters = net.init(jax.random.key(1), x)
    return step, (parameters, rule.init(parameters), x)


def optax() -> Step:
    """A chain of transformations on plain functions, with masks and several rules."""
    import optax as library

    rule = library.chain(
        library.clip_by_global_norm(1.0),
        library.multi_transform({"a": library.adam(1e-3), "b": library.sgd(1e-2)}, {"w": "a", "v": "b"}),
        library.add_decayed_weights(1e-4),
    )

    def loss(parameters: Any, x: Any) -> Any:
        return ((jnp.tanh(x @ parameters["w"]) @ parameters["v"]) ** 2).mean()

    def step(parameters: Any, state: Any, x: Any) -> Any:
        value, slope = jax.value_and_grad(loss)(parameters, x)
        updates, state = rule.update(slope, state, parameters)
        return library.apply_updates(parameters, updates), state, value

    parameters = {"w": jnp.ones((8, 8)), "v": jnp.ones((8, 8))}
    return step, (parameters, rule.init(parameters), jnp.ones((4, 8)))


def numpyro() -> Step:
    """One step of NUTS."""
    import numpyro as library
    from numpyro import distributions
    from numpyro.infer import NUTS

    observed = jnp.arange(10.0)

    def model(observed: Any) -> None:
        mean = library.sample("mean", distributions.Normal(0, 1))
        scale = library.sample("scale", distributions.HalfNormal(1))
        with library.plate("n", observed.shape[0]):
            library.sample("y", distributions.Normal(mean, scale), obs=observed)

    kernel = NUTS(model)
    state = kernel.init(jax.random.PRNGKey(0), 10, None, (observed,), {})
    return lambda state, observed: kernel.sample(state, (observed,), {}).z, (state, observed)


def diffrax() -> Step:
    """A solve with adaptive steps; `throw=False` and no list of times, whose order a callback would look at."""
    import diffrax as library

    term = library.ODETerm(lambda t, y, rate: -rate * y + jnp.sin(t))
    solver, control = library.Tsit5(), library.PIDController(rtol=1e-4, atol=1e-5)

    def solve(start: Any, rate: Any) -> Any:
        return library.diffeqsolve(
            term, solver, 0.0, 1.0, 0.1, start, rate, stepsize_controller=control, throw=False
        ).ys

    return solve, (jnp.ones(3), jnp.float32(0.5))


def diffrax_throwing() -> Step:
    """The same with its default, `throw=True`: a callback, so it is traced at each start."""
    import diffrax as library

    term = library.ODETerm(lambda t, y, rate: -rate * y + jnp.sin(t))
    solver = library.Tsit5()
    return lambda start: library.diffeqsolve(term, solver, 0.0, 1.0, 0.1, start, 0.5).ys, (jnp.ones(3),)


def blackjax() -> Step:
    """One step of NUTS, the algorithm as plain functions."""
    import blackjax as library

    observed = jnp.arange(5.0)

    def density(x: Any) -> Any:
        fit = jax.scipy.stats.norm.logpdf(observed, x["place"], jnp.exp(x["scale"]))
        return jnp.sum(fit) - x["scale"] ** 2

    nuts = library.nuts(density, step_size=1e-2, inverse_mass_matrix=jnp.ones(2))
    start = nuts.init({"place": jnp.float32(1), "scale": jnp.float32(0.0)})
    return lambda key, state: nuts.step(key, state)[0].position, (jax.random.key(0), start)


PROGRAMS = (flax_linen, flax_nnx, equinox, haiku, optax, numpyro, diffrax, diffrax_throwing, blackjax)


def main() -> None:
    """Run one."""
    said: list[str] = []

    class Hear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    logging.getLogger("rewarm").addHandler(Hear())
    step, arguments = {one.__name__: one for one in PROGRAMS}[sys.argv[1]]()
    jax.block_until_ready(arguments)
    began = time.perf_counter()
    results = jax.block_until_ready(rewarm.jit(step)(*arguments))
    took = time.perf_counter() - began
    floats = [leaf for leaf in jax.tree_util.tree_leaves(results) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    print_result(floats)
    why = [line for line in said if "traced" in line]
    print("TOLD", json.dumps({"jitted": dict(rewarm.stats().jitted), "seconds": took, "why": why}))


if __name__ == "__main__":
    main()
