"""What must hit and what must miss: single changes of a program or of its surroundings, one row each.

Data only, so that the table in docs/identity-matrix.md and the tests in test_matrix.py are made of the same rows. Each
row changes one thing about a base, which was run before in a process of its own and into a directory of its own.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import NamedTuple

HIT, MISS, NO_KEY, BYPASSED = "hit", "miss", "no key", "bypassed"

Edits = tuple[tuple[str, str], ...]
Variables = Mapping[str, str | None]
NONE: Mapping[str, str | None] = {}
NO_FILES: Mapping[str, str] = {}
NOWHERE: Mapping[str, str] = {}


class Base(NamedTuple):
    """A program, and what it was run with before the change.

    Attributes:
      program: the module's name of the program that a row looks at.
      source: the Python program.
      env: variables of its environment; `{here}` in a value is the folder of the program.
      argv: its arguments.
      files: name to text of files that lie beside it.
    """

    program: str
    source: str
    env: Variables = NONE
    argv: tuple[str, ...] = ()
    files: Mapping[str, str] = NO_FILES


class Row(NamedTuple):
    """One change.

    Attributes:
      name: of the test.
      change: what was changed, in words.
      base: name of what was run before, in `BASES`.
      expect: `HIT`, `MISS`, `NO_KEY` or `BYPASSED`.
      components: for a miss, exactly the components that its explanation must name; none where the key is the same.
      edits: texts of the program (each there once) and what takes their place.
      env: variables that are set or, with `None`, taken away.
      argv: arguments in place of the base's.
      files: files that get another content.
      where: another place for the program's file.
      site: "linked" or "rebuilt": jaxlib lies elsewhere, as it is or with one library changed.
      to_entry: "remove" or "damage": what becomes of the stored entry.
      processes: more than one: they run together, with a port and their numbers as arguments, and the last counts.
      of: the base whose program runs, where it is another than `base`.
      earlier: edits of runs that come between the base's and this one.
      program: the module's name, where the change alters it.
      item: which part of a component a change must name; for `program`, text of the source line it must name.
      named: the component that `item` is part of, where it is not the first.
      before, after: what the change must say; for `program`, text that must be part of what it says.
      finding: the kind of finding that there must be.
      says: text that a finding of that kind must hold.
      prints: the lines that the program must print, sorted by their first words.
      not_on: version of JAX (or its start) to why the row cannot be tried there.
      needs: what the machine must have: "x86", or "affinity", a choice of processors.
      note: what else a reader of the table should know.
    """

    name: str
    change: str
    base: str
    expect: str
    components: tuple[str, ...] = ()
    edits: Edits = ()
    env: Variables = NONE
    argv: tuple[str, ...] | None = None
    files: Mapping[str, str] = NO_FILES
    where: str = ""
    site: str = ""
    to_entry: str = ""
    processes: int = 1
    of: str = ""
    earlier: tuple[Edits, ...] = ()
    program: str = ""
    item: str | None = None
    named: str = ""
    before: str = ""
    after: str = ""
    finding: str = ""
    says: str = ""
    prints: str = ""
    not_on: Mapping[str, str] = NOWHERE
    needs: str = ""
    note: str = ""


def _source(text: str) -> str:
    return textwrap.dedent(text).lstrip()


_STEP = _source(
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    RATE = 0.5
    WEIGHTS = np.array([1, 2, 3, 4], np.float32)


    @jax.jit
    def doubled(x):
        return x * 2


    @jax.jit
    def shifted(x):
        return x + 7


    def step(params, batch):
        hidden = batch @ params["weight"] * RATE
        hidden = doubled(hidden) + shifted(hidden)
        hidden = jnp.where(hidden > 0, hidden, 0.25)
        total = hidden.sum(axis=0) * WEIGHTS
        total = jax.lax.fori_loop(0, 5, lambda _, value: value * 3, total)
        return {"loss": total - params["bias"], "hidden": hidden}


    params = {"bias": np.ones(4, np.float32), "weight": np.ones((4, 4), np.float32)}
    batch = np.ones((4, 4), np.float32)
    run = jax.jit(step)
    run(params, batch)
    """
)

_TYPES = _source(
    """
    import jax
    import jax.numpy as jnp
    import numpy as np


    def scaled(x, rate):
        return x * rate


    def summed(x):
        return jnp.cumsum(x)


    def sine(x):
        return jax.lax.sin(x)


    jax.jit(scaled)(np.ones(4, jnp.bfloat16), 2.0)
    print(jax.jit(sine)(0.5).weak_type)
    jax.jit(summed)(np.ones(4))
    """
)

_SPREAD = _source(
    """
    import jax
    import numpy as np
    from jax.experimental.layout import Format, Layout
    from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
    from jax.sharding import PartitionSpec as P

    mesh = Mesh(np.array(jax.devices()[:8]), ("rows",))
    rows = NamedSharding(mesh, P("rows"))
    first = SingleDeviceSharding(jax.local_devices()[0])
    x = np.arange(64, dtype=np.float32).reshape(8, 8)


    def spread(x):
        return (x * 2).sum(axis=1)


    def placed(x):
        return x - 3


    jax.jit(spread, in_shardings=rows)(x)
    jax.jit(placed, in_shardings=first, out_shardings=first)(x)
    """
)

