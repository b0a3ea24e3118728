"""Makes the golden entries of the present envelope version.

Only rerun after a deliberate bump of `ENVELOPE_VERSION`, and then keep the files of the older versions: an entry that
was written once must open, or be refused by its version, for ever. The files are named after the version, so a rerun
without a bump would overwrite what it is to be measured against; it refuses to.

    python tests/golden/make.py
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from rewarm.envelope import ENVELOPE_VERSION, Header, seal

GOLDEN = Path(__file__).parent
KEY = hashlib.sha256(b"the key of the golden entry").hexdigest()
HEADER = Header(
    kind="executable",
    key=KEY,
    components=(
        {"name": "format", "digest": hashlib.sha256(b"1").hexdigest(), "value": 1},
        {"name": "program", "digest": hashlib.sha256(b"module").hexdigest()},
        {"name": "salt", "digest": hashlib.sha256(b"salt").hexdigest(), "value": {"salt": "Grüße", "flags": []}},
    ),
    program="jit_train_step",
    compile_seconds=12.625,
    load_seconds=None,
    created=1700000000.5,
    producer={"rewarm": "0.1.0", "jax": "0.10.2", "jaxlib": "0.10.2", "python": "3.11.7"},
    target="cpu x1",
)
SECTIONS = {
    "executable": b"the executable: " + bytes(range(256)) + b"\0" * 1000,
    "program": b"the program",
    "nothing": b"",
}
CODECS = ("raw", "zstd")


def golden_file(codec: str, version: int = ENVELOPE_VERSION) -> Path:
    """Where the golden entry of a codec lies."""
    return GOLDEN / f"envelope-v{version}-{codec}.rwrm"


def main() -> int:
    """Write the files that are not there yet."""
    for codec in CODECS:
        path = golden_file(codec)
        if path.exists():
            print(f"{path.name} is there already; bump ENVELOPE_VERSION first", file=sys.stderr)
            return 1
        path.write_bytes(seal(HEADER, SECTIONS, codec=codec))
    return 0


if __name__ == "__main__":
    sys.exit(main())
