"""What of tuning counts in an executable's key: a lock's content, and no place."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
from jax._src import compiler
from jax._src.lib import xla_client

from rewarm.autotune import lock
from rewarm.autotune.formats import device_of_target, read
from rewarm.identity import CanonicalOptions, canonical_options
from rewarm.jax_adapter.seam import Call
from rewarm.jax_adapter.seam import tuning as said

SAMPLES = Path(__file__).parents[1] / "autotune" / "samples"


def a_call() -> Call:
    options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
    devices = np.array(jax.local_devices()[:1])
    return Call(devices[0].client, None, devices, options, (), xla_client.DeviceList(tuple(devices)), None)


def counted(call: Call) -> CanonicalOptions:
    return canonical_options(call.compile_options.SerializeAsString())


def a_lock(program: str) -> lock.Lock:
    device = device_of_target((SAMPLES / "targets" / "h200.txtpb").read_text())
    entries = read(SAMPLES / "jax_0_12_0_1" / program / "new_load.pb").entries
    return lock.pinned(entries, device, "0.12.0.1")


def test_no_place_is_ever_in_a_key(tmp_path: Path) -> None:
    bare = counted(a_call())
    for name in ("one", "two"):
        for writes in (True, False):
            call = a_call()
            said.give_directory(call, tmp_path / name, writes=writes)
            said.give_kernels(call, tmp_path / name / "kernels")
            named = said.named(call)
            assert (named.directory, named.kernels) == (str(tmp_path / name), str(tmp_path / name / "kernels"))
            found = counted(call)
            assert (found.canonical, found.inputs) == (bare.canonical, bare.inputs)


def test_a_lock_counts_by_its_content_and_not_by_where_it_lies(tmp_path: Path) -> None:
    found = []
    for program, folder in (("dot_tanh_64x64", "a"), ("dot_tanh_64x64", "b"), ("mlp_128x128", "a")):
        call = a_call()
        said.give_file(call, a_lock(program).for_xla(tmp_path / folder), [])
        found.append(counted(call))
    assert found[0] == found[1]
    assert found[0].inputs != found[2].inputs
    [row] = found[0].inputs
    assert row[0] == "xla_gpu_load_autotune_results_from"
    assert counted(a_call()).inputs == ()


def test_whether_a_fusion_may_be_outside_the_lock_counts(tmp_path: Path) -> None:
    keys = []
    for strict in (True, False):
        call = a_call()
        said.give_file(call, a_lock("dot_tanh_64x64").for_xla(tmp_path), [])
        if strict:
            said.say(call, said.REQUIRE, True)
        keys.append(counted(call).canonical)
    assert keys[0] != keys[1]
    said.say(call, said.REQUIRE, True)
    assert counted(call).canonical == keys[0]
    said.say(call, said.REQUIRE, None)
    assert counted(call).canonical == keys[1]


@pytest.mark.parametrize("name", ["directory", "file", "kernels"])
def test_what_the_user_names_is_seen(name: str) -> None:
    flags = {"directory": said.DIRECTORY, "file": said.LOAD, "kernels": said.KERNELS}
    call = a_call()
    assert said.named(call) == said.Named()
    call.compile_options.env_option_overrides = [(flags[name], "/mine")]
    assert said.named(call)._asdict() == {**said.Named()._asdict(), name: "/mine"}
    call = a_call()
    setattr(call.compile_options.executable_build_options.debug_options, flags[name], "/mine")
    assert getattr(said.named(call), name) == "/mine"
