"""XLA's records to entries and back, without loss.

Not promised: that a record is sound. What the fields of an entry cannot say, because it is not known or because it is
an empty message, goes into `TuningEntry.rest`, and comes back from there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from rewarm.autotune.formats import schema
from rewarm.autotune.formats.model import Family, Header, Source, TuningEntry, Versions
from rewarm.autotune.formats.protobuf import Message, message_class

RESULTS, CACHE = "xla.AutotuneResults", "xla.autotuner.AutotuneCache"
RESULT, ENTRY = "xla.AutotuneResult", "xla.autotuner.AutotuneEntry"
_LEGACY_RECORD = "xla.AutotuneResults.Entry"
_BACKEND_CONFIG = "xla.autotuner.BackendConfig"

# Which field of a legacy result stands for which backend; `other` names it, and `gemm` depends on the instruction.
_LEGACY_BACKENDS = {
    "triton": "TRITON",
    "algorithm": "CUDNN",
    "conv": "CUDNN",
    "cuda_conv_plan": "CUDNN",
    "custom_kernel_fusion": "CUSTOM_KERNEL_FISSION",
}


class Chosen(NamedTuple):
    """What an entry decides.

    Attributes:
      name: which of the kinds of configuration, by the name of its field: "triton", "gemm", "block_level"; "" for none.
      message: the configuration; `None` for none, or for one of a type that is not known.
    """

    name: str
    message: Message | None


def from_result(result: Message, digest: str, source: Source) -> TuningEntry:
    """The entry of one file of a legacy directory, whose name is `digest`."""
    return TuningEntry(
        Family.LEGACY,
        None,
        None,
        legacy_backend(result, None),
        _bytes(result),
        digest=digest,
        run_time=_run_time(result),
        source=source,
    )


def from_legacy(record: Message, source: Source) -> TuningEntry:
    """The entry of one `results` of a legacy file."""
    result = record.result
    entry = TuningEntry(
        Family.LEGACY,
        record.device,
        record.hlo,
        legacy_backend(result, record.hlo),
        _bytes(result),
        Versions(entry=record.version),
        run_time=_run_time(result),
        source=source,
    )
    return entry if _bytes(to_legacy(entry)) == _bytes(record) else replace(entry, rest=_legacy_rest(record))


def from_new(record: Message, source: Source) -> TuningEntry:
    """The entry of an `xla.autotuner.AutotuneEntry`."""
    target, environment, value = record.key.target, record.key.environment, record.value
    entry = TuningEntry(
        Family.NEW,
        target.device,
        target.hlo_fingerprint,
        _backend_name(value.optimal_config.backend),
        _bytes(value.optimal_config.backend_config),
        Versions(
            explicit=target.explicit_version,
            codegen=environment.codegen_version,
            codegen_options=environment.codegen_options_fingerprint,
            backend=value.optimal_backend_version,
        ),
        source=source,
    )
    return entry if _bytes(to_new(entry)) == _bytes(record) else replace(entry, rest=_new_rest(record))


def to_result(entry: TuningEntry) -> Message:
    """The `xla.AutotuneResult` of a legacy entry."""
    return message_class(RESULT).FromString(entry.config)


def to_legacy(entry: TuningEntry) -> Message:
    """The `xla.AutotuneResults.Entry` of a legacy entry."""
    record = message_class(_LEGACY_RECORD).FromString(entry.rest)
    record.device, record.hlo, record.version = entry.device or "", entry.fusion or "", entry.versions.entry
    if entry.config:
        record.result.MergeFromString(entry.config)
    return record


def to_new(entry: TuningEntry) -> Message:
    """The `xla.autotuner.AutotuneEntry` of an entry of the new family.

    Raises:
      ValueError: its backend is neither a known name nor a number.
    """
    record, told = message_class(ENTRY).FromString(entry.rest), entry.versions
    _set(record, ("key", "target", "device"), entry.device)
    _set(record, ("key", "target", "explicit_version"), told.explicit)
    _set(record, ("key", "target", "hlo_fingerprint"), entry.fusion)
    _set(record, ("key", "environment", "codegen_version"), told.codegen)
    _set(record, ("key", "environment", "codegen_options_fingerprint"), told.codegen_options)
    _set(record, ("value", "optimal_config", "backend"), backend_number(entry.backend))
    _set(record, ("value", "optimal_backend_version"), told.backend)
    if entry.config:
        record.value.optimal_config.backend_config.MergeFromString(entry.config)
    return record


def _set(message: Message, path: tuple[str, ...], value: str | int | None) -> None:
    """Set a field, if there is anything to say: even a default would make the messages around it be there."""
    if value:
        *outer, last = path
        for name in outer:
            message = getattr(message, name)
        setattr(message, last, value)


def backend_number(name: str) -> int:
    """The number of a backend by its name, which may be a number in digits; 0 for "".

    Raises:
      ValueError: there is no such backend.
    """
    if not name:
        return 0
    if name.lstrip("-").isdecimal():
        return int(name)
    found = next((value.number for value in schema.backends().values() if value.name == name), None)
    if found is None:
        raise ValueError(f"no backend of XLA's is named {name!r}")
    return found


def chosen(entry: TuningEntry) -> Chosen:
    """The configuration of an entry, in the same form for both families."""
    if entry.family is Family.NEW:
        return _of_backend_config(message_class(_BACKEND_CONFIG).FromString(entry.config))
    result = to_result(entry)
    name = result.WhichOneof("key") or ""
    if name != "other":
        return Chosen(name, getattr(result, name) if name else None)
    packed = result.other.config
    if packed.TypeName() != _BACKEND_CONFIG:
        return Chosen("other", None)
    try:
        return _of_backend_config(message_class(_BACKEND_CONFIG).FromString(packed.value))
    except Exception:  # noqa: BLE001 - the library's own error, whose class is in a module of the library
        return Chosen("other", None)


def _of_backend_config(config: Message) -> Chosen:
    name = config.WhichOneof("config") or ""
    return Chosen(name, getattr(config, name) if name else None)


def header_of(file: Message, family: Family) -> Header:
    """What a results file or a cache file says beside its entries."""
    rest = type(file)()
    rest.CopyFrom(file)
    for descriptor, _ in file.ListFields():
        rest.ClearField(descriptor.name)
    if family is Family.LEGACY:
        return Header(version=file.version, rest=_bytes(rest))
    return Header(0, file.device_scope, file.explicit_version_scope, _bytes(rest))


def file_of(entries: list[TuningEntry], header: Header, family: Family) -> Message:
    """The message of a whole file."""
    if family is Family.LEGACY:
        file = message_class(RESULTS).FromString(header.rest)
        file.version = header.version
        file.results.extend(to_legacy(entry) for entry in entries)
        return file
    file = message_class(CACHE).FromString(header.rest)
    file.device_scope, file.explicit_version_scope = header.device_scope, header.explicit_version_scope
    file.entries.extend(to_new(entry) for entry in entries)
    return file


def _bytes(message: Message) -> bytes:
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def _legacy_rest(record: Message) -> bytes:
    """The record without what an entry's fields say; an empty result stays, to be there again."""
    rest = _copy(record)
    for name in ("device", "hlo", "version"):
        rest.ClearField(name)
    _empty(rest, "result")
    return _bytes(rest)