_HOST = _source(
    """
    import jax
    import numpy as np
    from jax.experimental import io_callback

    shape = jax.ShapeDtypeStruct((), np.float32)


    def looked_up(x):
        return np.float32(x * 2)


    def written(x):
        print("wrote", float(x))


    def host(x):
        y = jax.pure_callback(looked_up, shape, x + 1)
        io_callback(written, None, x, ordered=True)
        io_callback(written, None, y, ordered=True)
        jax.debug.print("saw {}", x)
        return y


    print("got", float(jax.jit(host)(np.float32(3))))
    jax.effects_barrier()
    """
)

_ORDER = _source(
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    PARTS = {"sin", "cos", "tanh", "exp", "sqrt", "log1p"}


    def mixed(x):
        for part in PARTS:
            x = getattr(jnp, part)(x)
        return x


    jax.jit(mixed)(np.ones(4, np.float32))
    """
)

_PARTITIONED = _source(
    """
    import functools

    import jax
    import numpy as np
    from jax.experimental.custom_partitioning import custom_partitioning
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    FACTOR = 3.0


    def helper(x):
        return x + 1.0


    def blended(x, share):
        return x * share


    halved = functools.partial(blended, share=0.5)


    def partition_with(offset):
        def partition(mesh, arguments, result):
            def lowered(x, power=2):
                return halved(helper(x * FACTOR)) ** power + offset

            return mesh, lowered, result.sharding, (arguments[0].sharding,)

        return partition


    @custom_partitioning
    def scaled(x):
        return x * 1.0


    def infer(mesh, arguments, result):
        return arguments[0].sharding


    scaled.def_partition(
        partition=partition_with(7.0),
        infer_sharding_from_operands=infer,
        sharding_rule="i j -> i j",
    )


    def partitioned(x):
        return scaled(x)


    mesh = Mesh(np.array(jax.devices()), ("rows",))
    x = jax.device_put(np.ones((4, 4), np.float32), NamedSharding(mesh, P("rows")))
    print(float(np.asarray(jax.jit(partitioned)(x))[0, 0]))
    """
)

_DECLARED = _source(
    """
    import jax
    import numpy as np
    from jax._src import cache_key

    cache_key.custom_hook = lambda: "hooked"
    cache_key.add_flag_prefixes(["--model"])


    def declared(x):
        return x + 1


    jax.jit(declared)(np.ones(4, np.float32))
    """
)

# XLA reads these on GPU only; on CPU they are options that name files.
_FILES = (
    "--xla_gpu_algorithm_denylist_path={here}/deny.txt",
    "--xla_gpu_experimental_matmul_perf_table_path={here}/absent.txt",
    "--xla_gpu_llvm_ir_file={here}/kernel.ll",
)

# How many threads XLA:CPU divides work among is part of the target, so each base says it, whatever the machine has.
_THREADS: Variables = {"NPROC": "2"}

_FLAGS = "--xla_cpu_enable_fast_math=true --xla_backend_optimization_level=1"


def _devices(count: int) -> Variables:
    """With more threads than devices: XLA:CPU takes as many threads as the host has devices, if that is more."""
    return {"NPROC": "16", "XLA_FLAGS": f"--xla_force_host_platform_device_count={count}"}


BASES: Mapping[str, Base] = {
    "step": Base("jit_step", _STEP, _THREADS),
    "step under flags": Base("jit_step", _STEP, {**_THREADS, "XLA_FLAGS": _FLAGS}),
    "step over a threshold": Base("jit_step", _STEP, {**_THREADS, "REWARM_MIN_COMPILE_SECONDS": "1000"}),
    "scaled": Base("jit_scaled", _TYPES, _THREADS),
    "sine": Base("jit_sine", _TYPES, _THREADS),
    "summed": Base("jit_summed", _TYPES, _THREADS),
    "spread": Base("jit_spread", _SPREAD, _devices(8)),
    "placed": Base("jit_placed", _SPREAD, _devices(8)),
    "host": Base("jit_host", _HOST, _THREADS),
    "mixed": Base("jit_mixed", _ORDER, {**_THREADS, "PYTHONHASHSEED": "1"}),
    "partitioned": Base("jit_partitioned", _PARTITIONED, _devices(2)),
    "declared": Base(
        "jit_declared",
        _DECLARED,
        {
            **_THREADS,
            "XLA_FLAGS": " ".join(_FILES),
            "REWARM_SALT": "one",
            "REWARM_EXTRA_FILES": "{here}/extra.txt",
            "REWARM_EXTRA_VARIABLES": "MODEL_SIZE",
            "MODEL_SIZE": "small",
        },
        argv=("--model=a", "--steps=1"),
        files={
            "deny.txt": "one",
            "same.txt": "one",
            "kernel.ll": "one",
            "kernels.ll": "one",
            "extra.txt": "one",
            "again.txt": "one",
        },
    ),
}


def _files(**other: str) -> str:
    """The flags that name files, with some of the names replaced."""
    text = " ".join(_FILES)
    for old, new in other.items():
        text = text.replace(f"{{here}}/{old}.", f"{{here}}/{new}.")
    return text


_BATCH = "batch = np.ones((4, 4), np.float32)"
_IMPORT = "import jax\n"

_NAMES_AND_PLACES = (
    Row("unchanged", "nothing", "step", HIT),
    Row("moved file", "the file lies in another directory under another name", "step", HIT, where="other/train.py"),
    Row("lines above", "lines are added above", "step", HIT, edits=((_IMPORT, "\n\n\n\nimport jax\n"),)),
    Row("comment", "a comment is added", "step", HIT, edits=(("hidden = doubled", "# two\n    hidden = doubled"),)),
    Row(
        "function renamed",
        "the jitted function has another name",
        "step",
        HIT,
        edits=(("def step(", "def update("), ("jax.jit(step)", "jax.jit(update)")),
        program="jit_update",
    ),
    Row(
        "helper renamed",
        "an inner jitted helper has another name",
        "step",
        HIT,
        edits=(("def doubled(", "def twice("), (" = doubled(", " = twice(")),
    ),
    Row(
        "helpers swap names",
        "two inner jitted helpers swap their names",
        "step",
        HIT,
        edits=(
            ("def doubled(", "def other("),
            ("def shifted(", "def doubled("),
            ("def other(", "def shifted("),
            ("doubled(hidden) + shifted(hidden)", "shifted(hidden) + doubled(hidden)"),
        ),
    ),
    Row("result key", "a key of the result's dict is renamed", "step", HIT, edits=(('"loss":', '"lost":'),)),
    Row(
        "argument name",
        "an argument is renamed",
        "step",
        HIT,
        edits=(("def step(params, batch)", "def step(params, rows)"), ("batch @", "rows @")),
    ),
    Row(
        "argument key",
        "a key of an argument's dict is renamed, and sorts as before",
        "step",
        HIT,
        edits=(('params["bias"]', 'params["base"]'), ('"bias":', '"base":')),
    ),
    Row(
        "unused global", "a global that nothing uses is added", "step", HIT, edits=(("RATE =", "NOISE = 9.0\nRATE ="),)
    ),
    Row(
        "named scope",
        "an operation stands in a jax.named_scope",
        "step",
        HIT,
        edits=(("doubled(hidden) + shifted", "jax.named_scope('layer')(doubled)(hidden) + shifted"),),
        note="scopes are only in locations",
    ),
    Row("hash seed", "another PYTHONHASHSEED", "step", HIT, env={"PYTHONHASHSEED": "7"}),
    Row("home", "another HOME and TMPDIR", "step", HIT, env={"HOME": "/nowhere", "TMPDIR": "{here}"}),
    Row(
        "tracebacks",
        "JAX_INCLUDE_FULL_TRACEBACKS_IN_LOCATIONS is off",
        "step",
        HIT,
        env={"JAX_INCLUDE_FULL_TRACEBACKS_IN_LOCATIONS": "0"},
    ),
)

_PROGRAM = (
    Row(
        "scalar constant",
        "a Python scalar, 0.5 to 0.75",
        "step",
        MISS,
        ("program",),
        edits=(("RATE = 0.5", "RATE = 0.75"),),
        item='batch @ params["weight"] * RATE',
        before="dense<5.000000e-01>",
        after="dense<7.500000e-01>",
        finding="constants",
    ),
    Row(
        "array constant",
        "one element of a captured array",
        "step",
        MISS,
        ("program",),
        edits=(("[1, 2, 3, 4]", "[1, 2, 3, 5]"),),
        item="* WEIGHTS",
        before="4.000000e+00]>",
        after="5.000000e+00]>",
        finding="constants",
    ),
    Row(
        "literal",
        "the literal of a jnp.where",
        "step",
        MISS,
        ("program",),
        edits=(("hidden, 0.25)", "hidden, 0.5)"),),
        item="jnp.where",
        before="dense<2.500000e-01>",
        after="dense<5.000000e-01>",
        finding="constants",
    ),
    Row(
        "trip count",
        "how often a loop runs",
        "step",
        MISS,
        ("program",),
        edits=(("fori_loop(0, 5,", "fori_loop(0, 6,"),),
        item="fori_loop",
        before="dense<5>",
        after="dense<6>",
        finding="constants",
    ),
    Row(
        "dtype",
        "an argument's dtype",
        "step",
        MISS,
        ("program",),
        edits=((_BATCH, "batch = np.ones((4, 4), np.float16)"),),
        item="",
        before="tensor<4x4xf32>",
        after="tensor<4x4xf16>",
    ),
    Row(
        "shape",
        "an argument's shape",
        "step",
        MISS,
        ("program",),
        edits=((_BATCH, "batch = np.ones((8, 4), np.float32)"),),
        item="",
        before="tensor<4x4xf32>",
        after="tensor<8x4xf32>",
        finding="shapes",
        says="seen before: (tensor<4xf32>, tensor<4x4xf32>, tensor<4x4xf32>)",
    ),
    Row(
        "shapes from run to run",
        "a third shape after two others",
        "step",
        MISS,
        ("program",),
        edits=((_BATCH, "batch = np.ones((12, 4), np.float32)"),),
        earlier=(((_BATCH, "batch = np.ones((8, 4), np.float32)"),),),
        finding="shapes",
        says="seen before: (tensor<4xf32>, tensor<4x4xf32>, tensor<8x4xf32>)",
    ),
    Row(
        "varying constant",
        "a scalar that was another one in each of three runs before",
        "step",
        MISS,
        ("program",),
        edits=(("RATE = 0.5", "RATE = 0.8"),),
        earlier=((("RATE = 0.5", "RATE = 0.6"),), (("RATE = 0.5", "RATE = 0.7"),)),
        finding="varying constant",
        says="each of the 3 runs",
    ),
    Row(
        "order of arguments",
        "a - b becomes b - a",
        "step",
        MISS,
        ("program",),
        edits=(('total - params["bias"]', 'params["bias"] - total'),),
        item='params["bias"] - total',
        before="stablehlo.subtract",
        after="stablehlo.subtract",
    ),
    Row(
        "order of calls",
        "two inner functions are called in the other order",
        "step",
        MISS,
        ("program",),
        edits=(("doubled(hidden) + shifted(hidden)", "shifted(hidden) + doubled(hidden)"),),
        finding="order",
    ),
    Row(
        "reduced axis",
        "the axis of a sum over a square",
        "step",
        MISS,
        ("program",),
        edits=(("sum(axis=0)", "sum(axis=1)"),),
        item="sum(axis=1)",
        before="dimensions = [0]",
        after="dimensions = [1]",
        finding="operations",
    ),
    Row(
        "inlined helper",
        "an inner function is no longer jitted",
        "step",
        MISS,
        ("program",),
        edits=(("@jax.jit\ndef doubled", "def doubled"),),
        finding="operations",
        item="return x * 2",
        after="stablehlo.multiply",
    ),
    Row(
        "operation",
        "a product becomes a quotient",
        "step",
        MISS,
        ("program",),
        edits=(("return x * 2", "return x / 2"),),
        item="return x / 2",
        before="stablehlo.multiply",
        after="stablehlo.divide",
        finding="operations",
    ),
    Row(
        "precision of one operation",
        "precision= of a matrix product",
        "step",
        MISS,
        ("program",),
        edits=(('batch @ params["weight"]', 'jnp.matmul(batch, params["weight"], precision="highest")'),),
        item="jnp.matmul",
        before="[DEFAULT, DEFAULT]",
        after="[HIGHEST, HIGHEST]",
    ),
    Row(
        "default precision",
        "JAX_DEFAULT_MATMUL_PRECISION",
        "step",
        MISS,
        ("program",),
        env={"JAX_DEFAULT_MATMUL_PRECISION": "highest"},
        item='batch @ params["weight"]',
        before="[DEFAULT, DEFAULT]",
        after="[HIGHEST, HIGHEST]",
    ),
    Row(
        "donation",
        "donate_argnums",
        "step",
        MISS,
        ("program",),
        edits=(("jax.jit(step)", "jax.jit(step, donate_argnums=1)"),),
        item="",
        after="tf.aliasing_output",
    ),
    Row(
        "kept argument",
        "an argument that nothing uses is added, and kept by keep_unused",
        "step",
        MISS,
        ("program", "options"),
        edits=(
            ("def step(params, batch)", "def step(params, batch, spare)"),
            ("jax.jit(step)", "jax.jit(step, keep_unused=True)"),
            ("run(params, batch)", "run(params, batch, batch)"),
        ),
        named="options",
        item="executable_build_options.allow_spmd_sharding_propagation_to_parameters",
        before="[true, true, true]",
        after="[true, true, true, true]",
    ),
    Row(
        "dropped argument",
        "an argument that nothing uses is added, and dropped by JAX",
        "step",
        HIT,
        edits=(
            ("def step(params, batch)", "def step(params, batch, spare)"),
            ("run(params, batch)", "run(params, batch, batch)"),
        ),
    ),
    Row(
        "metadata",
        "an attribute of the program's own, set_xla_metadata",
        "step",
        MISS,
        ("program",),
        edits=(
            (
                _IMPORT,
                "import jax\nfrom jax.experimental.xla_metadata import set_xla_metadata\n",
            ),
            ("total - params", "set_xla_metadata(total, level=1) - params"),
        ),
        note="attributes reach the compiler",
        item="",
        after='level = "1"',
    ),
    Row(
        "weak type",
        "an array scalar where a Python scalar was",
        "scaled",
        MISS,
        ("program",),
        edits=((", 2.0)", ", np.float32(2.0))"),),
        finding="operations",
        note="bfloat16 times a Python scalar stays bfloat16",
        item="",
        before="-> tensor<4xbf16>",
        after="-> tensor<4xf32>",
    ),
    Row(
        "weak type of the result",
        "an array scalar where a Python scalar was, and only the type of the result is no longer weak",
        "sine",
        HIT,
        edits=(("(0.5)", "(np.float32(0.5))"),),
        prints="False",
        note="which JAX knows by itself",
    ),
    Row(
        "x64",
        "JAX_ENABLE_X64",
        "summed",
        MISS,
        ("program",),
        env={"JAX_ENABLE_X64": "1"},
        finding="types",
        item="",
        before="tensor<4xf32>",
        after="tensor<4xf64>",
    ),
    Row(
        "unordered",
        "the order of a set of strings, by another PYTHONHASHSEED",
        "mixed",
        MISS,
        ("program",),
        env={"PYTHONHASHSEED": "2"},
        finding="order",
        says="PYTHONHASHSEED",
        item="getattr(jnp, part)",
    ),
    Row(
        "order of effects",
        "two ordered callbacks in the other order",
        "host",
        MISS,
        ("program",),
        edits=(
            ("    io_callback(written, None, x, ordered=True)\n", ""),
            ("    jax.debug", "    io_callback(written, None, x, ordered=True)\n    jax.debug"),
        ),
        prints="got 8.0, saw 3.0, wrote 8.0, wrote 3.0",
        item="io_callback(written, None, y",
        before="(%arg0, %arg1)",
        after="(%arg0, %1)",
    ),
)

_DEVICES = (
    Row(
        "sharding",
        "in_shardings",
        "spread",
        MISS,
        ("program",),
        edits=(('P("rows")', 'P(None, "rows")'),),
        item="",
        before='[{"rows"}, {}]',
        after='[{}, {"rows"}]',
    ),
    Row(
        "fewer devices",
        "8 devices become 4",
        "spread",
        MISS,
        ("program", "options", "target"),
        edits=(("jax.devices()[:8]", "jax.devices()[:4]"),),
        named="target",
        item="devices",
        before="8 (1 x 8)",
        after="4 (1 x 4)",
    ),
    Row(
        "axis name",
        "an axis of the mesh is renamed",
        "spread",
        MISS,
        ("program",),
        edits=(('("rows",)', '("lines",)'), ('P("rows")', 'P("lines")')),
        note="names of axes are strings in the program",
        item="",
        before='"rows"=8',
        after='"lines"=8',
    ),
    Row(
        "mesh name", "another mesh comes first", "spread", HIT, edits=(("rows = Named", "spare = mesh\nrows = Named"),)
    ),
    Row(
        "order of devices",
        "the mesh has the devices in another order",
        "spread",
        HIT,
        edits=(("jax.devices()[:8]", "jax.devices()[7::-1]"),),
    ),
    Row("some of more devices", "the process has 16 devices and uses 8", "spread", HIT, env=_devices(16)),
    Row("more devices", "the process has 16 devices and uses one", "placed", HIT, env=_devices(16)),
    Row(
        "one device",
        "the process has one device alone",
        "step",
        HIT,
        env={"XLA_FLAGS": "--xla_force_host_platform_device_count=1"},
    ),
    Row(
        "another device",
        "the fourth device instead of the first",
        "placed",
        HIT,
        edits=(("jax.local_devices()[0]", "jax.local_devices()[3]"),),
    ),
    Row(
        "another process",
        "the second of two processes of one job compiles a program of its own",
        "placed",
        HIT,
        edits=(
            (
                _IMPORT,
                "import sys\nimport jax\njax.distributed.initialize(f'localhost:{sys.argv[1]}', 2, int(sys.argv[2]))\n",
            ),
            ("jax.jit(spread, in_shardings=rows)(x)\n", ""),
        ),
        processes=2,
    ),
    Row(
        "layout",
        "the layout of the result",
        "placed",
        MISS,
        ("program",),
        edits=(("out_shardings=first", "out_shardings=Format(Layout((1, 0)), first)"),),
        item="",
        after="{0,1}",
    ),
    Row(
        "memory kind",
        "the result lies in pinned host memory",
        "placed",
        MISS,
        ("program",),
        edits=(("out_shardings=first", 'out_shardings=first.with_memory_kind("pinned_host")'),),
        item="",
        after="mhlo.memory_kind",
        not_on={"0.9": "XLA:CPU has no code there for a result in another memory"},
    ),
    Row(
        "threads",
        "NPROC, 2 to 1",
        "step",
        MISS,
        ("target",),
        env={"NPROC": "1"},
        item="threads",
        before="2",
        after="1",
    ),
    Row(
        "more devices than threads",
        "the process has 32 devices, more than NPROC (16)",
        "placed",
        MISS,
        ("target",),
        env=_devices(32),
        item="threads",
        before="16",
        after="32",
        note="XLA:CPU divides work among as many threads as the host has devices, and the code differs",
    ),
    Row(
        "pinned late",
        "NPROC is 1 once JAX has its client, which has two threads",
        "step",
        MISS,
        ("target",),
        edits=((_IMPORT, "import os\nimport jax\njax.devices()\nos.environ['NPROC'] = '1'\n"),),
        item="threads",
        before="2",
        after="[2, 1]",
        needs="affinity",
    ),
    Row(
        "processors",
        "the process may run on one processor, and NPROC is not set",
        "step",
        MISS,
        ("target",),
        edits=((_IMPORT, "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nimport jax\n"),),
        env={"NPROC": None},
        item="threads",
        before="2",
        after="1",
        needs="affinity",
    ),
)

_CALLBACKS = (
    Row("partitioning unchanged", "custom_partitioning: nothing", "partitioned", HIT, prints="11.0"),
    Row(
        "partitioning moved", "custom_partitioning: the file lies elsewhere", "partitioned", HIT, where="other/train.py"
    ),
    Row(
        "partitioning lines above",
        "custom_partitioning: lines are added above",
        "partitioned",
        HIT,
        edits=(("import functools\n", "\n\n\nimport functools\n"),),
    ),
    Row(
        "partitioning body",
        "custom_partitioning: the body of the function that it lowers to",
        "partitioned",
        MISS,
        ("callbacks",),
        edits=(("** power + offset", "** power - offset"),),
        prints="-3.0",
        item="custom_partitioning → value 'partition'",
        before="code ",
        after="code ",
    ),
    Row(
        "partitioning closure",
        "custom_partitioning: a value in its closure",
        "partitioned",
        MISS,
        ("callbacks",),
        edits=(("partition_with(7.0)", "partition_with(8.0)"),),
        prints="12.0",
        item="custom_partitioning → value 'partition' → closure offset",
        before="7.0",
        after="8.0",
    ),
    Row(
        "partitioning default",
        "custom_partitioning: a default argument",
        "partitioned",
        MISS,
        ("callbacks",),
        edits=(("power=2", "power=3"),),
        prints="15.0",
        item="custom_partitioning → value 'partition'",
        before="code ",
        after="code ",
    ),
    Row(
        "partitioning global",
        "custom_partitioning: a global that its body uses",
        "partitioned",
        MISS,
        ("callbacks",),
        edits=(("FACTOR = 3.0", "FACTOR = 5.0"),),
        prints="16.0",
        item="custom_partitioning → value 'partition' → global FACTOR",
        before="3.0",
        after="5.0",
    ),
    Row(
        "partitioning helper",
        "custom_partitioning: the body of a function that its body calls",
        "partitioned",
        MISS,
        ("callbacks",),
        edits=(("x + 1.0", "x + 3.0"),),
        prints="16.0",
        item="custom_partitioning → value 'partition' → global helper",
        before="code ",
        after="code ",
    ),
    Row(
        "partitioning partial",
        "custom_partitioning: a value that functools.partial holds",
        "partitioned",
        MISS,
        ("callbacks",),
        edits=(("share=0.5", "share=0.25"),),
        prints="8.0",
        item="custom_partitioning → value 'partition' → global halved",
        before="partial ",
        after="partial ",
    ),
    Row(
        "partitioning unused global",
        "custom_partitioning: a global that its body does not use",
        "partitioned",
        HIT,
        edits=(("FACTOR =", "NOISE = 9.0\nFACTOR ="),),
    ),
    Row(
        "partitioning rule",
        "custom_partitioning: its sharding rule",
        "partitioned",
        MISS,
        ("program",),
        edits=(('"i j -> i j"', '"i j -> i k"'),),
        note="the rule is in the program",
        item="return scaled(x)",
        before="([i, j])->([i, j])",
        after="([i, j])->([i, k])",
    ),
    Row(
        "partitioning trace",
        "custom_partitioning: an option of JAX under which its body will be traced",
        "partitioned",
        MISS,
        ("callbacks",),
        env={"JAX_DEFAULT_MATMUL_PRECISION": "highest"},
        item="options that shape a trace",
        before="None",
        after="'highest'",
    ),
    Row(
        "partitioning unknown",
        "custom_partitioning: its closure holds what cannot be identified",
        "partitioned",
        NO_KEY,
        edits=(
            ("partition_with(7.0)", "partition_with(threading.Lock() and 7.0, threading.Lock())"),
            ("def partition_with(offset):", "def partition_with(offset, lock):"),
            ("        def lowered(x, power=2):\n", "        lock.locked()\n\n        def lowered(x, power=2):\n"),
            ("import functools\n", "import functools\nimport threading\n"),
        ),
        finding="unkeyable",
        says="_thread.lock (custom_partitioning → value 'partition' → closure lock)",
    ),
    Row(
        "host function",
        "the function of a pure_callback",
        "host",
        HIT,
        edits=(("x * 2", "x * 20"),),
        prints="got 80.0, saw 3.0, wrote 3.0, wrote 80.0",
        note="and the new one is called",
    ),
    Row(
        "host effect",
        "the function of an io_callback",
        "host",
        HIT,
        edits=(('print("wrote",', 'print("put",'),),
        prints="got 8.0, put 3.0, put 8.0, saw 3.0",
        note="and the new one is called",
    ),
    Row(
        "host text",
        "the text of a jax.debug.print",
        "host",
        HIT,
        edits=(('"saw {}"', '"had {}"'),),
        prints="got 8.0, had 3.0, wrote 3.0, wrote 8.0",
        note="and the new one is printed",
    ),
    Row(
        "inspected sharding",
        "jax.debug.inspect_array_sharding is added",
        "spread",
        NO_KEY,
        edits=(("    return (x * 2)", "    jax.debug.inspect_array_sharding(x, callback=print)\n    return (x * 2)"),),
        finding="unkeyable",
        says="inspect_array_sharding",
    ),
)

_OPTIONS = (
    Row(
        "default spelled out",
        "a flag at its default",
        "step",
        HIT,
        env={"XLA_FLAGS": "--xla_cpu_enable_fast_math=false"},
    ),
    Row(
        "unset default",
        "a flag that is unset by default, at zero",
        "step",
        HIT,
        env={"XLA_FLAGS": "--xla_gpu_ftz=false"},
    ),
    Row(
        "zero for false",
        "a flag at its default, 0 for false",
        "step",
        HIT,
        env={"XLA_FLAGS": "--xla_cpu_enable_fast_math=0"},
    ),
    Row(
        "flag twice",
        "a flag twice, last at its default",
        "step",
        HIT,
        env={"XLA_FLAGS": "--xla_cpu_enable_fast_math=true --xla_cpu_enable_fast_math=false"},
    ),
    Row(
        "order of flags",
        "two flags in the other order",
        "step under flags",
        HIT,
        env={"XLA_FLAGS": " ".join(reversed(_FLAGS.split()))},
    ),
    Row("spelling of a flag", "1 for true", "step under flags", HIT, env={"XLA_FLAGS": _FLAGS.replace("=true", "=1")}),
    Row(
        "bare flag",
        "a flag without a value for true",
        "step under flags",
        HIT,
        env={"XLA_FLAGS": _FLAGS.replace("=true", "")},
    ),
    Row(
        "file of flags",
        "XLA_FLAGS names a file that holds the flags",
        "step under flags",
        HIT,
        env={"XLA_FLAGS": "{here}/flags.txt"},
        files={"flags.txt": _FLAGS.replace(" ", "\n") + "\n"},
    ),
    Row(
        "flag as compiler option",
        "compiler_options= in the place of a flag",
        "step under flags",
        HIT,
        env={"XLA_FLAGS": _FLAGS.split()[1]},
        edits=(("jax.jit(step)", "jax.jit(step, compiler_options={'xla_cpu_enable_fast_math': True})"),),
    ),
    Row(
        "compiler option at its default",
        "compiler_options= with a default",
        "step",
        HIT,
        edits=(("jax.jit(step)", "jax.jit(step, compiler_options={'xla_cpu_enable_fast_math': False})"),),
    ),
    Row(
        "order of compiler options",
        "compiler_options= in another order, in the place of flags",
        "step under flags",
        HIT,
        env={"XLA_FLAGS": None},
        edits=(
            (
                "run = jax.jit(step)",
                "more = {'xla_backend_optimization_level': 1, 'xla_cpu_enable_fast_math': True}\n"
                "run = jax.jit(step, compiler_options=more)",
            ),
        ),
    ),
    Row(
        "compiler option",
        "compiler_options= with another value",
        "step",
        MISS,
        ("options",),
        edits=(("jax.jit(step)", "jax.jit(step, compiler_options={'xla_cpu_enable_fast_math': True})"),),
        item="xla_cpu_enable_fast_math",
        before="unset",
        after="true",
    ),
    Row(
        "flag",
        "--xla_cpu_enable_fast_math=true",
        "step",
        MISS,
        ("options",),
        env={"XLA_FLAGS": "--xla_cpu_enable_fast_math=true"},
        item="xla_cpu_enable_fast_math",
        before="unset",
        after="true",
    ),
    Row(
        "value of a flag",
        "another value of a flag",
        "step under flags",
        MISS,
        ("options",),
        env={"XLA_FLAGS": _FLAGS.replace("level=1", "level=2")},
        item="xla_backend_optimization_level",
        before="1",
        after="2",
    ),
    Row(
        "instruction set",
        "--xla_cpu_max_isa=SSE4_2",
        "step",
        MISS,
        ("options", "target"),
        env={"XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2"},
        item="xla_cpu_max_isa",
        before="",
        after="SSE4_2",
        note="the instructions are in the target too",
        needs="x86",
    ),
    Row(
        "optimisation level",
        "JAX_OPTIMIZATION_LEVEL",
        "step",
        MISS,
        ("options",),
        env={"JAX_OPTIMIZATION_LEVEL": "O1"},
        item="executable_build_options.optimization_level",
    ),
    Row(
        "memory level",
        "JAX_MEMORY_FITTING_LEVEL",
        "step",
        MISS,
        ("options",),
        env={"JAX_MEMORY_FITTING_LEVEL": "O1"},
        item="executable_build_options.memory_fitting_level",
    ),
    Row(
        "effort",
        "JAX_EXEC_TIME_OPTIMIZATION_EFFORT",
        "step",
        MISS,
        ("options",),
        env={"JAX_EXEC_TIME_OPTIMIZATION_EFFORT": "0.5"},
        item="executable_build_options.exec_time_optimization_effort",
        before="unset",
        after="0.5",
        not_on={"0.11": "JAX has no such setting any more", "0.12": "JAX has no such setting any more"},
    ),
    Row(
        "partitioner",
        "JAX_USE_SHARDY_PARTITIONER off",
        "spread",
        MISS,
        ("program", "options"),
        env={"JAX_USE_SHARDY_PARTITIONER": "0"},
        named="options",
        item="executable_build_options.use_shardy_partitioner",
        before="true",
        after="unset",
    ),
    Row(
        "dump filter",
        "--xla_dump_hlo_pass_re, which alone writes nothing",
        "step",
        HIT,
        env={"XLA_FLAGS": "--xla_dump_hlo_pass_re=x"},
    ),
    Row(
        "logging",
        "flags that only log",
        "step",
        HIT,
        env={"XLA_FLAGS": "--xla_hlo_graph_addresses=true --xla_dump_max_hlo_modules=3"},
    ),
    Row(
        "dump",
        "--xla_dump_to",
        "step",
        BYPASSED,
        env={"XLA_FLAGS": "--xla_dump_to={here}/dump"},
        finding="bypassed",
        says="xla_dump_to",
        note="under the same key",
    ),
    Row(
        "fuel",
        "--xla_fuel",
        "step",
        NO_KEY,
        env={"XLA_FLAGS": "--xla_fuel=fusion=1000000"},
        finding="unkeyable",
        says="--xla_fuel",
    ),
    Row("argument like a flag", "a program argument that looks like a flag", "step", HIT, argv=("--xla_foo=1",)),
    Row(
        "JAX's own directory", "JAX_COMPILATION_CACHE_DIR", "step", HIT, env={"JAX_COMPILATION_CACHE_DIR": "{here}/jax"}
    ),
    Row(
        "JAX's own thresholds",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES",
        "step",
        HIT,
        env={"JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "1"},
    ),
    Row("JAX's log", "JAX_LOG_COMPILES", "step", HIT, env={"JAX_LOG_COMPILES": "1"}),
)

_INPUTS = (
    Row(
        "input renamed",
        "a file that an option names has another name and the same content",
        "declared",
        HIT,
        env={"XLA_FLAGS": _files(deny="same")},
    ),
    Row(
        "input changed",
        "the content of a file that an option names",
        "declared",
        MISS,
        ("inputs",),
        files={"deny.txt": "two"},
        item="xla_gpu_algorithm_denylist_path",
        before="content ",
        after="content ",
        note="one of GPU's: on CPU it names a file all the same",
    ),
    Row(
        "input gone",
        "a file that an option names is gone",
        "declared",
        MISS,
        ("inputs",),
        env={"XLA_FLAGS": _files(deny="gone")},
        item="xla_gpu_algorithm_denylist_path",
        before="content ",
        after="missing",
    ),
    Row(
        "absent input",
        "an option names another file that is not there",
        "declared",
        HIT,
        env={"XLA_FLAGS": _files(absent="void")},
    ),
    Row(
        "input by name",
        "a file that counts by its name too has another",
        "declared",
        MISS,
        ("inputs",),
        env={"XLA_FLAGS": _files(kernel="kernels")},
        item="xla_gpu_llvm_ir_file kernels.ll",
        before="unset",
        after="content ",
    ),
)

_SALT = (
    Row(
        "salt",
        "REWARM_SALT",
        "declared",
        MISS,
        ("salt",),
        env={"REWARM_SALT": "two"},
        item="salt",
        before="one",
        after="two",
    ),
    Row(
        "salt in code",
        "rewarm.enable(salt=)",
        "declared",
        MISS,
        ("salt",),
        edits=(("\n\ndef declared", "\nimport rewarm\nrewarm.enable(salt='two')\n\n\ndef declared"),),
        item="salt",
        before="one",
        after="two",
    ),
    Row(
        "hook",
        "what cache_key.custom_hook gives",
        "declared",
        MISS,
        ("salt",),
        edits=(('"hooked"', '"hooked up"'),),
        item="custom_hook",
        before="hooked",
        after="hooked up",
    ),
    Row(
        "declared flag",
        "an argument with a prefix that cache_key.add_flag_prefixes was given",
        "declared",
        MISS,
        ("salt",),
        argv=("--model=b", "--steps=1"),
        item="flags",
        before='["--model=a"]',
        after='["--model=b"]',
    ),
    Row("other flag", "an argument with another prefix", "declared", HIT, argv=("--model=a", "--steps=2")),
    Row(
        "declared file",
        "the content of a file in REWARM_EXTRA_FILES",
        "declared",
        MISS,
        ("salt",),
        files={"extra.txt": "two"},
        item="files, number 1",
        before="content ",
        after="content ",
    ),
    Row(
        "declared file renamed",
        "a file in REWARM_EXTRA_FILES has another name",
        "declared",
        HIT,
        env={"REWARM_EXTRA_FILES": "{here}/again.txt"},
    ),
    Row(
        "declared variable",
        "the value of a variable in REWARM_EXTRA_VARIABLES",
        "declared",
        MISS,
        ("salt",),
        env={"MODEL_SIZE": "large"},
        item="variable MODEL_SIZE",
        before="content ",
        after="content ",
    ),
    Row("other variable", "a variable that is not declared", "declared", HIT, env={"MODEL_DEPTH": "large"}),
    Row(
        "metadata in key",
        "REWARM_METADATA_IN_KEY",
        "step",
        MISS,
        ("program", "salt"),
        env={"REWARM_METADATA_IN_KEY": "1"},
        named="salt",
        item="metadata",
        before="unset",
        after="true",
    ),
    Row("compression", "REWARM_COMPRESSION_LEVEL", "step", HIT, env={"REWARM_COMPRESSION_LEVEL": "9"}),
)

_TOOLCHAIN = (
    Row("compiler elsewhere", "jaxlib lies in another directory", "step", HIT, site="linked"),
    Row(
        "compiler rebuilt",
        "one library of jaxlib has another content and the same version",
        "step",
        MISS,
        ("toolchain",),
        site="rebuilt",
        item="jaxlib/{library}",
        before="{jaxlib} sha256 ",
        after="{jaxlib} sha256 ",
    ),
)

_DIRECTORY = (
    Row("never seen", "a program that the directory has not seen", "host", MISS, of="step", finding="new"),
    Row("entry removed", "the entry's file is gone", "step", MISS, to_entry="remove", finding="removed"),
    Row(
        "entry damaged",
        "one byte of the entry's file is another",
        "step",
        MISS,
        to_entry="damage",
        finding="quarantined",
    ),
    Row(
        "not stored",
        "nothing; the run before had a threshold",
        "step over a threshold",
        MISS,
        env={"REWARM_MIN_COMPILE_SECONDS": None},
        finding="not stored",
        says="min_compile_seconds",
    ),
)

SECTIONS: Mapping[str, tuple[Row, ...]] = {
    "Names and places": _NAMES_AND_PLACES,
    "The program": _PROGRAM,
    "Devices, shardings, the target": _DEVICES,
    "Python that runs while a program compiles, or while it runs": _CALLBACKS,
    "Options": _OPTIONS,
    "Files that options name": _INPUTS,
    "The salt": _SALT,
    "The toolchain": _TOOLCHAIN,
    "The directory": _DIRECTORY,
}

ROWS: tuple[Row, ...] = tuple(row for rows in SECTIONS.values() for row in rows)
