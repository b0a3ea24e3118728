"""Lock files: what is written is read back whole, what was touched is an error with its line."""

from __future__ import annotations

import os
import random
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from tuning_samples import BODY, NEW, OLD, PROGRAMS, filled, legacy_entry, new_entry, seeds, target, triton_result

from rewarm.autotune import lock, lock_file
from rewarm.autotune.formats import (
    Family,
    Format,
    TuningFormatError,
    Versions,
    build_of,
    hlo,
    read,
    records,
    serialised,
)
from rewarm.autotune.formats.hlo import fusion_text
from rewarm.autotune.formats.keys import TRITON_GEMM_CONFIG, fingerprint128

H200 = target("h200")
LOOP = "{\n  tmp_0 = f32[8]{0} parameter(0)\n  ROOT tmp_1 = f32[8]{0} tanh(f32[8]{0} tmp_0)\n}"


def of_sample(program: Path, name: str) -> lock.Lock:
    jax = program.parent.name.removeprefix("jax_").replace("_", ".")
    return lock.pinned(read(program / name).entries, H200, jax)


def again(one: lock.Lock) -> lock.Lock:
    return lock_file.parsed(lock_file.written(one).encode(), Path("tuning.lock"))


def refused(told: str) -> str:
    with pytest.raises(TuningFormatError) as wrong:
        lock_file.parsed(told.encode("utf-8", "surrogatepass"), Path("tuning.lock"))
    return str(wrong.value)


def test_samples_come_back_whole_in_both_families() -> None:
    for program in PROGRAMS:
        names = ["legacy_load.pb", *(["new_load.pb"] if program.parent == NEW else [])]
        for name in names:
            one = of_sample(program, name)
            assert again(one) == one
            assert again(one).digest == one.digest
            assert {serialised(entry) for entry in one.entries} >= {serialised(entry) for entry in again(one).entries}
            assert lock_file.written(again(one)) == lock_file.written(one)


def test_a_person_can_read_it() -> None:
    one = replace(of_sample(NEW / "mlp_128x128", "new_load.pb"), says={"3e9a8b0811cf954ce777a88d34867d06": "a dot"})
    told = lock_file.written(one)
    assert told.splitlines()[0] == "rewarm-autotune-lock 1"
    assert "\ndevice CUDA: 9.0, Cores: 132, GPU clock: 1.98 GHz" in told
    assert "\nname NVIDIA H200 141GB HBM3e\n" in told
    assert "\nbuild 0.12.0.1\nfamily new\nfusions 2\n" in told
    assert "\nfusion 3e9a8b0811cf954ce777a88d34867d06\n  says a dot\n  backend TRITON\n  config triton {" in told
    assert again(one).says == one.says


def told() -> list[str]:
    return lock_file.written(of_sample(NEW / "mlp_128x128", "new_load.pb")).splitlines()


def test_each_line_is_as_it_was_written() -> None:
    """What people review is what is used: nothing is read in another way than it would be written."""
    lines = told()
    starts = [number for number, line in enumerate(lines) if line.startswith("fusion ")]
    first, second = lines[starts[0] : starts[1] - 1], lines[starts[1] :]
    assert f"tuning.lock:{starts[0] + 1}: " in refused("\n".join([*lines[: starts[0]], *second, "", *first]) + "\n")
    at = next(number for number, line in enumerate(lines) if "block_m: 128" in line)
    for changed in (
        lines[at].replace("block_m: 128", "block_m: 0200"),
        lines[at].replace("block_m: 128", "block_m: 0x80"),
        f"{lines[at]} # 64",
    ):
        assert f"tuning.lock:{at + 1}: " in refused("\n".join([*lines[:at], changed, *lines[at + 1 :]]) + "\n")
    assert "tuning.lock:" in refused("\n".join(lines) + "\n  explicit-version\n")
    blanks = lines[at].replace("block_m: 128", "block_m:  128")
    one = lock_file.parsed("\n".join([*lines[:at], blanks, *lines[at + 1 :]]).encode(), Path("tuning.lock"))
    assert lock_file.written(one).splitlines() == lines


