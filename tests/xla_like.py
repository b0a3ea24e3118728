"""What stands where XLA tunes, and results that the real compilers of all builds take.

`XLA_LIKE` is a program's source: it reads XLA_FLAGS, looks results up, and writes those that it lacks.

It decides no result: what it "tunes" is what real builds accepted. Its way of writing is XLA's: a temporary file in a
folder "tmp", then renamed; a results file is written whole.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import replace
from pathlib import Path

from rewarm.autotune import targets
from rewarm.autotune.formats import Family, Format, TuningEntry, Versions, build_of, convert, read

SAMPLES = Path(__file__).parent / "autotune" / "samples"

# What gives a run of pytest the plugin: nothing where it is installed, since pytest takes it once only.
PLUGIN = [] if importlib.metadata.entry_points(group="pytest11", name="rewarm") else ["-p", "rewarm.pytest_plugin"]


_SHAPE = "bf16[1024,1024]{1,0}"
_DOT = f"""{{
  tmp_0 = {_SHAPE} parameter(0)
  tmp_1 = {_SHAPE} parameter(1)
  ROOT tmp_2 = {_SHAPE} dot({_SHAPE} tmp_0, {_SHAPE} tmp_1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}"""


def dot_tanh(jax: str) -> tuple[TuningEntry, ...]:
    """The sample `tanh(p @ q)`, 64x64, as the directory of this JAX's build has it by default."""
    build = build_of(jax)
    assert build is not None
    legacy = read(SAMPLES / "jax_0_12_0_1" / "dot_tanh_64x64" / "legacy_load.textproto").entries
    of_build = [replace(entry, versions=Versions(entry=build.entry_version)) for entry in legacy]
    if build.minor < (0, 10):  # tanh is a fusion of its own there
        of_build = [replace(entry, fusion=_DOT) for entry in of_build]
    to = Format.NEW_DIRECTORY if build.default is Family.NEW else Format.LEGACY_DIRECTORY
    done = convert(of_build, to, build=build, device=targets.device("h200"))
    assert not done.findings, done.findings
    return done.entries


# Compiles that program for the H200, and prints how often a tile of 64x64 is in what came out.
COMPILES = """
import numpy as np, jax, jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from rewarm.autotune import targets

def compiled():
    text = targets.description("h200", jax.__version__)
    devices = topologies.get_topology_desc(platform="cuda", target_config=text, topology="1x1x1").devices
    sharding = NamedSharding(Mesh(np.array(devices), ("d",)), PartitionSpec())
    shape = jax.ShapeDtypeStruct((1024, 1024), jnp.bfloat16, sharding=sharding)
    lowered = jax.jit(lambda p, q: jnp.tanh(p @ q)).lower(shape, shape)
    return lowered.compile().as_text().count('"sizes":["64","64"]')

if __name__ == "__main__":
    print(compiled())
"""

XLA_LIKE = '''
import os
import secrets
from pathlib import Path

from rewarm.autotune import xla_flags
from rewarm.autotune.formats import Family, Format, fusion_path, read, serialised, write

KNOWN = {}


def compiled(samples):
    """Compile a program whose fusions are tuned as these files say; returns how many were tuned."""
    told = xla_flags.named(os.environ.get("XLA_FLAGS", ""))
    wanted = [entry for sample in samples for entry in read(Path(sample)).entries]
    return directory(Path(told.directory), wanted) if told.directory else file(told, wanted)


def directory(root, wanted):
    tuned = 0
    for entry in wanted:
        place = root / fusion_path(entry)
        if place.exists() and read(place).entries == (entry,):
            continue
        tuned += 1
        waiting = root / "tmp" / secrets.token_hex(8)
        waiting.parent.mkdir(exist_ok=True)
        waiting.write_bytes(serialised(entry))
        place.parent.mkdir(exist_ok=True)
        waiting.rename(place)
    return tuned


def file(told, wanted):
    if told.load and not KNOWN:
        KNOWN.update((entry.key, entry) for entry in read(Path(told.load)).entries)
    new = [entry for entry in wanted if entry.key not in KNOWN]
    KNOWN.update((entry.key, entry) for entry in new)
    if told.dump and KNOWN:
        path = Path(told.dump)
        is_new = next(iter(KNOWN.values())).family is Family.NEW
        write(KNOWN.values(), path, Format.NEW_BINARY if is_new else Format.LEGACY_BINARY)
    return len(new)
'''
