"""A long-lived program and its cache directory, as the tests of this folder drive them."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fault_layer
from damage import replace

from conftest import clean_environment
from rewarm.envelope import open_entry, seal

HERE = Path(__file__).parent

# A request that takes longer hangs: in seconds, since other processes run beside the tests.
_PATIENCE = 60.0

# How each program's entry lies in the cache, beside what the program itself wrote: codec and level.
SEALS = {"zstd-1": ("zstd", 1), "zstd-3": ("zstd", 3), "zstd-19": ("zstd", 19), "raw": ("raw", 3)}
STORED = ("small", "medium", "gradient", "table")


class Asker:
    """The program of `asker.py` in a process of its own."""

    def __init__(self, folder: Path, layer: Path | None) -> None:
        self._folder = folder
        environment = clean_environment(PYTHONPATH=str(HERE), **({"LD_PRELOAD": str(layer)} if layer else {}))
        command = [sys.executable, str(HERE / "asker.py"), *(["--faults"] if layer else [])]
        with (folder / "asker.err").open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment, bufsize=0
            )
        self._left = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, **command: Any) -> dict[str, Any]:
        """Give one command and wait for its answer; the death and the hanging of the program are failures."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        answer = json.loads(self._line())
        assert isinstance(answer, dict)
        return answer

    def ask(self, name: str, **fault: Any) -> dict[str, Any]:
        """Run one program; its result must be right whatever happens. `fault` arms the layer meanwhile."""
        answer = self.tell(ask=name, **({"fault": fault} if fault else {}))
        assert answer["right"], answer
        return answer

    def end(self) -> int:
        """Let the program end; its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            return self._process.wait(_PATIENCE)
        finally:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        while b"\n" not in self._left:
            ready, _, _ = select.select([self._process.stdout], [], [], _PATIENCE)
            assert ready, f"no answer within {_PATIENCE:.0f} s"
            more = os.read(self._process.stdout.fileno(), 1 << 16)
            assert more, f"the program died: {(self._folder / 'asker.err').read_text(errors='replace')[-3000:]}"
            self._left += more
        line, _, self._left = self._left.partition(b"\n")
        return line


class Served:
    """The program with one cache directory, whose entries are kept as they were made.

    Attributes:
      asker: the program.
      cache: the directory in force.
      keys: of the programs' entries.
      sealed: the bytes of each entry by program and by how they are sealed.
    """

    def __init__(self, asker: Asker, cache: Path) -> None:
        self.asker = asker
        self.cache = cache
        asker.tell(enable={"directory": str(cache)})
        self.keys = {name: asker.ask(name)["key"] for name in STORED}
        self.sealed = {name: _sealings(self.path(name)) for name in STORED}

    def path(self, name: str) -> Path:
        key = self.keys[name]
        return self.cache / key[:2] / key

    def restore(self) -> None:
        """Put every entry back as it was made, and make the cache's directory the one in force again."""
        for name in STORED:
            path = self.path(name)
            if not (path.is_file() and not path.is_symlink() and path.read_bytes() == self.sealed[name]["zstd-3"]):
                replace(path, self.sealed[name]["zstd-3"])
        self.asker.tell(enable={"directory": str(self.cache)})

    def others(self, *names: str) -> dict[str, bytes]:
        """The bytes of the entries of all programs but these."""
        return {name: self.path(name).read_bytes() for name in STORED if name not in names}

    def trial(self, name: str, data: bytes) -> dict[str, Any]:
        """One trial: `data` lies in the place of an entry. One miss, rebuilt, nothing else lost, the next one hits."""
        path, others = self.path(name), self.others(name)
        replace(path, data)
        hurt = self.asker.ask(name)
        assert (hurt["outcome"], hurt["stored"]) == ("miss", True), hurt
        assert hurt["quarantined"], hurt
        assert len(hurt["lines"]) == 1, hurt
        open_entry(path.read_bytes(), path.name)
        assert self.others(name) == others
        healed = self.asker.ask(name)
        assert (healed["outcome"], healed["lines"]) == ("hit", []), healed
        return hurt


def _sealings(path: Path) -> Mapping[str, bytes]:
    entry = open_entry(path.read_bytes(), path.name)
    sections = {section.name: entry.section(section.name) for section in entry.header.sections}
    return {name: seal(entry.header, sections, codec=codec, level=level) for name, (codec, level) in SEALS.items()}


def serving(folder: Path) -> Iterator[Served]:
    """A program that answers until the generator is closed; under the fault layer where there is one."""
    layer = fault_layer.build(folder) if fault_layer.obstacle() is None else None
    asker = Asker(folder, layer)
    try:
        yield Served(asker, folder / "cache")
    finally:
        code = asker.end()
    assert code == 0
