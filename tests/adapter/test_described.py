"""The key of a program for a described CPU is the one that the attached CPU has, and so is what is compiled."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import described_programs
import jobs
import pytest

from conftest import Run, clean_environment, execute
from cuda_compilers import jax_version
from rewarm import targets

pytestmark = pytest.mark.contract

OLD = tuple(int(part) for part in jax_version().split(".")[:2]) < (0, 11)
cpus = pytest.mark.skipif(OLD, reason="JAX 0.9 and 0.10 describe no CPUs")
THREADS = 3
PROGRAM = Path(described_programs.__file__)


def child(folder: Path, *arguments: str, **env: str) -> Run:
    """A fresh process with a cache directory of its own, in which a program is divided among THREADS."""
    command = [sys.executable, *arguments]
    names = {"REWARM_DIR": str(folder / "cache"), "NPROC": str(THREADS), **env}
    return execute(command, env=clean_environment(**names), cwd=folder)


def told(folder: Path, *arguments: str, **env: str) -> Any:
    done = child(folder, str(PROGRAM), *arguments, **env)
    assert done.code == 0, done.err[-3000:]
    return done.json


def attached(folder: Path, devices: int) -> dict[str, Any]:
    flags = f"--xla_force_host_platform_device_count={devices}"
    found: dict[str, Any] = told(folder, described_programs.ATTACHED, "compile", XLA_FLAGS=flags)
    return found


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """For each topology, what one process that has described devices alone says, and compiles."""
    wanted = [["host", topology] for topology in ("1", "2", "8", "2x2")]
    found: dict[str, Any] = told(tmp_path_factory.mktemp("described"), json.dumps(wanted), "compile")
    return found


@cpus
@pytest.mark.parametrize("devices", [1, 2, 8])
def test_a_described_host_is_the_attached_one(described: dict[str, Any], devices: int, tmp_path: Path) -> None:
    of_host = dict(described[str(devices)])
    listed = of_host.pop("devices")
    assert [one[:2] for one in listed] == [[number, 0] for number in range(devices)]
    assert of_host == attached(tmp_path, devices)
    assert of_host["alone"]["target"]["threads"] == max(THREADS, devices)


JOB = """
    sys.path.insert(0, os.environ["HELPERS"])
    import described_programs
    rewarm.disable()
    mine = jax.local_devices()
    spmd = described_programs.answers(devices, compile_=True, only="summed")
    say(spmd=spmd, own=described_programs.answers(mine, compile_=True, only="alone"))
"""


@cpus
def test_one_process_has_the_keys_of_both_ranks_of_a_job(described: dict[str, Any], tmp_path: Path) -> None:
    flags = "--xla_force_host_platform_device_count=2"
    environment = {"NPROC": str(THREADS), "XLA_FLAGS": flags, "HELPERS": str(PROGRAM.parent)}
    ranks = jobs.run(tmp_path, JOB, 2, jobs.in_its_own(tmp_path / "cache", **environment))
    of_job = described["2x2"]
    assert [one[:2] for one in of_job["devices"]] == [[0, 0], [1, 0], [2048, 1], [2049, 1]]
    for rank in ranks:
        assert rank["spmd"] == {"summed": of_job["summed"]}
        assert rank["own"] == {"alone": of_job["alone"]}


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Other CPUs than this process's, described where NPROC is 1."""
    wanted = [["host", "1"], ["host:7", "2"], ["host:8", "4"], ["x86-64-v3", "1x1x1"]]
    found: dict[str, Any] = told(tmp_path_factory.mktemp("others"), json.dumps(wanted), "compile", NPROC="1")
    return found


@cpus
def test_the_number_of_threads_is_in_what_is_compiled(described: dict[str, Any], others: dict[str, Any]) -> None:
    """JAX's own compile for described devices goes by the affinity, whatever NPROC says."""
    assert [others[one]["alone"]["target"]["threads"] for one in ("1", "2", "4")] == [1, 7, 8]
    assert others["4"]["alone"]["key"] == described["8"]["alone"]["key"], "8 threads, whatever the number of devices"
    assert others["4"]["alone"]["code"] == described["8"]["alone"]["code"]
    assert len({others[one]["alone"]["key"] for one in ("1", "2", "4")}) == 3
    assert len({one["alone"]["code"] for one in (described["1"], others["1"], others["4"])}) == 3


