"""XLA's real CUDA compiler for the tests, without a GPU: who gets it, and what is said where it is not there.

`tools/cuda-compiler` puts it into a folder that is in no environment. A test calls `wanted()` and gives its children
the `environment()` of what it gets. Without the folder the test is skipped, saying so; with REWARM_TEST_CUDA=1 it
fails.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from conftest import Run, clean_environment, execute
from rewarm.autotune import targets

ROOT = Path(__file__).resolve().parents[1]
_CHILD = Path(__file__).with_name("cuda_compile_child.py")


class Compiler(NamedTuple):
    """The compiler for the JAX that runs the tests."""

    folder: Path
    jax: str

    @property
    def toolkit(self) -> Path:
        """Where PyPI's assembler lies."""
        return self.folder / "nvidia" / "cu13"

    def environment(self, **extra: str) -> dict[str, str]:
        """The environment of a child that is to have it; flags of the test come behind ours."""
        flags = f"--xla_gpu_cuda_data_dir={self.toolkit} {extra.pop('XLA_FLAGS', '')}"
        return clean_environment(
            **{
                "PYTHONPATH": str(self.folder),
                "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
                "TF_CPP_MIN_LOG_LEVEL": "2",
                "XLA_FLAGS": flags.strip(),
                **extra,
            }
        )

    def run(self, source: str, folder: Path, *arguments: str, **extra: str) -> Run:
        """Run Python source in a fresh process that has the compiler; exit codes are the test's to judge."""
        path = folder / f"program_{os.getpid()}_{len(list(folder.glob('program_*.py')))}.py"
        path.write_text(source)
        return execute(
            [sys.executable, "-W", "ignore", str(path), *arguments], env=self.environment(**extra), cwd=folder
        )


def jax_version() -> str:
    """The JAX of this environment."""
    return importlib.metadata.version("jax")


def find() -> Compiler | None:
    """The compiler that `tools/cuda-compiler` made for this Python and JAX."""
    folder = ROOT / ".venv" / "cuda" / f"{jax_version()}-py{sys.version_info[0]}.{sys.version_info[1]}"
    return Compiler(folder, jax_version()) if (folder / "ready").exists() else None


def wanted() -> Compiler:
    """The compiler; without it the test that asks is skipped, or fails where it must be there."""
    found = find()
    if found is None:
        said = f"XLA's CUDA compiler for JAX {jax_version()} is not here; make it: tools/cuda-compiler {sys.executable}"
        if os.environ.get("REWARM_TEST_CUDA") == "1":
            pytest.fail(said)
        pytest.skip(said)
    return found


def compiled(
    compiler: Compiler, folder: Path, target: str, compiles: list[dict[str, Any]], **extra: str
) -> tuple[list[dict[str, Any]], Run]:
    """What came of each compile (`cuda_compile_child`), in one fresh process; fewer answers where the process ended."""
    asked = json.dumps({"target": target, "compiles": compiles})
    command = [sys.executable, "-W", "ignore", str(_CHILD), asked]
    done = execute(command, env=compiler.environment(**extra), cwd=folder)
    return [json.loads(line) for line in done.out.splitlines() if line.startswith("{")], done


def ask_child(
    compiler: Compiler, plan: str, folder: Path, options: dict[str, Any], **extra: str
) -> tuple[list[tuple[str, str, str]], str]:
    """What XLA looks up for a plan for a described H200, by rewarm's own child, and what XLA logs meanwhile.

    Each instruction is the text of its new key, that of its legacy one, and its name. Every program must compile.
    """
    question = {"plan": plan, "target": targets.description("h200", compiler.jax), "topology": "1x1x1"}
    command = [sys.executable, "-P", "-m", "rewarm.jax_adapter.lookups_child"]
    asked = json.dumps({**question, "options": options, "work": str(folder)})
    done = execute(command, env=compiler.environment(**extra), cwd=folder, stdin=asked)
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert answers, done.err[-2000:]
    assert answers[-1] == {"done": True}, (answers[-1], done.err[-2000:])
    assert [one["error"] for one in answers if one.get("error")] == []
    return [(text, legacy, name) for one in answers for text, legacy, name in one.get("instructions", ())], done.err
