"""What of a device counts: the instruction set, not the machine; on GPU the topology; on TPU which devices, too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_encoder import field

from rewarm.identity import Machine, TargetFacts, canonical_target, component, machine_of_topology

TRIPLE = "x86_64-unknown-linux-gnu"
FEATURES = "+avx,+avx2,-avx512f,+fma,-sse4a"


def machine(features: str = FEATURES, *, triple: str = TRIPLE, cpu: str = "skylake") -> bytes:
    """A `TargetMachineOptionsProto`."""
    return field(1, triple) + field(2, cpu) + field(3, features)


def bare(target: bytes, *, devices: int = 1, process: int = 0) -> bytes:
    """A `CpuTopologyProto`, as JAX 0.9 gives it."""
    return b"".join(field(1, field(1, process) + field(2, number)) for number in range(devices)) + field(5, target)


def wrapped(target: bytes, *, devices: int = 1, process: int = 0) -> bytes:
    """The same inside the message that JAX 0.12 puts around it."""
    any_of_it = field(1, "type.googleapis.com/xla.CpuTopologyProto")
    any_of_it += field(2, bare(target, devices=devices, process=process))
    return field(1, 17910157233389077760 + process) + field(2, "cpu") + field(3, "cpu") + field(9, any_of_it)


def facts(platform: str = "cpu", **changes: Any) -> TargetFacts:
    defaults: dict[str, Any] = {
        "platform": platform,
        "platform_version": f"{platform} version 1",
        "device_kinds": (platform,),
        "assignment": ((0,),),
        "topology": bare(machine()),
        "fingerprint": None,
    }
    told = {**defaults, **changes}
    if platform == "cpu" and told["topology"] is not None:
        told.setdefault("machine", machine_of_topology(told["topology"]))
    return TargetFacts(**told)


def value_of(found: TargetFacts) -> str:
    """What goes into the key, by its text."""
    value = canonical_target(found)
    assert component("target", value).value == value, "it is plain JSON"
    return json.dumps(value, sort_keys=True)


def cpu(topology: bytes) -> str:
    return value_of(facts(topology=topology))


# ---------------------------------------------------------------------------------------------------------------
# CPU

both_forms = pytest.mark.parametrize("form", [bare, wrapped])
Form = Callable[..., bytes]


@both_forms
def test_the_instruction_set_is_read(form: Form) -> None:
    assert canonical_target(facts(topology=form(machine()))) == {
        "platform": "cpu",
        "shape": [1, 1],
        "triple": TRIPLE,
        "features": "avx,avx2,fma",
        "threads": 0,
    }
    more = facts(topology=form(machine()))._replace(threads=8)
    assert canonical_target(more)["threads"] == 8, "work is divided among them when the program is compiled"


@both_forms
def test_what_does_not_make_code_does_not_count(form: Form) -> None:
    expected = cpu(form(machine()))
    same = {
        "another processor": form(machine(cpu="znver4")),
        "tuning words": form(machine(FEATURES + ",+prefer-no-gather,+prefer-no-scatter,-prefer-256-bit")),
        "another order": form(machine("+fma,-sse4a,+avx2,+avx")),
        "absent features": form(machine(FEATURES + ",-tbm,-xop")),
        "more devices": form(machine(), devices=8),
        "another process": form(machine(), process=3),
    }
    assert {name: cpu(topology) for name, topology in same.items()} == dict.fromkeys(same, expected)
    assert value_of(facts(topology=form(machine()), platform_version="another", device_kinds=("EPYC",))) == expected
    assert value_of(facts(topology=form(machine()), assignment=((5,),))) == expected


@both_forms
def test_what_makes_code_counts(form: Form) -> None:
    others = [
        form(machine(FEATURES + ",+avx512bw")),
        form(machine("+avx,+fma")),
        form(machine("")),
        form(machine(FEATURES.replace("-avx512f", "+avx512f"))),
        form(machine(triple="aarch64-unknown-linux-gnu")),
    ]
    found = {cpu(topology) for topology in [form(machine()), *others]}
    assert len(found) == len(others) + 1


def test_both_forms_say_the_same() -> None:
    assert cpu(bare(machine())) == cpu(wrapped(machine()))


@pytest.mark.parametrize("assignment", [((0, 1),), ((0,), (1,)), ((0, 1), (2, 3))])
def test_the_shape_of_the_assignment_counts(assignment: tuple[tuple[int, ...], ...]) -> None:
    found = value_of(facts(assignment=assignment))
    assert found != value_of(facts())
    moved = tuple(tuple(number + 4 for number in row) for row in assignment)
    assert found == value_of(facts(assignment=moved))


@pytest.mark.parametrize(
    "topology",
    [
        b"",
        field(1, "cpu"),
        bare(b""),
        bare(field(2, "skylake")),
        bare(field(1, "") + field(3, FEATURES)),
        bare(field(1, 7) + field(3, FEATURES)),
        bare(field(1, TRIPLE) + field(3, 7)),
        bare(field(1, b"\xff\xfe") + field(3, FEATURES)),
        bare(field(1, TRIPLE) + field(3, b"\xff\xfe")),
        field(5, 7),
        field(9, b""),
        field(9, field(1, "type.googleapis.com/xla.CpuTopologyProto")),
        field(9, field(2, 7)),
        b"\xff\xff\xff",
        wrapped(machine())[:-5],
    ],
    ids=repr,
)
def test_a_topology_that_names_no_machine_is_a_value_error(topology: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        machine_of_topology(topology)


@given(st.binary(max_size=150))
@settings(max_examples=300, deadline=None)
def test_a_garbage_topology_is_a_value_error_or_a_value(garbage: bytes) -> None:
    for topology in (garbage, field(9, garbage), field(9, field(2, garbage)), field(5, garbage)):
        try:
            machine_of_topology(topology)
        except ValueError as error:
            assert str(error)  # noqa: PT017 - garbage may be a topology by accident


def test_a_machine_that_was_found_out_otherwise_is_as_good_as_a_topology() -> None:
    known = Machine(TRIPLE, ("avx", "avx2", "fma"))
    found = value_of(facts(topology=None, fingerprint=7, machine=known))
    assert found == cpu(bare(machine()))
    assert found == value_of(facts(topology=None, fingerprint=8, machine=known)), "JAX 0.10's names the process"


def test_a_cpu_without_a_machine_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="does not say which CPU"):
        canonical_target(facts(topology=None, fingerprint=7))


@pytest.mark.parametrize("platform", ["gpu", "tpu"])
def test_devices_that_cannot_be_identified_are_a_value_error(platform: str) -> None:
    with pytest.raises(ValueError, match=f"no topology of {platform}"):
        canonical_target(facts(platform, topology=None))


# ---------------------------------------------------------------------------------------------------------------
# GPU and TPU


@pytest.mark.parametrize("platform", ["gpu", "tpu"])
@pytest.mark.parametrize(
    "changes",
    [
        {"topology": b"another"},
        {"topology": None, "fingerprint": 7},
        {"platform_version": "another"},
        {"device_kinds": ("another",)},
        {"assignment": ((0, 1),)},
        {"assignment": ((0,), (1,))},
    ],
    ids=str,
)
def test_topology_version_kind_and_shape_count(platform: str, changes: dict[str, Any]) -> None:
    assert value_of(facts(platform, **changes)) != value_of(facts(platform))


def test_which_devices_are_assigned_counts_on_tpu_only() -> None:
    for platform, matters in (("tpu", True), ("gpu", False), ("cpu", False)):
        one, other = (value_of(facts(platform, assignment=(devices,))) for devices in ((0, 1), (1, 0)))
        assert (one != other) is matters, platform


def test_platforms_are_told_apart() -> None:
    assert len({value_of(facts(platform)) for platform in ("cpu", "gpu", "tpu")}) == 3
    assert canonical_target(facts("gpu", topology=None, fingerprint=255))["topology"] == "fingerprint 00000000000000ff"


def test_the_order_and_number_of_kinds_do_not_count() -> None:
    one = facts("gpu", device_kinds=("H100", "A100", "A100"))
    assert value_of(one) == value_of(one._replace(device_kinds=("A100", "H100")))


@pytest.mark.parametrize(
    ("found", "summary"),
    [
        (facts(), "cpu x1"),
        (facts("gpu", device_kinds=("H200",) * 4, assignment=((0, 1), (2, 3))), "gpu H200 x4"),
        (facts("gpu", device_kinds=("H200", "A100"), assignment=((0, 1),)), "gpu A100/H200 x2"),
        (facts(assignment=()), "cpu x0"),
    ],
)
def test_a_few_words_for_lists(found: TargetFacts, summary: str) -> None:
    assert found.summary() == summary


# ---------------------------------------------------------------------------------------------------------------
# The topology of the JAX that is installed

_TOPOLOGY = """
import json, jax
from rewarm.jax_adapter import seam
serialized, fingerprint = seam.topology(jax.devices("cpu"))
print(json.dumps([None if serialized is None else serialized.hex(), fingerprint, jax.device_count()]))
"""


def real_topology(devices: int) -> tuple[bytes | None, int | None]:
    """What a process with so many CPU devices says; a process of its own, since their number is fixed at start."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags.strip(), "REWARM": "0"}
    done = subprocess.run(
        [sys.executable, "-c", _TOPOLOGY], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    serialized, fingerprint, count = json.loads(done.stdout.splitlines()[-1])
    assert count == devices
    return None if serialized is None else bytes.fromhex(serialized), fingerprint


def test_the_real_topology_is_read_whatever_the_number_of_devices() -> None:
    pytest.importorskip("jaxlib")
    one = real_topology(1)
    other = real_topology(4)
    if one[0] is None:
        pytest.skip("this JAX does not serialise its topology")
    values = [canonical_target(facts(topology=found[0], fingerprint=found[1])) for found in (one, other)]
    assert values[0] == values[1]
    assert "-" in values[0]["triple"]
    assert values[0]["features"]
    assert not [word for word in values[0]["features"].split(",") if word.startswith(("prefer-", "-", "+"))]


_MACHINE = """
import json, pathlib, sys, jax
from rewarm.jax_adapter import machines, seam
devices = jax.devices("cpu")
topology, fingerprint = seam.topology(devices)
print(json.dumps(machines.cpu_machine(devices[0].client, topology, fingerprint, "t", pathlib.Path(sys.argv[1]))))
"""


def test_every_jax_says_the_machine_and_remembers_what_it_had_to_find_out(tmp_path: Path) -> None:
    pytest.importorskip("jaxlib")
    memo = tmp_path / "machines.json"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "REWARM": "0"}
    environment.pop("XLA_FLAGS", None)
    command = [sys.executable, "-c", _MACHINE, str(memo)]
    said = [subprocess.check_output(command, env=environment, text=True, timeout=120) for _ in range(2)]
    assert said[0] == said[1]
    triple, features = json.loads(said[0].splitlines()[-1])
    assert "-" in triple
    assert features
    if memo.exists():
        known = json.loads(memo.read_text())
        assert list(known.values()) == [[triple, features]]
        memo.write_text(json.dumps({question: [triple, ["remembered"]] for question in known}))
        assert json.loads(subprocess.check_output(command, env=environment, text=True))[1] == ["remembered"]
        limited = {**environment, "XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2"}
        assert "remembered" not in subprocess.check_output(command, env=limited, text=True), "flags may change it"
        memo.write_text("{broken")
        assert json.loads(subprocess.check_output(command, env=environment, text=True))[1] == features
