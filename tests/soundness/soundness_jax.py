"""Changes of what JAX and libraries on top of it hold: rules, registries, settings, contexts, patches."""

from __future__ import annotations

from soundness_case import REFUSED, Case, case

_RULES = """
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    import dataclasses

    @jax.custom_vjp
    def with_vjp(x): return x * 2
    with_vjp.defvjp(lambda x: (x * 2, x), lambda x, g: (g * 3.0,))
    @jax.custom_jvp
    def with_jvp(x): return x * 2
    @with_jvp.defjvp
    def _(xs, ts): return xs[0] * 2, ts[0] * 4.0
    inner = jax.jit(lambda x: x * 5.0)
    def part(x): return x + 6.0
    @jax.jit
    def outer(x): return part(x)
    outer(jnp.ones(4))  # JAX has its trace
    class Layer:
        def __init__(self, weight, scale): self.weight, self.scale = weight, scale
    def flatten(layer): return (layer.weight * 1.0,), layer.scale
    def other(layer): return (layer.weight * 2.0,), layer.scale
    jax.tree_util.register_pytree_node(Layer, flatten, lambda scale, one: Layer(one[0], scale))
    class Given(Layer): pass
    jax.tree_util.register_pytree_node(Given, lambda g: ((g.weight,), g.scale), lambda scale, one: Given(one[0], scale))
    @jax.tree_util.register_static
    @dataclasses.dataclass(frozen=True)
    class Static:
        k: float = 8.0
    spec = P(None)
    policy = jax.checkpoint_policies.everything_saveable
    part_of_jax = jax.tree_util.Partial(lambda a, x: a * x, 9.0)
    @jax.custom_batching.custom_vmap
    def mapped(x): return x
    @mapped.def_vmap
    def _(size, batched, x): return x * 10.0, batched[0]

    def f(x, layer, static):
        x = x + jax.grad(lambda x: with_vjp(x).sum())(x) + jax.grad(lambda x: with_jvp(x).sum())(x)
        x = inner(x) + outer(x) + sum(jax.tree_util.tree_leaves(Layer(x, 1.0))) + static.k
        x = x + jax.lax.fori_loop(0, 3, lambda i, x: x * 11.0, x) + part_of_jax(x) + jax.vmap(mapped)(x)
        x = x + jax.grad(jax.checkpoint(lambda x: jnp.sin(x).sum(), policy=policy))(x) + layer.scale + layer.weight
        return jax.lax.with_sharding_constraint(x, NamedSharding(Mesh(np.array(jax.devices()), ("d",)), spec))
    SCALE = 12.0
    ARGS = (np.arange(1, 5, dtype=np.float32), Given(jnp.ones(4), SCALE), Static())
    OPTIONS = {}
"""
_STATIC = """
    class Same:
        def __init__(self, k): self.k = k
        def __eq__(self, other): return True
        def __hash__(self): return 1
    def f(x, s): return x * s.k
    ARGS = (np.ones(3, np.float32), Same(2.0))
    OPTIONS = dict(static_argnums=1)
"""
_DOT = "def f(x): return x @ x\nARGS = (np.ones((3, 3), np.float32),)\n"
_OWN = """
    from jax.extend.core import Primitive
    from jax.interpreters import mlir
    own = Primitive("own")
    own.def_abstract_eval(lambda x: x)
    mlir.register_lowering(own, mlir.lower_fun(lambda x: x * 7.0, multiple_results=False))
    def f(x): return own.bind(x)
"""


def _rule(change: str, *edits: tuple[str, str], **rest: object) -> Case:
    return case(change, _RULES, *edits, **rest)  # type: ignore[arg-type]


