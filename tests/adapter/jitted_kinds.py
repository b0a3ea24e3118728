"""Every kind of call that `rewarm.jit` must answer as `jax.jit` does; prints what each gave, and what became of it.

Run as a program of its own: `python jitted_kinds.py` prints one JSON object, kind to {like_jax, digest, outcome}.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import rewarm

X = jnp.arange(16, dtype=jnp.float32).reshape(4, 4) / 7
Jit = Callable[..., Any]


def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()), ("d",))


class Pair(NamedTuple):
    one: Any
    two: Any


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass
class Layer:
    weight: Any
    scale: float

    def tree_flatten(self) -> Any:
        return (self.weight,), self.scale

    @classmethod
    def tree_unflatten(cls, scale: float, children: Any) -> Layer:
        return cls(children[0], scale)

    def apply(self, x: Any) -> Any:
        return x @ self.weight * self.scale


def plain(jit: Jit) -> Any:
    return jit(lambda x: jnp.tanh(x @ x))(X)


def named_arguments(jit: Jit) -> Any:
    return jit(lambda x, *, scale, bias: x * scale + bias)(X, bias=X, scale=2.0)


def weak_scalar(jit: Jit) -> Any:
    f = jit(lambda x, s: x * s)
    small = X.astype(jnp.bfloat16)
    return f(small, 2.0), f(small, np.float32(2)), f(small, 2), f(small, True)


def numpy_arguments(jit: Jit) -> Any:
    f = jit(lambda x: x + 1)
    return f(np.ones((2, 2), np.float32)), f(np.ones((2, 2))), f(np.int8(3)), f(np.array([True]))


def static_number(jit: Jit) -> Any:
    f = jit(lambda n, x: x * n if n > 1 else x, static_argnums=0)
    return f(3, X), f(1, X)


def static_last(jit: Jit) -> Any:
    return jit(lambda x, n: x * n, static_argnums=-1)(X, 3)


def static_name(jit: Jit) -> Any:
    f = jit(lambda x, *, mode="a": x if mode == "a" else -x, static_argnames="mode")
    return f(X), f(X, mode="b"), f(X, mode="a")


def defaults(jit: Jit) -> Any:
    def f(x: Any, n: int = 3, *, m: float = 2.0) -> Any:
        return x * n + m

    return jit(f)(X), jit(f)(X, 4), jit(f)(X, m=1.0)


def unused_arguments(jit: Jit) -> Any:
    return jit(lambda _, __, z: z + 1)(X, X, X), jit(lambda _, y: y, keep_unused=True)(X, X)


def no_arguments(jit: Jit) -> Any:
    return jit(lambda: jnp.arange(4))()


def identity(jit: Jit) -> Any:
    return jit(lambda x: x)(X), jit(lambda x, y: (y, x, x))(X, 1.5)


def constant(jit: Jit) -> Any:
    return jit(lambda _: (3, 1.5, jnp.zeros(3), None))(X)


def no_results(jit: Jit) -> Any:
    return jit(lambda _: ())(X), jit(lambda _: None)(X)


def captured(jit: Jit) -> Any:
    table = np.arange(4.0, dtype=np.float32)
    return jit(lambda x: x * table + X)(X)


def trees(jit: Jit) -> Any:
    tree = {"a": [X, None, (X,)], "b": Pair(X, {"c": 1.0})}
    return jit(lambda t: (t, Pair(t["b"].one, None)))(tree)


def own_class(jit: Jit) -> Any:
    layer = jit(lambda layer, x: Layer(layer.apply(x), 0.5))(Layer(X, 2.0), X)
    return layer.weight, layer.scale


class Rule(NamedTuple):
    """As optimisers have it: functions that only a closure holds."""

    start: Callable[[Any], Any]
    update: Callable[[Any, Any], Any]


def rule(rate: float) -> Rule:
    def start(x: Any) -> Any:
        return x * 0

    def update(slope: Any, x: Any) -> Any:
        return x - rate * slope

    return Rule(start, update)


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass
class State:
    """As training states have it: functions beside the leaves."""

    x: Any
    rule: Rule

    def tree_flatten(self) -> Any:
        return (self.x,), self.rule

    @classmethod
    def tree_unflatten(cls, rule: Rule, children: Any) -> State:
        return cls(children[0], rule)


def functions_in_the_tree(jit: Jit) -> Any:
    by = rule(0.5)
    step = jit(lambda state: State(state.rule.update(state.x, state.x), state.rule))
    state = step(step(State(X, by)))
    begin = jit(lambda x: State(by.start(x), by))(X)
    return state.x, state.rule is by, begin.x, begin.rule is by


def method(jit: Jit) -> Any:
    return jit(Layer(X, 2.0).apply)(X)


def partial(jit: Jit) -> Any:
    return jit(functools.partial(lambda a, b, x: a * x + b, 2.0, b=3.0))(x=X)


def decorated(jit: Jit) -> Any:
    @functools.partial(jit, static_argnames=("n",))
    def power(x: Any, n: int) -> Any:
        return x**n

    return power(X, n=3), power(X, n=2)


def keys(jit: Jit) -> Any:
    draw = jit(lambda key: jax.random.normal(key, (3,)))
    split = jit(jax.random.split)(jax.random.key(3, impl="rbg"))
    return draw(jax.random.key(1)), draw(jax.random.PRNGKey(1)), jax.random.key_data(split)


def donated(jit: Jit) -> Any:
    given = jnp.ones((64, 64))
    result = jit(lambda x: x + 1, donate_argnums=0)(given)
    return result, given.is_deleted()


def sharded(jit: Jit) -> Any:
    x = jax.device_put(X, NamedSharding(mesh(), P("d")))
    return jit(lambda a: jnp.sin(a) * 2)(x), jit(lambda a: (a @ a.T).sum(0))(x)


def in_and_out_shardings(jit: Jit) -> Any:
    row, whole = NamedSharding(mesh(), P("d")), NamedSharding(mesh(), P())
    return jit(lambda a: a * 2, in_shardings=row, out_shardings=whole)(X)


def other_device(jit: Jit) -> Any:
    return jit(lambda a: a * 2)(jax.device_put(X, jax.devices()[1]))


def default_device(jit: Jit) -> Any:
    with jax.default_device(jax.devices()[2]):
        return jit(lambda a: a * 2)(np.ones(3, np.float32))


def shard_map(jit: Jit) -> Any:
    mapped = jax.shard_map(lambda a: jax.lax.psum(a * 2, "d"), mesh=mesh(), in_specs=P("d"), out_specs=P())
    return jit(mapped)(X)


def precision(jit: Jit) -> Any:
    f = jit(lambda a: a @ a)
    with jax.default_matmul_precision("bfloat16"):
        low = f(X)
    return low, f(X)


def control_flow(jit: Jit) -> Any:
    return jit(lambda x: jax.lax.scan(lambda c, row: (c + row, c.sum()), x[0], x))(X)


def sorting(jit: Jit) -> Any:
    return jit(lambda x: (jnp.sort(x), jax.lax.top_k(x, 2), x.at[1, 2].set(9.0), jnp.fft.fft(x)))(X)


def linear_algebra(jit: Jit) -> Any:
    return jit(lambda x: jnp.linalg.eigh(x @ x.T + 5 * jnp.eye(4)))(X)


def custom_rules(jit: Jit) -> Any:
    @jax.custom_vjp
    def f(x: Any) -> Any:
        return jnp.sin(x)

    f.defvjp(lambda x: (f(x), x), lambda x, g: (g * 2 * x,))
    return jit(jax.grad(lambda x: f(x).sum()))(X)


def nested(jit: Jit) -> Any:
    inner = jit(lambda x: x * 2)
    return jit(lambda x: inner(x) + jit(jnp.sin)(x))(X)


def transformed(jit: Jit) -> Any:
    f = jit(lambda x: (jnp.sin(x) @ x).sum())
    return jax.grad(f)(X), jax.vmap(f)(X[None]), jax.jit(f)(X), jax.eval_shape(f, X).shape, jax.jvp(f, (X,), (X,))


def stages(jit: Jit) -> Any:
    f = jit(lambda x: x * 3)
    lowered = f.lower(X)
    return lowered.compile()(X), f.trace(X).jaxpr.eqns[0].primitive.name, f.eval_shape(X).shape, f(X), f.lower(X) and 1


def cleared(jit: Jit) -> Any:
    f = jit(lambda x: x * 5)
    first = f(X)
    f.clear_cache()
    return first, f(X)


def shapes_in_turn(jit: Jit) -> Any:
    f = jit(lambda x: x.sum())
    return [f(jnp.ones(n)) for n in (1, 2, 3, 2, 1)]


def pure_callback(jit: Jit) -> Any:
    shape = jax.ShapeDtypeStruct((4, 4), jnp.float32)
    return jit(lambda x: jax.pure_callback(lambda a: np.asarray(a) * 2, shape, x))(X)


def debug_print(jit: Jit) -> Any:
    def f(x: Any) -> Any:
        jax.debug.print("{}", x[0, 0], ordered=True)
        return x

    return jit(f)(X)


def raises(jit: Jit) -> Any:
    f = jit(lambda x: x if x.sum() > 0 else -x)
    try:
        f(X)
    except jax.errors.TracerBoolConversionError as error:
        return type(error).__name__
    return "nothing"


def wrong_argument(jit: Jit) -> Any:
    try:
        jit(lambda x: x)("text")
    except TypeError as error:
        return str(error)[:40]
    return "nothing"


KINDS: dict[str, Callable[[Jit], Any]] = {
    function.__name__: function
    for function in (
        *(plain, named_arguments, weak_scalar, numpy_arguments, static_number, static_last, static_name, defaults),
        *(
            unused_arguments,
            no_arguments,
            identity,
            constant,
            no_results,
            captured,
            trees,
            own_class,
            functions_in_the_tree,
            method,
            partial,
        ),
        *(decorated, keys, donated, sharded, in_and_out_shardings, other_device, default_device, shard_map, precision),
        *(control_flow, sorting, linear_algebra, custom_rules, nested, transformed, stages, cleared, shapes_in_turn),
        *(pure_callback, debug_print, raises, wrong_argument),
    )
}


def seen(value: Any) -> list[str]:
    """Everything that a user can see of results."""
    leaves, tree = jax.tree_util.tree_flatten(value)
    found = [str(tree)]
    for leaf in leaves:
        if isinstance(leaf, jax.Array):
            data = jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
            bits = hashlib.sha256(np.ascontiguousarray(np.asarray(data)).tobytes()).hexdigest()[:12]
            found.append(f"{leaf.aval.str_short()} {leaf.weak_type} {leaf._committed} {leaf.sharding} {bits}")
        else:
            found.append(repr(leaf))
    return found


def main() -> None:
    told = {}
    for name, kind in KINDS.items():
        before = dict(rewarm.stats().jitted)
        ours, jaxs = seen(kind(rewarm.jit)), seen(kind(jax.jit))
        after = rewarm.stats().jitted
        outcome = {what: count - before.get(what, 0) for what, count in after.items() if count != before.get(what, 0)}
        told[name] = {"like_jax": ours == jaxs, "seen": ours, "of_jax": jaxs, "outcome": outcome}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
