"""XLA's messages of persisted autotuning, as one table: all supported builds together.

Not promised: completeness for a build that is not in `builds`. A field that is not in the table survives in binary
files and is refused in text ones, as XLA's own parser does with a field that it does not know.

A line is a field: number, name, type; `in` names its one-of, `since` and `until` the first and last JAX that has it, by
major and minor version (none: all from 0.9 on). Numbers, names and types are those of the descriptors inside the CUDA
plugins of JAX 0.9.2, 0.10.2, 0.11.2 and 0.12.0.1; `tools/autotune_fields.py` compares the table with a plugin and
prints the lines that are missing. No field has changed its number or its type in these.

Not XLA's: which file a message stands in, and `xla.xtile.BlockLevelFusionConfig`, which is here once although its
package was `xla.gpu` up to JAX 0.10: only an Any that holds it bare could tell, and XLA takes no such entry.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

_TABLE = """
package stream_executor.dnn
message AlgorithmProto
  1 algo_id int64
  2 math_type AlgorithmProto.MathType
  4 tuning_knobs map int64 int64
  5 is_cudnn_frontend bool
  6 workspace_size google.protobuf.UInt64Value
enum AlgorithmProto.MathType
  0 DEFAULT_MATH
  1 TENSOR_OP_MATH

package stream_executor
message CudaComputeCapabilityProto
  1 major int32
  2 minor int32
  3 feature_extension CudaComputeCapabilityProto.FeatureExtension
enum CudaComputeCapabilityProto.FeatureExtension
  0 UNSPECIFIED
  1 NONE
  2 ACCELERATED_FEATURES
  3 FAMILY_COMPATIBLE_FEATURES
message RocmComputeCapabilityProto
  1 gcn_arch_name string

package xla
message AutotuneResult
  8 scratch_bytes int64
  9 run_time google.protobuf.Duration
  7 failure AutotuneResult.FailureResult
  5 conv AutotuneResult.ConvKey in key
  6 gemm AutotuneResult.GemmKey in key
  17 triton AutotuneResult.TritonGemmKey in key
  15 cuda_conv_plan AutotuneResult.CudaConvPlanKey in key
  18 custom_kernel_fusion AutotuneResult.CustomKernelFusionKey in key
  16 algorithm stream_executor.dnn.AlgorithmProto in key
  19 other AutotuneResult.BackendConfigKey in key
enum AutotuneResult.FailureKind
  0 UNKNOWN
  1 REDZONE_MODIFIED
  2 WRONG_RESULT
  3 DISQUALIFIED
message AutotuneResult.FailureResult
  1 kind AutotuneResult.FailureKind
  2 msg string
  11 reference_conv AutotuneResult.ConvKey in key
  12 reference_gemm AutotuneResult.GemmKey in key
  14 reference_cuda_conv_plan AutotuneResult.CudaConvPlanKey in key
  15 reference_algorithm stream_executor.dnn.AlgorithmProto in key
  13 buffer_address int64
message AutotuneResult.ConvKey
  1 algorithm int64
  2 tensor_ops_enabled bool
message AutotuneResult.GemmKey
  1 algorithm int64
  2 autotune_workspace_size int64
message AutotuneResult.CudaConvPlanKey
  1 exec_plan_id string
message AutotuneResult.TritonGemmKey
  1 block_m int64
  2 block_n int64
  3 block_k int64
  4 split_k int64
  5 num_stages int64
  6 num_warps int64
  7 num_ctas int64
  8 is_tma_allowed bool
  9 is_warp_specialization_allowed bool
  10 waves_per_eu int64 since 0.10
  11 group_size int64 since 0.11
message AutotuneResult.CustomKernelFusionKey
  1 kernel_index int64
message AutotuneResult.BackendConfigKey
  1 name string
  2 config google.protobuf.Any
message AutotuneResults
  1 version int32
  4 results repeated AutotuneResults.Entry
message AutotuneResults.Entry
  1 device string
  2 hlo string
  3 result AutotuneResult
  4 version int32

package xla.cpu
message LlvmKernelOptions
  1 slp_vectorizer_disabled bool
  2 disable_loop_unrolling bool
  3 optimize_for_size bool
  4 disable_platform_dependent_math bool
message YnnFusionOptions
  1 use_threadpool bool

package xla.gpu
message NativeEmitterBackendConfig
  1 type NativeEmitterType since 0.10
  2 unroll_factor int32 since 0.10
