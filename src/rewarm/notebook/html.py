"""Small pieces of HTML for outputs of cells.

Not promised: a style of our own. Colours and fonts are the notebook's, so that light and dark both work; all text that
comes from programs is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def text(words: object) -> str:
    """Words as they are, escaped."""
    return escape(str(words))


def paragraph(words: str) -> str:
    """A paragraph of plain words."""
    return f"<p>{text(words)}</p>"


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[int] = ()) -> str:
    """A table with a caption and column headers; the columns in `numbers` stand to the right."""

    def cell(tag: str, index: int, words: object) -> str:
        scope = ' scope="col"' if tag == "th" else ""
        side = "right" if index in numbers else "left"
        return f'<{tag}{scope} style="text-align:{side}">{text(words)}</{tag}>'

    def row(tag: str, words: Sequence[object]) -> str:
        return "<tr>" + "".join(cell(tag, index, one) for index, one in enumerate(words)) + "</tr>"

    body = "".join(row("td", one) for one in rows)
    return (
        f'<table><caption style="text-align:left">{text(caption)}</caption>'
        f"<thead>{row('th', head)}</thead><tbody>{body}</tbody></table>"
    )


def details(summary: str, lines: Iterable[str], *, is_open: bool) -> str:
    """Lines of fixed width under a summary that opens and closes."""
    opened = " open" if is_open else ""
    return f"<details{opened}><summary>{text(summary)}</summary><pre>{text(chr(10).join(lines))}</pre></details>"
