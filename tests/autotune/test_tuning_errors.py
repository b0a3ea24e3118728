"""What XLA's errors about tuning mean. That XLA says it so is tested with the real compiler (`test_tuning_hazards`,
`tests/adapter/test_tuning_directories`)."""

from __future__ import annotations

import pytest

from rewarm.autotune.xla_errors import deterministic, explained, lacking

ON = {"xla_gpu_deterministic_ops": True}


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("UNAVAILABLE: No PTX compilation provider is available. Neither\nmany lines", "pip install --no-deps nvidia-"),
        ("INTERNAL: libdevice not found at ./libdevice.10.bc", "pip install --no-deps nvidia-"),
        ("NOT_FOUND: No cached config found for HLO instr: %a", "xla_gpu_deterministic_ops is on"),
        ("INTERNAL: No supported config found for HLO: %a", "xla_gpu_deterministic_ops is on"),
    ],
)
def test_what_xla_does_not_say(error: str, says: str) -> None:
    assert says in explained(error, ON)
    assert explained(error, ON).endswith(error.splitlines()[0])
    assert (explained(error, {"xla_gpu_deterministic_ops": False}) == error) is ("config found" in error)
    assert explained("RESOURCE_EXHAUSTED: too much", ON) == "RESOURCE_EXHAUSTED: too much"


def test_a_fusion_is_named_without_what_says_nothing() -> None:
    error = "NOT_FOUND: No cached config found for HLO instr: %a = f32[8]{0} fusion(%p),\n kind=kCustom, metadata={b}"
    assert lacking(error) == "%a = f32[8]{0} fusion(%p), kind=kCustom"
    assert lacking("INTERNAL: something else") is None
    line = lacking("No cached config found for HLO instr: " + "x" * 9999)
    assert line is not None
    assert len(line) < 500


def test_either_option_turns_tuning_off() -> None:
    assert deterministic({"xla_gpu_exclude_nondeterministic_ops": True}) == "xla_gpu_exclude_nondeterministic_ops"
    assert deterministic({"xla_gpu_deterministic_ops": False, "xla_gpu_autotune_level": 4}) == ""