def test_findings_are_all_that_speaks_against_a_lock() -> None:
    one, build, old = of_sample(NEW / "mlp_128x128", "new_load.pb"), build_of("0.12.0.1"), build_of("0.9.2")
    assert build is not None
    assert old is not None
    assert lock.findings(one, build) == []
    assert [finding.found for finding in lock.findings(one, old)][:2] == ["one for 0.12.0.1", "new"]
    gemm = next(entry for entry in one.entries if entry.backend == "TRITON")
    library = records.message_class("xla.autotuner.BackendConfig")(gemm={"algorithm": 1}).SerializeToString()
    unfit = replace(gemm, backend="CUBLASLT", config=library)
    text = fusion_text(BODY, "kCustom", TRITON_GEMM_CONFIG)
    for says, codes in (({}, []), ({gemm.fusion or "": lock.saying(text)}, ["backend-of-other-fusion"])):
        made = again(lock.Lock(H200, "0.12.0.1", (unfit,), says))
        assert [finding.code for finding in lock.findings(made, build)] == codes
    config = records.message_class("xla.autotuner.BackendConfig")(triton=triton_result(num_warps=3).triton)
    weak = replace(gemm, config=config.SerializeToString(deterministic=True))
    (finding,) = lock.findings(again(lock.Lock(H200, "0.12.0.1", (weak,))), build)
    assert (finding.code, finding.place.entry) == ("num-warps", 1)


def test_what_a_lock_says_of_a_fusion_tells_as_much_as_its_text() -> None:
    for text in (fusion_text(BODY, "kCustom", TRITON_GEMM_CONFIG), fusion_text(LOOP, "kLoop")):
        known = hlo.instruction(text)
        said = hlo.instruction(lock.saying(text))
        assert known is not None
        assert said is not None
        assert (said.is_fusion, said.has_dot) == (True, known.has_dot)
    call = '(f32[8]{0}, s8[4]{0}) custom-call(f32[8]{0}), custom_call_target="__cublas$gemm"'
    assert hlo.instruction(lock.saying(call)) == hlo.instruction(call)


def test_it_is_sorted_and_one_change_is_one_line() -> None:
    entries = [new_entry(fusion=fingerprint128(str(number))) for number in range(40)]
    shuffled = random.Random(1).sample(entries, len(entries))
    told = lock_file.written(lock.Lock(H200, "0.12.0.1", tuple(entries)))
    assert lock_file.written(lock.Lock(H200, "0.12.0.1", tuple(shuffled))) == told
    named = [line for line in told.splitlines() if line.startswith("fusion ")]
    assert named == sorted(named)
    config = records.message_class("xla.autotuner.BackendConfig")(triton=triton_result(num_warps=8).triton)
    entries[7] = replace(entries[7], config=config.SerializeToString(deterministic=True))
    changed = lock_file.written(lock.Lock(H200, "0.12.0.1", tuple(entries)))
    pairs = list(zip(told.splitlines(), changed.splitlines(), strict=True))
    assert [one != other for one, other in pairs].count(True) == 1


def test_the_digest_is_over_what_decides_and_nothing_else() -> None:
    one = of_sample(NEW / "mlp_128x128", "new_load.pb")
    said = replace(one, says={one.entries[0].fusion or "": "anything"})
    named = replace(one, device=replace(one.device, name="another name"))
    assert {said.digest, named.digest} == {one.digest}
    other = (replace(one.entries[0], versions=Versions(backend="x")), *one.entries[1:])
    changed = [
        replace(one, build="0.11.2"),
        replace(one, device=replace(one.device, dnn_version="9.11.0")),
        replace(one, entries=one.entries[:1]),
        replace(one, entries=other),
        replace(one, entries=(replace(one.entries[0], backend="CUBLASLT_FISSION"), *one.entries[1:])),
    ]
    assert len({one.digest, *(each.digest for each in changed)}) == len(changed) + 1


def test_what_was_measured_is_not_pinned() -> None:
    measured = []
    for nanos in (5000, 7000):
        result = triton_result()
        result.run_time.nanos = nanos
        entry = replace(legacy_entry(result), run_time=nanos / 1e9)
        measured.append(lock_file.written(lock.pinned([entry], H200, "0.12.0.1")))
    assert measured[0] == measured[1]
    assert "run_time" not in measured[0]


