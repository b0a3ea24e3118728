"""Each compile for a GPU gets the managed directory, which decides; what the user says wins; what harms is caught.

XLA's real compiler runs, for a described GPU, each time in a fresh process.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cuda_compilers import Compiler, wanted
from rewarm.autotune import lock, lock_file, targets
from rewarm.autotune.formats import Family, Format, TuningEntry, device_of_target, read, write
from rewarm.autotune.formats.builds import build_of
from rewarm.autotune.locating import places
from rewarm.autotune.places import Place
from shared_remotes import Machine

SAMPLES = Path(__file__).parents[1] / "autotune" / "samples"
TARGETS = SAMPLES / "targets"

PROGRAM = """
import json, logging, os, re, sys
if "WITHOUT_PROTOBUF" in os.environ:
    sys.modules["google.protobuf"] = None
logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
for name in ("jax", "jax._src"):
    logging.getLogger(name).setLevel(logging.CRITICAL)
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from rewarm.jax_adapter import tuning

target, options = sys.argv[1], json.loads(sys.argv[2])
described = topologies.get_topology_desc(platform="cuda", target_config=open(target).read(), topology="1x1x1")
everywhere = NamedSharding(Mesh(np.array(described.devices), ("d",)), PartitionSpec())
square = jax.ShapeDtypeStruct((1024, 1024), jnp.bfloat16, sharding=everywhere)
answer = {"error": "", "kind": "", "sizes": []}
try:
    text = jax.jit(lambda p, q: jnp.tanh(p @ q)).lower(square, square).compile(compiler_options=options).as_text()
    answer["sizes"] = sorted(set(re.findall(r'"sizes":\\[([^\\]]*)\\]', text)))
except Exception as wrong:
    answer |= {"error": str(wrong), "kind": type(wrong).__name__}
