"""The Python of `custom_partitioning` counts by content: on real programs, in fresh processes, on each JAX."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Program

pytestmark = pytest.mark.contract

# Each variant makes its own `custom_partitioning` with the same outer program; the keys are printed by name.
VARIANTS = """
    import os
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    import functools, json, sys, time, types
    import jax, jax.numpy as jnp, numpy as np, rewarm
    from jax.experimental.custom_partitioning import custom_partitioning
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    mesh = Mesh(np.array(jax.devices()), ("d",))
    x = jax.device_put(np.arange(8, dtype=np.float32).reshape(4, 2), NamedSharding(mesh, P("d")))
    FACTOR = 3.0

    def keep(mesh, arguments, result):
        return arguments[0].sharding

    def program(partition, infer=keep, mesh=mesh, x=x, static=None):
        def body(y, *rest):
            return y * 2
        if static is None:
            call = custom_partitioning(body)
            run = jax.jit(lambda y: call(y))
        else:
            call = custom_partitioning(body, static_argnums=(1,))
            run = jax.jit(lambda y: call(y, static))
        call.def_partition(partition=partition, infer_sharding_from_operands=infer, sharding_rule="i j -> i j")
        return run, x

    def returning(lowered):
        def partition(*arguments):
            mesh, shapes = arguments[-3], arguments[-2]
            return mesh, lowered, shapes[0].sharding, (shapes[0].sharding,)
        return partition

    def constant(n):
        if n == 2:
            return returning(lambda y: y * 2)
        return returning(lambda y: y * 5)

    def closure(n):
        return returning(lambda y: y * n)

    def default(n):
        return returning(lambda y, by=n: y * by)

    def keyword(n):
        return returning(functools.partial(lambda y, *, by: y * by, by=n))

    def of_global(n):
        names = dict(globals(), FACTOR=float(n))
        function = types.FunctionType((lambda y: y * FACTOR).__code__, names)
        return returning(function)

    def of_helper(n):
        def helper(y):
            return y * n
        def lowered(y):
            return helper(y) + 1
        return returning(lowered)

    class Scaler:
        def __init__(self, n):
            self.n = n
        def __call__(self, y):
            return self.step(y) * self.n
        def step(self, y):
            return jnp.sin(y)
        def partition(self, mesh, shapes, result):
            return mesh, self, shapes[0].sharding, (shapes[0].sharding,)

    def method(n):
        return Scaler(n).partition

    def array(n):
        weights = np.full(2, float(n), np.float32)
        return returning(lambda y: y * weights)

    def device_array(n):
        weights = jnp.full(2, float(n))
        return returning(lambda y: y * weights)

    def jitted(n):
        inner = jax.jit(lambda y: y * n)
        return returning(lambda y: inner(y))

    def statically_jitted(n):
        inner = jax.jit(lambda y, by: y * by, static_argnums=(1,))
        return returning(lambda y: inner(y, n))

    def library(n):
        return returning(lambda y: jnp.sin(y)) if n == 2 else returning(lambda y: jnp.cos(y))

    keys = {}
    for make in (constant, closure, default, keyword, of_global, of_helper, method, array, device_array, jitted,
                 statically_jitted, library):
        for n in (2, 5):
            keys[f"{make.__name__} {n}"] = rewarm.key_of(*program(make(n)))
            assert rewarm.key_of(*program(make(n))) == keys[f"{make.__name__} {n}"], make

    def infer_replicated(mesh, arguments, result):
        return NamedSharding(mesh, P())
    with_rule = rewarm.key_of(*program(closure(7)))
    assert rewarm.key_of(*program(closure(7), infer=infer_replicated)) == with_rule, "the rule is used, not this"
    jax.config.update("jax_use_shardy_partitioner", False)  # now the function is
    keys["infer keep"] = rewarm.key_of(*program(closure(7)))
    keys["infer replicated"] = rewarm.key_of(*program(closure(7), infer=infer_replicated))
    jax.config.update("jax_use_shardy_partitioner", True)

    def static(factor, mesh, shapes, result):
        return mesh, lambda y: y * factor, shapes[0].sharding, (shapes[0].sharding,)
    for n in (2, 5):
        ignored = lambda factor, mesh, arguments, result: arguments[0].sharding
        keys[f"static {n}"] = rewarm.key_of(*program(static, infer=ignored, static=float(n)))

    product = returning(lambda y: (y @ jnp.ones((2, 2))))
    keys["precision default"] = rewarm.key_of(*program(product))
    with jax.default_matmul_precision("highest"):
        keys["precision highest"] = rewarm.key_of(*program(product))
    print(json.dumps(keys))
