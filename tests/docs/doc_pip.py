"""What stands for pip while a page's blocks run: it says whether the installation could be, and installs nothing."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def main(arguments: list[str]) -> str:
    """What is wrong, or ""."""
    if arguments[:1] != ["install"]:
        return "" if arguments[:1] in (["--version"], ["cache"], ["list"], ["freeze"]) else f"not expected: {arguments}"
    extras = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    words = iter(arguments[1:])
    for word in words:
        if word in ("-r", "--requirement"):
            name = next(words)
            if not Path(name).exists():
                return f"no such file: {name}"
        elif (own := re.fullmatch(r"(?:-e|rewarm|\.|/\S+|rewarm @ \S+)(?:\[([\w,-]+)\])?(?:==\S+)?", word)) is not None:
            unknown = set((own.group(1) or "").split(",")) - {"", *extras}
            if unknown:
                return f"rewarm has no extra {unknown}"
        elif not re.fullmatch(r"-[-\w=./]+|[\w.-]+(\[[\w,-]+\])?([=<>~!]=?[\w.*,<>=]+)?", word):
            return f"no requirement: {word}"
    return ""


if __name__ == "__main__":
    wrong = main(sys.argv[1:])
    sys.exit(f"pip: {wrong}" if wrong else 0)
