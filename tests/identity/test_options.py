"""Which compile options count: everything that is not known to be without effect, and files by what is in them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_encoder import field, fixed

from rewarm.identity import CanonicalOptions, canonical_options, wire
from rewarm.identity.debug_options import CUDA_DIRECTORY, FILES, NAMED_FILES, NO_EFFECT, NUMBERS, OUTPUTS

BUILD, OVERRIDES, DEBUG, DEVICE_ASSIGNMENT = 3, 7, 3, 9
UNKNOWN = 100_000
AUTOTUNE = NUMBERS["xla_gpu_load_autotune_results_from"]
PTX = NUMBERS["xla_gpu_ptx_file"]
DUMP_TO = NUMBERS["xla_dump_to"]
PLAIN_FILES = sorted(FILES.keys() - NAMED_FILES - {CUDA_DIRECTORY})


def message(*, debug: bytes = b"", build: bytes = b"", rest: bytes = b"", overrides: bytes = b"") -> bytes:
    """A `CompileOptionsProto` with these debug options, build options, further fields and overrides."""
    return rest + field(BUILD, build + field(DEBUG, debug)) + overrides


def override(name: str, value: bool | int | float | str) -> bytes:
    """One entry of the map `env_option_overrides`."""
    import struct

    if isinstance(value, str):
        inner = field(1, value)
    elif isinstance(value, bool):
        inner = field(2, int(value))
    elif isinstance(value, int):
        inner = field(3, value)
    else:
        inner = fixed(4, struct.pack("<d", value))
    return field(OVERRIDES, field(1, name) + field(2, inner))


def of(**parts: bytes) -> CanonicalOptions:
    return canonical_options(message(**parts))


def counts(one: CanonicalOptions) -> tuple[Any, ...]:
    """What goes into the key."""
    return one.canonical, one.inputs


NOTHING = of()


@pytest.fixture
def two_files(tmp_path: Path) -> tuple[Path, Path]:
    """Two files of the same content in two directories."""
    paths = tmp_path / "one" / "a.txt", tmp_path / "other" / "b.txt"
    for path in paths:
        path.parent.mkdir()
        path.write_bytes(b"results")
    return paths


# ---------------------------------------------------------------------------------------------------------------
# What counts and what does not


def test_fields_of_no_effect_do_not_count() -> None:
    for number in NO_EFFECT:
        for value in (0, 1, 7, "", "/somewhere", "x" * 300):
            assert counts(of(debug=field(number, value))) == counts(NOTHING), NO_EFFECT[number]


def test_all_fields_of_no_effect_together_do_not_count() -> None:
    noise = b"".join(field(number, f"/tmp/{number}") for number in NO_EFFECT)
    assert counts(of(debug=noise + field(UNKNOWN, 1) + noise)) == counts(of(debug=field(UNKNOWN, 1)))


def test_an_unknown_field_counts_wherever_it_is() -> None:
    found = {
        of(debug=field(UNKNOWN, 1)).canonical,
        of(debug=field(UNKNOWN, 2)).canonical,
        of(debug=field(UNKNOWN, "text")).canonical,
        of(debug=field(UNKNOWN + 1, 1)).canonical,
        of(build=field(UNKNOWN, 1)).canonical,
        of(rest=field(UNKNOWN, 1)).canonical,
        of(overrides=override("xla_unknown", 1)).canonical,
        NOTHING.canonical,
    }
    assert len(found) == 8


def test_every_number_that_is_not_listed_counts() -> None:
    for number in set(range(1, 700)) - NO_EFFECT.keys() - FILES.keys():
        assert of(debug=field(number, 1)).canonical != NOTHING.canonical, number


def test_the_device_assignment_does_not_count_and_its_neighbours_do() -> None:
    for value in (b"", b"\x08\x01\x10\x01\x1a\x03\n\x01\x00", b"anything"):
        assert counts(of(build=field(DEVICE_ASSIGNMENT, value))) == counts(NOTHING)
    for number in (1, 2, 4, 5, 6, 8, 10, 12, 23):
        assert of(build=field(number, 1)).canonical != NOTHING.canonical, number


def test_a_field_number_means_its_field_at_its_own_depth_only() -> None:
    assert of(rest=field(DEVICE_ASSIGNMENT, b"x")).canonical != NOTHING.canonical
    assert of(rest=field(DUMP_TO, "x")).canonical != NOTHING.canonical
    assert of(build=field(DUMP_TO, "x")).canonical != NOTHING.canonical
    assert of(debug=field(DEVICE_ASSIGNMENT, b"x")).canonical != NOTHING.canonical


@given(st.lists(st.tuples(st.sampled_from(["debug", "build", "rest"]), st.integers(20, 60), st.binary(max_size=9))))
@settings(max_examples=150, deadline=None)
def test_parts_cannot_pass_for_one_another(parts: list[tuple[str, int, bytes]]) -> None:
    """Moving one field to another part of the message always shows."""
    joined = {"debug": b"", "build": b"", "rest": b""}
    for part, number, value in parts:
        joined[part] += field(number, value)
    for part, number, value in parts:
        for other in joined.keys() - {part}:
            moved = {**joined, other: joined[other] + field(number, value)}
            assert of(**moved).canonical != of(**joined).canonical


def test_the_same_options_have_the_same_form() -> None:
    serialized = message(debug=field(UNKNOWN, 1), build=field(4, 1), rest=field(1, 1), overrides=override("xla_a", 1))
    assert canonical_options(serialized) == canonical_options(bytes(bytearray(serialized)))


def test_no_options_at_all() -> None:
    assert counts(canonical_options(b"")) == counts(NOTHING)
    assert NOTHING.inputs == ()
    assert NOTHING.outputs == ()
    assert NOTHING.cuda_directory == ""


# ---------------------------------------------------------------------------------------------------------------
# Files


@pytest.mark.parametrize("number", PLAIN_FILES)
def test_a_file_counts_by_content_and_not_by_path(number: int, two_files: tuple[Path, Path]) -> None:
    one, other = (of(debug=field(number, str(path))) for path in two_files)
    assert counts(one) == counts(other)
    assert one.canonical == NOTHING.canonical
    ((name, base, digest),) = one.inputs
    assert (name, base) == (FILES[number], "")
    assert len(digest) == 64
    two_files[1].write_bytes(b"resultS")
    assert of(debug=field(number, str(two_files[1]))).inputs != one.inputs
    assert of(debug=field(number, "")) == NOTHING


def test_which_option_names_the_file_counts(two_files: tuple[Path, Path]) -> None:
    found = {of(debug=field(number, str(two_files[0]))).inputs for number in PLAIN_FILES}
    assert len(found) == len(PLAIN_FILES)


@pytest.mark.parametrize("number", sorted(NAMED_FILES))
def test_the_base_name_counts_where_it_says_which_module_is_meant(number: int, tmp_path: Path) -> None:
    paths = [tmp_path / folder / name for folder in ("one", "other") for name in ("m1.ptx", "m2.ptx")]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"code")
    one, renamed, moved, _ = (of(debug=field(number, str(path))).inputs for path in paths)
    assert one == moved
    assert one != renamed
    assert one[0][1] == "m1.ptx"


def test_several_files_of_one_option_all_count(two_files: tuple[Path, Path]) -> None:
    both = b"".join(field(PTX, str(path)) for path in two_files)
    assert [base for _, base, _ in of(debug=both).inputs] == ["a.txt", "b.txt"]
    before = of(debug=both).inputs
    two_files[0].write_bytes(b"changed")
    assert of(debug=both).inputs != before


def test_a_missing_file_counts_by_the_text_of_its_path(tmp_path: Path) -> None:
    one, other = (of(debug=field(AUTOTUNE, str(tmp_path / name))) for name in ("one", "other"))
    assert one.inputs != other.inputs
    assert one.inputs[0][2].startswith("missing: ")
    assert str(tmp_path) not in str(one.inputs), "paths stay private"
    (tmp_path / "one").write_bytes(b"there now")
    assert not of(debug=field(AUTOTUNE, str(tmp_path / "one"))).inputs[0][2].startswith("missing")


@pytest.mark.parametrize("path", ["x" * 5000, "/" + "x" * 300, "/dev/null/x", "/tmp/\udcff\udcfe"])
def test_a_path_that_cannot_be_is_missing(path: str) -> None:
    assert of(debug=field(AUTOTUNE, path)).inputs[0][2].startswith("missing: ")


def _folder(place: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    return place


def test_a_folder_counts_by_its_files(tmp_path: Path) -> None:
    files = {"a": b"1", "b": b"2", "deep/c": b"3"}
    same = [_folder(tmp_path / name, files) for name in ("one", "other")]
    found = [of(debug=field(AUTOTUNE, str(folder))).inputs for folder in same]
    assert found[0] == found[1]
    others = [
        {"a": b"1", "b": b"2", "deep/c": b"4"},
        {"a": b"1", "b": b"2", "deep/d": b"3"},
        {"a": b"1", "b": b"2"},
        {"a": b"2", "b": b"1", "deep/c": b"3"},
        {"a": b"12", "b": b"", "deep/c": b"3"},
        {"a": b"1", "b": b"2", "c": b"3"},
        {"empty": b""},
    ]
    for number, changed in enumerate(others):
        folder = _folder(tmp_path / str(number), changed)
        found.append(of(debug=field(AUTOTUNE, str(folder))).inputs)
    (tmp_path / "void").mkdir()
    found.append(of(debug=field(AUTOTUNE, str(tmp_path / "void"))).inputs)
    assert len(set(found)) == len(found) - 1


def test_the_toolkits_directory_is_reported_and_does_not_count(tmp_path: Path) -> None:
    found = of(debug=field(CUDA_DIRECTORY, "/opt/cuda-13"))
    assert found.cuda_directory == "/opt/cuda-13"
    assert counts(found) == counts(NOTHING)
    overridden = of(
        debug=field(CUDA_DIRECTORY, "/opt/cuda-13"), overrides=override("xla_gpu_cuda_data_dir", "/opt/cuda-12")
    )
    assert overridden.cuda_directory == "/opt/cuda-12"
    assert counts(overridden) == counts(NOTHING)


# ---------------------------------------------------------------------------------------------------------------
# Outputs


@pytest.mark.parametrize("number", sorted(OUTPUTS))
def test_an_output_that_is_asked_for_is_reported(number: int) -> None:
    assert of(debug=field(number, 1)).outputs == (NO_EFFECT[number],)
    assert of(debug=field(number, "somewhere")).outputs == (NO_EFFECT[number],)
    assert of(debug=field(number, 0)).outputs == ()
    assert of(debug=field(number, "")).outputs == ()


def test_outputs_of_both_kinds_are_reported_together() -> None:
    found = of(
        debug=field(DUMP_TO, "/tmp/x") + field(NUMBERS["xla_dump_hlo_as_text"], 1),
        overrides=override("xla_dump_hlo_as_html", True) + override("xla_dump_to", "/tmp/y"),
    )
    assert found.outputs == ("xla_dump_hlo_as_html", "xla_dump_hlo_as_text", "xla_dump_to")


# ---------------------------------------------------------------------------------------------------------------
# Overrides

OVERRIDES_SAID: list[tuple[str, bool | int | float | str]] = [
    ("xla_a", True),
    ("xla_b", 7),
    ("xla_c", "text"),
    ("xla_d", 0.5),
]


def test_overrides_count_in_any_order() -> None:
    entries = [override(name, value) for name, value in OVERRIDES_SAID]
    one, other = of(overrides=b"".join(entries)), of(overrides=b"".join(reversed(entries)))
    assert counts(one) == counts(other)


def test_every_override_counts_by_name_and_value() -> None:
    said = [*OVERRIDES_SAID, ("xla_a", False), ("xla_a", 1), ("xla_a", "true"), ("xla_b", 8), ("xla_e", "text")]
    found = {of(overrides=override(name, value)).canonical for name, value in said}
    assert len(found) == len(said)
    both = of(overrides=override("xla_a", True) + override("xla_b", 7)).canonical
    assert both not in found


@pytest.mark.parametrize("name", sorted(NO_EFFECT.values()))
def test_an_override_of_no_effect_does_not_count(name: str) -> None:
    for value in (True, False, 3, "/somewhere"):
        assert counts(of(overrides=override(name, value))) == counts(NOTHING)


@pytest.mark.parametrize("value", [False, 0, "", "0", "false", "False"])
def test_an_override_that_turns_an_output_off_asks_for_none(value: bool | int | str) -> None:
    assert of(overrides=override("xla_dump_hlo_as_text", value)).outputs == ()


@pytest.mark.parametrize("number", PLAIN_FILES)
def test_an_override_that_names_a_file_counts_by_content(number: int, two_files: tuple[Path, Path]) -> None:
    one, other = (of(overrides=override(FILES[number], str(path))) for path in two_files)
    assert counts(one) == counts(other)
    assert one.inputs == of(debug=field(number, str(two_files[0]))).inputs
    two_files[1].write_bytes(b"changed")
    assert of(overrides=override(FILES[number], str(two_files[1]))).inputs != one.inputs


def test_an_override_may_name_several_files(two_files: tuple[Path, Path]) -> None:
    said = override("xla_gpu_ptx_file", ",".join(map(str, two_files)))
    assert of(overrides=said).inputs == of(debug=b"".join(field(PTX, str(path)) for path in two_files)).inputs


def test_a_comma_in_the_name_of_a_single_file_is_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "results,second.pb"
    path.write_bytes(b"one")
    before = of(overrides=override("xla_gpu_load_autotune_results_from", str(path))).inputs
    path.write_bytes(b"other")
    assert of(overrides=override("xla_gpu_load_autotune_results_from", str(path))).inputs != before


# ---------------------------------------------------------------------------------------------------------------
# What is no message


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_garbage_is_a_value_error_or_some_form(garbage: bytes) -> None:
    for serialized in (garbage, field(BUILD, garbage), message(debug=garbage), field(OVERRIDES, garbage)):
        try:
            canonical_options(serialized)
        except ValueError as error:
            assert str(error)  # noqa: PT017 - garbage may be a message by accident


def test_a_truncated_message_is_a_value_error_or_some_form() -> None:
    whole = message(debug=field(AUTOTUNE, "/x") + field(UNKNOWN, 1), overrides=override("xla_a", "b"))
    for length in range(len(whole)):
        try:
            found = canonical_options(whole[:length])
        except ValueError:
            continue
        assert found != canonical_options(whole)


@pytest.mark.parametrize(
    "serialized",
    [
        field(BUILD, 1),
        field(BUILD, field(DEBUG, 1)),
        field(OVERRIDES, 1),
        message(debug=field(CUDA_DIRECTORY, 1)),
        message(debug=field(AUTOTUNE, 1)),
    ],
)
def test_a_number_where_bytes_must_be_is_a_value_error(serialized: bytes) -> None:
    with pytest.raises(ValueError, match="holds a number"):
        canonical_options(serialized)


# ---------------------------------------------------------------------------------------------------------------
# The tables


def test_the_tables_agree_with_each_other() -> None:
    assert OUTPUTS.issubset(NO_EFFECT)
    assert NAMED_FILES.issubset(FILES)
    assert CUDA_DIRECTORY in FILES
    assert CUDA_DIRECTORY not in NAMED_FILES
    assert not NO_EFFECT.keys() & FILES.keys()
    assert len({*NO_EFFECT.values(), *FILES.values()}) == len(NO_EFFECT) + len(FILES)
    assert {number: name for name, number in NUMBERS.items()} == {**NO_EFFECT, **FILES}


def test_the_tables_hold_numbers_and_names_of_xla() -> None:
    for number, name in {**NO_EFFECT, **FILES}.items():
        assert 0 < number < 2**29
        assert name.startswith("xla_")
        assert name == name.strip().lower()


def test_whatever_names_an_output_in_its_name_is_an_output_or_explained() -> None:
    """A new dump option must not slip into the table as one without effect, since a hit would not write it."""
    writes = {number for number, name in NO_EFFECT.items() if "_dump_" in name and name.endswith("_to")}
    assert writes <= OUTPUTS


# ---------------------------------------------------------------------------------------------------------------
# The options of the JAX that is installed


@pytest.fixture
def real() -> Any:
    """Compile options of this jaxlib."""
    return pytest.importorskip("jax._src.lib").xla_client.CompileOptions()


def form(options: Any) -> CanonicalOptions:
    return canonical_options(options.SerializeAsString())


def debug_fields(options: Any) -> set[bytes]:
    (build,) = (one for one in wire.fields(options.SerializeAsString()) if one.number == BUILD)
    (debug,) = (one for one in wire.fields(build.data) if one.number == DEBUG)
    return {one.raw for one in wire.fields(debug.data)}


def test_the_numbers_of_the_tables_are_those_of_jaxlib(real: Any) -> None:
    debug_options = real.executable_build_options.debug_options
    checked = 0
    for name, number in NUMBERS.items():
        if not hasattr(debug_options, name):
            continue
        before = debug_fields(real)
        value = getattr(debug_options, name)
        try:
            setattr(debug_options, name, not value if isinstance(value, bool) else 7 if isinstance(value, int) else "x")
        except TypeError:
            continue
        changed = {one.number for raw in debug_fields(real) ^ before for one in wire.fields(raw)}
        assert changed == {number}, name
        checked += 1
    assert checked > 15


def test_real_options_without_effect_do_not_count(real: Any) -> None:
    before = form(real)
    debug_options = real.executable_build_options.debug_options
    debug_options.xla_dump_to = "/tmp/dump"
    debug_options.xla_dump_hlo_as_text = True
    debug_options.xla_dump_hlo_module_re = "jit_.*"
    debug_options.xla_gpu_per_fusion_autotune_cache_dir = "/tmp/cache"
    debug_options.xla_gpu_kernel_cache_file = "/tmp/kernels"
    debug_options.xla_force_host_platform_device_count = 8
    after = form(real)
    assert counts(after) == counts(before)
    assert before.outputs == ()
    assert after.outputs == ("xla_dump_hlo_as_text", "xla_dump_to")


def test_real_options_that_change_code_count(real: Any) -> None:
    found = [form(real).canonical]
    for name, value in (
        ("xla_backend_optimization_level", 1),
        ("xla_cpu_enable_fast_math", True),
        ("xla_llvm_disable_expensive_passes", True),
        ("xla_disable_hlo_passes", "fusion"),
    ):
        setattr(real.executable_build_options.debug_options, name, value)
        found.append(form(real).canonical)
    real.executable_build_options.num_partitions = 2
    found.append(form(real).canonical)
    real.num_replicas = 2
    found.append(form(real).canonical)
    real.parameter_is_tupled_arguments = True
    found.append(form(real).canonical)
    real.executable_build_options.fdo_profile = b"profile"
    found.append(form(real).canonical)
    assert len(set(found)) == len(found)


def test_the_real_device_assignment_does_not_count(real: Any) -> None:
    numpy = pytest.importorskip("numpy")
    from jax._src.lib import xla_client

    real.num_replicas = 1
    real.num_partitions = 2
    found = set()
    for devices in ([[0, 1]], [[1, 0]], [[4, 7]]):
        real.device_assignment = xla_client.DeviceAssignment.create(numpy.array(devices))
        found.add(counts(form(real)))
    assert len(found) == 1


def test_a_real_file_counts_by_content(real: Any, two_files: tuple[Path, Path]) -> None:
    found = []
    for path in two_files:
        real.executable_build_options.debug_options.xla_gpu_load_autotune_results_from = str(path)
        found.append(form(real))
    assert counts(found[0]) == counts(found[1])
    assert [name for name, _, _ in found[0].inputs] == ["xla_gpu_load_autotune_results_from"]


def test_real_overrides(real: Any, two_files: tuple[Path, Path]) -> None:
    plain = form(real)
    said: list[tuple[str, Any]] = [("xla_cpu_enable_fast_math", True), ("xla_a", 7), ("xla_b", 0.5), ("xla_c", "text")]
    real.env_option_overrides = said
    one = form(real)
    real.env_option_overrides = said[::-1]
    assert counts(form(real)) == counts(one) != counts(plain)
    real.env_option_overrides = [*said, ("xla_dump_to", "/tmp/x"), ("xla_dump_hlo_as_text", False)]
    dumping = form(real)
    assert counts(dumping) == counts(one)
    assert dumping.outputs == ("xla_dump_to",)
    real.env_option_overrides = [*said, ("xla_gpu_load_autotune_results_from", str(two_files[0]))]
    digest = hashlib.sha256((0).to_bytes(8, "little") + (7).to_bytes(8, "little") + b"results").hexdigest()
    assert form(real).inputs == (("xla_gpu_load_autotune_results_from", "", digest),)
