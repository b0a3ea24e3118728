"""Print the page about what `rewarm.jit` sees change, made of the rows in tests/soundness.

python tools/soundness_table.py > docs/soundness.md
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "soundness"))

from soundness_case import PROOF, REFUSED, TRACED, Case
from soundness_table import CHANGES, SAME_PROGRAM

_OUTCOMES = {TRACED: "traced again", REFUSED: "always traced", PROOF: "**only the proof**"}

_HEAD = """\
# What `rewarm.jit` sees, and what only a proof finds

Made by `python tools/soundness_table.py` from the rows in `tests/soundness`; do not edit. Each row is a test: a program
is started twice, so that its trace is recorded and proved, and then, with the one change, a third time; each start is a
process of its own, with another hash seed, and what the program comes to is taken from yet another, in which `jax.jit`
traces it with rewarm off.

**What the guards see.** Of {count} changes that make the program another one, {traced} are seen before anything runs:
the function is traced again. {refused} are in programs that are never started without a trace, as something in them
cannot be followed: one line says what it is, at each start.

**What only the proof finds.** {proof} pass all guards. The function is then started without a trace and **runs the
program of before**, until the trace beside it (seconds after the first call) comes to another program: the next call
raises `rewarm.TraceMismatchError`, and the function is traced from then on. They have in common that what the function
depends on is held inside of Python, of its library or of C code, and reached by a function that says nothing of it.

**What neither finds until a proof has run.** The same {proof}, in a program that ends before its proof does, at a start
that is not proved (after sixteen proofs only every fourth is), and for five starts in a row (more, once it has been
proved more often) where proofs are void, as what the function reads belongs to the calling thread: see
[without-a-trace.md](without-a-trace.md). And whatever is like them and is not in this table: the guards know what was
thought of.

**How far the guards look into a library.** What a variable of an installed library holds counts if code of the library
that ran names it: with up to 2,000 values (lists and dictionaries of nothing but plain values: 100,000), 40 levels
deep, arrays of up to 32 MiB by all of their bytes, larger ones by 65,536 of their elements (of JAX's, by type and
shape). Of what is beyond that, how long it is counts, and of objects that are written in C and not known, their type.
A number as large as an address counts by nothing: it may be the number of an object. Where one item changes while the
function is traced, such as a counter, the others count; where items come or go, as in a cache, the whole does not.

**What a function must not change.** A function that changes the process while it is traced is always traced, as a start
without a trace would leave the process as it was: the section below names what is known. What cannot be told is a
counter or an attribute that code sets in a module of a library's or of Python's, and a setting that is set to what it
was at the time. What is put back, as by `with numpy.errstate(...)`, is no change.

Of {same} edits and surroundings that change nothing, {skipped} are started without a trace; {retraced} are traced
again, and the last column says why.
"""


def page() -> str:
    """The page."""
    rows = [row for section in CHANGES.values() for row in section]
    counts = Counter(row.expect for row in rows)
    retraced = sum(row.retraced for row in SAME_PROGRAM)
    head = _HEAD.format(
        count=len(rows),
        traced=counts[TRACED],
        refused=counts[REFUSED],
        proof=counts[PROOF],
        same=len(SAME_PROGRAM),
        skipped=len(SAME_PROGRAM) - retraced,
        retraced=retraced,
    )
    only = [row for row in rows if row.expect == PROOF]
    return "\n".join(
        [
            head,
            *_table("Only the proof finds", only),
            *(line for title, section in CHANGES.items() for line in _table(title, section)),
            *_table("What changes nothing", SAME_PROGRAM),
        ]
    )


def _table(title: str, rows: list[Case]) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| what is another | from | to | the next start | |"
    yield "| --- | --- | --- | --- | --- |"
    for row in rows:
        came_to = ("traced again" if row.retraced else "not traced") if row in SAME_PROGRAM else _OUTCOMES[row.expect]
        then, now = _difference(row)
        yield f"| {' | '.join(_plain(cell) for cell in (row.change, then, now, came_to, row.note))} |"
    yield ""


def _difference(row: Case) -> tuple[str, str]:
    """What of the row is another, in short."""
    if row.edits:
        then, now = row.edits[0]
        return _code(then), _code(now)
    if row.env_b:
        names = list(row.env_b)
        return (
            " ".join(f"`{name}={row.env[name]}`" for name in names if name in row.env),
            " ".join(f"`{name}={row.env_b[name]}`" if row.env_b[name] else f"no `{name}`" for name in names),
        )
    if row.more:
        then = ", ".join(f"`{name}`" for name in row.more if name in row.files)
        now = ", ".join(f"`{name}`" if text else f"no `{name}`" for name, text in row.more.items())
        return then, f"another {now}" if then and "no " not in now else now
    if row.argv[0] != row.argv[1]:
        return _code(" ".join(row.argv[0])), _code(" ".join(row.argv[1]))
    return "", f"`python {' '.join(row.flags)}`" if row.flags else f"in `{row.cwd}`" if row.cwd else ""


def _code(text: str) -> str:
    """Code on one line, its start."""
    line = "; ".join(part.strip() for part in text.strip().splitlines() if part.strip()).replace(":;", ":")
    return f"`{line if len(line) <= _LONGEST else line[:_LONGEST] + '…'}`" if line else ""


_LONGEST = 60


def _plain(cell: str) -> str:
    return cell.replace("|", "\\|").strip()


if __name__ == "__main__":
    sys.stdout.write(page().rstrip() + "\n")
