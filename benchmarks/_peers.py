"""The contestants of `peers.py`: caches of several compilers, each with a small program of its own ground.

All answer the same questions: run once, in a fresh process, with this directory for a cache; which of its files a
damage may strike; and what to write so that it holds many entries. What a run tells is read from its output, from
JAX's and rewarm's counts, or from a compiler that counts how often it is asked.

Not promised: that a contestant is at its best by all of its settings. Each has its defaults, but for what is
named here.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from _processes import RECORDER, BenchmarkError, run_command

PROGRAMS = Path(__file__).resolve().parent / "peer_programs"
FILLER = os.urandom(4096)

# Of the transformer, in JAX and in PyTorch.
LAYERS = 12

# A C++ compiler that writes down each time that it is asked to compile, not only to preprocess or to say what it is.
COUNTING = """#!/bin/sh
case " $* " in
*" -E "*) ;;
*.cpp*|*" -fpreprocessed "*|*.ii" "*) echo compiled >>"$PEER_COMPILES" ;;
esac
exec {compiler} "$@"
"""


@dataclass(frozen=True)
class Outcome:
    """One finished start.

    `ready` is the seconds until all was imported, `first` those of the first call or compile; 0 where the process is
    the compile. `result` is "" where it gave none. `traced` is for `rewarm.jit` alone: its function was traced.
    """

    seconds: float
    status: int
    result: str
    compiled: bool
    ready: float = 0.0
    first: float = 0.0
    traced: bool = False
    output: str = field(default="", repr=False)


@dataclass(frozen=True)
class Place:
    """Where a start happens: the folder of the sources, the working directory, and the cache."""

    sources: Path
    cache: Path
    cwd: Path


class Peer:
    """A cache and the program it is tried with. What differs is overridden."""

    name = ""
    kind = ""
    """The folder of its program."""
    fills = 1
    """After how many starts it is as warm as it gets."""
    crowds: tuple[int, ...] = (2, 8)
    """How many processes at once are tried."""
    flips = 3
    """In how many places of a file a bit is flipped, one at a time."""
    slow = False
    """Its starts take so long that it has one round of each."""
    has_server = False
    """A server beside its starts stays from one to the next."""
    parts: tuple[str, ...] = ("share", "hits", "damage", "edits", "crowd")
    """In what it takes part."""
    timeout = 120.0

    def missing(self) -> str:
        """What is not installed, or ""."""
        return ""

    def version(self) -> str:
        """Its name with its version, for the page."""
        return self.name

    @contextlib.contextmanager
    def served(self, cache: Path) -> Iterator[None]:  # noqa: ARG002
        """What runs beside the starts."""
        yield

    def run(self, place: Place, *, bare: bool = False) -> Outcome:
        """One start, in a fresh process; without any cache if `bare`."""
        with tempfile.TemporaryDirectory(prefix="peer-") as name:
            folder = Path(name)
            command, settings = self.command(place, folder)
            if bare:
                command, settings = self.without_cache(command, settings)
            begun = time.perf_counter()
            output, status = run_command(command, settings, self.timeout, place.cwd)
            return self.outcome(time.perf_counter() - begun, output, status, folder)

    def command(self, place: Place, folder: Path) -> tuple[Sequence[str], Mapping[str, str]]:
        """The command of one start and its environment; `folder` is for what it leaves to be read."""
        raise NotImplementedError

    def without_cache(
        self, command: Sequence[str], settings: Mapping[str, str]
    ) -> tuple[Sequence[str], Mapping[str, str]]:
        """The same start without any cache."""
        raise NotImplementedError

    def outcome(self, seconds: float, output: str, status: int, folder: Path) -> Outcome:
        """What came of a start that printed READY, FIRST, RESULT and MISSED."""
        missed = said(output, "MISSED")
        return Outcome(
            seconds,
            status,
            said(output, "RESULT"),
            missed not in ("", "0") or compiles(folder) > 0,
            float(said(output, "READY") or 0),
            float(said(output, "FIRST") or 0),
            output=output,
        )

    def entries(self, cache: Path) -> list[Path]:
        """The files of entries, for damage; not locks and accounts. A warm start need not read each of them."""
        raise NotImplementedError

    def fill(self, cache: Path, count: int) -> None:
        """Write so many more entries, by the names that its own have; they are never read."""
        raise NotImplementedError


def said(output: str, word: str) -> str:
    """What stands behind a word at the beginning of a line, of the last such line; "" without one."""
    found = re.findall(rf"^{word} (\S+)$", output, re.MULTILINE)
    return found[-1] if found else ""


def compiles(folder: Path) -> int:
    """How often the counting compiler was asked to compile."""
    log = folder / "compiles"
    return len(log.read_text(encoding="ascii").splitlines()) if log.exists() else 0


def counting_compiler(folder: Path) -> dict[str, str]:
    """The environment that has the counting compiler write into `folder`."""
    return {"PEER_COMPILES": str(folder / "compiles")}


def make_counting_compiler(folder: Path) -> Path:
    """The counting compiler, in a place that stays the same over a run: caches look at where a compiler lies."""
    path = folder / "g++"
    path.write_text(COUNTING.format(compiler=shutil.which("g++")))
    path.chmod(0o755)
    return path


def other_names(count: int, example: str) -> Iterator[str]:
    """So many names with the letters and the length of this one."""
    letters = sorted(set("0123456789abcdef") & set(example.lower())) or list("01")
    for number in range(count):
        digest = hashlib.sha512(f"{number}".encode()).digest() * 2
        yield "".join(letters[byte % len(letters)] for byte in digest[: len(example)])


class OfJax(Peer):
    """JAX's program, its layers and its counts."""

    kind = "jax"

    def missing(self) -> str:
        return "" if importlib.util.find_spec("jax") else "jax is not installed"

    def settings(self, cache: Path) -> dict[str, str]:
        """What switches the cache on."""
        raise NotImplementedError

    def command(self, place: Place, folder: Path) -> tuple[Sequence[str], Mapping[str, str]]:
        command = [sys.executable, str(RECORDER), str(folder / "record"), str(place.sources / "main.py")]
        return [*command, str(LAYERS)], {"JAX_PLATFORMS": "cpu", **self.settings(place.cache)}

    def without_cache(
        self, command: Sequence[str], settings: Mapping[str, str]
    ) -> tuple[Sequence[str], Mapping[str, str]]:
        return command, {"JAX_PLATFORMS": settings["JAX_PLATFORMS"]}

    def outcome(self, seconds: float, output: str, status: int, folder: Path) -> Outcome:
        plain = super().outcome(seconds, output, status, folder)
        record = folder / "record"
        if not record.exists():
            return plain
        told = json.loads(record.read_text(encoding="utf-8"))
        if (counts := told["rewarm"]) is None:
            return replace(plain, compiled=told["compile_calls"] > told["events"].get("cache_hits", 0))
        compiled = counts["misses"] + sum(counts["left_to_jax"].values())
        return replace(plain, compiled=compiled > 0, traced=self.traced(counts))

    def traced(self, counts: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """Whether a trace was made that `rewarm.jit` could have skipped, by rewarm's counts."""
        return False


class Native(OfJax):
    """JAX's own cache, storing all that is compiled; it compresses by zlib, as where zstandard is not installed."""

    name = "JAX's own"

    def version(self) -> str:
        return version_of("jax", "JAX")

    def settings(self, cache: Path) -> dict[str, str]:
        return {
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            "PEER_WITHOUT": "zstandard",
        }

    def entries(self, cache: Path) -> list[Path]:
        return sorted(cache.glob("*-cache"))

    def fill(self, cache: Path, count: int) -> None:
        example = self.entries(cache)[0].name
        for name in other_names(count, "0123456789abcdef" * 4):
            (cache / re.sub("[0-9a-f]{64}", name, example)).write_bytes(FILLER)


class NativeZstandard(Native):
    """The same with zstandard installed, which JAX then takes: other bytes on disk, so damage may do something else."""

    name = "JAX's own (zstandard)"
    parts = ("damage",)
    flips = 12

    def missing(self) -> str:
        return super().missing() or ("" if importlib.util.find_spec("zstandard") else "zstandard is not installed")

    def settings(self, cache: Path) -> dict[str, str]:
        return {**super().settings(cache), "PEER_WITHOUT": ""}


class Rewarm(OfJax):
    """rewarm, by its directory alone. The second start loads ahead what the first one loaded."""

    name = "rewarm"
    fills = 2

    def version(self) -> str:
        return version_of("rewarm", "rewarm")

    def settings(self, cache: Path) -> dict[str, str]:
        return {"REWARM_DIR": str(cache)}

    def entries(self, cache: Path) -> list[Path]:
        entries = [path for path in cache.glob("[0-9a-f][0-9a-f]/*") if len(path.name) == 64]
        return sorted([*entries, *cache.glob("loads/*.json"), *cache.glob("traces/*/*.*")])

    def fill(self, cache: Path, count: int) -> None:
        for name in other_names(count, "0123456789abcdef" * 4):
            (cache / name[:2]).mkdir(exist_ok=True)
            (cache / name[:2] / name).write_bytes(FILLER)


class RewarmJit(Rewarm):
    """The same with `rewarm.jit`, which skips a trace once another process has proved it."""

    name = "rewarm.jit"
    fills = 3
    flips = 1

    def settings(self, cache: Path) -> dict[str, str]:
        return {**super().settings(cache), "PEER_JIT": "rewarm"}

    def traced(self, counts: Mapping[str, Any]) -> bool:
        return not counts["jitted"].get("skipped", 0)


class Torch(Peer):
    """torch.compile on the CPU, whose kernels a C++ compiler makes. A cold start takes up to a minute.

    Of each kind of file the largest is damaged: some trials take as long as a cold start.
    """

    name = "torch.compile"
    kind = "torch"
    crowds = (2,)
    flips = 1
    slow = True
    timeout = 400.0

    def __init__(self, compiler: Path) -> None:
        self._compiler = compiler

    def missing(self) -> str:
        if not importlib.util.find_spec("torch"):
            return "torch is not installed"
        return "" if shutil.which("g++") else "there is no g++"

    def version(self) -> str:
        return version_of("torch", "PyTorch")

    def command(self, place: Place, folder: Path) -> tuple[Sequence[str], Mapping[str, str]]:
        settings = {"TORCHINDUCTOR_CACHE_DIR": str(place.cache), "CXX": str(self._compiler)}
        settings |= {"CUDA_VISIBLE_DEVICES": "", **counting_compiler(folder)}
        return [sys.executable, str(place.sources / "main.py"), str(LAYERS)], settings

    def without_cache(
        self, command: Sequence[str], settings: Mapping[str, str]
    ) -> tuple[Sequence[str], Mapping[str, str]]:
        return command, {**settings, "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}

    def entries(self, cache: Path) -> list[Path]:
        kinds = ("aotautograd/*/*", "fxgraph/*/*/*", "??/*.main.so", "??/*.py")
        found = ([path for path in cache.glob(kind) if path.is_file()] for kind in kinds)
        return [max(files, key=lambda path: path.stat().st_size) for files in found if files]

    def fill(self, cache: Path, count: int) -> None:
        for kind, depth in (("aotautograd", 1), ("fxgraph", 2)):
            example = next(path for path in cache.glob(f"{kind}/" + "*/" * depth) if path.is_dir())
            for name in other_names(count, example.name):
                folder = example.parent if depth == 1 else cache / kind / name[1:3]
                (folder / name).mkdir(parents=True, exist_ok=True)
                (folder / name / next(example.iterdir()).name).write_bytes(FILLER)


class Triton(Peer):
    """Triton, compiling one kernel for a GPU that is only named."""

    name = "Triton"
    kind = "triton"
    flips = 1

    def missing(self) -> str:
        return "" if importlib.util.find_spec("triton") else "triton is not installed"

    def version(self) -> str:
        return version_of("triton", "Triton")

    def command(self, place: Place, folder: Path) -> tuple[Sequence[str], Mapping[str, str]]:  # noqa: ARG002
        return [sys.executable, str(place.sources / "main.py")], {"TRITON_CACHE_DIR": str(place.cache)}

    def without_cache(
        self, command: Sequence[str], settings: Mapping[str, str]
    ) -> tuple[Sequence[str], Mapping[str, str]]:
        return command, {**settings, "TRITON_ALWAYS_COMPILE": "1"}

    def entries(self, cache: Path) -> list[Path]:
        return sorted(path for path in cache.glob("*/*") if path.is_file())

    def fill(self, cache: Path, count: int) -> None:
        example = self.entries(cache)[0]
        for name in other_names(count, example.parent.name):
            (cache / name.upper()).mkdir(exist_ok=True)
            (cache / name.upper() / example.name).write_bytes(FILLER)


class OfCxx(Peer):
    """A cache in front of g++: one object file, whose digest is the result. The process is the compile."""

    kind = "cpp"
    tool = ""

    def __init__(self, compiler: Path) -> None:
        self._compiler = compiler

    def missing(self) -> str:
        return "" if shutil.which(self.tool) and shutil.which("g++") else f"there is no {self.tool}, or no g++"

    def version(self) -> str:
        output, _ = run_command([self.tool, "--version"], {}, 20)
        return " ".join(output.splitlines()[0].replace("version", "").split()) if output else self.tool

    def settings(self, cache: Path) -> dict[str, str]:
        """What names its directory."""
        raise NotImplementedError

    def command(self, place: Place, folder: Path) -> tuple[Sequence[str], Mapping[str, str]]:
        command = [self.tool, str(self._compiler), "-O2", "-c", str(place.sources / "main.cpp")]
        return [*command, "-o", str(folder / "main.o")], {**self.settings(place.cache), **counting_compiler(folder)}

    def without_cache(
        self, command: Sequence[str], settings: Mapping[str, str]
    ) -> tuple[Sequence[str], Mapping[str, str]]:
        return command[1:], settings

    def outcome(self, seconds: float, output: str, status: int, folder: Path) -> Outcome:
        made = folder / "main.o"
        result = hashlib.sha256(made.read_bytes()).hexdigest() if made.exists() else ""
        return Outcome(seconds, status, result, compiles(folder) > 0, output=output)


class Ccache(OfCxx):
    """ccache, told where paths begin that may change (`base_dir`), as its manual advises for several checkouts."""

    name = tool = "ccache"

    def __init__(self, compiler: Path, base: Path) -> None:
        super().__init__(compiler)
        self._base = base

    def settings(self, cache: Path) -> dict[str, str]:
        return {"CCACHE_DIR": str(cache), "CCACHE_BASEDIR": str(self._base)}

    def entries(self, cache: Path) -> list[Path]:
        return sorted(path for path in cache.glob("?/?/*[RM]") if path.is_file())

    def fill(self, cache: Path, count: int) -> None:
        example = self.entries(cache)[0].name
        for name in other_names(count, example[:-1] * 2):
            folder = cache / name[0] / name[1]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name[2 : len(example) + 1]}{example[-1]}").write_bytes(FILLER)


class Sccache(OfCxx):
    """sccache; its server is started before and ended after, and only the client is timed."""

    name = tool = "sccache"
    has_server = True

    def __init__(self, compiler: Path) -> None:
        super().__init__(compiler)
        self._port = free_port()

    def settings(self, cache: Path) -> dict[str, str]:
        return {"SCCACHE_DIR": str(cache), "SCCACHE_SERVER_PORT": str(self._port), "SCCACHE_IDLE_TIMEOUT": "300"}

    @contextlib.contextmanager
    def served(self, cache: Path) -> Iterator[None]:
        # A server that is about to end, or its port, is in nobody's way: each has its own.
        for _ in range(2):
            self._port = free_port()
            settings = self.settings(cache)
            output, status = run_command([self.tool, "--start-server"], settings, 60)
            if status == 0:
                break
        else:
            raise BenchmarkError(f"sccache's server did not start:\n{output}")
        try:
            yield
        finally:
            run_command([self.tool, "--stop-server"], settings, 60)

    def entries(self, cache: Path) -> list[Path]:
        return sorted(path for path in cache.glob("?/?/*") if path.is_file())

    def fill(self, cache: Path, count: int) -> None:
        for name in other_names(count, "0123456789abcdef" * 4):
            folder = cache / name[0] / name[1]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(FILLER)


def free_port() -> int:
    """A port of loopback that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def version_of(package: str, name: str) -> str:
    """Its name and the version that is installed."""
    return f"{name} {importlib.metadata.version(package)}"


def contestants(scratch: Path) -> list[Peer]:
    """All of them, whether installed or not."""
    compiler = make_counting_compiler(scratch) if shutil.which("g++") else scratch / "g++"
    jaxes: list[Peer] = [Native(), NativeZstandard(), Rewarm(), RewarmJit()]
    return [*jaxes, Torch(compiler), Triton(), Ccache(compiler, scratch), Sccache(compiler)]
