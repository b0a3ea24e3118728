"""Real entries of real programs, damaged in every way a disk knows, and asked for.

After each trial: the result has the bits that it should have, one line and one miss, the entry is put aside and made
anew, every other entry has the bytes that it had, and the next request hits.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from damage import BITS, REGIONS, cut, extended, flipped, region, replace, unwritten
from served import SEALS, STORED, Served

from conftest import Program, clean_environment, entries
from rewarm.envelope import open_entry
from rewarm.errors import BadEntryError

pytest_plugins = ["fault_fixtures"]

# Trials through whole requests of each kind; a campaign has about 2,200 flips.
_FLIPS_OF_EACH = 1
_CAMPAIGN_FLIPS_OF_EACH = 26
_CAMPAIGN_PARTS = 4


def refused(data: bytes, key: str) -> str:
    """Why the envelope refuses `data`; it must."""
    with pytest.raises(BadEntryError) as caught:
        open_entry(data, key)
    return caught.value.reason


# ---------------------------------------------------------------------------------------------------------------
# Cut short


@pytest.mark.parametrize("sealing", SEALS)
def test_no_length_of_a_small_entry_passes_for_it(served: Served, sealing: str) -> None:
    data, key = served.sealed["small"][sealing], served.keys["small"]
    assert open_entry(data, key).header.key == key
    reasons = {refused(data[:length], key) for length in range(len(data))}
    assert len(reasons) >= 2


@pytest.mark.parametrize("name", STORED)
def test_no_64th_length_of_an_entry_passes_for_it(served: Served, name: str) -> None:
    for data in served.sealed[name].values():
        for length in range(0, len(data), 64):
            refused(data[:length], served.keys[name])


@pytest.mark.parametrize("sealing", SEALS)
def test_requests_for_entries_cut_short(served: Served, sealing: str) -> None:
    choice = random.Random(sealing)
    for name in ("small", "table"):
        data = served.sealed[name][sealing]
        for length in (0, 64 * choice.randrange(1, len(data) // 64), len(data) - 1):
            served.trial(name, cut(data, length))


@pytest.mark.campaign
def test_requests_for_an_entry_cut_short_at_every_64th_byte(served: Served) -> None:
    data = served.sealed["small"]["zstd-3"]
    for length in range(0, len(data), 64):
        served.trial("small", cut(data, length))


# ---------------------------------------------------------------------------------------------------------------
# Bits turned over, and more behind the end


def flips(served: Served, seed: int, of_each: int, names: tuple[str, ...]) -> int:
    """For each sealing, part and number of bits so many requests; returns how many."""
    choice, count = random.Random(seed), 0
    for (sealing, where, bits), _ in itertools.product(itertools.product(SEALS, REGIONS, BITS), range(of_each)):
        name = choice.choice(names)
        data = served.sealed[name][sealing]
        hurt = served.trial(name, flipped(data, region(data, where), bits, choice))
        assert "not usable" in hurt["reason"]
        count += 1
    return count


def test_requests_for_entries_with_flipped_bits(served: Served) -> None:
    done = flips(served, 0, _FLIPS_OF_EACH, ("small", "small", "small", "medium"))
    assert done == _FLIPS_OF_EACH * len(SEALS) * len(REGIONS) * len(BITS)


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(_CAMPAIGN_PARTS))
def test_thousands_of_requests_for_entries_with_flipped_bits(served: Served, part: int) -> None:
    of_each = _CAMPAIGN_FLIPS_OF_EACH // _CAMPAIGN_PARTS + (part < _CAMPAIGN_FLIPS_OF_EACH % _CAMPAIGN_PARTS)
    done = flips(served, 1 + part, of_each, ("small", "small", "small", "medium"))
    assert done == of_each * len(SEALS) * len(REGIONS) * len(BITS)


@pytest.mark.parametrize("sealing", SEALS)
def test_thousands_of_flips_are_refused_by_the_envelope(served: Served, sealing: str) -> None:
    choice = random.Random(sealing)
    for name, where, bits in itertools.product(STORED, REGIONS, BITS):
        data = served.sealed[name][sealing]
        for _ in range(12):
            refused(flipped(data, region(data, where), bits, choice), served.keys[name])


@pytest.mark.parametrize("sealing", ["zstd-3", "raw"])
def test_requests_for_entries_with_more_behind_their_end(served: Served, sealing: str) -> None:
    choice = random.Random(sealing)
    for name in STORED:
        served.trial(name, extended(served.sealed[name][sealing], choice))


# ---------------------------------------------------------------------------------------------------------------
# A power cut


@pytest.mark.parametrize("name", ["small", "table"])
def test_a_renamed_entry_whose_data_never_reached_the_disk(served: Served, name: str) -> None:
    data = served.sealed[name]["zstd-3"]
    hurt = served.trial(name, unwritten(data, 0))
    assert "not an entry of rewarm" in hurt["reason"]
    served.trial(name, unwritten(data, 4096))
    served.trial(name, unwritten(data, len(data) - 32))


def test_side_files_whose_data_never_reached_the_disk(served: Served) -> None:
    for path in served.cache.rglob("*"):
        if path.is_file() and len(path.name) != 64 and path.parent.name != "runs":
            path.write_bytes(bytes(path.stat().st_size))
    for name in STORED:
        assert served.asker.ask(name)["outcome"] == "hit"
    served.trial("small", b"")


# ---------------------------------------------------------------------------------------------------------------
# Entries under each other's names


def test_all_permutations_of_three(served: Served) -> None:
    names = STORED[:3]
    for order in itertools.permutations(names):
        served.restore()
        others = served.others(*names)
        moved = [one for one, other in zip(names, order, strict=True) if one != other]
        for one, other in zip(names, order, strict=True):
            replace(served.path(one), served.sealed[other]["zstd-3"])
        for name in names:
            answer = served.asker.ask(name)
            assert answer["outcome"] == ("miss" if name in moved else "hit")
            assert name not in moved or "the entry of another key" in answer["quarantined"]
        assert [served.asker.ask(name)["outcome"] for name in names] == ["hit"] * 3
        assert served.others(*names) == others


def test_entries_of_a_directory_with_another_salt(served: Served, tmp_path: Path) -> None:
    served.asker.tell(enable={"directory": str(tmp_path / "salted"), "salt": "other"})
    salted = {name: served.asker.ask(name)["key"] for name in STORED}
    assert set(salted.values()).isdisjoint(served.keys.values())
    served.asker.tell(enable={"directory": str(served.cache)})
    for name, key in salted.items():
        hurt = served.trial(name, (tmp_path / "salted" / key[:2] / key).read_bytes())
        assert f"the entry of another key, {key[:12]}" in hurt["reason"]


def test_entries_of_another_jax(served: Served, tmp_path: Path) -> None:
    other = os.environ.get("REWARM_TEST_OTHER_PYTHON")
    if not other:
        pytest.skip("REWARM_TEST_OTHER_PYTHON names no interpreter with another JAX")
    environment = clean_environment(REWARM_DIR=str(tmp_path / "other"))
    program = "import jax, numpy as np; jax.jit(lambda x: x * 3 + 1)(np.ones((16, 16), np.float32))"
    subprocess.run([other, "-c", program], env=environment, check=True, timeout=120)
    (foreign,) = entries(tmp_path / "other")
    assert foreign.name not in served.keys.values(), "the same JAX: nothing was tested"
    served.trial("small", foreign.read_bytes())


# ---------------------------------------------------------------------------------------------------------------
# Through whole programs

_PROGRAM = """
    import jax, numpy as np
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    for program in (lambda x: x @ x + 1, lambda x: x - 7, lambda x: x.sum(0), lambda x: x * x[0]):
        print(np.asarray(jax.jit(program)(x)).tobytes().hex())