def _new_rest(record: Message) -> bytes:
    rest = _copy(record)
    if rest.HasField("key"):
        for part, names in (
            ("target", ("device", "explicit_version", "hlo_fingerprint")),
            ("environment", ("codegen_version", "codegen_options_fingerprint")),
        ):
            if rest.key.HasField(part):
                for name in names:
                    getattr(rest.key, part).ClearField(name)
    if rest.HasField("value"):
        rest.value.ClearField("optimal_backend_version")
        if rest.value.HasField("optimal_config"):
            rest.value.optimal_config.ClearField("backend")
            _empty(rest.value.optimal_config, "backend_config")
    return _bytes(rest)


def _empty(message: Message, name: str) -> None:
    """Make a message that is there an empty one."""
    if message.HasField(name):
        message.ClearField(name)
        getattr(message, name).SetInParent()


def _copy(message: Message) -> Message:
    made = type(message)()
    made.CopyFrom(message)
    return made


def legacy_backend(result: Message, fusion: str | None) -> str:
    """The backend of a legacy result, for the instruction with this text; "" for none."""
    name = result.WhichOneof("key") or ""
    if name == "other":
        return str(result.other.name)
    if name == "gemm":
        # XLA takes a gemm on a fusion for one that takes the fusion apart (up to JAX 0.9: CUBLAS_FISSION, CUBLAS).
        return "CUBLASLT_FISSION" if (fusion or "").startswith("{") else "CUBLASLT"
    return _LEGACY_BACKENDS.get(name, "")


def _backend_name(number: int) -> str:
    if not number:
        return ""
    value = schema.backends().get(number)
    return value.name if value else str(number)


def _run_time(result: Message) -> float | None:
    if not result.HasField("run_time"):
        return None
    return float(result.run_time.seconds + result.run_time.nanos / 1e9)
