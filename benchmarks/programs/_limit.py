"""The bare limit of a start: import JAX, load a program's executables in parallel, and run each of them once.

    python _limit.py DIRECTORY [MODULE ...]

DIRECTORY is a cache directory of rewarm that starts of one program have filled. What they loaded is read and loaded in
threads, as soon as there is a client, and run once on zeros in its order. Nothing of the program itself runs: no
tracing, no checks, no steps beyond the first; and no imports of its own, but for the modules that are named, which are
imported while executables are loaded.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax._src.lib import xla_client

from rewarm.envelope import open_entry
from rewarm.identity.program.arguments import of_plain
from rewarm.jax_adapter import seam
from rewarm.jax_adapter.recorded import _TYPES
from rewarm.restart import loads
from rewarm.store import LocalStore

# An executable may refuse zeros; a limit that leaves out more than a tenth of them would be too low.
_MOST = 0.9


def main() -> None:
    """Load, run, and say how many executables that were."""
    root = Path(sys.argv[1])
    store, client = LocalStore(root), jax.devices()[0].client
    newest = max((root / loads.FOLDER).glob("*.json"), key=lambda path: path.stat().st_mtime)
    record = loads._record(newest.read_bytes())
    devices = xla_client.DeviceList(tuple(client.local_devices()[:1]))

    def load(one: Any) -> tuple[Any, list[Any]]:
        entry = open_entry(store.get(one.key), one.key)
        options = xla_client.CompileOptions.ParseFromString(one.way.options)
        executable = client.deserialize_executable(entry.section("executable"), devices, options)
        rows = (
            json.loads(entry.section("arguments")) if any(s.name == "arguments" for s in entry.header.sections) else []
        )
        return executable, [of_plain(row) for row in rows]

    seam.initialise_lapack()  # else the first call of it ends the process
    ran = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        loading = pool.map(load, record.loads)
        for module in sys.argv[2:]:
            importlib.import_module(module)
        for executable, arguments in loading:
            given = [jax.device_put(np.zeros(one.shape, _TYPES[one.kind])) for one in arguments]
            try:
                results = executable.execute_sharded(given)
                jax.block_until_ready(results.disassemble_into_single_device_arrays())
                ran += 1
            except Exception as error:  # noqa: BLE001 - some take what zeros are not
                print(f"not run: {error}", file=sys.stderr)
    print(f"RESULT {ran} of {len(record.loads)} ran")
    if ran < len(record.loads) * _MOST:
        sys.exit("the limit is none: it must run what the program ran")


if __name__ == "__main__":
    main()