JAX: list[Case] = [
    _rule("the backward rule of a custom_vjp", ("g * 3.0", "g * 3.5")),
    _rule("the rule of a custom_jvp", ("ts[0] * 4.0", "ts[0] * 4.5")),
    _rule("a jitted function that it calls", ("x * 5.0", "x * 5.5")),
    _rule("what a jitted function calls that JAX had traced before", ("x + 6.0", "x + 6.5")),
    case("the lowering rule of an own primitive", _OWN, ("x * 7.0", "x * 7.5"), expect=REFUSED),
    _rule("how a class is flattened", ("weight * 1.0", "weight * 1.5")),
    _rule("which function flattens a class", ("(Layer, flatten,", "(Layer, other,")),
    _rule("an own static node", ("k: float = 8.0", "k: float = 8.5")),
    _rule("an argument of tree_util.Partial", ("9.0)", "9.5)")),
    _rule("the rule of a custom_vmap", ("x * 10.0", "x * 10.5")),
    _rule("the body of a loop", ("x * 11.0", "x * 11.5")),
    _rule("what a node of an argument's tree carries beside its leaves", ("SCALE = 12.0", "SCALE = 12.5")),
    _rule("a partition spec", ("spec = P(None)", 'spec = P("d")')),
    _rule("donated arguments", ("OPTIONS = {}", "OPTIONS = dict(donate_argnums=0)")),
    _rule(
        "keep_unused",
        ("f(x, layer, static):", "f(x, layer, static, unused=None):"),
        ("Static())\n", "Static(), np.ones(3))\n"),
        ("OPTIONS = {}", "OPTIONS = dict(keep_unused=True)"),
    ),
    case("a static argument of equal hash and other content", _STATIC, ("Same(2.0)", "Same(3.0)")),
    case(
        "a static argument 1 becomes True",
        """
        def f(x, s): return x * s
        ARGS = (np.ones(3, np.float32) > 0, 1)
        OPTIONS = dict(static_argnums=1)
        """,
        (" 1)\nO", " True)\nO"),
    ),
    case(
        "a static argument is a function, which was edited",
        """
        def f(x, s): return s(x)
        def g(x): return x + 1
        ARGS = (np.ones(3, np.float32), g)
        OPTIONS = dict(static_argnums=1)
        """,
        ("x + 1", "x + 2"),
    ),
    case(
        "an argument is weakly typed",
        """
        def f(x, s): return x * s
        ARGS = (np.ones(3, np.float16), jnp.float32(2))
        """,
        ("jnp.float32(2)", "2.0"),
    ),
    case(
        "an argument has another shape",
        """
        def f(x): return x.sum()
        ARGS = (np.ones(3, np.float32),)
        """,
        ("np.ones(3,", "np.ones(4,"),
    ),
    case(
        "jax_enable_x64",
        """
        jax.config.update('jax_enable_x64', False)
        def f(x): return x + jnp.arange(3).sum()
        """,
        ("'jax_enable_x64', False", "'jax_enable_x64', True"),
    ),
    case(
        "jax_enable_x64, by the environment",
        """
        def f(x): return x + jnp.arange(3).sum()
        """,
        env_b={"JAX_ENABLE_X64": "1"},
    ),
    case(
        "jax_default_matmul_precision",
        _DOT,
        ("def f", "jax.config.update('jax_default_matmul_precision', 'highest')\ndef f"),
    ),
    case(
        "jax_default_prng_impl",
        """
        def f(x): return x + jax.random.normal(jax.random.key(1), (4,))
        """,
        ("def f", "jax.config.update('jax_default_prng_impl', 'rbg')\ndef f"),
    ),
    case(
        "jax_numpy_dtype_promotion",
        """
        def f(x):
            try:
                return x + np.ones(4, np.int32)
            except Exception:
                return x
        """,
        ("def f", "jax.config.update('jax_numpy_dtype_promotion', 'strict')\ndef f"),
    ),
    case(
        "with jax.default_matmul_precision",
        _DOT + "def calls(jit):\n    with jax.default_matmul_precision('default'):\n        yield jit(f), ARGS\n",
        ("'default'", "'highest'"),
    ),
    case(
        "with jax.enable_x64",
        """
        def f(x): return x + jnp.arange(3).sum()
        def calls(jit):
            with jax.enable_x64(False):
                yield jit(f), (np.ones(3, np.float32),)
        """,
        ("x64(False)", "x64(True)"),
    ),
    case(
        "with jax.numpy_rank_promotion",
        """
        def f(x):
            try:
                return x + jnp.ones((1, 1))
            except ValueError:
                return x
        def calls(jit):
            with jax.numpy_rank_promotion('allow'):
                yield jit(f), (np.ones(3, np.float32),)
        """,
        ("'allow'", "'raise'"),
    ),
    case(
        "with a mesh",
        """
        from jax.sharding import Mesh, AxisType
        def f(x): return x + len(jax.sharding.get_abstract_mesh().axis_names)
        def calls(jit):
            with jax.set_mesh(jax.make_mesh((1,), ('d',))):
                yield jit(f), (np.ones(3, np.float32),)
        """,
        ("(1,), ('d',)", "(1, 1), ('d', 'e')"),
    ),
    case(
        "the number of devices",
        """
        def f(x): return x + jax.device_count()
        """,
        env={"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
        env_b={"XLA_FLAGS": "--xla_force_host_platform_device_count=3"},
    ),
    case(
        "the mesh that a captured sharding names",
        """
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        S = NamedSharding(Mesh(np.array(jax.devices()[:1]), ('d',)), P('d'))
        def f(x): return jax.lax.with_sharding_constraint(x, S)
        """,
        ("[:1]", "[:2]"),
        env={"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
    ),
    case(
        "in_shardings",
        """
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        M = Mesh(np.array(jax.devices()), ('d',))
        def f(x): return x * 2
        OPTIONS = dict(in_shardings=NamedSharding(M, P()))
        """,
        ("P())", "P('d'))"),
        env={"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
    ),
    case(
        "a function of jax.numpy was replaced",
        """
        def f(x): return jnp.tanh(x)
        """,
        ("def f", "jnp.tanh = jnp.sin\ndef f"),
    ),
    case(
        "a function of jax.numpy is no longer replaced",
        """
        jnp.tanh = jnp.sin
        def f(x): return jnp.tanh(x)
        """,
        ("jnp.tanh = jnp.sin\n", ""),
    ),
    case(
        "a function of jax.numpy is wrapped by the user's",
        """
        def f(x): return jnp.tanh(x)
        """,
        ("def f", "kept = jnp.tanh\njnp.tanh = lambda x: kept(x) + 1\ndef f"),
    ),
    case(
        "what wraps a function of jax.numpy",
        """
        kept = jnp.tanh
        jnp.tanh = lambda x: kept(x) + 1
        def f(x): return jnp.tanh(x)
        """,
        ("kept(x) + 1", "kept(x) + 2"),
    ),
    case(
        "a function within jax.nn was replaced",
        """
        def f(x): return jax.nn.silu(x)
        """,
        ("def f", "import jax._src.nn.functions as inside\ninside.sigmoid = jnp.sin\ndef f"),
    ),
    case(
        "a function within jax.nn is no longer replaced",
        """
        import jax._src.nn.functions as inside
        inside.sigmoid = jnp.sin
        def f(x): return jax.nn.silu(x)
        """,
        ("inside.sigmoid = jnp.sin\n", ""),
    ),
    case(
        "a function of jax.lax was replaced, which jax.numpy calls",
        """
        def f(x): return jnp.sinh(x)
        """,
        ("def f", "import jax._src.lax.lax as inside\ninside.sinh = inside.cosh\ndef f"),
    ),
    case(
        "a constant of jax.numpy was replaced",
        """
        def f(x): return x * jnp.pi
        """,
        ("def f", "jnp.pi = 3.0\ndef f"),
    ),
    case(
        "a constant of numpy was replaced",
        """
        def f(x): return x * np.pi
        """,
        ("def f", "np.pi = 3.0\ndef f"),
    ),
    case(
        "a function of numpy was replaced",
        """
        def f(x): return x * np.square(2.0)
        """,
        ("def f", "np.square = np.negative\ndef f"),
    ),
    case(
        "the lowering rule of one of JAX's primitives was replaced",
        """
        def f(x): return jnp.sin(x)
        """,
        (
            "def f",
            "from jax.interpreters import mlir\n"
            "from jax._src.lax import lax as inside\n"
            "mlir.register_lowering(inside.sin_p, mlir.lower_fun(lambda x, **_: x * 2, multiple_results=False))\n"
            "def f",
        ),
    ),
    case(
        "the lowering rule of one of JAX's primitives is another function of the user's",
        """
        from jax.interpreters import mlir
        from jax._src.lax import lax as inside
        mlir.register_lowering(inside.sin_p, mlir.lower_fun(lambda x, **_: x * 2, multiple_results=False))
        def f(x): return jnp.sin(x)
        """,
        ("x * 2", "x * 3"),
        expect=REFUSED,
    ),
    case(
        "the batching rule of one of JAX's primitives was replaced",
        """
        def f(x): return jax.vmap(jnp.sin)(x)
        """,
        (
            "def f",
            "from jax.interpreters import batching\n"
            "from jax._src.lax import lax as inside\n"
            "batching.primitive_batchers[inside.sin_p] = lambda args, dims, **_: (args[0] * 5, dims[0])\n"
            "def f",
        ),
    ),
    case(
        "a list of JAX's own classes is flattened in another way",
        """
        import collections
        Point = collections.namedtuple('Point', 'a b')
        def f(x): return jax.tree_util.tree_leaves(Point(x, x * 2))[0]
        """,
        (
            "def f",
            "jax.tree_util.register_pytree_node(Point, lambda p: ((p.b, p.a), None), lambda _, c: Point(*c))\ndef f",
        ),
    ),
    case(
        "rules of type promotion, by an own extended type",
        """
        def f(x): return jnp.finfo(x.dtype).bits + x
        """,
        (
            "def f",
            "import jax._src.dtypes as inside\ninside.finfo = jnp.finfo = lambda t: type('F', (), {'bits': 5})\ndef f",
        ),
    ),
    case("a jax.checkpoint policy", _RULES, ("everything_saveable", "nothing_saveable")),
    case(
        "an effect: jax.debug.print",
        """
        def f(x):
            jax.debug.print('one')
            return x
        """,
        ("return x\n", "return x + 1\n"),
        expect=REFUSED,
    ),
    case(
        "a pure_callback",
        """
        def host(a): return np.asarray(a) * 2
        def f(x): return jax.pure_callback(host, jax.ShapeDtypeStruct((4,), jnp.float32), x) + 1
        """,
        ("x) + 1", "x) + 2"),
        expect=REFUSED,
    ),
    case(
        "an operator of JAX's tracers was replaced",
        "def f(x): return x + x\n",
        (
            "def f",
            "from jax._src import core\ncore.Tracer.__add__ = lambda self, other: jnp.multiply(self, other)\ndef f",
        ),
    ),
    case(
        "a method of JAX's tracers was replaced",
        "def f(x): return x.sum()\n",
        ("def f", "from jax._src import core\ncore.Tracer.sum = property(lambda self: lambda: jnp.max(self))\ndef f"),
    ),
    case(
        "a function within JAX was replaced before JAX had a trace that calls it",
        """
        jnp.sinh(np.arange(1, 5, dtype=np.float32))
        def f(x): return jnp.sinh(x)
        """,
        ("jnp.sinh(np", "import jax._src.lax.lax as inside\ninside.sinh = inside.cosh\njnp.sinh(np"),
    ),
    case(
        "jax_threefry_partitionable",
        "def f(x): return x + jax.random.uniform(jax.random.key(1), (4,))\n",
        ("def f", "jax.config.update('jax_threefry_partitionable', False)\ndef f"),
    ),
    case(
        "with jax.default_prng_impl",
        """
        def f(x): return x + jax.random.normal(jax.random.key(1), (4,))
        def calls(jit):
            with jax.default_prng_impl("threefry2x32"):
                yield jit(f), (np.ones(4, np.float32),)
        """,
        ('"threefry2x32"', '"rbg"'),
    ),
    case(
        "a function that an object of JAX's holds was replaced",
        """
        g = jax.custom_jvp(lambda x: x * 2)
        g.defjvp(lambda xs, ts: (xs[0] * 2, ts[0] * 3))
        def f(x): return g(x)
        """,
        ("x * 2)", "x * 5)"),
    ),
    case(
        "custom_jvp gets another rule later",
        """
        g = jax.custom_jvp(lambda x: x * 2)
        g.defjvp(lambda xs, ts: (xs[0] * 2, ts[0] * 3))
        def f(x): return jax.grad(lambda x: g(x).sum())(x)
        """,
        ("def f", "g.defjvp(lambda xs, ts: (xs[0] * 2, ts[0] * 4))\ndef f"),
    ),
    case(
        "nondiff_argnums of a custom_vjp",
        """
        import functools
        @functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
        def g(x, k): return x * k
        g.defvjp(lambda x, k: (x * k, x), lambda k, r, t: (t * k * 1.0,))
        def f(x): return jax.grad(lambda x: g(x, 2.0).sum())(x)
        """,
        ("k * 1.0", "k * 1.5"),
    ),
]

FLAX = """
    import flax.linen as nn
    class Model(nn.Module):
        width: int = 4
        activation: object = nn.relu
        @nn.compact
        def __call__(self, x):
            return self.activation(nn.Dense(self.width, kernel_init=nn.initializers.constant(2.0))(x))
    model = Model()
    def f(key, x): return model.init_with_output(key, x)
    ARGS = (jax.random.key(0), np.ones((1, 4), np.float32))
"""
HAIKU = """
    import haiku as hk
    def forward(x): return hk.Linear(3, w_init=hk.initializers.Constant(2.0))(x)
    model = hk.transform(forward)
    def f(key, x): return model.apply(model.init(key, x), key, x)
    ARGS = (jax.random.key(0), np.ones((1, 4), np.float32))
"""
NUMPYRO = """
    import numpyro, numpyro.distributions as dist
    from numpyro import handlers
    def model(x): numpyro.sample("a", dist.Normal(x, 1.0))
    def f(x):
        with handlers.trace() as told, handlers.seed(rng_seed=1):
            model(x)
        return told["a"]["value"]
"""
OPTAX = """
    import optax
    schedule = optax.exponential_decay(0.1, 10, 0.5)
    tx = optax.chain(optax.clip(1.0), optax.adam(schedule))
    def f(params):
        updates, state = tx.update(params, tx.init(params), params)
        return optax.apply_updates(params, updates)
"""
EQUINOX = """
    import equinox as eqx
    class Model(eqx.Module):
        weight: jax.Array
        scale: float = eqx.field(static=True)
        def __call__(self, x): return x * self.weight * self.scale
    MODEL = Model(jnp.ones(4), 2.0)
    def f(model, x): return model(x)
    ARGS = (MODEL, np.ones(4, np.float32))
"""
NNX = """
    from flax import nnx
    class Model(nnx.Module):
        def __init__(self):
            self.layer = nnx.Linear(4, 4, rngs=nnx.Rngs(0))
            self.scale = 2.0
        def __call__(self, x): return self.layer(x) * self.scale
    graph, state = nnx.split(Model())
    def f(state, x): return nnx.merge(graph, state)(x)
    ARGS = (state, np.ones((1, 4), np.float32))
"""

LIBRARIES: list[Case] = [
    case("flax: a field of a module", FLAX, ("width: int = 4", "width: int = 5"), needs=("flax",)),
    case(
        "flax: another function of the library's as a field",
        FLAX,
        ("object = nn.relu", "object = nn.tanh"),
        needs=("flax",),
    ),
    case("flax: an argument of an initializer", FLAX, ("constant(2.0)", "constant(3.0)"), needs=("flax",)),
    case(
        "flax: within nn.intercept_methods",
        FLAX + "    def double(next, args, kwargs, context): return next(*args, **kwargs) * K\n"
        "    K = 1.0\n"
        "    def calls(jit):\n"
        "        with nn.intercept_methods(double):\n"
        "            yield jit(f), ARGS\n",
        ("K = 1.0", "K = 2.0"),
        needs=("flax",),
        expect=REFUSED,
    ),
    case(
        "flax: nn.intercept_methods appears",
        FLAX + "    def double(next, args, kwargs, context): return next(*args, **kwargs) * 2\n"
        "    import contextlib\n"
        "    def calls(jit):\n"
        "        with contextlib.nullcontext():\n"
        "            yield jit(f), ARGS\n",
        ("contextlib.nullcontext()", "nn.intercept_methods(double)"),
        needs=("flax",),
    ),
    case(
        "flax: a method of the library's was replaced",
        FLAX,
        ("model = Model()", "nn.Dense.__call__ = lambda self, x: x * 3\nmodel = Model()"),
        needs=("flax",),
    ),
    case(
        "optax: a function within the library was replaced",
        OPTAX,
        (
            "schedule =",
            "import optax.tree as inside\n"
            "kept = inside.update_moment\n"
            "inside.update_moment = lambda *a, **k: jax.tree.map(lambda b: b * 2, kept(*a, **k))\n"
            "schedule =",
        ),
        needs=("optax",),
    ),
    case("nnx: an attribute of a module", NNX, ("scale = 2.0", "scale = 3.0"), needs=("flax",)),
    case("nnx: a method of a module", NNX, ("* self.scale", "+ self.scale"), needs=("flax",)),
    case("haiku: an argument of a layer", HAIKU, ("Linear(3,", "Linear(5,"), needs=("dm-haiku",)),
    case(
        "haiku: within hk.custom_creator",
        HAIKU.replace(
            "def forward(x): return",
            "def forward(x):\n"
            "      with hk.custom_creator(lambda next, shape, dtype, init, context: next(shape, dtype, init) * K):\n"
            "        return",
        )
        + "    K = 1.0\n",
        ("K = 1.0", "K = 2.0"),
        needs=("dm-haiku",),
    ),
    case(
        "haiku: a policy of mixed precision for a class",
        HAIKU + "    import jmp\n"
        "    hk.mixed_precision.set_policy(hk.Linear, jmp.get_policy('p=f32,c=float32,o=f32'))\n",
        ("c=float32", "c=float16"),
        needs=("dm-haiku",),
    ),
    case(
        "haiku: a policy of mixed precision appears",
        HAIKU,
        (
            "model =",
            "import jmp\nhk.mixed_precision.set_policy(hk.Linear, jmp.get_policy('p=f32,c=float16,o=f32'))\nmodel =",
        ),
        needs=("dm-haiku",),
    ),
    case("numpyro: a model", NUMPYRO, ("x, 1.0", "x, 2.0"), needs=("numpyro",)),
    case(
        "numpyro: a handler around the call appears",
        NUMPYRO + "    import contextlib\n"
        "    def calls(jit):\n"
        "        with contextlib.nullcontext():\n"
        "            yield jit(f), (np.ones(3, np.float32),)\n",
        ("contextlib.nullcontext()", "handlers.scale(scale=2.0), handlers.substitute(data={'a': jnp.ones(3)})"),
        needs=("numpyro",),
    ),
    case(
        "numpyro: what a handler around the call holds",
        NUMPYRO + "    def calls(jit):\n"
        "        with handlers.substitute(data={'a': np.ones(3, np.float32)}):\n"
        "            yield jit(f), (np.ones(3, np.float32),)\n",
        ("'a': np.ones", "'a': np.zeros"),
        needs=("numpyro",),
    ),
    case("optax: an argument of a schedule", OPTAX, ("0.1, 10", "0.2, 10"), needs=("optax",)),
    case("optax: a transformation is taken out", OPTAX, ("optax.clip(1.0), ", ""), needs=("optax",)),
    case(
        "equinox: a static field of an argument", EQUINOX, ("jnp.ones(4), 2.0", "jnp.ones(4), 3.0"), needs=("equinox",)
    ),
    case("equinox: a method of a module", EQUINOX, ("* self.scale", "+ self.scale"), needs=("equinox",)),
    case(
        "equinox: a field becomes a leaf",
        EQUINOX,
        ("eqx.field(static=True)", "eqx.field(static=False)"),
        needs=("equinox",),
    ),
    case(
        "flax: an option of the library",
        FLAX,
        ("model = Model()", "import flax\nflax.config.update('flax_return_frozendict', True)\nmodel = Model()"),
        needs=("flax",),
    ),
    case(
        "flax: nn.logical_axis_rules appears",
        """
        import flax.linen as nn, contextlib
        from jax.sharding import Mesh
        MESH = Mesh(np.array(jax.devices()), ("d",))
        def f(x): return nn.with_logical_constraint(x, ("a",), mesh=MESH)
        def calls(jit):
            with contextlib.nullcontext():
                yield jit(f), (np.ones(4, np.float32),)
        """,
        ("contextlib.nullcontext()", 'nn.logical_axis_rules((("a", "d"),))'),
        env={"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
        needs=("flax",),
    ),
    case(
        "flax: what nn.logical_axis_rules says",
        """
        import flax.linen as nn
        from jax.sharding import Mesh
        MESH = Mesh(np.array(jax.devices()), ("d",))
        RULES = (("a", None),)
        def f(x): return nn.with_logical_constraint(x, ("a",), mesh=MESH)
        def calls(jit):
            with nn.logical_axis_rules(RULES):
                yield jit(f), (np.ones(4, np.float32),)
        """,
        ('"a", None', '"a", "d"'),
        env={"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
        needs=("flax",),
    ),
    case(
        "nnx: a variable of the captured model",
        """
        from flax import nnx
        model = nnx.Linear(4, 4, rngs=nnx.Rngs(0))
        def f(x): return model(x)
        ARGS = (np.ones((1, 4), np.float32),)
        """,
        ("Rngs(0)", "Rngs(1)"),
        needs=("flax",),
    ),
    case(
        "equinox: a captured model's array",
        """
        import equinox as eqx
        model = eqx.nn.Linear(4, 4, key=jax.random.key(0))
        def f(x): return model(x)
        """,
        ("key(0)", "key(1)"),
        needs=("equinox",),
    ),
    case(
        "equinox: a field of a module was replaced with tree_at",
        EQUINOX,
        (
            "Model(jnp.ones(4), 2.0)",
            "eqx.tree_at(lambda m: m.scale, Model(jnp.ones(4), 2.0), 3.0) if False else Model(jnp.ones(4), 3.5)",
        ),
        needs=("equinox",),
    ),
    case("numpyro: the seed of a handler in the function", NUMPYRO, ("rng_seed=1", "rng_seed=2"), needs=("numpyro",)),
    case(
        "optax: a captured state",
        """
        import optax
        tx = optax.sgd(0.1, momentum=0.9)
        STATE = tx.init(jnp.ones(4))
        STATE = jax.tree.map(lambda x: x + 1.0, STATE)
        def f(g): return tx.update(g, STATE)[0]
        """,
        ("x + 1.0", "x + 2.0"),
        needs=("optax",),
    ),
    case(
        "blackjax: the captured density",
        """
        import blackjax
        def density(x): return -(x**2).sum()
        nuts = blackjax.nuts(density, 0.1, jnp.ones(2))
        def f(key, state): return nuts.step(key, state)
        ARGS = (jax.random.key(0), nuts.init(jnp.zeros(2)))
        """,
        ("x**2", "x**4"),
        needs=("blackjax",),
    ),
    case(
        "diffrax: the field of a term",
        """
        import diffrax
        term = diffrax.ODETerm(lambda t, y, args: -y)
        def f(y): return diffrax.diffeqsolve(term, diffrax.Tsit5(), 0.0, 1.0, 0.1, y, throw=False).ys
        """,
        ("args: -y", "args: -2 * y"),
        needs=("diffrax",),
    ),
]
