"""One code object: a digest of what it does, and what it reads from outside.

Not promised: that two spellings of one computation agree. Bytecode counts as the compiler wrote it; moving lines,
comments and docstrings do not change it, and breaking an expression over lines differently may.

Modules are the reason for looking at instructions at all: a global that holds a module is followed only along the
attributes that the code names, so every use of a name is kept as a chain: `np.linalg.norm(x)` reads `np` with the
chain `("linalg", "norm")`, and a use that is not followed by an attribute has the empty chain.
"""

from __future__ import annotations

import dis
import hashlib
import re
import weakref
from collections.abc import Iterator
from types import CodeType
from typing import Any, NamedTuple

from rewarm.fingerprint.digest import frame, integer, scalar, texts

Chain = tuple[str, ...]

_WHOLE: frozenset[Chain] = frozenset({()})
# Set where a function has a docstring, from 3.13 on; that does not count.
_HAS_DOCSTRING = 0x4000000
_LOADS_CONSTANT = frozenset(dis.hasconst)
_FORMATS = frozenset({"FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE"})
_GLOBAL_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_CELL_LOADS = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
# By number, `&`, `|`, `-`, `^` and the same with `=`.
_OF_SETS = frozenset({1, 7, 10, 12, 14, 20, 23, 25})
# Instructions between `a.keys()` and the operator of `a.keys() | b.keys()`, with some to spare; and what ends the look.
_SOON = 8
_ENDS = ("GET_ITER", "STORE", "RETURN", "POP_", "JUMP", "FOR_", "YIELD")

# Where attrs makes methods. In each `__hash__` of its making stands the hash of a text, another in each process.
_MADE_BY_ATTRS = "<attrs generated "


class Import(NamedTuple):
    """What an import statement binds, and how that is used.

    Attributes:
      level: how many packages up, as in `from .. import`.
      module: the name in the statement.
      bound: the module that the statement hands over: `import a.b` gives `a`.
      attributes: what is taken from the module at once, as by `from`.
      chains: how the bound name is used.
    """

    level: int
    module: str
    bound: str
    attributes: Chain
    chains: frozenset[Chain]


# Stands among the words for code that goes through sets, whose order is another in each process.
SETS = "{set}"


class CodeFacts(NamedTuple):
    """What is known of a code object and of all code nested in it.

    Attributes:
      digest: SHA-256 of what it does.
      globals: global and builtin names that are read, and how.
      free: names of the code's own free variables that are read, and how.
      imports: import statements.
      stores: variables outside itself that the code sets or deletes, in words.
      words: attributes that are read and strings that could name one.
      formats: whether text is made of values.
    """

    digest: bytes
    globals: dict[str, frozenset[Chain]]
    free: dict[str, frozenset[Chain]]
    imports: tuple[Import, ...]
    stores: tuple[str, ...]
    words: frozenset[str]
    formats: bool


_known: dict[int, tuple[weakref.ref[CodeType], CodeFacts]] = {}


def code_facts(code: CodeType) -> CodeFacts:
    """The facts, remembered for as long as the code object lives.

    By identity: comparing code objects skips parts that count here.
    """
    known = _known.get(id(code))
    if known is not None and known[0]() is code:
        return known[1]
    facts = _Reading(code).facts()
    key = id(code)
    _known[key] = (weakref.ref(code, lambda _: _known.pop(key, None)), facts)
    return facts


class _Step(NamedTuple):
    """One instruction, or one half of an instruction that does two."""

    op: str
    arg: Any


