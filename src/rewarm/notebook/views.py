"""Stats, events and explanations as a notebook shows them: HTML where there is some, lines of text elsewhere.

Not promised: the form of either. For programs there are `rewarm.stats()` and `rewarm.events()`, whose records are as
plain as ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rewarm.explain.text import lines
from rewarm.ledger import Event, Stats
from rewarm.notebook import html

# Explanations that are open from the start; of more, only the headlines are.
_OPEN = 3


class View:
    """Something that a cell shows."""

    def lines(self) -> Iterator[str]:
        """For terminals."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        raise NotImplementedError

    def __repr__(self) -> str:
        return "\n".join(self.lines())


class Words(View):
    """A few plain sentences."""

    def __init__(self, *sentences: str) -> None:
        self.sentences = sentences

    def lines(self) -> Iterator[str]:
        """One sentence on a line."""
        yield from self.sentences

    def _repr_html_(self) -> str:
        return "".join(map(html.paragraph, self.sentences))


class StatsView(View):
    """The numbers of this kernel.

    Attributes:
      stats: them.
    """

    def __init__(self, stats: Stats) -> None:
        self.stats = stats

    def lines(self) -> Iterator[str]:
        """One number on a line."""
        rows = list(self.rows())
        width = max(len(name) for name, _ in rows)
        yield from (f"{name:{width}}  {value}" for name, value in rows)

    def rows(self) -> Iterator[tuple[str, str]]:
        """What is worth a line, by name."""
        stats = self.stats
        share = f" ({stats.hits / stats.requests:.0%})" if stats.requests else ""
        yield "programs asked for", str(stats.requests)
        yield "hits", f"{stats.hits}{share}"
        yield "misses", str(stats.misses)
        yield "saved", f"{stats.seconds_saved:.2f} s"
        yield "compiling", f"{stats.seconds_compiling:.2f} s"
        yield "loading", f"{stats.seconds_loading:.2f} s"
        yield "rewarm's own work", f"{stats.seconds_overhead:.2f} s"
        yield "stored", str(stats.stored)
        for reason, count in sorted(stats.not_stored.items()):
            yield f"not stored: {reason}", str(count)
        for reason, count in sorted(stats.left_to_jax.items()):
            yield f"left to JAX: {reason}", str(count)
        for program, count in sorted(stats.traced_again.items()):
            yield f"traced again: {program}", str(count)
        for remote in stats.remotes:
            told = f"{remote['state']}, {remote['hits']} hits, {remote['misses']} misses, {remote['written']} put"
            yield f"remote {remote['place']}", told
        if stats.errors or stats.quarantined:
            yield "errors, quarantined", f"{stats.errors}, {stats.quarantined}"

    def _repr_html_(self) -> str:
        return html.table("rewarm, in this kernel", ("", ""), self.rows(), numbers=(1,))


_HEAD = ("program", "outcome", "from, or why", "compile s", "load s", "saved s", "stored")


class EventsView(View):
    """The newest requests, the newest last.

    Attributes:
      events: all of them.
      shown: how many.
    """

    def __init__(self, events: Sequence[Event], shown: int) -> None:
        self.events = events
        self.shown = shown

    def rows(self) -> Iterator[tuple[str, ...]]:
        """One for each event that is shown."""
        for event in self.events[-self.shown :]:
            seconds = event.seconds
            yield (
                event.program,
                event.outcome,
                event.tier or event.cause,
                f"{seconds.compile:.3f}",
                f"{seconds.load:.3f}",
                f"{event.seconds_saved:.3f}",
                "yes" if event.stored else event.not_stored or "",
            )

    def caption(self) -> str:
        """How many there are, and how many of them are shown."""
        count = len(self.events)
        shown = f"the last {self.shown} of {count}" if count > self.shown else str(count)
        return f"requests of this kernel: {shown}"

    def lines(self) -> Iterator[str]:
        """A table with columns under each other."""
        rows = [_HEAD, *self.rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
        yield self.caption()
        for row in rows:
            yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()

    def _repr_html_(self) -> str:
        return html.table(self.caption(), _HEAD, self.rows(), numbers=(3, 4, 5))


class ExplanationsView(View):
    """Why programs were compiled in this kernel.

    Attributes:
      misses: the events that are told of.
    """

    def __init__(self, misses: Sequence[Event]) -> None:
        self.misses = misses

    def lines(self) -> Iterator[str]:
        """As `rewarm explain` has them."""
        for event in self.misses:
            yield self.headline(event)
            yield from (f"    {line}" for line in _why(event))
        if not self.misses:
            yield "no misses"

    def headline(self, event: Event) -> str:
        """One line on one miss."""
        kept = "stored" if event.stored else f"not stored: {event.not_stored}"
        key = event.key[:12] if event.key else "no key"
        return f"{event.program}  {key}  compiled in {event.seconds.compile:.2f} s, {kept}: {event.cause}"

    def _repr_html_(self) -> str:
        if not self.misses:
            return html.paragraph("no misses")
        few = len(self.misses) <= _OPEN
        return "".join(html.details(self.headline(event), _why(event), is_open=few) for event in self.misses)


def _why(event: Event) -> Iterator[str]:
    said = event.explanation
    if said is None:
        yield str(event.reason)
        return
    yield said.summary
    yield from lines(said)
