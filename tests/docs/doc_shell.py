"""One page's blocks, run in their order as a reader would type them: in one folder, by fresh processes.

Not promised: a network. `pip install` checks that what is asked for could be (extras, files, requirements), and
installs nothing: the environment of the tests has it. `srun` runs its command here, once. The folder has links to those
folders of a clone that the page names.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

import doc_blocks
from doc_blocks import PYTHON, ROOT, SHELL, Block

from conftest import clean_environment

_CLONE = ("examples", "benchmarks", "bazel", "scripts")
_SEPARATOR = "\x1e"

# Folders of the reader's in examples, which are made below the scratch folder.
_ABSOLUTE = re.compile(r"(?:(?<=file://)|(?<![\w./~-]))/(?=(?:tmp|path|shared|scratch|mnt|nfs)\b)")


@dataclass
class Session:
    """A reader at work on one page.

    Attributes:
      folder: where he is.
      links: what he has there of the clone.
      environment: what he has exported so far.
      printed: what the last block printed.
    """

    folder: Path
    links: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    printed: str = ""

    def __post_init__(self) -> None:
        (self.folder / "home").mkdir()
        (self.folder / "tmp").mkdir()
        for name in self.links:
            (self.folder / name).symlink_to(ROOT / name)
        self._tools()
        self.environment = self.environment or clean_environment(
            HOME=str(self.folder / "home"),
            TMPDIR=str(self.folder / "tmp"),
            PATH=os.pathsep.join((str(self.folder / "tools"), str(Path(sys.executable).parent), os.environ["PATH"])),
            COLUMNS="120",
        )
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
            self.environment.pop(name, None)

    def _tools(self) -> None:
        tools = self.folder / "tools"
        tools.mkdir()
        for name, does in (("pip", f"{sys.executable} {Path(__file__).with_name('doc_pip.py')}"), ("srun", "")):
            (tools / name).write_text(f'#!/bin/sh\nexec {does} "$@"\n')
            (tools / name).chmod(0o755)

    def write(self, block: Block) -> Path:
        """The block as the file that it names."""
        path = self.folder / (block.file or "block.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._placed(block.text))
        return path

    def run(self, block: Block) -> None:
        """Run a block, and hold what it prints against the page.

        Raises:
          AssertionError: it did not end as the page says, or printed something else.
        """
        if block.has_steps:
            self._steps(block)
        elif block.info == PYTHON:
            self._python(block)
        elif block.info == "sh":
            self._script(block, [block.text])
        else:
            self._console(block)

    def _python(self, block: Block) -> None:
        path = self.folder / (block.file or "block.py")
        path.write_text(self._placed(block.before + "\n" + block.text))
        done = subprocess.run(
            [sys.executable, str(path)],
            env={**self.environment, "PYTHONPATH": str(self.folder)},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == block.exit, f"{block.where}: ended with {done.returncode}\n{done.stderr[-3000:]}"
        self.printed = done.stdout + done.stderr

    def _steps(self, block: Block) -> None:
        """Run the steps of each job of a workflow that are commands, in the job's environment."""
        import yaml

        for job in yaml.safe_load(block.text)["jobs"].values():
            said = {name: self._expression(str(value)) for name, value in job.get("env", {}).items()}
            before = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in said.items())
            steps = [step["run"] for step in job["steps"] if "run" in step]
            kept = dict(self.environment)
            self._script(replace(block, before=before, info="sh"), steps)
            self.environment = kept

    def _expression(self, text: str) -> str:
        """A value of a CI's file, with what it has of secrets."""
        return re.sub(r"\$\{\{ secrets\.(\w+) \}\}", lambda found: self.environment[found.group(1)], text)

    def _console(self, block: Block) -> None:
        typed = commands_of(block.text)
        printed = self._script(block, [command for command, _ in typed])
        for (command, shown), came in zip(typed, printed, strict=True):
            if shown.strip() and not block.differs:
                compare(f"{block.where}: {command}", shown, came, is_excerpt=block.is_excerpt)

    def _script(self, block: Block, commands: list[str]) -> list[str]:
        """Run commands one after the other, in one shell that hands its environment and folder on."""
        state = self.folder / "tmp" / "environment"
        lines = [self._placed(block.before)]
        for number, command in enumerate(commands):
            lines += [f"printf '{_SEPARATOR}'", self._placed(command)]
            wanted = block.exit if number == len(commands) - 1 else 0
            lines += [f'code=$?; [ "$code" = {wanted} ] || {{ echo "ended with $code"; exit 99; }}']
        lines += [f"printf '{_SEPARATOR}'", f"env -0 > {shlex.quote(str(state))}"]
        options = ["-e"] if block.info == "sh" else []
        done = subprocess.run(
            ["bash", *options, "-uo", "pipefail", "-c", "\n".join(lines)],
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode == 0, f"{block.where}: {done.stdout[-3000:]}"
        said = (entry.partition("=") for entry in state.read_text().split("\0") if entry)
        self.environment = {name: value for name, _, value in said if name not in ("_", "SHLVL", "PWD", "OLDPWD")}
        self.printed = "".join(done.stdout.split(_SEPARATOR)[1:])
        return done.stdout.split(_SEPARATOR)[1:-1]

    def _placed(self, text: str) -> str:
        return _ABSOLUTE.sub(lambda _: f"{self.folder}/", text)


def commands_of(text: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output that stands below it."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif found and found[-1][0].endswith("\\") and not found[-1][1]:
            found[-1] = (f"{found[-1][0]}\n{line}", "")
        else:
            assert found, f"a console block begins with a command, not with {line!r}"
            found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
    return found


def run_page(page: str, folder: Path, **environment: str) -> int:
    """Run all blocks of a page that are to be run; how many those were."""
    text = "".join(block.text for block in doc_blocks.blocks_of(page) if block.info in {*SHELL, PYTHON})
    session, ran = Session(folder, tuple(name for name in _CLONE if f" {name}/" in text)), 0
    session.environment |= environment
    blocks = doc_blocks.blocks_of(page)
    for number, block in enumerate(blocks):
        if block.file and not block.is_output:
            session.write(block)
        if block.is_output:
            compare(block.where, block.text, session.printed, is_excerpt=block.is_excerpt)
        elif any(find_spec(module) is None for module in block.needs):
            session.printed = ""
        elif not block.not_run and (
            block.has_steps
            or block.info in SHELL
            or (block.info == PYTHON and not _is_run_later(block, blocks[number:]))
        ):
            session.run(block)
            ran += 1
    return ran


def _is_run_later(block: Block, later: tuple[Block, ...]) -> bool:
    """Whether a block that is a file is run, or read, by commands that follow."""
    if not block.file:
        return False
    stem = Path(block.file).stem
    return any(
        re.search(rf"\b{re.escape(stem)}\b", other.text)
        for other in later[1:]
        if other.info in SHELL and not other.not_run
    )


# ---------------------------------------------------------------------------------------------------------------
# What a page shows, against what came

_FIGURES = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"\b\d{8}T\d{6}Z-\d+-[0-9a-f]+\b"), "RUN"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?"), "TIME"),
    (re.compile(r"\brewarm-[a-z0-9]+:[\w+/=-]+"), "PUBLIC"),
    (re.compile(r"%\w+?_\d+\b"), "%cst"),
    (re.compile(r"(?<!\w)-?\b\d[\d,]*\.\d+(e[+-]?\d+)?"), "N"),
    (re.compile(r"\b(entr)(?:y|ies)\b"), r"\1y"),
    (re.compile(r"\b(request|hit|miss|run|program|problem|note)(?:e?s)\b"), r"\1"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{6,64}\b"), "DIGEST"),
    (re.compile(r"(?<![\w.])[~/][\w.~/-]*/[\w.-]+(:\d+)?"), "PATH"),
    (re.compile(r"\b\d[\d,]*(?= (?:s|ms|KB|MB|GB|KiB|MiB|GiB|B|bytes|%|minutes|rounds)\b)"), "N"),
    (re.compile(r"\bN (KB|MB|GB|KiB|MiB|GiB|B|bytes|ms|s)\b"), "N UNIT"),
    (re.compile(r"[ \t]+"), " "),
)


def normal(text: str) -> list[str]:
    """Lines in which times, sizes, paths, digests and spacing do not count."""
    for pattern, word in _FIGURES:
        text = pattern.sub(word, text)
    return [line.strip() for line in text.splitlines() if line.strip() and not _is_xlas(line)]


def _is_xlas(line: str) -> bool:
    """Lines that XLA writes to standard error by itself."""
    return bool(re.match(r"(WARNING: All log messages|[IWE]\d{4} |\d{4}-\d\d-\d\d .*: [IWE] )", line))


def compare(where: str, shown: str, came: str, *, is_excerpt: bool = False) -> None:
    """Hold what a page shows against what came; a line of dots stands for any lines, and at a line's end for its rest.

    Of an excerpt the lines come in this order, among others.

    Raises:
      AssertionError: they differ.
    """
    any_lines = r"(?:.*\n)*"
    lines = [any_lines if line == "..." else _line(line) for line in normal(shown)]
    pattern = any_lines.join(("", *lines, "")) if is_excerpt else "".join(lines)
    assert re.fullmatch(pattern, "".join(f"{line}\n" for line in normal(came))), (
        f"{where} shows\n{shown}\nand printed\n{came}\nwhich is, without figures,\n" + "\n".join(normal(came))
    )


def _line(line: str) -> str:
    if line.endswith(" ..."):
        return re.escape(line[:-4]) + r".*\n"
    return re.escape(line) + r"\n"
