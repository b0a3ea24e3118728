"""What XLA's CUDA compiler looks up for a plan's programs: asked of the compiler itself, in a child process, for a GPU
that is only described.

Not promised: the fusions of a program that does not compile, nor those of a JAX whose CUDA plugin is not installed
where this runs. No GPU, driver or toolkit is needed; the assembler may be PyPI's (`nvidia-cuda-nvcc`, `nvidia-nvvm`).

The child has a process of its own because XLA keeps entries in a table of the process, where the first of a key stays;
because a bad entry can end the process; and because the plan's code is the user's.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rewarm import settings
from rewarm.autotune import xla_flags
from rewarm.autotune.coverage import Needed, directory_format
from rewarm.autotune.formats import Build, Family, TuningEntry, convert
from rewarm.autotune.formats.writing import contents
from rewarm.autotune.merging import merge
from rewarm.errors import RewarmError

_LINES_SHOWN = 3


class LookupsError(RewarmError, RuntimeError):
    """The compiler could not be asked; the message says why and what to do."""


class NotAskedError(LookupsError):
    """Whatever entries there are, it would be the same: no compiler, no such plan, no program in it."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """One program of the plan.

    Attributes:
      seconds: of lowering and compiling.
      error: why it did not compile; "" where it did.
      fusions: how many instructions XLA looked up for it.
    """

    name: str
    seconds: float
    error: str
    fusions: int


@dataclass(frozen=True, slots=True)
class Lookups:
    """What was looked up.

    Attributes:
      programs: in the plan's order.
      needed: each instruction once, in the order of the first look-up.
    """

    programs: tuple[Compiled, ...]
    needed: tuple[Needed, ...]

    @property
    def errors(self) -> dict[str, str]:
        """Programs that did not compile, and why."""
        return {one.name: one.error for one in self.programs if one.error}


def jax_version() -> str:
    """The JAX that the child will have.

    Raises:
      LookupsError: there is none.
    """
    try:
        return importlib.metadata.version("jax")
    except importlib.metadata.PackageNotFoundError:
        raise LookupsError(
            f"{sys.executable} has no JAX, whose compiler tells which fusions a program needs; "
            "run this where the model's JAX is installed"
        ) from None


def lookups(
    plan: str,
    target: str,
    build: Build,
    family: Family,
    *,
    topology: str = "1x1x1",
    entries: Sequence[TuningEntry] = (),
    given: Path | None = None,
    require: bool = False,
    family_decides: bool = False,
    only: Iterable[str] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Lookups:
    """Compile a plan's programs for a described GPU, with these entries at hand, and say what XLA looked up.

    Args:
      plan: see `plans`.
      target: the text of a `GpuTargetConfigProto`.
      build: of the JAX that is installed.
      family: which formats XLA is told to use.
      topology: "partitions x hosts x devices of a host", as JAX has it.
      entries: sound ones, of the family, for the device and build; they decide what they cover.
      given: a file or folder of XLA's, which XLA gets as it is in the place of entries.
      require: a program fails where XLA finds no result for an instruction.
      family_decides: whatever a program's own options say of the formats, as where a lock is in force; else a program
        that asks for the others is refused.
      only: names of programs; by default all.
      tell: is told each program that begins.

    Raises:
      LookupsError: there is no compiler, the child ended, or the plan has no program, or none of a name.
      MissingLibraryError: protobuf is not there.
    """
    with tempfile.TemporaryDirectory(prefix="rewarm-check-") as work:
        folder = Path(work) / "xla"
        _write(entries, folder, build, family)
        options: dict[str, Any] = {xla_flags.DIRECTORY: str(folder)} if entries else {}
        if given is not None:
            place = given.absolute()
            options = {xla_flags.DIRECTORY if os.path.isdir(place) else xla_flags.LOAD: str(place)}  # noqa: PTH112
        if require:
            options[xla_flags.REQUIRE] = True
        if len({one.family for one in build.formats}) > 1:
            options[xla_flags.NEW_FORMAT] = family is Family.NEW
        asked = {"plan": plan, "target": target, "topology": topology, "options": options, "work": work}
        more = {"family_decides": family_decides, "only": None if only is None else list(only)}
        return _asked({**asked, **more}, Path(work), tell)


def _write(entries: Sequence[TuningEntry], folder: Path, build: Build, family: Family) -> None:
    """Not synced: it is gone in a minute."""
    form = directory_format(family)
    listed = convert(merge(entries, build=build).entries, form, build=build).entries
    for path, data, _ in contents(listed, folder, form, lossy=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _asked(asked: Mapping[str, Any], work: Path, tell: Callable[[str], None]) -> Lookups:
    with (work / "errors").open("w+b") as errors:
        # -P: what lies in the working directory is not to be imported in the place of JAX; the plan still can be.
        with subprocess.Popen(
            [sys.executable, "-P", "-m", "rewarm.jax_adapter.lookups_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=_environment(),
        ) as process:
            try:
                answers = _exchange(process, asked, tell)
            finally:
                process.kill()  # where this is interrupted; it has ended by itself otherwise
        return _read(answers, process.returncode, errors)


def _exchange(
    process: subprocess.Popen[bytes], asked: Mapping[str, Any], tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(asked).encode())
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    answers = []
    for line in process.stdout:
        answers.append(json.loads(line))
        if "begins" in answers[-1]:
            tell(answers[-1]["begins"])
    process.wait()
    return answers


def _environment() -> dict[str, str]:
    """This process's, for a process without a GPU, rewarm, and tuning or dumps of the user's own."""
    flags, rest = xla_flags.parsed(settings.xla_flags())
    kept = [
        f"--{flag.name}" if flag.value is None else xla_flags.written(flag.name, flag.value)
        for flag in flags
        if not xla_flags.says_where(flag.name)
    ]
    return {
        **settings.unwatched(settings.child_environment(None, "")),
        **{"REWARM": "0", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join([*kept, rest]).strip()},
        # The plugin asks for CUDA's run-time libraries, which compiling does not need.
        **{"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1", "TF_CPP_MIN_LOG_LEVEL": "2"},
    }


def _read(answers: Sequence[Mapping[str, Any]], code: int, errors: IO[bytes]) -> Lookups:
    last = answers[-1] if answers else {}
    if "cannot" in last:
        raise NotAskedError(_cannot(str(last["kind"]), str(last["cannot"])))
    if "done" not in last:
        raise LookupsError(_ended(last, code, errors))
    if "none" in last:
        raise NotAskedError(str(last["none"]))
    programs: list[Compiled] = []
    needed: dict[str, Needed] = {}
    for answer in answers:
        if "program" not in answer:
            continue
        name, found = answer["program"], answer["instructions"]
        programs.append(Compiled(name, float(answer["seconds"]), answer["error"], len(found)))
        for text, legacy, instruction in found:
            known = needed.get(text)
            names = (*known.programs, name) if known else (name,)
            needed[text] = Needed(text, legacy, known.name if known else instruction, tuple(dict.fromkeys(names)))
    return Lookups(tuple(programs), tuple(needed.values()))


def _cannot(kind: str, why: str) -> str:
    if kind == "plan":
        return why
    if kind == "jax":
        return f"JAX cannot be imported: {why}"
    return no_compiler(why)


def no_compiler(why: str) -> str:
    """What to say where there is no CUDA compiler."""
    jax = jax_version()
    return (
        f"XLA's CUDA compiler cannot be had in {sys.executable} ({why}); without a GPU it takes: pip install --no-deps "
        f"jax-cuda13-plugin=={jax} jax-cuda13-pjrt=={jax} nvidia-cuda-nvcc nvidia-nvvm"
    )


def _ended(last: Mapping[str, Any], code: int, errors: IO[bytes]) -> str:
    during = "before the first program"
    if "begins" in last:
        during = f"while it compiled {last['begins']}"
    elif "program" in last:
        during = f"in the plan, after {last['program']} was compiled"
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    errors.seek(0)
    said = [line for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    return f"the compiler's process ended {during} ({how}): {' | '.join(said[-_LINES_SHOWN:]) or 'it said nothing'}"
