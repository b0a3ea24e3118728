"""`rewarm doctor`, called for its JSON, and a Python of one's own to look into."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from conftest import Run, clean_environment, execute


class Examined:
    """What the command said."""

    def __init__(self, run: Run) -> None:
        assert run.code in (0, 1), run.err
        self.run = run
        self.told = json.loads(run.out)
        self.checks: list[dict[str, str]] = self.told["checks"]
        assert (run.code == 1) == any(check["verdict"] == "problem" for check in self.checks)

    def of(self, name: str) -> list[dict[str, str]]:
        """The findings under one name."""
        return [check for check in self.checks if check["name"] == name]

    def the(self, name: str) -> tuple[str, str]:
        """Verdict and finding of the one under this name."""
        (check,) = self.of(name)
        assert check["verdict"] == "ok" or check["advice"], "a finding says what to do next"
        return check["verdict"], check["found"]

    def problems(self) -> list[str]:
        """The names of what does not work."""
        return [check["name"] for check in self.checks if check["verdict"] == "problem"]


def doctor(
    *arguments: str, quick: bool = True, cwd: Path | None = None, prefix: tuple[str, ...] = (), **env: str
) -> Examined:
    """Call the command for its JSON."""
    command = [*prefix, sys.executable, "-m", "rewarm", "doctor", "--json", *(["--quick"] if quick else [])]
    return Examined(execute([*command, *arguments], env=clean_environment(**env), cwd=cwd or Path("/")))


def bare_python(place: Path, *, packages: bool) -> Path:
    """A Python of its own, with a way to this one's packages or without, and without rewarm's entry point."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True, timeout=120)
    python = place / "bin" / "python"
    if packages:
        here = next(path for path in sys.path if path.endswith("site-packages"))
        site = next((place / "lib").glob("python*/site-packages"))
        for item in Path(here).iterdir():
            if not item.name.startswith(("rewarm", "_rewarm", "_editable", "__editable")) and item.suffix != ".pth":
                (site / item.name).symlink_to(item)
    return python