"""


def whole_program(program: Program, cache: Path, seeds: range) -> None:
    """Each of four entries damaged in another way, a fresh process, and one more."""
    on = {"REWARM_DIR": str(cache)}
    right = program(_PROGRAM).out
    assert program(_PROGRAM, **on).out == right
    for seed in seeds:
        choice = random.Random(seed)
        files = entries(cache)
        assert len(files) == 4
        datas = [path.read_bytes() for path in files]
        files[0].write_bytes(cut(datas[0], 64 * choice.randrange(len(datas[0]) // 64)))
        files[1].write_bytes(flipped(datas[1], range(len(datas[1])), choice.choice(BITS), choice))
        files[2].write_bytes(choice.choice((datas[3], unwritten(datas[2], 0), extended(datas[2], choice))))
        hurt = program(_PROGRAM, **on)
        assert (hurt.out, hurt.stats["hits"], hurt.stats["quarantined"], hurt.stats["stored"]) == (right, 1, 3, 3)
        assert len(hurt.warnings()) == 3
        assert files[3].read_bytes() == datas[3]
        healed = program(_PROGRAM, **on)
        assert (healed.out, healed.stats["hits"], healed.warnings()) == (right, 4, [])


def test_a_whole_program_over_damaged_entries(program: Program, cache: Path) -> None:
    whole_program(program, cache, range(1))


@pytest.mark.campaign
def test_whole_programs_over_damaged_entries(program: Program, cache: Path) -> None:
    whole_program(program, cache, range(1, 6))


def test_the_program_that_was_asked_all_that_is_the_same_process(served: Served) -> None:
    before = served.asker.pid
    assert served.asker.ask("small")["descriptors"] < 100
    assert (served.asker.pid, sys.executable) == (before, sys.executable)
