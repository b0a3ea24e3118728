"""What a recording saw: plain records, without a judgement.

Not promised: that all of it matters, or that nothing else happened. What is done inside C code is seen only where
Python tells of it (audit events), and a function that was not called because a cache knew its answer is not seen.
"""

from __future__ import annotations

from types import CodeType
from typing import Any, NamedTuple

from rewarm.guards.holdings import Tree
from rewarm.guards.places import kind_of_file


class Ran(NamedTuple):
    """One piece of code that ran.

    Attributes:
      code: the code object.
      scope: the global namespace that it ran in.
      first: the class of its first argument, when it first ran: for code without a file, whose class is not found
        otherwise, and for methods of libraries.
    """

    code: CodeType
    scope: dict[str, Any]
    first: type | None


class Called(NamedTuple):
    """One C function and one piece of code that called it.

    Attributes:
      module: of the function, or of the class that it is a method of.
      name: of the function, with its class.
      code: who called it.
      scope: the namespace of the caller.
      asker: the nearest code further out that is not of Python's own library; `None` if there is none.
      home: the name of the asker's module.
      importing: whether a module was being imported, whose body runs once in each process.
    """

    module: str
    name: str
    code: CodeType
    scope: dict[str, Any]
    asker: CodeType | None
    home: str
    importing: bool


class Effect(NamedTuple):
    """Something that Python tells its auditors of.

    Attributes:
      event: Python's name for it, such as "open".
      what: the file, module or command.
      code: the nearest code that is not of Python itself.
      home: the name of its module.
      importing: whether a module was being imported.
      writes: whether a file was opened for writing.
    """

    event: str
    what: str
    code: CodeType | None
    home: str
    importing: bool
    writes: bool = False


class Seen:
    """What one recording saw.

    Attributes:
      codes: code that ran, by its id.
      calls: C functions that were called, each with who called.
      environment: variables that were read, with their values, `None` for those that were not set.
      whole_environment: whether somebody went through all variables.
      effects: files opened, imports that began, folders listed, processes started, ...
      values: for each namespace of a library (by the id of its dictionary) what its variables held when code of it
        first ran; see `holdings.py`.
      changes: what the process was changed in, with the function that did it, and who called that; see `changing.py`.
      unchanged: of these, what was afterwards as it was before.
    """

    def __init__(self) -> None:
        self.codes: dict[int, Ran] = {}
        self.calls: dict[tuple[str, str, int, int], Called] = {}
        self.environment: dict[str, str | None] = {}
        self.whole_environment = False
        self.effects: dict[tuple[str, str, int], Effect] = {}
        self.values: dict[int, dict[str, Tree]] = {}
        self.changes: dict[tuple[str, str], CodeType] = {}
        self.unchanged: set[str] = set()

    def has_run(self, code: CodeType) -> bool:
        """Whether this very code object ran."""
        known = self.codes.get(id(code))
        return known is not None and known.code is code

    def user_code(self) -> list[Ran]:
        """What ran and is neither Python's nor of an installed package."""
        return [ran for ran in self.codes.values() if kind_of_file(ran.code.co_filename) == "user"]