"""


def test_each_change_of_a_callback_makes_another_key_and_nothing_else_does(program: Program, cache: Path) -> None:
    runs = [
        program(VARIANTS, REWARM_DIR=str(cache), PYTHONHASHSEED="1"),
        program("\n\n\n" + VARIANTS, REWARM_DIR=str(cache), PYTHONHASHSEED="2", cwd=cache.parent.parent),
    ]
    first, second = (run.json for run in runs)
    assert first == second, "another process, other lines, another seed"
    assert len(set(first.values())) == len(first), "two variants share a key"


REFUSED = """
    import os
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    import sys, time
    import jax, numpy as np, rewarm
    from jax.experimental.custom_partitioning import custom_partitioning
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    @custom_partitioning
    def scale(x):
        return x * 2

    numbers = iter([2, 3, 4, 5])
    STATE = []

    def reads_the_environment(x):
        return x * float(os.environ.get("FACTOR", 3))

    def reads_the_clock(x):
        return x * (time.time() > 0)

    def draws(x):
        return x * next(numbers)

    def counts(x):
        global COUNT
        COUNT = 4
        return x * COUNT

    lowered = globals()[sys.argv[1]]

    def partition(mesh, shapes, result):
        return mesh, lowered, shapes[0].sharding, (shapes[0].sharding,)

    scale.def_partition(partition=partition, infer_sharding_from_operands=lambda m, a, r: a[0].sharding,
                        sharding_rule="i -> i")
    mesh = Mesh(np.array(jax.devices()), ("d",))
    x = jax.device_put(np.arange(8, dtype=np.float32), NamedSharding(mesh, P("d")))
    value = float(np.asarray(jax.jit(scale)(x)).sum())
    event = rewarm.events()[-1]
    import json
    print(json.dumps([value, event.key, event.not_stored, event.explanation.findings[0].kind]))
