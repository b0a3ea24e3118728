"""Make the golden record of the tuner anew, once its format has changed on purpose."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tune"))

from tune_world import a_case, a_record, a_trial  # noqa: E402

RECORD = a_record(
    a_case("f32[1024,512], bf16[8]{weak}, n=4"),
    flags=("not isolated",),
    trials=(a_trial(32), a_trial(64), a_trial(128, (), outcome="hung", reason="60 s", expires=1.8e9)),
)

if __name__ == "__main__":
    (HERE / "tuned-record-v1.json").write_bytes(RECORD.data + b"\n")
