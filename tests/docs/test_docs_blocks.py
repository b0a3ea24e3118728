"""Every block has a language that is known and parses; what is not run has a reason; commands and names exist."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from doc_blocks import (
    PLAIN,
    PYTHON,
    ROOT,
    SHELL,
    Block,
    all_blocks,
    blocks_in,
    indented_of,
    inline_of,
    pages,
    text_of,
)
from doc_commands import wrong_commands, wrong_variables
from doc_elsewhere import ELSEWHERE
from doc_shell import commands_of

import rewarm

yaml = pytest.importorskip("yaml")

# How many different blocks of commands or Python are not run, with their reasons in the pages' sources: more need a new
# look.
NOT_RUN_AT_MOST = 24

# Files of the reader's, in examples.
_READERS = frozenset({"tests/test_model.py"})

_PARSED = {"yaml", "json", "toml", "dockerfile", "starlark"}


def _shell_of(block: Block) -> str:
    return "\n".join(command for command, _ in commands_of(block.text)) if block.info == "console" else block.text


def _scripts(node: Any) -> Iterator[str]:
    """The shell text in a file of a CI, or of a cluster."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name in ("run", "script") and isinstance(value, str):
                yield value
            elif name in ("script", "before_script", "after_script") and isinstance(value, list):
                yield "\n".join(value)
            elif name in ("command", "args") and isinstance(value, list) and "-c" in value[:2]:
                yield value[-1]
            else:
                yield from _scripts(value)
    elif isinstance(node, list):
        for value in node:
            yield from _scripts(value)


def _shell_texts() -> list[tuple[str, str]]:
    found = [(block.where, _shell_of(block)) for block in all_blocks() if block.info in SHELL]
    for block in all_blocks():
        if block.info == "yaml":
            found += [
                (block.where, script) for document in yaml.safe_load_all(block.text) for script in _scripts(document)
            ]
        elif block.info == "dockerfile":
            runs = re.findall(r"^(?:RUN|CMD) (?:--\S+ )*((?:.*\\\n)*.*)$", block.text, re.MULTILINE)
            found += [(block.where, run) for run in runs if not run.startswith("[")]
    return found


def test_every_block_has_a_language_that_is_known() -> None:
    unknown = [
        f"{block.where} [{block.info}]"
        for block in all_blocks()
        if block.info not in {*SHELL, PYTHON, *PLAIN, *_PARSED}
    ]
    assert not unknown


def test_what_is_not_run_or_not_compared_has_a_reason_and_is_counted() -> None:
    not_run = [block for block in all_blocks() if block.not_run and block.info in {*SHELL, PYTHON}]
    assert not [block.where for block in all_blocks() if "NO REASON" in (block.not_run, block.differs)]
    assert len({block.text for block in not_run}) <= NOT_RUN_AT_MOST, "\n".join(
        f"{block.where}: {block.not_run}" for block in not_run
    )


def test_what_is_said_of_blocks_of_other_pages_is_about_blocks_that_are_there() -> None:
    there = {(block.page, block.text.split("\n", 1)[0].strip()) for block in all_blocks()}
    gone = [key for key in ELSEWHERE if key not in there]
    assert not gone, "a page changed; bring doc_elsewhere.py into step"


def test_python_parses() -> None:
    for block in all_blocks():
        if block.info == PYTHON:
            ast.parse(block.text, block.where)


