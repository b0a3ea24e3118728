"""Programs for tests of the canonical form: a model without names, its text under any names, and ways to change it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from rewarm.identity.program import Program, canonical_program

UNARY = ("sine", "cosine", "tanh", "negate")
BINARY = ("add", "subtract", "multiply", "divide")
TYPES = ("tensor<4xf32>", "tensor<4xf64>", "tensor<8xf32>")
AXES = ("x", "y")

# Letters, names of operations, of dialects, of attributes and of MLIR's own parts, strings that the texts below hold,
# and whatever Python lets a function be called.
NAMES = (
    *(
        "g",
        "helper",
        "_where",
        "clip",
        "<lambda>",
        "m",
        "x",
        "y",
        "jit_f",
        "a.b",
        "a-b",
        "$",
        "1",
        "-",
        "f",
        "f.",
        "F.0",
    ),
    *("add", "sort", "sine", "func", "call", "builtin", "stablehlo", "sdy", "stablehlo.add", "func.func", "module"),
    *("callee", "sym_name", "decomposition", "called_computations", "sym_visibility", "private", "jax.result_info"),
    *("config", "my.composite", "value", "my.tag", "target", "sha256:00", "empty_mesh"),
    *("hé ☃", "名前", 'quo"te', "back\\slash", "new\nline", "sp ace", "@at", "a" * 300),
)
# Those that the canonical form uses itself, for functions and for meshes, on the way there, and a NUL.
NAMES_IN_THE_WAY = ("f.0", "f.1", "f.2", "f.10", "mesh", "mesh_0", "mesh_1", "rewarm.mesh", "rewarm.mesh_0", "a\0b")
MESH_NAMES = ("mesh", "mesh_0", "mesh_1", "meshes", "q", "empty_mesh", "mesh_2")


class Op(NamedTuple):
    """One operation on values of the function's one type.

    Attributes:
      kind: a method of `_Text`.
      operands: numbers of earlier values.
      word: an operation, a target, a composite's name or the name of an attribute.
      functions: numbers of the functions that it refers to.
      number: a constant, or part of a configuration.
      frontend: a frontend attribute.
    """

    kind: str
    operands: tuple[int, ...] = ()
    word: str = ""
    functions: tuple[int, ...] = ()
    number: int = 0
    frontend: str = ""


class Function(NamedTuple):
    """A function of one argument and one result; the first of a program is `main`."""

    ops: tuple[Op, ...]
    private: bool = True


class Source(NamedTuple):
    """A program without the names of its symbols.

    Attributes:
      functions: `main` first; each refers to later ones alone.
      meshes: the sizes of their axes, named as in `AXES`.
      type: of every value.
      argument: an attribute of main's argument.
    """

    functions: tuple[Function, ...]
    meshes: tuple[tuple[int, ...], ...] = ()
    type: str = TYPES[0]
    argument: str = ""


class Names(NamedTuple):
    """All that must not count."""

    functions: tuple[str, ...]
    meshes: tuple[str, ...]
    module: str = "jit_f"
    result: str = ""
    file: str = ""


def symbol(name: str) -> str:
    """A name as MLIR reads it."""
    return "@" + string(name)


def string(text: str) -> str:
    """A string as MLIR reads it."""
    return (
        '"'
        + "".join(chr(one) if 32 <= one < 127 and one not in b'"\\' else f"\\{one:02X}" for one in text.encode())
        + '"'
    )


class _Text:
    def __init__(self, source: Source, names: Names) -> None:
        self.source, self.names, self.line = source, names, 0

    def module(self) -> str:
        meshes = [self.mesh(*one) for one in zip(self.names.meshes, self.source.meshes, strict=True)]
        functions = [self.function(number, one) for number, one in enumerate(self.source.functions)]
        return "\n".join([f"module {symbol(self.names.module)} {{", *meshes, *functions, "}"])

    def mesh(self, name: str, sizes: tuple[int, ...]) -> str:
        axes = ", ".join(f"{string(axis)}={size}" for axis, size in zip(AXES, sizes, strict=False))
        return f"  sdy.mesh {symbol(name)} = <[{axes}]>"

    def function(self, number: int, one: Function) -> str:
        type_ = self.source.type
        if number == 0:
            head = f"public @main(%v0: {type_} {{{self.source.argument}}})"
            result = f"{{jax.result_info = {string(self.names.result)}}}" if self.names.result else ""
        else:
            head = f"{'private' if one.private else 'public'} {symbol(self.names.functions[number - 1])}(%v0: {type_})"
            result = ""
        ops = [f"    %v{place} = {self.op(op)}{self.location()}" for place, op in enumerate(one.ops, 1)]
        end = f"    return %v{len(one.ops)} : {type_}"
        return "\n".join([f"  func.func {head} -> ({type_} {result}) {{", *ops, end, "  }"])

    def location(self) -> str:
        self.line += 1
        return f" loc({string(self.names.file)}:{self.line}:1)" if self.names.file else ""

    def op(self, op: Op) -> str:
        text: str = getattr(self, op.kind)(op, ", ".join(f"%v{value}" for value in op.operands))
        return text

    def refer(self, number: int) -> str:
        return symbol(self.names.functions[number - 1])

    def constant(self, op: Op, _: str) -> str:
        return f"stablehlo.constant dense<{op.number}.0> : {self.source.type}"

    def plain(self, op: Op, operands: str) -> str:
        frontend = f' {{mhlo.frontend_attributes = {{k = "{op.frontend}"}}}}' if op.frontend else ""
        return f"stablehlo.{op.word} {operands}{frontend} : {self.source.type}"

    def call(self, op: Op, operands: str) -> str:
        return f"call {self.refer(op.functions[0])}({operands}) {self.signature()}"

    def custom(self, op: Op, operands: str) -> str:
        called = ", ".join(map(self.refer, op.functions))
        rest = f'called_computations = [{called}], backend_config = "config {op.number}"'
        return f"stablehlo.custom_call @{op.word}({operands}) {{{rest}}} {self.signature()}"

    def composite(self, op: Op, operands: str) -> str:
        rest = f"composite_attributes = {{value = {op.number} : i32}}, decomposition = {self.refer(op.functions[0])}"
        return f"stablehlo.composite {string(op.word)} {operands} {{{rest}}} {self.signature()}"

    def tagged(self, op: Op, operands: str) -> str:
        """A reference in a place that nobody knows."""
        reference = self.refer(op.functions[0])
        return f"stablehlo.negate {operands} {{my.{op.word} = [{{a = {reference}}}]}} : {self.source.type}"

    def sharded(self, op: Op, operands: str) -> str:
        mesh = op.number % len(self.source.meshes)
        return f'sdy.sharding_constraint {operands} <{symbol(self.names.meshes[mesh])}, [{{"x"}}]> : {self.source.type}'

    def signature(self) -> str:
        return f": ({self.source.type}) -> {self.source.type}"


def text_of(source: Source, names: Names) -> str:
    """The program under these names."""
    return _Text(source, names).module()


def parse(text: str, *, unregistered: bool = False) -> Any:
    """A module in a context of its own, with the dialects that JAX registers."""
    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir

    context = mlir.make_ir_context()
    context.allow_unregistered_dialects = unregistered
    with context, ir.Location.unknown(context):
        return ir.Module.parse(text)


def program(text: str, *, metadata_in_key: bool = False, unregistered: bool = False) -> Program:
    """What is under test, of a program in text."""
    return canonical_program(parse(text, unregistered=unregistered), metadata_in_key=metadata_in_key)


def canonical(source: Source, names: Names) -> bytes:
    """The canonical bytes of the program under these names."""
    return program(text_of(source, names)).canonical


# -- making them up ------------------------------------------------------------------------------------------------


@st.composite
def sources(draw: st.DrawFn) -> Source:
    """Programs of one to five functions, each of which somebody may call."""
    count = draw(st.integers(1, 4))
    meshes = draw(st.lists(st.tuples(st.sampled_from([2, 4]), st.sampled_from([1, 2])), max_size=2).map(tuple))
    functions = [
        Function(tuple(draw(_op(place, tuple(range(number + 1, count + 1)), bool(meshes))) for place in range(length)))
        for number in range(count + 1)
        for length in [draw(st.integers(1, 4))]
    ]
    return Source(tuple(functions), meshes, argument=draw(st.sampled_from(["", "tf.aliasing_output = 0 : i32"])))


def _made(
    kind: str,
    operands: tuple[int, ...] = (),
    word: str = "",
    functions: tuple[int, ...] = (),
    number: int = 0,
    frontend: str = "",
) -> Op:
    # A function, since Hypothesis fills what is left out of a named tuple with something.
    return Op(kind, operands, word, functions, number, frontend)


def _op(place: int, callable_: tuple[int, ...], meshes: bool) -> st.SearchStrategy[Op]:
    value, pair = st.tuples(st.integers(0, place)), st.tuples(st.integers(0, place), st.integers(0, place))
    kinds = [
        st.builds(_made, st.just("constant"), number=st.integers(0, 9)),
        st.builds(_made, st.just("plain"), value, st.sampled_from(UNARY), frontend=st.sampled_from(["", "u", "v"])),
        st.builds(_made, st.just("plain"), pair, st.sampled_from(BINARY)),
    ]
    if callable_:
        one, some = st.tuples(st.sampled_from(callable_)), st.lists(st.sampled_from(callable_), max_size=2).map(tuple)
        kinds += [
            st.builds(_made, st.just("call"), value, functions=one),
            st.builds(_made, st.just("custom"), value, st.just("target"), some, st.integers(0, 3)),
            st.builds(_made, st.just("composite"), value, st.just("my.composite"), one, st.integers(0, 3)),
            st.builds(_made, st.just("tagged"), value, st.just("tag"), one),
        ]
    if meshes:
        kinds.append(st.builds(_made, st.just("sharded"), value, number=st.integers(0, 1)))
    return st.one_of(kinds)


@st.composite
def names_for(draw: st.DrawFn, source: Source, pool: Sequence[str] = NAMES) -> Names:
    """Names for all symbols of a program, no two equal."""
    count, meshes = len(source.functions) - 1, len(source.meshes)
    functions = tuple(draw(st.lists(st.sampled_from(pool), min_size=count, max_size=count, unique=True)))
    free = [name for name in MESH_NAMES if name not in functions]
    return Names(
        functions,
        tuple(draw(st.lists(st.sampled_from(free), min_size=meshes, max_size=meshes, unique=True))),
        draw(st.sampled_from([*NAMES, "f.0"])),
        draw(st.sampled_from(["", "result", "result['loss']", "f.0"])),
        draw(st.sampled_from(["", "/somewhere/a.py", "b.py", "f.0"])),
    )


# -- changing them -------------------------------------------------------------------------------------------------

Change = Callable[[Op], Op]

_OF_OPS: dict[str, Sequence[Change]] = {
    "constant": [lambda op: op._replace(number=op.number + 1)],
    "plain": [
        lambda op: op._replace(word=_next(op.word, UNARY if len(op.operands) == 1 else BINARY)),
        lambda op: op._replace(frontend=op.frontend + "w"),
        lambda op: op._replace(operands=op.operands[::-1]),
    ],
    "custom": [
        lambda op: op._replace(word=op.word + "x"),
        lambda op: op._replace(number=op.number + 1),
        lambda op: op._replace(functions=op.functions[::-1]),
        lambda op: op._replace(functions=op.functions[1:]),
    ],
    "composite": [
        lambda op: op._replace(word=op.word + "x"),
        lambda op: op._replace(number=op.number + 1),
    ],
    "tagged": [lambda op: op._replace(word=op.word + "x")],
    "call": [],
    "sharded": [],
}


def changed(source: Source) -> list[Source]:
    """Every program that differs from this one in one thing that counts."""
    found = [
        source._replace(type=TYPES[(TYPES.index(source.type) + 1) % 2]),
        source._replace(type=TYPES[2]),
        source._replace(argument="" if source.argument else "tf.aliasing_output = 0 : i32"),
        source._replace(argument='mhlo.memory_kind = "pinned_host"'),
        source._replace(meshes=(*source.meshes, (8, 1))),
    ]
    for number in range(len(source.meshes)):
        sizes = ((16, 1), *source.meshes[number + 1 :])
        found.append(source._replace(meshes=(*source.meshes[:number], *sizes)))
    for number, function in enumerate(source.functions):
        found += [_with_function(source, number, other) for other in _other_functions(source, number, function)]
    return [one for one in found if one != source]


def _other_functions(source: Source, number: int, function: Function) -> list[Function]:
    found = [] if number == 0 else [function._replace(private=not function.private)]
    for place, op in enumerate(function.ops):
        others = [change(op) for change in _OF_OPS[op.kind]]
        for at in range(len(op.operands)):
            for value in range(place + 1):
                others.append(op._replace(operands=(*op.operands[:at], value, *op.operands[at + 1 :])))
        for at in range(len(op.functions)):
            for callee in range(number + 1, len(source.functions)):
                others.append(op._replace(functions=(*op.functions[:at], callee, *op.functions[at + 1 :])))
        if op.kind == "sharded" and len(source.meshes) > 1:
            others.append(op._replace(number=op.number + 1))
        if op.functions:
            others.append(Op("plain", op.operands, "negate"))
        found += [function._replace(ops=(*function.ops[:place], one, *function.ops[place + 1 :])) for one in others]
    return [one for one in found if one != function]


def _with_function(source: Source, number: int, function: Function) -> Source:
    return source._replace(functions=(*source.functions[:number], function, *source.functions[number + 1 :]))


def _next(word: str, words: Sequence[str]) -> str:
    return words[(words.index(word) + 1) % len(words)]