enum NativeEmitterType since 0.10
  0 NATIVE_EMITTER_TYPE_INVALID
  1 NATIVE_EMITTER_TYPE_LOOP
  2 NATIVE_EMITTER_TYPE_IN_PLACE_DYNAMIC_UPDATE_SLICE
  3 NATIVE_EMITTER_TYPE_CONCATENATE
  4 NATIVE_EMITTER_TYPE_REDUCTION_ROW
  5 NATIVE_EMITTER_TYPE_REDUCTION_MULTIROW
  6 NATIVE_EMITTER_TYPE_REDUCTION_COLUMN
  7 NATIVE_EMITTER_TYPE_REDUCTION_MULTICOLUMN
  8 NATIVE_EMITTER_TYPE_SCATTER_SORTED_INDICES
  9 NATIVE_EMITTER_TYPE_SCATTER_DISTRIBUTED_UPDATES
  10 NATIVE_EMITTER_TYPE_TRANSPOSE
  11 NATIVE_EMITTER_TYPE_PACKED_TRANSPOSE
message TensorIrFusionConfig since 0.12
  1 tile_size repeated int32
  2 reduction_tile_size int64

package xla.xtile
message Tile
  1 sizes repeated int64
message BlockLevelFusionConfig
  3 output_tiles repeated Tile
  2 num_warps int64
  4 num_ctas int32
  5 num_stages int32
  6 is_tma_allowed bool
  7 is_warp_specialization_allowed bool
  8 waves_per_eu int32 since 0.10
  9 num_tiles_per_pid int32 since 0.11
  10 group_size int32 since 0.11

package xla.autotuner
message BackendConfig since 0.10
  1 gemm xla.AutotuneResult.GemmKey in config
  2 triton xla.AutotuneResult.TritonGemmKey in config
  3 block_level xla.xtile.BlockLevelFusionConfig in config
  4 algorithm stream_executor.dnn.AlgorithmProto in config
  5 llvm_kernel xla.cpu.LlvmKernelOptions in config
  6 native_emitter xla.gpu.NativeEmitterBackendConfig in config
  7 ynn_fusion xla.cpu.YnnFusionOptions in config since 0.11
  8 tensor_ir xla.gpu.TensorIrFusionConfig in config since 0.12
message Config since 0.11
  1 backend Backend
  2 backend_config BackendConfig
message AutotuneTargetKey since 0.11
  1 device string
  2 explicit_version string
  3 hlo_fingerprint string
message AutotuneEnvironmentKey since 0.11
  1 codegen_version string
  2 codegen_options_fingerprint string
message AutotuneKey since 0.11
  1 target AutotuneTargetKey
  2 environment AutotuneEnvironmentKey
message AutotuneValue since 0.11
  1 optimal_config Config
  2 optimal_backend_version string
message AutotuneEntry since 0.11
  1 key AutotuneKey
  2 value AutotuneValue
message AutotuneCache since 0.11
  1 device_scope string
  2 explicit_version_scope string
  3 entries repeated AutotuneEntry
enum Backend
  0 UNSPECIFIED_BACKEND
  1 CUDNN
  2 TRITON
  3 CUBLAS until 0.9
  4 CUBLASLT
  5 ROCBLAS until 0.9
  6 HIPBLASLT
  7 MIOPEN
  8 CUSTOM_KERNEL
  9 BLOCK_LEVEL_EMITTER
  10 NATIVE_EMITTER
  11 LLVM_KERNEL_EMITTER
  12 CUBLAS_FISSION until 0.9
  13 CUBLASLT_FISSION
  14 CUSTOM_KERNEL_FISSION
  15 ROCBLAS_FISSION until 0.9
  16 HIPBLASLT_FISSION since 0.10
  17 YNNPACK since 0.11
  18 BLOCK_LEVEL_EMITTER_CPU since 0.11
  19 TENSOR_IR since 0.12

package rewarm
message Target
  1 gpu_device_info DeviceInfo
  5 dnn_version_info Version
  8 runtime_version Version
  7 device_description_str string
message Version
  1 major int32
  2 minor int32
  3 patch int32
message DeviceInfo
  6 core_count int32
  11 memory_bandwidth int64
  12 l2_cache_size int64
  13 clock_rate_ghz float
  16 cuda_compute_capability stream_executor.CudaComputeCapabilityProto in compute_capability
  17 rocm_compute_capability stream_executor.RocmComputeCapabilityProto in compute_capability
  25 runtime_version string
  27 dnn_version string
  34 name string