"""


@pytest.mark.parametrize(
    ("lowered", "named"),
    [
        ("reads_the_environment", "environ"),
        ("reads_the_clock", "time"),
        ("draws", "numbers"),
        ("counts", "COUNT"),
    ],
)
def test_what_cannot_be_followed_is_compiled_and_named(program: Program, cache: Path, lowered: str, named: str) -> None:
    for _ in range(2):
        run = program(REFUSED, lowered, REWARM_DIR=str(cache))
        value, key, not_stored, kind = run.json
        assert value > 0
        assert key is None
        assert kind == "unkeyable"
        assert named in not_stored, not_stored
        assert "custom_partitioning" in not_stored
        assert run.stats["stored"] == 0


# What the arguments of a callback bring along: each program is run with two meanings of the same text.
BROUGHT = """
    import os
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    import functools, json, sys
    import jax, jax.numpy as jnp, numpy as np, rewarm
    from jax.experimental.custom_partitioning import custom_partitioning
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    case, K = sys.argv[1], float(sys.argv[2])
    mesh = Mesh(np.array(jax.devices()), ("d",))
    x = jax.device_put(np.arange(8, dtype=np.float32), NamedSharding(mesh, P("d")))

    class Quiet:
        def __init__(self, k):
            self.k = k
        def __repr__(self):
            return "Quiet()"
        def __hash__(self):
            return 1
        def __eq__(self, other):
            return type(other) is Quiet

    class Scaled:
        def __init__(self, v, quiet=Quiet(1.0)):
            self.v, self.quiet = v, quiet
        def apply(self):
            return self.v * K if case == "method" else self.v * self.quiet.k

    jax.tree_util.register_pytree_node(
        Scaled, lambda s: ((s.v,), s.quiet), lambda quiet, leaves: Scaled(leaves[0], quiet)
    )
    factor = functools.partial(lambda y: y)
    factor.__wrapped__ = K
    inner = jax.jit(lambda y: y)
    inner.factor = K
    bodies = {
        "method": lambda s: s.apply(),
        "auxiliary": lambda s: s.apply(),
        "partial": lambda s: s.v * factor.__wrapped__,
        "attribute": lambda s: s.v * inner.factor,
        "random": lambda s: s.v * jax.random.uniform(jax.random.key(7)),
    }
    lowered = bodies[case]

    @custom_partitioning
    def scale(s):
        return s.v * 2

    def partition(mesh, shapes, result):
        sharding = jax.tree.leaves(shapes)[0].sharding
        return mesh, lowered, sharding, (Scaled(sharding, shapes[0].quiet),)

    def infer(mesh, arguments, result):
        return jax.tree.leaves(arguments)[0].sharding

    scale.def_partition(partition=partition, infer_sharding_from_operands=infer, sharding_rule="i -> i")
    value = float(np.asarray(jax.jit(lambda v: scale(Scaled(v, Quiet(K))))(x)).sum())
    print(json.dumps([value, [event.outcome for event in rewarm.events()][-1:]]))
"""


@pytest.mark.parametrize("case", ["method", "auxiliary", "partial", "attribute", "random"])
def test_what_arguments_and_settings_bring_along_is_never_served_stale(
    program: Program, cache: Path, case: str
) -> None:
    def run(number: str, **env: str) -> float:
        if case == "random" and number == "5":
            env["JAX_DEFAULT_PRNG_IMPL"] = "rbg"
        return float(program(BROUGHT, case, number, **env).json[0])

    plain = {number: run(number, REWARM="0") for number in ("2", "5")}
    assert plain["2"] != plain["5"], "the two are no different programs"
    for number in ("2", "5", "2", "5"):
        assert run(number, REWARM_DIR=str(cache)) == plain[number]


SETS = """
    import os
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    import jax, jax.numpy as jnp, numpy as np
    from jax.experimental.custom_partitioning import custom_partitioning
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    def lowered(x):
        for name in {"sin", "cos", "exp", "tanh"}:
            x = {"sin": jnp.sin, "cos": jnp.cos, "exp": jnp.exp, "tanh": jnp.tanh}[name](x)
        return x

    @custom_partitioning
    def call(x):
        return x * 2

    def partition(mesh, shapes, result):
        return mesh, lowered, shapes[0].sharding, (shapes[0].sharding,)

    call.def_partition(partition=partition, infer_sharding_from_operands=lambda m, a, r: a[0].sharding,
                       sharding_rule="i -> i")
    mesh = Mesh(np.array(jax.devices()), ("d",))
    x = jax.device_put(np.arange(8, dtype=np.float32), NamedSharding(mesh, P("d")))
    print(float(np.asarray(jax.jit(call)(x)).sum()))
"""


def test_the_order_of_a_set_counts_where_a_callback_goes_through_one(program: Program, cache: Path) -> None:
    seeds = ("1", "2", "3", "1", "2")
    plain = [program(SETS, REWARM="0", PYTHONHASHSEED=seed).out for seed in seeds]
    assert len(set(plain)) > 1, "the seeds give no other order"
    runs = [program(SETS, REWARM_DIR=str(cache), PYTHONHASHSEED=seed) for seed in seeds]
    assert [run.out for run in runs] == plain
    assert [run.stats["hits"] for run in runs[3:]] == [1, 1]
