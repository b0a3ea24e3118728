"""Whether the backend of an entry can be that of its instruction: what XLA's tuner offers for one.

Not promised: that XLA offers it. An offer also depends on element types, flags and the device; what the text of the
instruction does not tell is not judged, and of a fusion in a legacy key it does not even tell the kind.

What a backend offers for what, in XLA's sources (`xla/backends/gpu/autotuner`), as far as a text tells it:

    TRITON                  fusions for Triton's matrix products: with a dot, and of kind kCustom
    BLOCK_LEVEL_EMITTER     fusions
    NATIVE_EMITTER          fusions of another kind than kCustom. Its type is LOOP or none, and one of another kind is
                            for fusions that have such an instruction
    CUDNN, MIOPEN           fusions with a dot or a convolution, and calls of convolutions
    CUBLAS, CUBLASLT, ...   calls of matrix products
    ..._FISSION             fusions with a dot, which it takes apart

XLA itself compares little of this with an entry that it is given: a plan of cuDNN's on a fusion that only multiplies
is taken in silence, and so is the native emitter on a matrix product of Triton's (JAX 0.12.0.1).
"""

from __future__ import annotations

from typing import Any

from rewarm.autotune.formats import hlo

_LIBRARY_GEMMS = frozenset({"CUBLAS", "CUBLASLT", "ROCBLAS", "HIPBLASLT"})
_FISSIONS = frozenset(
    {"CUBLAS_FISSION", "CUBLASLT_FISSION", "ROCBLAS_FISSION", "HIPBLASLT_FISSION", "CUSTOM_KERNEL_FISSION"}
)
_CONVOLUTIONS = frozenset({"CUDNN", "MIOPEN"})
_GEMM_CALLS = ("__cublas$", "__triton_gemm")
_CONVOLUTION_CALLS = ("__cudnn$conv",)
_CUSTOM = "kCustom"

# What a fusion has that the native emitter has an own way to emit, by what its type begins with.
_OF_EMITTER = {
    "NATIVE_EMITTER_TYPE_IN_PLACE_DYNAMIC_UPDATE_SLICE": ("dynamic-update-slice",),
    "NATIVE_EMITTER_TYPE_CONCATENATE": ("concatenate",),
    "NATIVE_EMITTER_TYPE_REDUCTION": ("reduce",),
    "NATIVE_EMITTER_TYPE_SCATTER": ("scatter",),
    "NATIVE_EMITTER_TYPE_TRANSPOSE": ("transpose", "copy", "bitcast"),
    "NATIVE_EMITTER_TYPE_PACKED_TRANSPOSE": ("transpose", "copy", "bitcast"),
}


def misfit(backend: str, name: str, config: Any, told: hlo.Instruction) -> str:
    """What another backend it should be, in words; empty where nothing tells that it should.

    Args:
      name, config: of the configuration (`records.chosen`).
    """
    if told.is_fusion:
        return _on_fusion(backend, name, config, told)
    if told.custom_call.startswith(_GEMM_CALLS) and backend not in _LIBRARY_GEMMS:
        return "a library of matrix products"
    if told.custom_call.startswith(_CONVOLUTION_CALLS) and backend not in _CONVOLUTIONS:
        return "a library of convolutions"
    takes_fusions_alone = name in ("triton", "block_level", "native_emitter", "tensor_ir") or backend in _FISSIONS
    return "a backend that takes instructions which are no fusions" if takes_fusions_alone else ""


def _on_fusion(backend: str, name: str, config: Any, told: hlo.Instruction) -> str:
    if backend in _LIBRARY_GEMMS:
        return "a backend that compiles fusions (XLA takes this one and compiles something that is not meant)"
    if name == "triton" and told.kind not in ("", _CUSTOM):
        return f"a backend for fusions of kind {told.kind}"
    if name == "native_emitter":
        return _by_native_emitter(config, told)
    return _by_what_is_in_it(backend, name, told) if told.operations else ""


def _by_what_is_in_it(backend: str, name: str, told: hlo.Instruction) -> str:
    if (name == "triton" or backend in _FISSIONS) and not told.has_dot:
        return "a backend that needs no dot"
    if backend in _CONVOLUTIONS and not (told.has_dot or told.has_convolution):
        return "a backend that needs neither dot nor convolution"
    return ""


def _by_native_emitter(config: Any, told: hlo.Instruction) -> str:
    if told.kind == _CUSTOM:
        return "a backend for fusions of kind kCustom"
    numbers = type(config).DESCRIPTOR.fields_by_name["type"].enum_type.values_by_number if config is not None else {}
    kind = numbers[config.type].name if config is not None and config.type in numbers else ""
    wanted = next((names for begins, names in _OF_EMITTER.items() if kind.startswith(begins)), ())
    if wanted and told.operations and not told.operations & set(wanted):
        return f"another type of the native emitter than {kind}, which is for a {wanted[0]}"
    return ""
