"""A report as one HTML file that needs nothing else: no network, no server, no other file.

Not promised: that it works without JavaScript; it says so then. Browsers that lack `DecompressionStream` (before 2023)
show all but the timeline.

What users named (programs, files, arguments) is data: it is in the page as JSON that ends no script, and only ever
becomes text. The page's own policy (CSP) lets it run the two scripts that are in it, by their digests, and nothing
else, and load nothing.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import zlib
from array import array
from importlib import resources
from itertools import pairwise
from typing import Any

from rewarm.report.as_json import as_plain
from rewarm.report.model import Report, Spans

_PAGE = "page"
LIBRARY = "echarts.min.js"
_SCRIPTS = ("base.js", "timeline.js", "parts.js")


def to_html(report: Report) -> str:
    """The page."""
    library, script, style = _part(LIBRARY), _script(), _part("page.css")
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"script-src {_digest(library)} {_digest(script)}; style-src {_digest(style)}"
    )
    parts = {
        "policy": policy,
        "title": html.escape(_title(report)),
        "style": style,
        "data": in_script(as_plain(report, spans=False)),
        "spans": _packed([report.spans[number] for number in range(len(report.lanes))]),
        "library": library,
        "script": script,
    }
    page = _part("page.html")
    for name in ("policy", "title"):
        page = page.replace(f"{{{{{name}}}}}", parts[name])
    # The rest holds what users named, and may itself look like a place: each is put in once, in one pass.
    pieces = []
    for name in ("style", "data", "spans", "library", "script"):
        before, page = page.split(f"{{{{{name}}}}}", 1)
        pieces += [before, parts[name]]
    return "".join([*pieces, page])


def in_script(value: Any) -> str:
    """JSON that may stand within a script element: no `<`, no `>`, no `&`, and nothing beyond ASCII."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _title(report: Report) -> str:
    if not report.starts:
        return f"rewarm: {report.directory}"
    start = report.starts[0]
    # A name of a file need not be text.
    return f"rewarm: {start.program}, {start.id}".encode("utf-8", "replace").decode("utf-8")


def _packed(lanes: list[Spans]) -> str:
    """The steps of all lanes: zlib over 32-bit numbers, little end first, in base64.

    For each lane how many there are, then the four columns: programs, steps, beginnings (each after the one before),
    and lengths; times in ten microseconds.
    """
    numbers = array("i")
    for lane in lanes:
        numbers.append(len(lane.at))
        numbers.extend(lane.program)
        numbers.extend(lane.step)
        at = [_tens(one) for one in lane.at]
        numbers.extend(later - earlier for earlier, later in pairwise([0, *at]))
        numbers.extend(max(1, _tens(took)) for took in lane.took)
    if array("H", [1]).tobytes()[0] != 1:
        numbers.byteswap()
    return base64.b64encode(zlib.compress(numbers.tobytes(), 6)).decode("ascii")


def _tens(microseconds: int) -> int:
    """In ten microseconds, as far as 32 bits hold: six hours."""
    return max(-(2**31) + 1, min(microseconds // 10, 2**31 - 1))


def _script() -> str:
    """The page's own script: its files in one function, so that nothing of it is global."""
    return "\n".join(['"use strict";', "(() => {", *map(_part, _SCRIPTS), "})();", ""])


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def _part(name: str) -> str:
    return resources.files("rewarm.report").joinpath(_PAGE, name).read_text("utf-8")
