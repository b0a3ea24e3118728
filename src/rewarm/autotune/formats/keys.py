"""The keys that XLA looks tuning entries up by: device, fusion, versions, and the names of files.

Not promised: that a described device has the figures that a real one's driver reports. Keys hold clock, bandwidth and
cache size, so a description that is a little off has other keys.

    device text    CUDA: 9.0, Cores: 132, GPU clock: 1.98 GHz, Memory bandwidth: 4800 GB/s, L2 cache: 50 MB
                   and in the legacy formats ", DNN version: 9.10.0" after it
    legacy key     <key model='DEVICE TEXT', hlo='HLO TEXT', version=N>
    legacy file    base64url(SHA-256(legacy key)) without padding, ".textproto"
    new device     Fingerprint64 of the device text: 16 hexadecimal digits
    new fusion     Fingerprint128 of the instruction's text: 32 hexadecimal digits, the high half first
    codegen        Fingerprint64 of "BACKEND:version,..." in the order of the backends' numbers
    new file       DEVICE/[EXPLICIT VERSION/]FUSION.pb

Checked against the keys that the compilers of JAX 0.9.2, 0.10.2, 0.11.2 and 0.12.0.1 ask for.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rewarm.autotune.formats import farmhash, schema
from rewarm.autotune.formats.builds import Build
from rewarm.autotune.formats.errors import TuningFormatError
from rewarm.autotune.formats.findings import Place, error
from rewarm.autotune.formats.hlo import fusion_text
from rewarm.autotune.formats.protobuf import message_class, module, pool
from rewarm.autotune.formats.text import LARGEST

# What the compilers of JAX 0.11.2 and 0.12.0.1 have on each fusion that Triton's gemm tuner looks up.
TRITON_GEMM_CONFIG = (
    '{"device_type":"DEVICE_TYPE_INVALID","force_earliest_schedule":false,'
    '"fusion_backend_config":{"kind":"__triton_gemm"},"operation_queue_id":"0","reification_cost":[]}'
)

_DIGEST = re.compile(r"[A-Za-z0-9_-]{43}")
_DEVICE, _FUSION = re.compile(r"[0-9a-f]{16}"), re.compile(r"[0-9a-f]{32}")
_DNN = re.compile(r", DNN version: [0-9.]+$")
_LARGEST_TARGET = min(1 << 20, LARGEST)
_REMEMBERED = 512  # characters


@dataclass(frozen=True, slots=True)
class Device:
    """A kind of device, as keys have it.

    Attributes:
      text: what both families have in common.
      dnn_version: of cuDNN, "9.10.0"; empty where it is not known.
      runtime_version: of CUDA, "12.8.0", which stands for cuBLAS's; empty where it is not known.
      name: what people call it; in no key.
    """

    text: str
    dnn_version: str = ""
    runtime_version: str = ""
    name: str = ""

    @property
    def legacy(self) -> str:
        """The device text of the legacy formats."""
        return f"{self.text}, DNN version: {self.dnn_version}"

    @property
    def fingerprint(self) -> str:
        """The device of the new formats."""
        return fingerprint64(self.text)


def device_of_target(target: str) -> Device:
    """The device that a text `stream_executor.GpuTargetConfigProto` describes. Fields that no key has are skipped.

    Raises:
      TuningFormatError: it is no such text, or describes neither a CUDA nor a ROCm device.
      MissingLibraryError: protobuf is not there.
    """
    if len(target) > _LARGEST_TARGET:
        found = f"{len(target)} characters"
        raise TuningFormatError(error("too-large", Place(), f"at most {_LARGEST_TARGET} characters", found))
    described = message_class("rewarm.Target")()
    try:
        module("text_format").Parse(target, described, descriptor_pool=pool(), allow_unknown_field=True)
    except Exception as wrong:  # noqa: BLE001 - on broken input the library raises more than its own error
        raise TuningFormatError(error("target", Place(), "a text GpuTargetConfigProto", str(wrong))) from None
    about = described.gpu_device_info
    return Device(
        _device_text(about),
        about.dnn_version or _dotted(described, "dnn_version_info"),
        about.runtime_version or _dotted(described, "runtime_version"),
        described.device_description_str or about.name,
    )


def device_of_legacy(text: str) -> Device:
    """The device of a legacy entry's device text."""
    end = _DNN.search(text)
    return Device(text[: end.start()], text[end.start() :].rpartition(" ")[2]) if end else Device(text)


