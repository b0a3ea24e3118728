"""What caches of several compilers do for their own: JAX's, rewarm, torch.compile's, Triton's, ccache and sccache.

    python benchmarks/peers.py [--parts NAME,NAME] [--peers NAME,NAME] [--rounds N] [--write PAGE] [--json FILE]

Seconds of different compilers cannot be compared. What can is what each cache makes of its own: every contestant is
compared with itself, by ratios and counts. Each start is a fresh process with a small program of the contestant's own
ground (`peer_programs/`); its cache has its defaults, but for what `_peers.py` says.

* share: what a warm start takes of one without any cache, and a cold one (that fills the cache), as a whole process and
  in the first call (or compile) alone; contestants in turn at every round, medians.
* hits: the first call of a warm start with this one program in the cache, and with many more entries beside it.
* damage: one bit flipped, the file cut to half, the file empty; one file of the cache's entries at a time. What does
  the next start do, and where it fails, the one after that? Triton's kernel is not run: its result is machine code.
* edits: which change of the source, that changes nothing of what is compiled, is still a hit. The last edit is of a
  constant, and must miss.
* crowd: so many processes at once with an empty cache: how many of them compile.

What is not installed is named and left out. Prints Markdown; with `--write`, a page gets it between its two markers.
Ten minutes and more on two CPUs with all (`pip install -r benchmarks/requirements-peers.txt`, ccache, sccache and g++
from the system), half of it torch.compile's; `--parts` and `--peers` take less.

Exits with status 1 where rewarm used a damaged or stale entry, where more than one of its processes in a crowd
compiled, and where a contestant could not be measured.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from _peers import PROGRAMS, OfCxx, Outcome, Peer, Place, Rewarm, contestants
from _processes import BenchmarkError, describe_machine, rotated, scratch_directory

BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"
PARTS = ("share", "hits", "damage", "edits", "crowd")


class Edit(NamedTuple):
    """A change of a checkout: text of the helper, or where the start happens."""

    name: str
    text: Callable[[str, str], str] | None
    """The helper's new text, from its old one and from what begins a comment."""
    elsewhere: str = ""
    """"cwd" or "checkout"."""
    must_miss: bool = False


EDITS = (
    Edit("a comment", lambda text, comment: text.replace("0.25;", f"0.25;  {comment} a quarter") if ";" in text
         else text.replace("0.25", f"0.25  {comment} a quarter")),
    Edit("lines moved", lambda text, comment: f"{comment}\n{comment}\n{text}"),
    Edit("a local renamed", lambda text, _: text.replace("factor", "quarter")),
    Edit("another working directory", None, "cwd"),
    Edit("another checkout path", None, "checkout"),
    Edit("a constant changed", lambda text, _: text.replace("0.25", "0.75"), must_miss=True),
)  # fmt: skip


@dataclasses.dataclass
class Figures:
    """All that was measured of one contestant; a part that was not measured is empty."""

    none: list[Outcome] = dataclasses.field(default_factory=list)
    cold: list[Outcome] = dataclasses.field(default_factory=list)
    warm: list[Outcome] = dataclasses.field(default_factory=list)
    few: list[Outcome] = dataclasses.field(default_factory=list)
    many: list[Outcome] = dataclasses.field(default_factory=list)
    damage: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    files: int = 0
    edits: dict[str, str] = dataclasses.field(default_factory=dict)
    crowd: dict[int, str] = dataclasses.field(default_factory=dict)


