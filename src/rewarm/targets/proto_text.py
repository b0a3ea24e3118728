"""The leaves of a protocol buffer in its text form, without its descriptor and without protobuf.

Not promised: all of the format (extensions, lists in brackets, joined strings). Descriptions of GPUs have none of it.

Format: https://protobuf.dev/reference/protobuf/textformat-spec/
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""\s+|(?P<comment>\#[^\n]*)|(?P<name>[A-Za-z_]\w*)|(?P<mark>[{}:<>;,])
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?P<number>-?[0-9.][0-9A-Za-z.+-]*)""",
    re.VERBOSE,
)


def leaves(text: str) -> dict[str, str]:
    """Each scalar by its path, such as "gpu_device_info.core_count", as it is written, without quotes.

    Of a field that is there more than once the last counts.

    Raises:
      ValueError: it is not such a text; where.
    """
    found: dict[str, str] = {}
    path: list[str] = []
    name = ""
    for kind, token, line in _tokens(text):
        if kind == "name" and not name:
            name = token
        elif token in ("{", "<") and name:
            path.append(name)
            name = ""
        elif token in ("}", ">") and path and not name:
            path.pop()
        elif token == ":" and name:
            pass
        elif name and kind in ("name", "number", "text"):
            found[".".join((*path, name))] = token[1:-1] if kind == "text" else token
            name = ""
        elif token not in (";", ","):
            raise ValueError(f"{token!r} in line {line}")
    if path or name:
        raise ValueError(f"it ends within {'.'.join(path) or name}")
    return found


def _tokens(text: str) -> list[tuple[str, str, int]]:
    tokens, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"{text[position]!r} in line {text.count(chr(10), 0, position) + 1}")
        if match.lastgroup not in (None, "comment"):
            tokens.append((str(match.lastgroup), match[0], text.count("\n", 0, position) + 1))
        position = match.end()
    return tokens