@cpus
def test_another_cpu_is_compiled_for_as_it_is(others: dict[str, Any]) -> None:
    level = targets.named("x86-64-v3").processor
    assert level is not None
    found = others["1x1x1"]["alone"]
    assert found["features"] == sorted(level.present)
    assert found["target"]["features"].split(",") == sorted(level.present)
    assert found["key"] != others["1"]["alone"]["key"]


SAYS = """
import json, sys
from rewarm import targets
from rewarm.jax_adapter import described

target = targets.named(sys.argv[1])
obstacle = described.obstacle(target)
try:
    described.devices(target, target.topology(sys.argv[2]))
except described.DescribedError as wrong:
    print(json.dumps([obstacle, str(wrong)]))
"""


def test_why_devices_cannot_be_described_is_said(tmp_path: Path) -> None:
    if OLD:
        obstacle, error = child(tmp_path, "-c", SAYS, "host", "1").json
        assert f"JAX {jax_version()} cannot describe CPUs (0.11 and later can)" in obstacle
        assert error == f"host: {obstacle}"
        return
    obstacle, error = child(tmp_path, "-c", SAYS, "host:2", "1x2x1").json
    assert obstacle is None
    assert f"divided among 2 threads, and this process has {THREADS}: start it with NPROC=2" in error


@pytest.mark.parametrize(
    ("name", "package", "install"),
    [
        ("h200", "jax_plugins", "pip install 'rewarm[gpu-aot]' 'jax=="),
        ("v5e", "libtpu", "pip install 'rewarm[tpu-aot]' 'jax=="),
    ],
)
def test_what_to_install_is_said(name: str, package: str, install: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    obstacle, error = child(tmp_path, "-c", SAYS, name, "1x1x4").json
    assert install in obstacle
    assert obstacle in error


CAPTURE = """
import sys
from rewarm import targets
from rewarm.jax_adapter import described

targets.write(described.capture("captured", "cpu"), sys.argv[1])
"""


def test_a_captured_host_has_the_keys_of_the_attached_one(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "captured.json"
    done = child(tmp_path, "-c", CAPTURE, str(path))
    assert done.code == 0, done.err[-3000:]
    found = targets.named(path)
    assert (found.platform, found.threads, found.topology().devices) == ("cpu", THREADS, 1)
    assert found.reported is not None
    assert found.reported.versions["jax"] == jax_version()
    secret = {str(Path.home()), str(tmp_path), sys.prefix}
    assert not [word for word in secret if word in path.read_text()]
    if OLD:
        return
    described = request.getfixturevalue("described")
    of_file = told(tmp_path, json.dumps([[str(path), "1"]]), "compile", NPROC="1")
    assert of_file["1"] == described["1"]


COMPUTES = """
import json
import jax, jax.numpy as jnp, numpy as np
from rewarm import targets
from rewarm.jax_adapter import described

target = targets.named("host")
[device] = described.devices(target, target.topology("1"))
here = jax.sharding.SingleDeviceSharding(device)
ways = {
    "eager": lambda: float(jnp.arange(3.0).sum()),
    "asarray": lambda: jnp.asarray(np.ones(3)),
    "put": lambda: jax.device_put(np.ones(3), device),
    "copied": lambda: jax.device_put(jax.jit(lambda: np.ones(3), device=jax.devices()[0])(), here),
    "compiled": lambda: jax.jit(jnp.sin).lower(jax.ShapeDtypeStruct((3,), np.float32, sharding=here)).compile(),
    "kind": lambda: here.with_memory_kind("nowhere"),
}
told = {}
for name, way in ways.items():
    try:
        with jax.default_device(device):
            way()
    except Exception as wrong:
        told[name] = type(wrong).__name__
print(json.dumps([told, here.memory_kind, isinstance(device, jax.Device), device == here._device]))
"""


@cpus
def test_nothing_is_computed_on_a_described_device_and_nothing_ends_the_process(tmp_path: Path) -> None:
    done = child(tmp_path, "-c", COMPUTES)
    assert done.code == 0, done.err[-3000:]
    told, memory, is_device, is_same = done.json
    assert set(told) == {"eager", "asarray", "put", "copied", "compiled", "kind"}
    assert (memory, is_device, is_same) == ("device", True, True)
