"""Why a request was a miss, as data. Imported at the first miss: a start that finds everything needs none of it.

Not promised: that the texts keep their words. `Finding.kind`, and the names in `Explanation.differs`, do.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs between what was wanted and what was found.

    Attributes:
      component: the row of the key's table, such as "options".
      item: which part of it, such as "xla_cpu_max_isa"; "" where it has no parts.
      before: what the stored program had, in words; "" for nothing.
      after: what this one has.
    """

    component: str
    item: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in plain words that a list of changes does not say by itself.

    Attributes:
      kind: one of `KINDS`, for programs that read it.
      text: for people.
    """

    kind: str
    text: str


KINDS = (
    "new",  # no program like it was seen in this directory
    "removed",  # it was stored here, and is not any more
    "meanwhile",  # another process stored it between the look and now
    "quarantined",  # what lay there was not usable
    "not stored",  # it was compiled before, and not stored, for the reason given
    "unkeyable",  # it cannot have a key, for the reason given
    "bypassed",  # it has a key and is neither looked up nor stored, for the reason given
    "unfinished",  # looking was broken off or impossible
    "constants",  # the same operations with other constants
    "varying constant",  # and they differed in each run before
    "shapes",  # the same program for other shapes
    "types",  # the same program in other widths: x64, or a weak type
    "order",  # the same operations in another order
    "signature",  # something that is said of arguments and results: donation, sharding, layout, memory
    "operands",  # the same operations on other operands
    "operations",  # other operations
    "names",  # programs that differ in names or source locations alone, which count with metadata_in_key
    "renamed",  # it was seen under another name
    "described",  # it was compiled ahead, for a machine whose description is not this one
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a request was a miss.

    Not promised: that the nearest program is the one that a person would call nearest, only that what is said of the
    two is so.

    Attributes:
      summary: one line.
      nearest: the key that it was compared with; `None` when there was none.
      differs: the components that differ from the nearest's, in the order of the key's table.
      changes: what differs within them.
      findings: what that means, where something is known.
    """

    summary: str
    nearest: str | None = None
    differs: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    findings: tuple[Finding, ...] = ()
