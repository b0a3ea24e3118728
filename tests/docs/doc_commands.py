"""Commands of rewarm in shell text, held against click: subcommands and options that exist, and the variables.

Not promised: that their arguments make sense together.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click

from rewarm import settings
from rewarm.cli import group

# Variables that the tests' and benchmarks' own scripts read (Makefile, .ci, tests/).
_OTHERS = re.compile(r"REWARM_(?:TEST|BENCH|GPU|TRIAL)_\w+")
_WORDS_BEFORE = frozenset(
    {"exec", "timeout", "time", "sudo", "srun", "then", "do", "--", "&&", "||", "|", ";", "if", "!"}
)


def wrong_commands(text: str) -> list[str]:
    """What is wrong with the commands of rewarm in shell text."""
    return [wrong for words in _commands(text) for wrong in _wrong(group, words, [])]


def wrong_variables(text: str) -> list[str]:
    """The variables of rewarm in a text that there are not."""
    return [
        name
        for name in re.findall(r"\bREWARM_[A-Z][A-Z_]*[A-Z]\b", text)
        if name not in settings.VARIABLES and not _OTHERS.match(name)
    ]


def _commands(text: str) -> Iterator[list[str]]:
    for line in re.sub(r"\\\n", " ", text).splitlines():
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars="|&;()")
        lexer.commenters, lexer.whitespace_split = "#", True
        try:
            words = list(lexer)
        except ValueError:  # a quote that a later line ends
            continue
        for number, word in enumerate(words):
            if word == "rewarm" and _is_command(words[:number]):
                yield words[number + 1 :]


def _is_command(before: list[str]) -> bool:
    rest = [word for word in before if not re.fullmatch(r"\w+=.*|-[\w-]+(=\S+)?|\d+", word)]
    return not rest or rest[-1] in _WORDS_BEFORE or rest[-1].endswith((";", "&", "|", "(", ":"))


def _wrong(command: click.Command, words: list[str], path: list[str]) -> Iterator[str]:
    named = "rewarm " + " ".join(path)
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    is_group = isinstance(command, click.Group)
    for number, word in enumerate(words):
        if word in ("|", "&&", "||", ";", ">", "2>", "&", "--", ")") or word.startswith("["):
            return
        if word.startswith("-") and len(word) > 1 and not re.fullmatch(r"-\d+", word):
            if word.split("=")[0] not in {*options, "--help", "-h", "--version"}:
                if command.ignore_unknown_options or command.context_settings.get("ignore_unknown_options"):
                    return
                yield f"{named}: no option {word}"
        elif is_group:
            found = command.get_command(click.Context(command), word)  # type: ignore[attr-defined]
            if found is None:
                yield f"{named}: no command {word}"
            else:
                yield from _wrong(found, words[number + 1 :], [*path, word])
            return
        elif _ends_options(command):
            return


def _ends_options(command: click.Command) -> bool:
    """Whether what follows the first argument belongs to another program, as with `rewarm run train.py --epochs 3`."""
    return not command.context_settings.get("allow_interspersed_args", command.allow_interspersed_args)
