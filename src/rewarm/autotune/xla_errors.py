"""What XLA's errors about tuning mean, in words for whoever wrote the program.

Not promised: that another build says it in these words (JAX 0.9.2 to 0.12.0.1 do); then XLA's own are passed on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rewarm.autotune.xla_flags import DETERMINISTIC

# What XLA says of a fusion without a result, when it was told to have one for each.
_LACKING = re.compile(r"No cached config found for HLO instr:?\s*(.*)", re.DOTALL)
# How it says that it has, or takes, nothing for a fusion.
_NO_CONFIG = ("No cached config found", "No supported config found")
# How it says that there is nothing to assemble its code with: JAX 0.12, and those before it.
_NO_ASSEMBLER = ("No PTX compilation provider is available", "libdevice not found")
_ASSEMBLER = (
    "XLA's compiler has no assembler here, whatever the entries; without a toolkit it takes: pip install --no-deps "
    "nvidia-cuda-nvcc nvidia-nvvm"
)

_SAYS_NOTHING = re.compile(r", (?:metadata|backend_config)=|\s\[https?:")
_SHOWN = 400


def lacking(error: str) -> str | None:
    """The fusion that XLA has no result for, in one line, without what says nothing; `None`: it is another error."""
    found = _LACKING.search(error)
    if found is None:
        return None
    line = " ".join(_SAYS_NOTHING.split(found[1], maxsplit=1)[0].split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."


def deterministic(options: Mapping[str, object]) -> str:
    """The option, of those given, for which XLA may pass over results that are there; "" for none."""
    return next((name for name in DETERMINISTIC if options.get(name) is True), "")


def explained(error: str, options: Mapping[str, object]) -> str:
    """What XLA says, and before it what that comes from, where that is known and XLA does not say it.

    Args:
      error: XLA's words.
      options: its options that are on or off, by name, as far as they are known.
    """
    if any(words in error for words in _NO_ASSEMBLER):
        return f"{_ASSEMBLER}: {error.splitlines()[0]}"
    on = deterministic(options)
    if not on or not any(words in error for words in _NO_CONFIG):
        return error
    return f"{on} is on, with which XLA takes no result of Triton's: {error}"