class _Reading:
    """Reads one code object."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.steps = list(_steps(code))
        self.globals: dict[str, set[Chain]] = {}
        self.free: dict[str, set[Chain]] = {}
        self.local: dict[str, set[Chain]] = {}
        self.bound: list[tuple[Import, str | None]] = []
        self.imports: list[Import] = []
        self.stores: list[str] = []
        self.words: set[str] = set()
        self.formats = False
        self.docstring = _is_docstring(code)

    def facts(self) -> CodeFacts:
        for index in range(len(self.steps)):
            self._read(index)
        for constant in self.code.co_consts:
            if isinstance(constant, CodeType):
                self._nest(code_facts(constant))
        if not self.docstring:
            self._strings(self.code.co_consts)
        else:
            self._strings(self.code.co_consts[1:])
        for statement, name in self.bound:
            chains = frozenset(self.local.get(name, ())) if name is not None else _WHOLE
            self.imports.append(statement._replace(chains=chains))
        return CodeFacts(
            digest=self._digest(),
            globals={name: frozenset(chains) for name, chains in sorted(self.globals.items())},
            free={name: frozenset(chains) for name, chains in sorted(self.free.items())},
            imports=tuple(self.imports),
            stores=tuple(sorted(set(self.stores))),
            words=frozenset(self.words),
            formats=self.formats,
        )

    def _read(self, index: int) -> None:
        op, arg = self.steps[index]
        if op in _GLOBAL_LOADS:
            if not self._is_class_ritual(index):
                self.globals.setdefault(arg, set()).add(self._chain(index))
        elif op in _CELL_LOADS:
            where = self.free if arg in self.code.co_freevars else self.local
            where.setdefault(arg, set()).add(self._chain(index))
        elif op.startswith("LOAD_FAST"):
            if not self._makes_closure(index):
                self.local.setdefault(arg, set()).add(self._chain(index))
        elif op in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            self.stores.append(f"global {arg}")
        elif op in ("STORE_DEREF", "DELETE_DEREF") and arg in self.code.co_freevars:
            self.stores.append(f"nonlocal {arg}")
        elif op == "IMPORT_NAME":
            self._import(index)
        if op in _ATTRIBUTES or op in ("IMPORT_FROM", "LOAD_SUPER_ATTR", "STORE_ATTR", "DELETE_ATTR"):
            self.words.add(arg)
        elif op in _FORMATS:
            self.formats = True
        if self._makes_set(index):
            self.words.add(SETS)

    def _makes_set(self, index: int) -> bool:
        """Whether a set comes into being here that code can go through; one that is only looked in has no order."""
        op, arg = self.steps[index]
        if op in _GLOBAL_LOADS:
            return arg in ("set", "frozenset")
        if op == "LOAD_CONST" and isinstance(arg, frozenset):
            following = self.steps[index + 1].op if index + 1 < len(self.steps) else ""
            return following != "CONTAINS_OP"
        if op in _ATTRIBUTES and arg in ("keys", "items"):
            return self._joins_views(index)
        return op in ("BUILD_SET", "SET_ADD", "SET_UPDATE")

    def _joins_views(self, index: int) -> bool:
        """Whether an operator that makes a set of the keys of dictionaries follows soon."""
        for op, arg in self.steps[index + 1 : index + 1 + _SOON]:
            if op.startswith(_ENDS):
                return False
            if op == "BINARY_OP" and arg in _OF_SETS:
                return True
        return False

    def _makes_closure(self, index: int) -> bool:
        """Whether a variable is only handed on to a nested function, which has this instruction from 3.13 on."""
        arg = self.steps[index].arg
        if arg in self.code.co_freevars:
            return True
        if arg not in self.code.co_cellvars:
            return False
        rest = (step.op for step in self.steps[index:])
        return next((op for op in rest if op not in ("LOAD_FAST", "LOAD_CLOSURE")), None) == "BUILD_TUPLE"

    def _chain(self, index: int) -> Chain:
        chain: list[str] = []
        for op, arg in self.steps[index + 1 :]:
            if op not in _ATTRIBUTES:
                break
            chain.append(arg)
        return tuple(chain)

    def _is_class_ritual(self, index: int) -> bool:
        """Whether this is how each class body starts (`__module__ = __name__`) or keeps its annotations."""
        op, arg = self.steps[index]
        if op != "LOAD_NAME":
            return False
        following = self.steps[index + 1] if index + 1 < len(self.steps) else None
        return arg == "__annotations__" or (arg == "__name__" and following == ("STORE_NAME", "__module__"))

    def _import(self, index: int) -> None:
        module = self.steps[index].arg
        level, names = (step.arg for step in self.steps[index - 2 : index]) if index >= 2 else (None, None)
        if not isinstance(level, int):
            self.stores.append("an import of an unknown form")
            return
        if names:
            self._import_names(index + 1, level, module)
        else:
            self._import_module(index + 1, level, module)

    def _import_names(self, index: int, level: int, module: str) -> None:
        """`from module import a, b`: pairs of IMPORT_FROM and a store."""
        while index + 1 < len(self.steps) and self.steps[index].op == "IMPORT_FROM":
            self._bind(Import(level, module, module, (self.steps[index].arg,), _WHOLE), self.steps[index + 1])
            index += 2
        if index >= len(self.steps) or self.steps[index].op != "POP_TOP":
            self.bound.append((Import(level, module, module, (), _WHOLE), None))

    def _import_module(self, index: int, level: int, module: str) -> None:
        """`import a`, `import a.b` (both bind `a`) and `import a.b as c` (walks down to b)."""
        top = module.partition(".")[0]
        chain: list[str] = []
        while self.steps[index].op == "IMPORT_FROM":
            chain.append(self.steps[index].arg)
            index += 1
            while self.steps[index].op in ("SWAP", "POP_TOP"):
                index += 1
        self._bind(Import(level, module, top, tuple(chain), _WHOLE), self.steps[index])

    def _bind(self, statement: Import, store: _Step) -> None:
        # A name of a class body becomes an attribute of the class, whose uses cannot be told.
        # So does one that an outer function owns.
        followed = store.op in ("STORE_FAST", "STORE_DEREF") and store.arg not in self.code.co_freevars
        self.bound.append((statement, store.arg if followed else None))

    def _nest(self, facts: CodeFacts) -> None:
        for name, chains in facts.globals.items():
            self.globals.setdefault(name, set()).update(chains)
        for name, chains in facts.free.items():
            where = self.free if name in self.code.co_freevars else self.local
            where.setdefault(name, set()).update(chains)
        self.imports += facts.imports
        for store in facts.stores:
            # A variable of this very function is new at each call, so whoever sets it does no harm.
            scope, _, name = store.partition(" ")
            if scope != "nonlocal" or name in self.code.co_freevars:
                self.stores.append(store)
        self.words |= facts.words
        self.formats = self.formats or facts.formats

    def _strings(self, constants: tuple[object, ...]) -> None:
        for constant in constants:
            if isinstance(constant, str):
                if constant.isidentifier():
                    self.words.add(constant)
                elif "%" in constant:
                    self.formats = True
                elif "{" in constant:  # "{0.name}".format(x) reads an attribute
                    self.words.update(re.findall(r"\.(\w+)", constant))
            elif isinstance(constant, (tuple, frozenset)):
                self._strings(tuple(constant))

    def _digest(self) -> bytes:
        code = self.code
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & ~_HAS_DOCSTRING)
        fields = frame(
            b"code",
            self._body(),
            code.co_exceptiontable,
            frame(*(integer(count) for count in counts)),
            texts(code.co_names),
            texts(code.co_varnames),
            texts(code.co_freevars),
            texts(code.co_cellvars),
        )
        return hashlib.sha256(fields).digest()

    def _body(self) -> bytes:
        """Instructions, and the constants in the order in which they load them: the number of a constant depends on
        whether there is a docstring."""
        if self._knows_its_line():
            return self._without_line()
        code = self.code.co_code  # never the specialised form, which depends on what ran before
        body, constants, high = bytearray(code), list[bytes](), 0
        for at in range(0, len(code), 2):
            op, arg = code[at], high | code[at + 1]
            high = arg << 8 if op == dis.EXTENDED_ARG else 0
            if op in _LOADS_CONSTANT:
                constants.append(self._constant(arg))
                body[at + 1] = 0
            elif op == dis.EXTENDED_ARG and _is_of_constant(code, at):
                body[at : at + 2] = b"\0\0"
        return frame(bytes(body), *constants)

    def _constant(self, number: int) -> bytes:
        """A constant that is loaded; dictionaries and sets find the same things whatever number a hash is made of."""
        held = self.code.co_consts[number]
        is_salt = type(held) is int and self.code.co_name == "__hash__"
        return _constant(0 if is_salt and self.code.co_filename.startswith(_MADE_BY_ATTRS) else held)

    def _knows_its_line(self) -> bool:
        """Whether this is the body of a class, which from 3.13 on holds the number of its line."""
        return ("STORE_NAME", "__firstlineno__") in self.steps

    def _without_line(self) -> bytes:
        """Instructions with the constants in place, since the line may share its constant with another number."""
        fields: list[bytes] = []
        instructions = [one for one in dis.get_instructions(self.code) if one.opname not in ("EXTENDED_ARG", "CACHE")]
        for one, following in zip(instructions, [*instructions[1:], None], strict=True):
            is_line = following is not None and following.argval == "__firstlineno__"
            if is_line:
                fields.append(b"line")
            elif one.opcode in dis.hasconst:
                fields += (one.opname.encode(), _constant(one.argval))
            else:
                fields += (one.opname.encode(), integer(one.arg or 0))
        return frame(*fields)


def _is_of_constant(code: bytes, at: int) -> bool:
    """Whether the instruction that this is the beginning of loads a constant."""
    while code[at] == dis.EXTENDED_ARG:
        at += 2
    return code[at] in _LOADS_CONSTANT


def _steps(code: CodeType) -> Iterator[_Step]:
    for instruction in dis.get_instructions(code):
        op, arg = instruction.opname.replace("_BORROW", ""), instruction.argval
        if op in ("EXTENDED_ARG", "CACHE"):
            continue
        if isinstance(arg, tuple) and op.count("_FAST") == 2:
            # LOAD_FAST_LOAD_FAST and its like, from 3.13 on.
            first, second = op.split("_FAST", 1)[0] + "_FAST", op.split("_FAST_", 1)[1]
            yield _Step(first, arg[0])
            yield _Step(second, arg[1])
        else:
            yield _Step(op, arg)


def _is_docstring(code: CodeType) -> bool:
    """Whether the first constant is a string that no instruction loads."""
    if not code.co_consts or not isinstance(code.co_consts[0], str):
        return False
    return all(
        not (instruction.opcode in dis.hasconst and instruction.arg == 0) for instruction in dis.get_instructions(code)
    )


def _constant(value: object) -> bytes:
    plain = scalar(value)
    if plain is not None:
        return plain
    if isinstance(value, CodeType):
        return b"C" + code_facts(value).digest
    if isinstance(value, tuple):
        return b"(" + frame(*(_constant(item) for item in value))
    if isinstance(value, frozenset):
        # The order of a set of strings depends on PYTHONHASHSEED.
        return b"{" + frame(*sorted(_constant(item) for item in value))
    if isinstance(value, slice):
        return b":" + frame(*(_constant(item) for item in (value.start, value.stop, value.step)))
    raise TypeError(f"a constant of type {type(value).__name__}")
