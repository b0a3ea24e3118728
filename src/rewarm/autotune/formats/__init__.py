"""XLA's autotuning formats: read, written, converted and checked.

Not promised: that XLA serves an entry, or that it is fast. `read` gives entries and findings, `validate` more findings,
`convert` the entries of another format and why some are not among them, `write` files.

Needs the library protobuf, which is imported at the first message: pip install "rewarm[autotune]".
"""

from rewarm.autotune.formats.builds import BUILDS, Build, build_of
from rewarm.autotune.formats.converting import Conversion, convert
from rewarm.autotune.formats.errors import MissingLibraryError, TuningFormatError
from rewarm.autotune.formats.findings import Finding, Place, Severity
from rewarm.autotune.formats.keys import Device, device_of_legacy, device_of_target
from rewarm.autotune.formats.model import Family, Format, Header, Source, TuningEntry, Versions
from rewarm.autotune.formats.reading import Reading, read, read_bytes, sniff, with_keys
from rewarm.autotune.formats.records import Chosen, chosen
from rewarm.autotune.formats.validation import validate
from rewarm.autotune.formats.writing import fusion_path, serialised, write

__all__ = [
    "BUILDS",
    "Build",
    "Chosen",
    "Conversion",
    "Device",
    "Family",
    "Finding",
    "Format",
    "Header",
    "MissingLibraryError",
    "Place",
    "Reading",
    "Severity",
    "Source",
    "TuningEntry",
    "TuningFormatError",
    "Versions",
    "build_of",
    "chosen",
    "convert",
    "device_of_legacy",
    "device_of_target",
    "fusion_path",
    "read",
    "read_bytes",
    "serialised",
    "sniff",
    "validate",
    "with_keys",
    "write",
]