print(json.dumps(answer | {"records": [record for _, record in tuning.recorded()]}))
"""
REQUIRE = {"xla_gpu_require_complete_aot_autotune_results": True}
TILES = '"64","64"'

# What JAX 0.9 makes of the program: it leaves the rest out of the fusion.
DOT_ALONE = """{
  tmp_0 = bf16[1024,1024]{1,0} parameter(0)
  tmp_1 = bf16[1024,1024]{1,0} parameter(1)
  ROOT tmp_2 = bf16[1024,1024]{1,0} dot(bf16[1024,1024]{1,0} tmp_0, bf16[1024,1024]{1,0} tmp_1), \
lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""


class Answer(NamedTuple):
    """What came of one compile: tile sizes, the error and its class, and what a header would say of the tuning."""

    sizes: list[str]
    error: str
    kind: str
    records: list[dict[str, Any]]
    log: str

    @property
    def tuned(self) -> bool:
        """Whether the result decided: without one the tiles are others."""
        return TILES in self.sizes

    @property
    def state(self) -> str:
        [record] = self.records
        return str(record["state"])


class Bench:
    """A machine with the compiler."""

    def __init__(self, folder: Path, compiler: Compiler) -> None:
        self.folder = folder
        self.compiler = compiler
        build = build_of(compiler.jax)
        assert build is not None, f"JAX {compiler.jax} is not known"
        self.build = build

    @property
    def target(self) -> Path:
        return TARGETS / ("h200_reduced.txtpb" if self.build.minor < (0, 10) else "h200.txtpb")

    def compile(self, machine: Machine, options: dict[str, Any] | None = None, **extra: str) -> Answer:
        remotes = [one for one in extra.pop("remotes", "").split() if one]
        env = machine.env(*remotes, **extra)
        run = self.compiler.run(PROGRAM, self.folder, str(self.target), json.dumps(options or {}), **env)
        assert run.code == 0, run.err[-4000:]
        told = run.json
        return Answer(told["sizes"], told["error"], told["kind"], told["records"], run.err)

    def results(self, program: str = "dot_tanh_64x64") -> tuple[TuningEntry, ...]:
        """Results that this build takes by default."""
        family = self.build.default
        jax = "jax_0_12_0_1" if family is Family.NEW or self.build.minor >= (0, 11) else "jax_0_10_2"
        found = read(SAMPLES / jax / program / f"{family.value}_load.pb").entries
        if family is Family.NEW:  # of another build's Triton they would not be found
            versions = (replace(one.versions, backend=self.build.backend_versions[one.backend]) for one in found)
            return tuple(replace(one, versions=its) for one, its in zip(found, versions, strict=True))
        version = replace(found[0].versions, entry=self.build.entry_version)
        found = tuple(replace(entry, versions=version) for entry in found)
        if self.build.minor >= (0, 10):
            return found
        if program == "dot_tanh_64x64":
            return tuple(replace(entry, fusion=DOT_ALONE) for entry in found)
        # The other program's, which this build would not look up as they are: one for a product of other sizes.
        of_triton = next(entry for entry in found if entry.backend == "TRITON")
        return (replace(of_triton, fusion=DOT_ALONE.replace("1024", "512")),)

    def file(self, folder: Path) -> Path:
        """The results as a file of XLA's."""
        new = self.build.default is Family.NEW
        write(self.results(), folder / "results.pb", Format.NEW_BINARY if new else Format.LEGACY_BINARY)
        return folder / "results.pb"

    def place(self, machine: Machine) -> Place:
        """The one place of a machine that compiled something."""
        [place] = places(machine.cache)
        return place

    def tuned(self, name: str) -> Machine:
        """A machine whose place has the results."""
        machine = Machine.named(name, self.folder)
        self.compile(machine)
        assert self.place(machine).add(self.results()) == len(self.results())
        return machine


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"), wanted())


@pytest.fixture(scope="module")
def tuned(bench: Bench) -> Machine:
    return bench.tuned("tuned")


def test_a_compile_gets_a_directory_of_its_build_and_device(bench: Bench, tmp_path: Path) -> None:
    machine = Machine.named("one", tmp_path)
    answer = bench.compile(machine)
    place = bench.place(machine)
    assert place.build.startswith(f"jax-{bench.compiler.jax}-")
    known = device_of_target((TARGETS / "h200.txtpb").read_text())
    if place.device:
        assert (place.device, place.fingerprint) == (known.text, known.fingerprint)
    else:
        assert bench.build.minor < (0, 11)  # which do not say it
    assert oct(place.directory.stat().st_mode & 0o777) == "0o700"
    assert not answer.tuned
    assert answer.state == "unknown"
    refused = bench.compile(machine, REQUIRE)
    assert "NOT_FOUND" in refused.error or "No cached config" in refused.error


@pytest.mark.contract
def test_a_result_in_the_place_decides(bench: Bench, tuned: Machine) -> None:
    answer = bench.compile(tuned, REQUIRE)
    assert (answer.tuned, answer.error, answer.state) == (True, "", "complete")
    assert answer.records[0]["entries"] == len(bench.results())
    assert answer.records[0]["set"] == bench.place(tuned).prepare().digest


def test_a_second_host_with_an_empty_disk_has_it_from_the_remote(bench: Bench, tmp_path: Path) -> None:
    remote = (tmp_path / "remote").as_uri()
    (tmp_path / "remote").mkdir()
    first = Machine.named("first", tmp_path)
    bench.compile(first, remotes=remote)
    bench.place(first).add(bench.results())
    assert bench.compile(first, REQUIRE, remotes=remote).tuned
    second = Machine.named("second", tmp_path, first)
    answer = bench.compile(second, REQUIRE, remotes=remote)
    assert (answer.tuned, answer.state) == (True, "complete")
    stranger = Machine.named("stranger", tmp_path)
    assert bench.compile(stranger, REQUIRE, remotes=remote).error
    assert bench.place(stranger).entries().entries == ()


def test_what_harms_is_moved_aside_before_xla_sees_it(bench: Bench, tmp_path: Path) -> None:
    """XLA falls back in silence on a torn file, and ends the compile on three warps."""
    bench_machine = Bench(tmp_path, bench.compiler).tuned("one")
    place = bench.place(bench_machine)
    [path] = [one for one in place.directory.rglob("*") if one.suffix in (".pb", ".textproto")]
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    answer = bench.compile(bench_machine)
    assert answer.error == ""
    assert not answer.tuned
    assert f"rewarm tuning file {path} was moved to" in answer.log.replace("rewarm: ", "")
    assert not path.exists()
    path.write_bytes(whole)
    assert bench.compile(bench_machine, REQUIRE).tuned


def test_what_was_imported_decides(bench: Bench, tmp_path: Path) -> None:
    """Also where JAX does not say which device it is, as before 0.11."""
    machine = Machine.named("one", tmp_path)
    file = bench.file(tmp_path)
    command = "import sys; from rewarm.cli import main; sys.argv[0] = 'rewarm'; main()"
    options = ("autotune", "import", str(file), "--json")
    done = bench.compiler.run(command, tmp_path, *options, **machine.env())
    assert done.code == 0, done.err
    [taken] = json.loads(done.out)["taken"]
    assert taken["build"].startswith(f"jax-{bench.compiler.jax}-")
    assert (taken["given"], taken["new"]) == (1, 1)
    assert bench.compile(machine, REQUIRE).tuned


def test_a_place_that_cannot_be_made_is_one_line_and_no_directory(bench: Bench, tmp_path: Path) -> None:
    machine = Machine.named("one", tmp_path)
    machine.cache.mkdir(parents=True, mode=0o700)
    (machine.cache / "autotune").write_text("mine")
    answer = bench.compile(machine)
    assert answer.error == ""
    assert answer.log.count("XLA gets no directory of tuning results") == 1
    assert (machine.cache / "autotune").read_text() == "mine"


def test_without_protobuf_nothing_can_be_checked_so_xla_gets_nothing(bench: Bench, tuned: Machine) -> None:
    answer = bench.compile(tuned, WITHOUT_PROTOBUF="1")
    assert (answer.error, answer.tuned) == ("", False)
    [line] = [line for line in answer.log.splitlines() if "XLA gets no directory" in line]
    assert 'pip install "rewarm[autotune]"' in line


# ---------------------------------------------------------------------------------------------------------------
# What the user says


def test_the_users_directory_wins(bench: Bench, tuned: Machine, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    answer = bench.compile(tuned, {"xla_gpu_per_fusion_autotune_cache_dir": str(tmp_path / "mine")})
    assert not answer.tuned
    assert answer.state == "none"
    assert answer.log.count(f"XLA uses the tuning results that its options name ({tmp_path / 'mine'})") == 1


def test_the_users_file_wins_also_over_the_directory_that_jax_adds(bench: Bench, tmp_path: Path) -> None:
    file = bench.file(tmp_path)
    answer = bench.compile(
        Machine.named("one", tmp_path),
        REQUIRE,
        XLA_FLAGS=f"--xla_gpu_load_autotune_results_from={file}",
        JAX_COMPILATION_CACHE_DIR=str(tmp_path / "jax"),
    )
    assert (answer.tuned, answer.state) == (True, "none")
    assert not (tmp_path / "jax" / "xla_gpu_per_fusion_autotune_cache_dir").exists()


@pytest.mark.parametrize(("said", "directory", "kernels"), [("none", 0, 0), ("all", 1, 1)])
def test_jaxs_option_keeps_its_meaning(
    said: str, directory: int, kernels: int, bench: Bench, tuned: Machine, tmp_path: Path
) -> None:
    options = {"JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": said, "JAX_COMPILATION_CACHE_DIR": str(tmp_path)}
    answer = bench.compile(tuned, **options)
    assert answer.tuned is bool(directory)
    if bench.build.minor >= (0, 10):  # 0.9 writes no kernels without a device
        assert bench.place(tuned).kernels.exists() is bool(kernels)
    assert not (tmp_path / "xla_gpu_kernel_cache_file").exists()


@pytest.mark.campaign
def test_the_kernel_cache_alone(bench: Bench, tuned: Machine) -> None:
    answer = bench.compile(tuned, JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES="xla_gpu_kernel_cache_file")
    assert not answer.tuned


def test_rewarm_can_be_told_to_stay_away(bench: Bench, tmp_path: Path) -> None:
    machine = Machine.named("one", tmp_path)
    assert bench.compile(machine, REWARM_AUTOTUNE="0").records == []
    assert places(machine.cache) == []


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\x0a\x03abc", id="another message"),
        pytest.param(b"", id="empty", marks=pytest.mark.campaign),
        pytest.param(b"junk", id="junk", marks=pytest.mark.campaign),
        pytest.param(b"\x0a\x00", id="an empty kernel", marks=pytest.mark.campaign),
    ],
)
def test_a_corrupt_kernel_cache_never_fails_a_compile(content: bytes, bench: Bench, tmp_path: Path) -> None:
    machine = Machine.named("one", tmp_path)
    bench.compile(machine)
    place = bench.place(machine)
    place.kernels.write_bytes(content)
    answer = bench.compile(machine, JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES="all")
    assert answer.error == ""
    if bench.build.minor >= (0, 10):
        assert [path.read_bytes() for path in (place.root / "aside").iterdir()] == [content]
        assert answer.log.count("kernels was moved to") == 1


