"""Values and texts in the room of one line.

Not promised: the whole of anything long. Of two texts that differ, the part in which they do is kept.
"""

from __future__ import annotations

import json
from typing import Any

from rewarm.telling import one_line

WIDTH = 60
_ABSENT = "unset"
_HEX = frozenset("0123456789abcdef")


def words(value: Any) -> str:
    """A value on one line, in at most some sixty characters; a digest whole."""
    return _cut(_text(value), 0, WIDTH)


def words_of_two(before: Any, after: Any) -> tuple[str, str]:
    """Two values as `words`, each cut to the part in which they differ."""
    return parting(_text(before), _text(after), WIDTH)


def parting(before: str, after: str, width: int) -> tuple[str, str]:
    """Two texts on one line each, cut to at most `width` characters around the first place where they differ."""
    one, other = one_line(before), one_line(after)
    pairs = enumerate(zip(one, other, strict=False))
    same = next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
    too_long = any(len(text) > width and not is_digest(text) for text in (one, other))
    skip = max(0, same - width // 3) if too_long else 0
    return _cut(one, skip, width), _cut(other, skip, width)


def is_digest(text: str) -> bool:
    """Whether a text is a SHA-256, hexadecimal."""
    return len(text) == 64 and _HEX.issuperset(text)


def _text(value: Any) -> str:
    if value is None:
        return _ABSENT
    return one_line(value if isinstance(value, str) else json.dumps(value, default=repr))


def _cut(text: str, skip: int, width: int) -> str:
    if is_digest(text) and not skip:
        return text
    kept = f"...{text[skip:]}" if skip and text else text
    return kept if len(kept) <= width else f"{kept[: width - 3]}..."
