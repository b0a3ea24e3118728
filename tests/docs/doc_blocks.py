"""The code blocks of the pages, and what a page's source says about how they are tested.

Not promised: that a block runs; `doc_shell.py` runs it. A comment right before a block says what its reader need not
know:

    <!-- not run: REASON -->     its syntax, options and names alone are checked
    <!-- before: CODE -->        runs ahead of it: what the page's text takes for granted
    <!-- output -->              it is what the block before printed
    <!-- excerpt -->             of what is printed it shows some lines
    <!-- differs: REASON -->     what it shows depends on the machine, and is not compared
    <!-- exit: 1 -->             its last command ends with this code
    <!-- needs: flax, optax -->  is not run where one of these modules is not installed
    <!-- steps -->               of a CI's file: its steps that are commands run, in its environment

and anywhere in a page

    <!-- server: moto NAME -->   a bucket of this name is there, on loopback, and credentials for it

Pages that several people edit have these in `doc_elsewhere.py` instead, by the block's first line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from doc_elsewhere import ELSEWHERE
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

# Made by tools from tests that run every one of their blocks (tests/adapter/test_matrix.py, tests/soundness).
GENERATED = frozenset({"docs/identity-matrix.md", "docs/soundness.md"})

SHELL, PYTHON, PLAIN = frozenset({"sh", "console"}), "python", frozenset({"", "text"})
_COMMENT = re.compile(r"<!--\s*(not run|before|output|excerpt|differs|needs|steps|exit)(?::\s*(.*?))?\s*-->", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One code block.

    Attributes:
      page: its page, below the repository.
      line: where it begins, from 1.
      info: what stands behind the fence: the language, or "".
      text: the block.
      not_run: why it is not run; "" where it is.
      before: code that runs ahead of it.
      is_output: it is what the block before printed.
      is_excerpt: lines of what is printed are left out in it.
      differs: why what it shows is not compared; "" where it is.
      needs: modules without which it is not run.
      has_steps: it is a CI's file whose steps run.
      exit: the exit code of its last command.
    """

    page: str
    line: int
    info: str
    text: str
    not_run: str = ""
    before: str = ""
    is_output: bool = False
    is_excerpt: bool = False
    differs: str = ""
    needs: tuple[str, ...] = ()
    has_steps: bool = False
    exit: int = 0

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """The file that its first line names, as `# train.py`: it is written, and run by who names it."""
        found = re.match(r"(?:#|//) ([\w./-]+\.\w+|Dockerfile)(?:[;,:].*)?$", self.text.split("\n", 1)[0])
        return found.group(1) if found else None


@cache
def pages() -> tuple[str, ...]:
    """Every page, below the repository."""
    found = sorted(path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md"))
    return (*(page for page in found if page not in GENERATED), *sorted(path.name for path in ROOT.glob("README*.md")))


@cache
def text_of(page: str) -> str:
    """The source of a page."""
    return (ROOT / page).read_text(encoding="utf-8")


@cache
def blocks_of(page: str) -> tuple[Block, ...]:
    """The fenced blocks of a page, with what its comments and `ELSEWHERE` say of them."""
    return blocks_in(page, text_of(page))


def blocks_in(page: str, text: str) -> tuple[Block, ...]:
    """The fenced blocks of a page's text."""
    found, said = [], ""
    for token in MarkdownIt("commonmark").parse(text):
        if token.type == "html_block":
            said += token.content
        elif token.type == "fence":
            assert token.map is not None
            found.append(_with(Block(page, token.map[0] + 1, token.info.strip().split(" ")[0], token.content), said))
            said = ""
        elif token.type.endswith("_open"):
            said = ""
    return tuple(found)


def _with(block: Block, said: str) -> Block:
    first = block.text.split("\n", 1)[0].strip()
    original = block.page.replace(".zh-CN.", ".")  # a translation has the same blocks
    for name, value in _COMMENT.findall(said + ELSEWHERE.get((original, first), "")):
        if name == "not run":
            block = replace(block, not_run=value or "NO REASON")
        elif name == "before":
            block = replace(block, before=value)
        elif name == "output":
            block = replace(block, is_output=True)
        elif name == "excerpt":
            block = replace(block, is_excerpt=True)
        elif name == "needs":
            block = replace(block, needs=tuple(re.split(r"[, ]+", value)))
        elif name == "steps":
            block = replace(block, has_steps=True)
        elif name == "differs":
            block = replace(block, differs=value or "NO REASON")
        else:
            block = replace(block, exit=int(value))
    return block


@cache
def all_blocks() -> tuple[Block, ...]:
    """The fenced blocks of all pages."""
    return tuple(block for page in pages() for block in blocks_of(page))


def bucket_of(page: str) -> str | None:
    """The bucket that a page takes for granted."""
    found = re.search(r"<!-- server: moto (\S+) -->", text_of(page))
    return found.group(1) if found else None


def indented_of(page: str) -> tuple[str, ...]:
    """The indented blocks of a page, which are commands, files and messages: never run."""
    return tuple(token.content for token in MarkdownIt("commonmark").parse(text_of(page)) if token.type == "code_block")


def inline_of(page: str) -> tuple[str, ...]:
    """What stands in backticks in the text of a page."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text_of(page))
    return tuple(child.content for token in tokens for child in token.children or () if child.type == "code_inline")