@pytest.mark.parametrize("way", ["flags", "options"])
def test_the_formats_that_are_asked_for_have_a_place_of_their_own(way: str, bench: Bench, tuned: Machine) -> None:
    if bench.build.minor < (0, 11):
        pytest.skip("this JAX reads one kind of formats")
    said = "xla_gpu_use_new_autotune_cache_format"
    options, extra = ({said: False}, {}) if way == "options" else ({}, {"XLA_FLAGS": f"--{said}=false"})
    untuned = bench.compile(tuned, options, **extra)
    assert (untuned.error, untuned.tuned) == ("", False)
    [legacy] = [place for place in places(tuned.cache) if place.family is Family.LEGACY]
    if not legacy.entries().entries:
        legacy.add(read(SAMPLES / "jax_0_12_0_1" / "dot_tanh_64x64" / "legacy_load.pb").entries)
    answer = bench.compile(tuned, REQUIRE | options, **extra)
    assert (answer.tuned, answer.error, answer.state) == (True, "", "complete")
    said_so = {said: True} if way == "options" else {}
    assert bench.compile(tuned, REQUIRE | said_so).tuned  # and the other one is as it was
    shutil.rmtree(legacy.root)


def test_one_who_hangs_with_the_lock_costs_five_seconds_and_a_line(bench: Bench, tmp_path: Path) -> None:
    remote = (tmp_path / "remote").as_uri()
    (tmp_path / "remote").mkdir()
    first = Machine.named("first", tmp_path)
    bench.compile(first, remotes=remote)
    bench.place(first).add(bench.results())
    assert bench.compile(first, REQUIRE, remotes=remote).tuned
    second = Machine.named("second", tmp_path, first)
    bench.compile(second)  # its place is there, and empty
    with (bench.place(second).root / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        since = time.monotonic()
        answer = bench.compile(second, remotes=remote)
        took = time.monotonic() - since
    assert (answer.error, answer.tuned) == ("", False)
    assert answer.log.count("another process has held it") == 1
    assert 5 <= took < 25
    assert bench.compile(second, REQUIRE, remotes=remote).tuned


# ---------------------------------------------------------------------------------------------------------------
# A lock in force


def locked(bench: Bench, folder: Path, program: str) -> str:
    device = device_of_target((TARGETS / "h200.txtpb").read_text())
    path = folder / f"{program}.lock"
    path.write_text(lock_file.written(lock.pinned(bench.results(program), device, bench.compiler.jax)))
    return str(path)


def test_a_lock_decides_and_leaves_the_place_alone(bench: Bench, tmp_path: Path) -> None:
    machine = Machine.named("one", tmp_path)
    path = locked(bench, tmp_path, "dot_tanh_64x64")
    answer = bench.compile(machine, REWARM_AUTOTUNE_LOCK=path)
    assert (answer.tuned, answer.error, answer.state) == (True, "", "complete")
    assert answer.records[0]["lock"] == lock_file.read(Path(path)).digest
    [file] = (bench.place(machine).root / "locks").iterdir()
    assert oct(file.stat().st_mode & 0o777) == "0o400"


def test_a_fusion_outside_the_lock_is_an_error_that_names_it(bench: Bench, tmp_path: Path) -> None:
    path = locked(bench, tmp_path, "mlp_128x128")
    answer = bench.compile(Machine.named("one", tmp_path), REWARM_AUTOTUNE_LOCK=path)
    assert answer.kind == "OutsideLockError"
    assert answer.error.startswith(f"{path} does not pin a fusion of this program")
    assert ("or is for another device" in answer.error) is (bench.build.minor < (0, 11))  # JAX does not tell
    assert ": %" in answer.error
    assert "fusion(" in answer.error
    assert "kind=kCustom" in answer.error


CHANGES = """
import json, sys
import jax, jax.numpy as jnp, rewarm
from jax.experimental import topologies

described = topologies.get_topology_desc(platform="cuda", target_config=open(sys.argv[1]).read(), topology="1x1x1")
here = jax.sharding.SingleDeviceSharding(described.devices[0])
square = jax.ShapeDtypeStruct((1024, 1024), jnp.bfloat16, sharding=here)
told = []
for lock in sys.argv[3:]:
    rewarm.enable(sys.argv[2], autotune_lock=lock)
    try:
        jax.jit(lambda p, q: jnp.tanh(p @ q)).lower(square, square).compile()
        told.append("")
    except Exception as wrong:
        told.append(f"{type(wrong).__name__}: {wrong}")
print(json.dumps(told))
"""


@pytest.mark.parametrize(
    ("turns", "outcomes"),
    [
        (["dot", "dot", "mlp"], ["", "", "has compiled under another lock"]),
        (["none", "dot"], ["", "has compiled for a GPU without it"]),
        (["dot", "none"], ["", ""]),
    ],
)
def test_a_lock_holds_from_the_first_compile_of_a_process_on_or_is_an_error(
    turns: list[str], outcomes: list[str], bench: Bench, tmp_path: Path
) -> None:
    """XLA keeps what it was given: another lock would not be what decides, and would be in the key."""
    paths = {"none": "none"}
    for name, program in (("dot", "dot_tanh_64x64"), ("mlp", "mlp_128x128")):
        (tmp_path / name).mkdir()
        paths[name] = locked(bench, tmp_path / name, program)
    arguments = [str(bench.target), str(tmp_path / "cache"), *(paths[turn] for turn in turns)]
    run = bench.compiler.run(CHANGES, tmp_path, *arguments)
    assert run.code == 0, run.err
    for said, words in zip(run.json, outcomes, strict=True):
        assert said.startswith("OutsideLockError") and words in said if words else said == ""


def test_or_a_warning_by_choice(bench: Bench, tmp_path: Path) -> None:
    path = locked(bench, tmp_path, "mlp_128x128")
    options = {"REWARM_AUTOTUNE_LOCK": path, "REWARM_AUTOTUNE_LOCK_POLICY": "warn"}
    answer = bench.compile(Machine.named("one", tmp_path), **options)
    assert (answer.error, answer.state) == ("", "incomplete")
    assert answer.log.count("does not pin a fusion of this program") == 1


def test_deterministic_operations_may_keep_xla_from_what_is_pinned(bench: Bench, tmp_path: Path) -> None:
    """The lock has the fusion, and XLA does not take its result: the error says what stands in the way."""
    path = locked(bench, tmp_path, "dot_tanh_64x64")
    machine, deterministic = Machine.named("one", tmp_path), {"xla_gpu_deterministic_ops": True}
    answer = bench.compile(machine, deterministic, REWARM_AUTOTUNE_LOCK=path)
    if bench.build.minor < (0, 11):
        assert (answer.error, answer.tuned) == ("", True)
        return
    assert answer.kind == "OutsideLockError"
    assert "or xla_gpu_deterministic_ops keeps XLA from taking the result: %" in answer.error


def test_a_lock_decides_the_formats_for_a_program_that_asks_for_others(bench: Bench, tmp_path: Path) -> None:
    """`lock --check` says so, too (`test_tuning_coverage`)."""
    if len({one.family for one in bench.build.formats}) == 1:
        pytest.skip("there is one generation of formats")
    options = {"xla_gpu_use_new_autotune_cache_format": False}
    path = locked(bench, tmp_path, "dot_tanh_64x64")
    answer = bench.compile(Machine.named("one", tmp_path), options, REWARM_AUTOTUNE_LOCK=path)
    assert (answer.error, answer.tuned, answer.state) == ("", True, "complete")


@pytest.mark.parametrize("wrong", ["nothing there", "another device", "another name", "user's own file"])
def test_a_lock_that_cannot_be_used_is_one_clear_error(wrong: str, bench: Bench, tmp_path: Path) -> None:
    path, options = locked(bench, tmp_path, "dot_tanh_64x64"), dict[str, Any]()
    if wrong == "nothing there":
        Path(path).unlink()
    elif wrong == "another device":
        text = Path(path).read_text()
        Path(path).write_text(text.replace("Cores: 132", "Cores: 131"))
    elif wrong == "another name":  # the H100 has the same cores; before JAX 0.11 its name alone tells
        h200, h100 = targets.device("h200"), targets.device("h100")
        text = Path(path).read_text().replace(h200.text, h100.text)
        Path(path).write_text(text.replace(f"name {h200.name}", f"name {h100.name}"))
    else:
        options = {"xla_gpu_load_autotune_results_from": str(SAMPLES / "jax_0_12_0_1/dot_tanh_64x64/new_load.pb")}
    answer = bench.compile(Machine.named("one", tmp_path), options, REWARM_AUTOTUNE_LOCK=path)
    assert answer.kind in ("SettingError", "TuningFormatError")
    assert path in answer.error
    assert ("pins tuning for" in answer.error) is wrong.startswith("another")
