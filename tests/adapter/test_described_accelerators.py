"""Described GPUs and TPUs: their keys hold from process to process, and a captured machine's are made of what it said.

No device is there, so what an attached one would say is a file that was made of a described one with the words of an
attached one in it: what is held here is that the key is made of the file and of nothing else.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import described_programs
import pytest

import tpu_compilers
from conftest import execute
from cuda_compilers import Compiler, jax_version, wanted
from rewarm import targets
from rewarm.identity import TargetFacts, canonical_target
from rewarm.identity.gpu_topology import fields_of

pytestmark = pytest.mark.contract

OLD = tuple(int(part) for part in jax_version().split(".")[:2]) < (0, 11)
PROGRAM = described_programs.__file__

# What a host with four GPUs would write; the numbers of a topology's fields are those of `topology_bytes`.
CAPTURE = """
import dataclasses, sys
from rewarm import targets
from rewarm.identity import wire
from rewarm.jax_adapter import described, seam, topology_bytes

def said_by_device(message, number):
    return b"".join(
        topology_bytes._bytes(number, b"cuda 13000") if field.number == number else field.raw
        for field in wire.fields(message)
    )

target = targets.named("h200")
devices = described.devices(target, target.topology("1x1x4"))
topology, _ = seam.topology(devices)
topology = topology_bytes._around(topology, said_by_device(topology_bytes._inside(topology), 3))
topology = said_by_device(topology, 3)
told = targets.Reported(
    "cuda 13000", ("NVIDIA H200",) * 4, topology, None,
    "x".join(map(str, topology_bytes.shape_of_gpus(topology))), {"jax": seam.version()},
)
targets.write(dataclasses.replace(target, name="their-host", reported=told), sys.argv[1])
"""


def gpus(compiler: Compiler, folder: Path, asked: list[list[str]], *more: str) -> dict[str, Any]:
    folder.mkdir()
    command = [sys.executable, "-W", "ignore", PROGRAM, json.dumps(asked), "only=summed", *more]
    done = execute(command, env=compiler.environment(REWARM_DIR=str(folder / "cache")), cwd=folder)
    assert done.code == 0, done.err[-3000:]
    found: dict[str, Any] = done.json
    return found


def test_keys_of_described_gpus_hold_from_process_to_process(tmp_path: Path) -> None:
    compiler = wanted()
    asked = [["h200", "1x1x1"], ["h200", "1x1x8"], ["h200", "4x8x1"]]
    one = gpus(compiler, tmp_path / "one", asked, "compile")
    assert one == gpus(compiler, tmp_path / "other", asked, "compile")
    assert len({told["summed"]["key"] for told in one.values()}) == 3
    assert [len(told["devices"]) for told in one.values()] == [1, 8, 32]
    assert len({device[1] for device in one["4x8x1"]["devices"]}) == 32


def test_a_captured_gpu_has_the_key_of_what_it_said(tmp_path: Path) -> None:
    compiler = wanted()
    path = tmp_path / "captured.json"
    made = compiler.run(CAPTURE, tmp_path, str(path))
    if OLD:
        assert made.code != 0, "its topologies say too little"
        return
    assert made.code == 0, made.err[-3000:]
    captured = targets.named(path)
    asked = [[str(path), "1x1x4"], [str(path), "2x1x4"], ["h200", "1x1x1"]]
    found = gpus(compiler, tmp_path / "found", asked, "compile")
    told = captured.reported
    assert told is not None
    assert told.topology is not None
    facts = TargetFacts("gpu", "cuda 13000", ("NVIDIA H200",) * 4, ((0, 1, 2, 3),), told.topology, None)
    own = found["1x1x4"]["summed"]["target"]
    assert own == canonical_target(facts)
    other = found["2x1x4"]["summed"]["target"]
    assert {**other, "topology": "", "shape": []} == {**own, "topology": "", "shape": []}
    assert other["topology"] != own["topology"]
    assert fields_of(told.topology) == own["topology"]
    assert own["topology"]["devices"] == "4"
    assert len({device[1] for device in found["2x1x4"]["devices"]}) == 2
    differing = {one.field for one in targets.differences(targets.named("h200"), captured)}
    assert differing == {"platform_version", "device_kind"}


def tpus(folder: Path, asked: list[list[str]], *more: str) -> dict[str, Any]:
    compiler = tpu_compilers.wanted()
    folder.mkdir()
    env = compiler.environment(REWARM_DIR=str(folder / "cache"))
    command = [sys.executable, "-W", "ignore", PROGRAM, json.dumps(asked), "only=summed", *more]
    done = execute(command, env=env, cwd=folder)
    assert done.code == 0, done.err[-3000:]
    found: dict[str, Any] = done.json
    return found


def test_keys_of_described_tpus_hold_from_process_to_process(tmp_path: Path) -> None:
    asked = [["v5e", "2x4"], ["v5e", "2x4@2x4"], ["v5e", "2*2x2"]]
    one = tpus(tmp_path / "one", asked, "compile")
    assert one == tpus(tmp_path / "other", asked, "compile")
    assert len({told["summed"]["key"] for told in one.values()}) == 3, "one host or two, one slice or two"
    assert [len({device[1] for device in told["devices"]}) for told in one.values()] == [2, 1, 2]
    assert [len(told["devices"]) for told in one.values()] == [8, 8, 8]


@pytest.mark.parametrize(("name", "text"), [("v4", "2x2x2"), ("v5p", "2x2x1"), ("v6e", "16x16"), ("tpu7x", "2x2x1")])
def test_libtpu_has_each_kind_as_it_is_described(name: str, text: str, tmp_path: Path) -> None:
    found = tpus(tmp_path / "found", [[name, text]])[text]
    expected = targets.named(name).topology(text)
    assert len(found["devices"]) == expected.devices
    assert len({device[1] for device in found["devices"]}) == expected.processes
    from rewarm.targets.tpus import chip_of_kind

    assert {chip_of_kind(device[2]) for device in found["devices"]} == {name}