def _device_text(about: Any) -> str:
    kind = about.WhichOneof("compute_capability")
    if kind == "cuda_compute_capability":
        capability = f"CUDA: {about.cuda_compute_capability.major}.{about.cuda_compute_capability.minor}"
    elif kind == "rocm_compute_capability":
        capability = f"ROCM: {about.rocm_compute_capability.gcn_arch_name.partition(':')[0]}"
    else:
        place, found = Place(), kind or "none"
        raise TuningFormatError(error("target", place, "a compute capability of CUDA or ROCm", found))
    bandwidth = math.floor(about.memory_bandwidth / 1e9 + 0.5)  # away from zero at a half, unlike Python's round
    return (
        f"{capability}, Cores: {about.core_count}, GPU clock: {about.clock_rate_ghz:.6g} GHz, "
        f"Memory bandwidth: {bandwidth:.6g} GB/s, L2 cache: {about.l2_cache_size / 2**20:.6g} MB"
    )


def _dotted(described: Any, name: str) -> str:
    if not described.HasField(name):
        return ""
    version = getattr(described, name)
    return f"{version.major}.{version.minor}.{version.patch}"


def legacy_key(device: str, fusion: str, version: int) -> str:
    """The key of the legacy formats, as XLA writes it into its log."""
    return f"<key model='{device}', hlo='{fusion}', version={version}>"


def legacy_digest(device: str, fusion: str, version: int) -> str:
    """The name of a file in a legacy directory, without ".textproto"."""
    digest = hashlib.sha256(legacy_key(device, fusion, version).encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def is_legacy_digest(name: str) -> bool:
    """Whether a name is one of a legacy file's, without ".textproto"."""
    return bool(_DIGEST.fullmatch(name))


def is_device(name: str) -> bool:
    """Whether a text is a device of the new formats."""
    return bool(_DEVICE.fullmatch(name))


def is_fusion(name: str) -> bool:
    """Whether a text is a fusion of the new formats."""
    return bool(_FUSION.fullmatch(name))


def fingerprint64(text: str) -> str:
    """FarmHash's Fingerprint64, as XLA writes it."""
    return _fingerprint64(text) if len(text) <= _REMEMBERED else f"{farmhash.fingerprint64(text.encode()):016x}"


@functools.lru_cache(1 << 10)
def _fingerprint64(text: str) -> str:
    """Devices and builds are few and short, and asked for with each entry."""
    return f"{farmhash.fingerprint64(text.encode()):016x}"


def fingerprint128(text: str) -> str:
    """FarmHash's Fingerprint128, as XLA writes it."""
    low, high = farmhash.fingerprint128(text.encode())
    return f"{high:016x}{low:016x}"


def fusion_fingerprint(body: str, kind: str, backend_config: str = "") -> str:
    """The fusion of the new formats, from what `hlo.fusion_text` takes.

    Raises:
      ValueError: the body is no computation of a fusion.
    """
    return fingerprint128(fusion_text(body, kind, backend_config))


def codegen_versions(build: Build, device: Device) -> dict[str, str]:
    """The versions of the backends of a build for a device with a compiler of CUDA; empty for an unknown build."""
    if not build.backend_versions:
        return {}
    libraries = {"CUBLASLT": device.runtime_version, "CUBLASLT_FISSION": device.runtime_version}
    return {**build.backend_versions, "CUDNN": device.dnn_version, **libraries}


def codegen_text(versions: Mapping[str, str]) -> str:
    """The text that the codegen version is a fingerprint of."""
    numbers = {value.name: value.number for value in schema.backends().values()}
    return ",".join(f"{name}:{versions[name]}" for name in sorted(versions, key=numbers.__getitem__))


def codegen_version(versions: Mapping[str, str]) -> str:
    """The codegen version of the new formats, from the versions of the backends by name."""
    return fingerprint64(codegen_text(versions))