@settings(max_examples=150, deadline=None)
@given(seeds)
def test_round_trip_of_any_legacy_result(seed: int) -> None:
    chance = random.Random(seed)
    result = filled("xla.AutotuneResult", chance)
    if chance.random() < 0.5:
        result.MergeFromString(b"\xfa\x3e\x03abc")  # a field that nobody knows
    fusion = chance.choice([BODY, LOOP, "custom call \\ of\r\nodd\u2028 text\n\n# with \x00", " "])
    entry = legacy_entry(result, fusion=fusion, backend=records.legacy_backend(result, fusion))
    one = lock.Lock(H200, chance.choice(["0.12.0.1", "my program \\n"]), (entry,), {fusion: "says\n\\"})
    assert again(one) == one
    assert again(one).says == one.says
    assert lock_file.written(again(one)) == lock_file.written(one)


@settings(max_examples=150, deadline=None)
@given(seeds)
def test_round_trip_of_any_new_entry(seed: int) -> None:
    chance = random.Random(seed)
    config = filled("xla.autotuner.BackendConfig", chance)
    if chance.random() < 0.5:
        config.MergeFromString(b"\xfa\x3e\x03abc")
    words = ["", "070b7c91256c4093", "ü \\ \n", "#"]
    versions = Versions(0, *(chance.choice(words) for _ in range(4)))
    names = ["TRITON", "", "77", "NATIVE_EMITTER"]
    entries = [
        new_entry(config, fusion=fingerprint128(str(number)), backend=chance.choice(names), versions=versions)
        for number in range(chance.randrange(1, 5))
    ]
    one = lock.Lock(H200, "0.12.0.1", tuple(entries))
    assert again(one) == one
    assert lock_file.written(again(one)) == lock_file.written(one)


@settings(max_examples=300, deadline=None)
@given(seeds)
def test_a_touched_file_is_an_error_of_that_file_or_a_lock(seed: int) -> None:
    chance = random.Random(seed)
    one = of_sample(chance.choice(PROGRAMS), "legacy_load.pb")
    data = bytearray(lock_file.written(one).encode())
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(data))
        data[at : at + chance.randrange(3)] = bytes(chance.choice(b"\n\r# |}\\x\x00\xff7a") for _ in range(2))
    try:
        other = lock_file.parsed(bytes(data), Path("tuning.lock"))
    except TuningFormatError as wrong:
        where = wrong.finding.place.path
    else:
        where = "tuning.lock" if again(other) == other else ""
    assert where == "tuning.lock"


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("rewarm-autotune-lock 1", "rewarm-autotune-lock 2", 1, "version that this rewarm reads"),
        ("family new\n", "", 8, "a line 'family'"),
        ("family new\n", "family old\n", 8, "new or legacy"),
        ("fusions 2", "fusions two", 9, "the number of fusions"),
        ("fusions 2", "fusions 3", 0, "3 fusions, as its head says, found 2"),
        ("fusion 3e9a8b08", "fusion 3E9A8B08", 11, "the fusion"),
        ("  backend TRITON\n", "", 11, "a line 'backend'"),
        ("  backend TRITON\n", "  backend TRITON\n  backend TRITON\n", 13, "in this order"),
        ("  backend TRITON\n", "  backend TRITTON\n", 12, "a backend of XLA's"),
        ("  backend TRITON\n", "  backend TRITON\n<<<<<<< ours\n", 11, "a line 'config'"),
        ("block_m: 128", "block_m: many", 13, "a configuration as text"),
        ("block_m: 128", "block_q: 128", 13, "a configuration as text"),
        ("block_m: 128", "block_m: 128\r", 13, "end in LF"),
        ("  config triton", "  bytes 00\n  config triton", 14, "in this order"),
        ("  backend TRITON\n", "  backend TRITON\n  surprise 1\n", 13, "one of"),
    ],
)
def test_a_bad_line_is_named(old: str, new: str, line: int, says: str) -> None:
    told = lock_file.written(of_sample(NEW / "mlp_128x128", "new_load.pb"))
    assert old in told
    message = refused(told.replace(old, new, 1))
    place = f"tuning.lock:{line}" if line else "tuning.lock"
    assert message.startswith(f"{place}: error: lock: ")
    assert says in message


