"""Makes the golden digests of keys, of the JAX that runs it, and adds them to `keys.json`.

What is pinned is all of a key that does not depend on the machine: the digest of each component but `toolchain` and
`target`, and the key over these with made-up digests for those two.

Rerun it for a new version of JAX, or after a deliberate bump of `KEY_SCHEMA`. Without a bump it refuses to change
what is there: an entry that was stored once must be found again by the same key, or by a schema be out of reach.

    python tests/golden/make_keys.py
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "keys.json"
MADE_UP = ("toolchain", "target")

# One for each way in which a program or its options reach the key.
_FOREIGN = ("REWARM", "JAX_", "XLA_", "TF_CPP", "PYTHON", "LIBTPU")
_ENVIRONMENT = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}


def _abstract(*shape: int) -> Any:
    import jax
    import numpy as np

    return jax.ShapeDtypeStruct(shape, np.float32)


def simple() -> Any:
    import jax
    import jax.numpy as jnp

    return jax.jit(lambda x: jnp.tanh(x @ x)).lower(_abstract(4, 4))


def scan() -> Any:
    import jax

    def body(carry: Any, _: Any) -> Any:
        return carry * 1.5, carry.sum()

    return jax.jit(lambda x: jax.lax.scan(body, x, None, length=7)).lower(_abstract(4))


def donation() -> Any:
    import jax

    return jax.jit(lambda x, y: (x + y, y * 2), donate_argnums=0).lower(_abstract(4), _abstract(4))


def sharding() -> Any:
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()[:2]), ("d",))
    split, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("d",), ()))
    jitted = jax.jit(lambda x: (x @ x.T).sum(0), in_shardings=split, out_shardings=whole)
    return jitted.lower(_abstract(4, 4))


def io_callback() -> Any:
    import jax
    from jax.experimental import io_callback

    return jax.jit(lambda x: io_callback(lambda value: value, _abstract(4), x)).lower(_abstract(4))


def x64() -> Any:
    import jax
    import jax.numpy as jnp
    import numpy as np

    jax.config.update("jax_enable_x64", True)
    try:
        return jax.jit(lambda x: jnp.sin(x) + 1).lower(jax.ShapeDtypeStruct((4,), np.float64))
    finally:
        jax.config.update("jax_enable_x64", False)


def compiler_options() -> Any:
    return simple()


def private_helpers() -> Any:
    import jax
    import jax.numpy as jnp

    def helper(x: Any, y: Any) -> Any:
        return jnp.clip(jnp.where(x > y, x, y), 0, 1)

    def main(x: Any) -> Any:
        return jax.jit(helper)(x, jnp.sort(x)) + jax.random.normal(jax.random.key(0), (4,))

    return jax.jit(main).lower(_abstract(4))


PROGRAMS: tuple[Callable[[], Any], ...] = (
    simple,
    scan,
    donation,
    sharding,
    io_callback,
    x64,
    compiler_options,
    private_helpers,
)
OPTIONS: dict[str, dict[str, Any]] = {
    "compiler_options": {"xla_cpu_enable_fast_math": True, "xla_dump_max_hlo_modules": 3}
}


def versions() -> str:
    """The name of what decides the digests: JAX makes the program and jaxlib the options."""
    import jax
    import jaxlib

    return f"jax {jax.__version__}, jaxlib {jaxlib.__version__}"


def digests() -> dict[str, dict[str, str]]:
    """Program to component to the start of its digest, and the key; of this process."""
    from rewarm.identity.components import derive_key
    from rewarm.jax_adapter import activation

    found = {}
    for make in PROGRAMS:
        lowered, name = make(), make.__name__
        with activation.capturing("rewarm_key_probe") as capture:
            lowered.compile(compiler_options={**OPTIONS.get(name, {}), "rewarm_key_probe": True})
        request = capture.request
        assert request is not None, capture.left_to_jax
        assert request.components is not None, request.unkeyable
        rows = {row.name: row.digest for row in request.components.rows}
        rows |= {component: hashlib.sha256(component.encode()).hexdigest() for component in MADE_UP}
        told = {component: digest[:16] for component, digest in rows.items() if component not in MADE_UP}
        found[name] = {**told, "key": derive_key(rows.items())}
    return found


def observe(cwd: Path | None = None, script: Path = Path(__file__), **environment: str) -> dict[str, Any]:
    """`digests` of a fresh process that this shell's settings do not reach, with its versions and schema."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    command = [sys.executable, str(script), "--print"]
    env = {**kept, **_ENVIRONMENT, **environment}
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-4000:])
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def pinned() -> dict[str, Any]:
    """What is in the file: versions to schema and digests."""
    found = json.loads(FILE.read_text(encoding="ascii")) if FILE.exists() else {}
    assert isinstance(found, dict)
    return found


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Which component of which program is another one, in words."""
    rows = []
    for program in sorted({*before, *after}):
        one, other = before.get(program, {}), after.get(program, {})
        rows += [f"{program}: {name}" for name in sorted({*one, *other}) if one.get(name) != other.get(name)]
    return rows


def main() -> int:
    """Add or, after a bump, replace the digests of this version."""
    if "--print" in sys.argv:
        from rewarm.identity import KEY_SCHEMA

        print(json.dumps({"versions": versions(), "schema": KEY_SCHEMA, "programs": digests()}))
        return 0
    found, known = observe(), pinned()
    name = found.pop("versions")
    before = known.get(name)
    if before is not None and before["schema"] == found["schema"] and before != found:
        changed = "\n".join(differences(before["programs"], found["programs"]))
        print(f"keys of {name} changed under one schema; bump KEY_SCHEMA first:\n{changed}", file=sys.stderr)
        return 1
    FILE.write_text(json.dumps({**known, name: found}, indent=1, sort_keys=True) + "\n", encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())