"""
# The package `rewarm` has what makes keys of `stream_executor.GpuTargetConfigProto` and its GpuDeviceInfoProto.

_FIRST, _LAST = (0, 0), (999, 0)

Minor = tuple[int, int]


class Known(NamedTuple):
    """Which JAX versions have something, by major and minor version, both ends included."""

    since: Minor = _FIRST
    until: Minor = _LAST

    def to(self, version: Minor) -> bool:
        """Whether this JAX has it."""
        return self.since <= version <= self.until


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message: a type is a scalar's name, or the full name of a message or enum."""

    number: int
    name: str
    type: str
    repeated: bool
    map_of: tuple[str, str] | tuple[()]
    oneof: str
    known: Known


@dataclass(frozen=True, slots=True)
class Message:
    """A message, by its full name."""

    name: str
    fields: tuple[Field, ...]
    known: Known


@dataclass(frozen=True, slots=True)
class Value:
    """A value of an enum."""

    number: int
    name: str
    known: Known


@dataclass(frozen=True, slots=True)
class Enum:
    """An enum, by its full name."""

    name: str
    values: tuple[Value, ...]
    known: Known


def packages() -> tuple[str, ...]:
    """The packages, each after those it needs."""
    return tuple(line.split()[1] for line in _TABLE.splitlines() if line.startswith("package "))


def package_of(name: str) -> str:
    """The package of a message or enum by its full name: the longest that it begins with."""
    return max((package for package in packages() if name.startswith(f"{package}.")), key=len)


@functools.cache
def messages() -> tuple[Message, ...]:
    """All messages, an outer one before those inside it."""
    made = []
    for kind, name, known, rows in _sections():
        if kind == "message":
            made.append(Message(name, tuple(_field(row, name) for row in rows), known))
    return tuple(made)


@functools.cache
def enums() -> tuple[Enum, ...]:
    """All enums."""
    made = []
    for kind, name, known, rows in _sections():
        if kind == "enum":
            values = tuple(Value(int(words[0]), words[1], _known(words[2:])) for words in map(str.split, rows))
            made.append(Enum(name, values, known))
    return tuple(made)


@functools.cache
def enum_names() -> frozenset[str]:
    """The full names of all enums."""
    return frozenset(name for kind, name, _, _ in _sections() if kind == "enum")


@functools.cache
def fields_of(name: str) -> dict[str, Field]:
    """The fields of a message by its full name; none for one of protobuf's own."""
    return {field.name: field for message in messages() if message.name == name for field in message.fields}


@functools.cache
def backends() -> dict[int, Value]:
    """The backends by number."""
    return {value.number: value for enum in enums() if enum.name == "xla.autotuner.Backend" for value in enum.values}


@functools.cache
def _sections() -> tuple[tuple[str, str, Known, tuple[str, ...]], ...]:
    """(kind, full name, known, lines) of each message and enum, in the table's order."""
    found: list[tuple[str, str, Known, tuple[str, ...]]] = []
    package = ""
    for line in _TABLE.splitlines():
        words = line.split()
        if line.startswith("package "):
            package = words[1]
        elif line.startswith(("message ", "enum ")):
            found.append((words[0], f"{package}.{words[1]}", _known(words[2:]), ()))
        elif words:
            kind, name, known, rows = found[-1]
            found[-1] = (kind, name, known, (*rows, line))
    return tuple(found)


@functools.cache
def _names() -> frozenset[str]:
    return frozenset(name for _, name, _, _ in _sections())


def _field(row: str, within: str) -> Field:
    number, name, *rest = row.split()
    package = package_of(within)
    repeated = rest[0] == "repeated"
    map_of: tuple[str, str] | tuple[()] = ()
    if rest[0] == "map":
        map_of = (rest[1], rest[2])
        spelled, rest = "map", rest[3:]
    else:
        spelled, rest = _full(rest[repeated], package), rest[1 + repeated :]
    oneof = rest[rest.index("in") + 1] if "in" in rest else ""
    return Field(int(number), name, spelled, repeated, map_of, oneof, _known(rest))


def _full(spelled: str, package: str) -> str:
    near = f"{package}.{spelled}"
    return near if near in _names() else spelled


def _known(words: list[str]) -> Known:
    said = {word: _minor(words[place + 1]) for place, word in enumerate(words) if word in ("since", "until")}
    return Known(**said)


def _minor(text: str) -> Minor:
    major, minor = text.split(".")
    return int(major), int(minor)