def test_what_people_read_is_what_xla_gets() -> None:
    """Bytes beside a configuration must be those of its text, and the text of a legacy fusion that of its name."""
    config = records.message_class("xla.autotuner.BackendConfig")(triton=triton_result().triton)
    config.MergeFromString(b"\xfa\x3e\x03abc")
    told = lock_file.written(lock.Lock(H200, "0.12.0.1", (new_entry(config),)))
    assert "\n  bytes " in told
    assert "the bytes of the configuration above them" in refused(told.replace("num_warps: 4", "num_warps: 8"))
    assert "pairs of lower-case" in refused(told.replace("\n  bytes ", "\n  bytes 0"))
    legacy = lock_file.written(lock.Lock(H200, "0.12.0.1", (legacy_entry(),)))
    assert "the fusion " in refused(legacy.replace("dot(", "tanh("))
    assert "the backend TRITON of its configuration" in refused(legacy.replace("backend TRITON", "backend CUDNN"))


def test_what_cannot_be_one_lock_is_refused() -> None:
    for entries, says in (
        ((), "entries"),
        ((new_entry(), legacy_entry()), "family"),
        ((new_entry(), new_entry(versions=Versions(codegen="x"))), "one entry for each fusion"),
        ((new_entry(device="f568469d2ece8568"),), "an entry of the device a4baa03864db7cfb"),
        ((legacy_entry(device="CUDA: 8.0"),), "an entry of the device CUDA: 9.0"),
        ((legacy_entry(device=None, fusion=None, digest="x"),), "a fusion"),
        ((new_entry(fusion="short"),), "a fusion"),
    ):
        with pytest.raises(TuningFormatError, match=says):
            lock.Lock(H200, "0.12.0.1", entries)
    with pytest.raises(TuningFormatError, match="num-warps"):
        lock.pinned([legacy_entry(triton_result(num_warps=3))], H200, "0.12.0.1")


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    for path, says in ((tmp_path / "none", "can be read"), (tmp_path, "a regular file")):
        with pytest.raises(TuningFormatError, match=says):
            lock_file.read(path)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(TuningFormatError, match="a FIFO"):
        lock_file.read(fifo)
    path = tmp_path / "bytes"
    path.write_bytes(b"rewarm-autotune-lock 1\ndevice \xff\n")
    with pytest.raises(TuningFormatError, match=r"bytes:2: error: lock: expected UTF-8"):
        lock_file.read(path)
    path.write_bytes(b"")
    with pytest.raises(TuningFormatError, match="version that this rewarm reads"):
        lock_file.read(path)


def test_the_file_for_xla_is_private_and_whole(tmp_path: Path) -> None:
    for one in (of_sample(NEW / "mlp_128x128", "new_load.pb"), of_sample(OLD / "mlp_128x128", "legacy_load.pb")):
        path = one.for_xla(tmp_path / "private")
        assert stat.S_IMODE(path.stat().st_mode) == 0o400
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert sorted(map(serialised, read(path).entries)) == sorted(map(serialised, one.entries))
        assert read(path).format is (Format.NEW_BINARY if one.family is Family.NEW else Format.LEGACY_BINARY)
        before = path.stat()
        assert one.for_xla(path.parent).stat().st_ino == before.st_ino
        path.chmod(0o600)
        path.write_bytes(b"something else")
        assert one.for_xla(path.parent) == path
        assert len(read(path).entries) == len(one.entries)
        path.unlink()
        path.symlink_to(tmp_path / "elsewhere")
        one.for_xla(path.parent)
        assert not path.is_symlink()
        assert not (tmp_path / "elsewhere").exists()


def test_sayings_are_one_line() -> None:
    assert lock.saying(BODY) == "f32[8,8]{1,0} dot: dot"
    assert lock.saying(f"f32[8]{{0}} fusion(f32[8]{{0}}), kind=kLoop, calls=\n{LOOP}") == (
        "f32[8]{0} fusion(f32[8]{0}), kind=kLoop: tanh"
    )
    assert "\n" not in lock.saying("nothing\nat all")