class Ground:
    """One contestant with its sources and its filled cache, which every trial leaves as it found it.

    The cache is put back at its own path: some keep absolute paths in their entries.
    """

    def __init__(self, peer: Peer, scratch: Path) -> None:
        self.peer = peer
        self.figures = Figures()
        self.trouble = ""
        self._scratch = scratch / re_safe(peer.name)
        self._kept = self._scratch / "kept"
        self.place = Place(self._scratch / "checkout", self._scratch / "cache", self._scratch / "checkout")
        self._scratch.mkdir()
        self._checkout(self.place.sources)
        self.right = ""

    def _checkout(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(PROGRAMS / self.peer.kind, folder, ignore=shutil.ignore_patterns("__pycache__"))

    def fill(self, _: argparse.Namespace) -> None:
        """Start as often as it takes until it is warm."""
        self.empty()
        results = {self.sound(self.run()) for _ in range(self.peer.fills)}
        if len(results) != 1:
            raise BenchmarkError(f"{self.peer.name}: starts differ: {results}")
        shutil.copytree(self.place.cache, self._kept)
        self.right = results.pop()

    def sound(self, outcome: Outcome) -> str:
        """The result of a start that must have gone well."""
        if outcome.status != 0 or not outcome.result:
            raise BenchmarkError(f"{self.peer.name} ended with {outcome.status}:\n{outcome.output}")
        return outcome.result

    def empty(self) -> None:
        """Make the cache empty."""
        shutil.rmtree(self.place.cache, ignore_errors=True)
        self.place.cache.mkdir()

    def restore(self) -> None:
        """Put the cache back as it was when it had been filled."""
        shutil.rmtree(self.place.cache, ignore_errors=True)
        shutil.copytree(self._kept, self.place.cache)

    def run(self, place: Place | None = None, *, bare: bool = False, warm: bool = False) -> Outcome:
        """One start with what the cache holds now; without any cache if `bare`.

        If `warm`, a server beside it has answered before, as one that stays has: its first answer takes longer.
        """
        with self.peer.served(self.place.cache):
            if warm and self.peer.has_server:
                self.peer.run(self.place)
            outcome = self.peer.run(place or self.place, bare=bare)
        note(f"{self.peer.name}: {outcome.seconds:.2f} s, {'compiled' if outcome.compiled else 'not compiled'}")
        return outcome

    # -- the parts ------------------------------------------------------------------------------------------------

    def share(self, _: argparse.Namespace) -> None:
        """A start without a cache, a cold one and a warm one."""
        self.empty()
        none = self.run(bare=True)
        self.empty()
        cold = self.run()
        self.restore()
        warm = self.run(warm=True)
        if not none.compiled or not cold.compiled or warm.compiled:
            raise BenchmarkError(f"{self.peer.name}: a cold start was not cold, or a warm one not warm")
        if {self.sound(one) for one in (none, cold, warm)} != {self.right}:
            raise BenchmarkError(f"{self.peer.name}: results differ")
        for found, one in zip(
            (self.figures.none, self.figures.cold, self.figures.warm), (none, cold, warm), strict=True
        ):
            found.append(one)

    def hits(self, arguments: argparse.Namespace) -> None:
        """Warm starts with few entries and with many, in turn."""
        many = self._scratch / "many"
        self.restore()
        self.peer.fill(self.place.cache, arguments.many)
        self.sound(self.run())
        for number in range(arguments.hits if not self.peer.slow else 2):
            for found in rotated((self.figures.few, self.figures.many), number):
                self._swap(many, wanted=found is self.figures.many)
                found.append(self.run(warm=True))
        self._swap(many, wanted=True)
        self.restore()

    def _swap(self, many: Path, *, wanted: bool) -> None:
        """Have the large cache, or the small one, at the cache's path."""
        if wanted == many.exists():
            if wanted:
                shutil.rmtree(self.place.cache)
                many.rename(self.place.cache)
            else:
                self.place.cache.rename(many)
                self.restore()

    def damage(self, _: argparse.Namespace) -> None:
        """Every damage to every file that counts."""
        self.restore()
        files = [path.relative_to(self.place.cache) for path in self.peer.entries(self.place.cache)]
        self.figures.files = len(files)
        for name in files:
            for kind, change in damages(self.peer.flips):
                self.restore()
                path = self.place.cache / name
                path.write_bytes(change(path.read_bytes()))
                found = self._after_damage()
                note(f"{self.peer.name}: {name}: {kind}: {found}")
                self.figures.damage.setdefault(kind, Counter())[found] += 1
        self.restore()

    def _after_damage(self) -> str:
        """What the next start does, in words."""
        try:
            found = self._judged(self.run())
        except BenchmarkError as error:
            if "no end" not in str(error):
                raise
            return "hung"
        if found in FAILURES and self._judged(self.run()) in FAILURES:
            return f"{found}, again and again"
        return found

    def _judged(self, outcome: Outcome) -> str:
        if outcome.status != 0:
            return "crashed" if outcome.status < 0 or outcome.status > 128 else "failed"
        if outcome.result != self.right:
            return "WRONG RESULT"
        if outcome.compiled:
            return "compiled anew"
        return "traced anew" if outcome.traced else "nothing compiled, right result"

    def edits(self, _: argparse.Namespace) -> None:
        """Every edit, each from the filled cache."""
        for edit in EDITS:
            self.restore()
            outcome = self.run(self._edited(edit))
            self.sound(outcome)
            if edit.must_miss and outcome.compiled and outcome.result == self.right:
                raise BenchmarkError(f"{self.peer.name}: {edit.name}, and the result is the same")
            self.figures.edits[edit.name] = self._edit_verdict(edit, outcome)
            self._checkout(self.place.sources)
        self.restore()

    def _edit_verdict(self, edit: Edit, outcome: Outcome) -> str:
        if outcome.compiled:
            return "miss"
        if edit.must_miss or outcome.result != self.right:
            return "STALE RESULT"
        return "hit, traced anew" if outcome.traced else "hit"

    def _edited(self, edit: Edit) -> Place:
        """The place of a start after the edit."""
        if edit.elsewhere == "cwd":
            other = self._scratch / "elsewhere"
            other.mkdir(exist_ok=True)
            return dataclasses.replace(self.place, cwd=other)
        if edit.elsewhere == "checkout":
            other = self._scratch / "another_checkout"
            self._checkout(other)
            return dataclasses.replace(self.place, sources=other, cwd=other)
        assert edit.text is not None
        helper = next(self.place.sources.glob("helper.*"))
        before = helper.read_text(encoding="utf-8")
        after = edit.text(before, "//" if helper.suffix == ".h" else "#")
        assert after != before, edit.name
        helper.write_text(after, encoding="utf-8")
        shutil.rmtree(self.place.sources / "__pycache__", ignore_errors=True)
        return self.place

    def crowd(self, arguments: argparse.Namespace) -> None:
        """Processes at once with an empty cache."""
        for size in arguments.crowds:
            if size not in self.peer.crowds:
                continue
            self.empty()
            with self.peer.served(self.place.cache), ThreadPoolExecutor(size) as threads:
                outcomes = list(threads.map(self.peer.run, [self.place] * size))
            if {self.sound(outcome) for outcome in outcomes} != {self.right}:
                raise BenchmarkError(f"{self.peer.name}: {size} at once: another result")
            compiled = sum(outcome.compiled for outcome in outcomes)
            note(f"{self.peer.name}: {size} at once: {compiled} compiled")
            self.figures.crowd[size] = f"{compiled} of {size}"
        self.restore()


FAILURES = ("failed", "crashed", "WRONG RESULT")


def damages(flips: int) -> Iterator[tuple[str, Callable[[bytes], bytes]]]:
    """What may befall a file: its name for the table, and the bytes after it."""
    for number in range(flips):
        yield "one bit flipped", lambda data, part=(number + 1) / (flips + 1): flipped(data, part)
    yield "cut to half", lambda data: data[: len(data) // 2]
    yield "empty", lambda _: b""


def flipped(data: bytes, part: float) -> bytes:
    """The bytes with the lowest bit of one of them turned, so far into them: of text, it makes other text."""
    at = int(len(data) * part)
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] if data else data


def re_safe(name: str) -> str:
    """A folder's name."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def note(text: str) -> None:
    """Progress, for people who wait."""
    print(text, file=sys.stderr, flush=True)


# -- tables -----------------------------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def median(outcomes: Sequence[Outcome], of: str) -> float:
    """The median of one figure of some starts."""
    return statistics.median(getattr(outcome, of) for outcome in outcomes)


def call(peer: Peer) -> str:
    """Which figure is the call alone: where the process is the compile, its whole."""
    return "seconds" if isinstance(peer, OfCxx) else "first"


def share_row(ground: Ground) -> list[str]:
    """What is left of a start without a cache, round by round, and the seconds behind that."""
    figures, alone = ground.figures, call(ground.peer)

    def left(found: Sequence[Outcome], of: str) -> str:
        pairs = zip(found, figures.none, strict=True)
        return f"{statistics.median(getattr(one, of) / getattr(none, of) for one, none in pairs):.2f}"

    shares = [left(figures.warm, "seconds"), left(figures.warm, alone), left(figures.cold, "seconds")]
    seconds = [f"{median(found, 'seconds'):.2f}" for found in (figures.none, figures.cold, figures.warm)]
    return [ground.peer.name, *shares, *seconds, f"{median(figures.warm, 'ready'):.2f}" if alone == "first" else "-"]


def hits_row(ground: Ground) -> list[str]:
    """The call alone, with few entries and with many."""
    few, many = (median(found, call(ground.peer)) for found in (ground.figures.few, ground.figures.many))
    return [ground.peer.name, f"{many / few:.2f}", f"{few * 1e3:.0f}", f"{many * 1e3:.0f}"]


def damage_rows(ground: Ground) -> list[str]:
    """In words, by kind of damage."""
    cells = [
        "; ".join(f"{count} {found}" for found, count in ground.figures.damage[kind].most_common())
        for kind in dict.fromkeys(kind for kind, _ in damages(1))
    ]
    return [ground.peer.name, str(ground.figures.files), *cells]


def edits_row(ground: Ground) -> list[str]:
    """Hit or miss."""
    return [ground.peer.name, *(ground.figures.edits[edit.name] for edit in EDITS)]


def crowd_row(ground: Ground, crowds: Sequence[int]) -> list[str]:
    """How many compiled."""
    return [ground.peer.name, *(ground.figures.crowd.get(size, "not measured") for size in crowds)]


def tables(grounds: Sequence[Ground], arguments: argparse.Namespace) -> Iterator[str]:
    """The tables of all parts that were measured, each with its heading."""
    parts = arguments.parts

    def of(part: str) -> list[Ground]:
        return [ground for ground in grounds if part in ground.peer.parts]

    if "share" in parts:
        yield "**What is left of a start without any cache**, as a share of it"
        head = ["", "warm", "warm, first call or compile alone", "cold", "none s", "cold s", "warm s", "imports s"]
        yield table(head, [share_row(one) for one in of("share")])
    if "hits" in parts:
        yield f"**First call of a warm start**, alone in the cache and beside {arguments.many:,} more entries"
        yield table(["", "many over alone", "alone ms", "many ms"], [hits_row(one) for one in of("hits")])
    if "damage" in parts:
        yield "**After damage** to one file of the cache: what the next start did, by number of trials"
        head = ["", "files", *dict.fromkeys(kind for kind, _ in damages(1))]
        yield table(head, [damage_rows(one) for one in of("damage")])
    if "edits" in parts:
        yield "**After an edit** of the source; the last one must miss"
        yield table(["", *(edit.name for edit in EDITS)], [edits_row(one) for one in of("edits")])
    if "crowd" in parts:
        yield "**Processes at once**, with an empty cache: how many of them compiled"
        head = ["", *(f"{size} processes" for size in arguments.crowds)]
        yield table(head, [crowd_row(one, arguments.crowds) for one in of("crowd")])


def about(peers: Sequence[Peer], absent: Sequence[str]) -> str:
    """Machine, versions and date."""
    machine = describe_machine()
    versions = ", ".join(dict.fromkeys(peer.version() for peer in peers))
    text = f"{machine['cpu']}, {machine['cpus']} CPUs, {machine['system']}, Python {machine['python']}; {versions}; "
    return text + time.strftime("%d %B %Y.") + "".join(f" Left out: {one}." for one in absent)


def failures(grounds: Sequence[Ground]) -> list[str]:
    """What must not be of rewarm, a line each."""
    found = [ground.trouble for ground in grounds if ground.trouble]
    for ground in grounds:
        if not isinstance(ground.peer, Rewarm):
            continue
        words = {word for counts in ground.figures.damage.values() for word in counts}
        bad = {word for word in words if word.startswith((*FAILURES, "hung"))}
        stale = [name for name, verdict in ground.figures.edits.items() if "RESULT" in verdict]
        crowds = [text for text in ground.figures.crowd.values() if not text.startswith("1 ")]
        found += [f"{ground.peer.name}: {what}" for what in (*sorted(bad), *stale, *crowds)]
    return found


# -- running ----------------------------------------------------------------------------------------------------------


def measure(grounds: Sequence[Ground], arguments: argparse.Namespace) -> None:
    """All parts; those that are timed go round by round. One that is in trouble ends none of the others."""
    for part in ("fill", *arguments.parts):
        rounds = arguments.rounds if part == "share" else 1
        for number in range(rounds):
            for ground in rotated(grounds, number):
                if ground.trouble or part not in ("fill", *ground.peer.parts) or (number and ground.peer.slow):
                    continue
                try:
                    getattr(ground, part)(arguments)
                except BenchmarkError as error:
                    ground.trouble = f"{ground.peer.name}: {part}: {error}"
                    note(ground.trouble)


def write(page: Path, block: str) -> None:
    """Put the block between the markers of a page; raises BenchmarkError where they are not there."""
    text = page.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise BenchmarkError(f"{page}: expected one line {BEGIN} and one line {END}")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n{block}\n{END}{after}", encoding="utf-8")


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help="default: %(default)s")
    parser.add_argument("--peers", default="", help="names, by default all that are installed")
    parser.add_argument("--rounds", type=int, default=3, help="of cold and warm starts; slow contestants have one")
    parser.add_argument("--hits", type=int, default=3, help="warm starts with few entries and with many: %(default)s")
    parser.add_argument("--many", type=int, default=10_000, help="entries more: %(default)s")
    parser.add_argument("--crowds", type=int, nargs="+", default=[2, 8], help="processes at once: %(default)s")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables between the markers of PAGE as well")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE as well")
    arguments = parser.parse_args(argv)
    arguments.parts = arguments.parts.split(",")
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}; there are: {', '.join(PARTS)}")
    if min(arguments.rounds, arguments.hits, arguments.many) < 1:
        parser.error("--rounds, --hits and --many must be at least 1")
    return arguments


def chosen(scratch: Path, names: str) -> tuple[list[Peer], list[str]]:
    """The contestants that are wanted and installed, and what is said of the others."""
    known = contestants(scratch)
    wanted = names.split(",") if names else [peer.name for peer in known]
    if unknown := set(wanted) - {peer.name for peer in known}:
        there = ", ".join(peer.name for peer in known)
        raise BenchmarkError(f"unknown: {', '.join(sorted(unknown))}; there are: {there}")
    peers = [peer for peer in known if peer.name in wanted]
    absent = [f"{peer.name} ({why})" for peer in peers if (why := peer.missing())]
    return [peer for peer in peers if not peer.missing()], absent


def as_dict(ground: Ground) -> dict[str, Any]:
    """Every figure of one contestant, for machines."""
    told = dataclasses.asdict(ground.figures)
    told["damage"] = {kind: dict(counts) for kind, counts in ground.figures.damage.items()}
    for name in ("none", "cold", "warm", "few", "many"):
        for outcome in told[name]:
            del outcome["output"]
    return told


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit status."""
    arguments = parse_arguments(argv)
    try:
        with scratch_directory() as scratch:
            peers, absent = chosen(scratch, arguments.peers)
            grounds = [Ground(peer, scratch) for peer in peers]
            measure(grounds, arguments)
            absent += [f"{ground.peer.name} (it failed)" for ground in grounds if ground.trouble]
            sound = [ground for ground in grounds if not ground.trouble]
            block = "\n\n".join([about(peers, absent), *tables(sound, arguments)])
        print(block)
        if arguments.write:
            write(arguments.write, block)
    except BenchmarkError as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        figures = {ground.peer.name: as_dict(ground) for ground in grounds}
        arguments.json.write_text(json.dumps({"machine": describe_machine(), "peers": figures}, indent=1) + "\n")
    found = failures(grounds)
    print("\n".join(found), file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