def test_shell_parses() -> None:
    for where, text in _shell_texts():
        # What a CI puts into its scripts is none of the shell's.
        done = subprocess.run(
            ["bash", "-n"], input=re.sub(r"\$\{\{.*?\}\}", "x", text), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{where}: {done.stderr}"


def test_data_parses() -> None:
    for block in all_blocks():
        if block.info == "yaml":
            documents = list(yaml.safe_load_all(block.text))
            assert all(isinstance(document, dict) for document in documents), block.where
            assert not re.search(r"(?m)^apiVersion", block.text) or all(
                {"kind", "metadata"} <= set(one) for one in documents
            )
        elif block.info == "json":
            json.loads(block.text)
        elif block.info == "toml":
            tomllib.loads(block.text)


def test_dockerfiles_parse(tmp_path: Any) -> None:
    parser = pytest.importorskip("dockerfile_parse").DockerfileParser
    known = {"FROM", "ARG", "ENV", "RUN", "COPY", "WORKDIR", "ENTRYPOINT", "CMD", "USER", "LABEL", "COMMENT", "VOLUME"}
    for block in all_blocks():
        if block.info == "dockerfile":
            (tmp_path / "Dockerfile").write_text(block.text)
            read = parser(str(tmp_path)).structure
            found = {line["instruction"] for line in read}
            assert "FROM" in found, block.where
            assert found <= known, block.where


def test_bazels_files_parse() -> None:
    starlark = pytest.importorskip("starlark")
    for block in all_blocks():
        if block.info == "starlark":
            starlark.parse(block.where, block.text)


def test_commands_of_rewarm_exist_with_their_options() -> None:
    wrong = [f"{where}: {one}" for where, text in _shell_texts() for one in wrong_commands(text)]
    for page in pages():
        texts = [*indented_of(page), *(text for text in inline_of(page) if re.match(r"(\w+=\S+ )*rewarm [a-z]", text))]
        wrong += [f"{page}: {one} (in {text.strip()[:60]!r})" for text in texts for one in wrong_commands(_typed(text))]
    assert not wrong, "\n".join(wrong)


def _typed(text: str) -> str:
    """Lines of an indented block that are commands: aligned, they have what they do behind them."""
    lines = [re.split(r" {2,}(?=[a-z(])", line)[0] for line in text.splitlines()]
    return "\n".join(line for line in lines if re.match(r"(\$ )?(export .*|(\w+=\S+ )*)rewarm [a-z]", line))


def test_variables_exist() -> None:
    wrong = [
        f"{page}: {name}"
        for page in pages()
        for name in wrong_variables(text_of(page))
        if f"unknown variable {name}" not in text_of(page)  # an example of a misspelt one
    ]
    assert not wrong


def test_names_of_the_package_exist() -> None:
    wrong = Counter(
        f"{page}: rewarm.{name}"
        for page in pages()
        for text in (
            *inline_of(page),
            *(block.text for block in all_blocks() if block.page == page and block.info == PYTHON),
        )
        for name in re.findall(r"(?<![\w./-])rewarm\.([a-zA-Z]\w*)", text)
        if not hasattr(rewarm, name)
        and name not in ("bzl",)
        and not _is_module(name)
        and page != "docs/metrics.md"  # OpenTelemetry's names, which tests/metrics/ holds against the code
    )
    assert not wrong


def _is_module(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(f"rewarm.{name}") is not None


def test_files_of_the_repository_that_pages_name_are_there() -> None:
    named = re.compile(r"(?:^|(?<=[\s(]))((?:benchmarks|scripts|tools|examples|bazel|tests|docs)/[\w./-]*\w)")
    wrong = [
        f"{page}: {path}"
        for page in pages()
        for text in (*inline_of(page), *indented_of(page))
        for path in named.findall(text)
        if not (ROOT / path).exists() and path not in _READERS
    ]
    assert not wrong


def test_modules_that_pages_name_are_there() -> None:
    """As `sharing/plans.py`, below src/rewarm."""
    package = ROOT / "src" / "rewarm"
    rooms = {path.name for path in package.iterdir() if path.is_dir()}
    wrong = [
        f"{page}: {path}"
        for page in pages()
        for path in inline_of(page)
        if re.fullmatch(r"[a-z_]+/[a-z_/]*(\.py)?", path)
        and path.split("/")[0] in rooms
        and not (package / path).exists()
    ]
    assert not wrong


def test_options_of_the_pytest_plugin_exist() -> None:
    known = set(re.findall(r"--rewarm-[a-z-]+", (ROOT / "src/rewarm/pytest_plugin.py").read_text()))
    assert not [
        f"{page}: {name}"
        for page in pages()
        for name in re.findall(r"(?<![\w-])--rewarm-[a-z-]+\b", text_of(page))
        if name not in known
    ]


def test_commands_and_variables_that_there_are_not_are_found() -> None:
    assert wrong_commands("rewarm ls --sort used --limit 3 | head; REWARM=1 rewarm run train.py --epochs 3") == []
    assert wrong_commands("timeout 9 rewarm gc --max-sise 1GB") == ["rewarm gc: no option --max-sise"]
    assert wrong_commands("REWARM_DIR=x rewarm remote gc && rewarm keys mew") == [
        "rewarm : no command remote",
        "rewarm keys: no command mew",
    ]
    assert wrong_variables("REWARM_DIR=x REWARM_DIRR=y REWARM_TEST_SERVERS=moto") == ["REWARM_DIRR"]


def test_a_comment_before_a_block_says_how_it_is_tested() -> None:
    said = "<!-- before: x = 1 -->\n<!-- exit: 2 -->\n\n```python\n# a/b.py: it\n```\n\ntext\n\n```sh\nls\n```\n"
    first, second = blocks_in("p.md", said)
    assert (first.before, first.exit, first.file, first.line) == ("x = 1", 2, "a/b.py", 4)
    assert (second.before, second.exit, second.file) == ("", 0, None)
