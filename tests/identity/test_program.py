"""When are two programs the same? Whatever only names something does not count, and everything else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from module_texts import (
    NAMES,
    NAMES_IN_THE_WAY,
    Function,
    Names,
    Op,
    Source,
    canonical,
    changed,
    names_for,
    parse,
    program,
    sources,
    string,
    symbol,
    text_of,
)

from conftest import Program
from rewarm.identity.program import canonical_program, payloads

pytestmark = pytest.mark.contract

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
CALL_BOTH = Source(
    (
        Function(
            (
                Op("call", (0,), functions=(1,)),
                Op("call", (1,), functions=(2,)),
                Op("plain", (1, 2), "add"),
                Op("sharded", (3,)),
            )
        ),
        Function((Op("plain", (0,), "sine"),)),
        Function((Op("plain", (0,), "cosine"),)),
    ),
    meshes=((2, 1),),
)


# -- what does not count -------------------------------------------------------------------------------------------


@given(st.data())
@settings(relaxed, max_examples=40)
def test_names_and_locations_do_not_count(data: st.DataObject) -> None:
    source = data.draw(sources())
    one, other = data.draw(names_for(source)), data.draw(names_for(source))
    assert canonical(source, one) == canonical(source, other)


@pytest.mark.parametrize("name", [*NAMES, *NAMES_IN_THE_WAY], ids=ascii)
def test_a_private_function_may_have_any_name(name: str) -> None:
    """Also one of the canonical form's own, at its own place or at another, and beside meshes of any name."""
    plain = canonical(CALL_BOTH, Names(("one", "two"), ("mesh",)))
    meshes = [mesh for mesh in ("mesh", "mesh_0", "q") if mesh != name]
    for functions in ((name, "two"), ("one", name)):
        assert [canonical(CALL_BOTH, Names(functions, (mesh,))) == plain for mesh in meshes] == [True] * len(meshes)


def test_names_may_be_exchanged() -> None:
    for one, other in (("g", "h"), ("f.0", "f.1"), ("add", "sine"), ("f.1", "g")):
        here, there = Names((one, other), ("mesh",)), Names((other, one), ("mesh",))
        assert canonical(CALL_BOTH, here) == canonical(CALL_BOTH, there)


def test_a_name_that_is_a_string_elsewhere_leaves_that_string_alone() -> None:
    """Functions called like an axis, a configuration, a frontend attribute: those are contents, and stay."""
    text = """
        module @jit_f {{
          sdy.mesh @mesh = <["{axis}"=2]>
          func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
            %0 = call @"{name}"(%a) : (tensor<4xf32>) -> tensor<4xf32>
            %1 = stablehlo.custom_call @{target}(%0) {{backend_config = "{config}", my.tag = "{tag}",
              mhlo.frontend_attributes = {{{key} = "{value}"}}}} : (tensor<4xf32>) -> tensor<4xf32>
            return %1 : tensor<4xf32>
          }}
          func.func private @"{name}"(%a: tensor<4xf32>) -> tensor<4xf32> {{
            return %a : tensor<4xf32>
          }}
        }}
    """
    words = {"axis": "w1", "target": "w2", "config": "w3", "tag": "w4", "key": "w5", "value": "w6"}
    plain = program(text.format(name="helper", **words)).canonical
    for place, word in words.items():
        assert program(text.format(name=word, **words)).canonical == plain
        assert program(text.format(name="helper", **{**words, place: "w9"})).canonical != plain
        assert program(text.format(name=word, **{**words, place: "w9"})).canonical != plain


def test_names_of_arguments_and_results_do_not_count_and_their_other_attributes_do() -> None:
    text = """
        module @m {{
          func.func public @main(%a: tensor<4xf32> {argument}, %b: tensor<4xf32>) -> (tensor<4xf32> {result}) {{
            return %a : tensor<4xf32>
          }}
        }}
    """
    plain = program(text.format(argument="", result="")).canonical
    for name in ("jax.result_info", "jax.arg_info"):
        assert program(text.format(argument=f'{{{name} = "x"}}', result="")).canonical == plain
        assert program(text.format(argument="", result=f'{{{name} = "[0]"}}')).canonical == plain
    donated = "tf.aliasing_output = 0 : i32"
    alone = program(text.format(argument=f"{{{donated}}}", result="")).canonical
    named = program(text.format(argument=f'{{{donated}, jax.arg_info = "x"}}', result="")).canonical
    assert alone == named
    others = ["jax.buffer_donor = true", 'mhlo.memory_kind = "device"', 'mhlo.layout_mode = "auto"', 'jax.other = "x"']
    found = [program(text.format(argument=f"{{{one}}}", result="")).canonical for one in others]
    found += [program(text.format(argument="", result=f"{{{one}}}")).canonical for one in others]
    assert len({plain, alone, *found}) == 2 + 2 * len(others)


# -- what counts ---------------------------------------------------------------------------------------------------


@given(st.data())
@settings(relaxed, max_examples=25)
def test_any_one_change_counts_whatever_the_names(data: st.DataObject) -> None:
    source = data.draw(sources())
    plain = canonical(source, data.draw(names_for(source, (*NAMES, *NAMES_IN_THE_WAY))))
    others = changed(source)
    for other in data.draw(st.lists(st.sampled_from(others), min_size=1, max_size=6, unique=True)):
        chosen = data.draw(names_for(other, (*NAMES, *NAMES_IN_THE_WAY)))
        assert canonical(other, chosen) != plain, text_of(other, chosen)


@given(st.data())
@settings(relaxed, max_examples=60)
def test_the_function_that_is_referred_to_counts_whatever_the_names(data: st.DataObject) -> None:
    """Everywhere: calls, compositions, computations of custom calls, and attributes that nobody knows."""
    kind = data.draw(st.sampled_from(["call", "composite", "custom", "tagged"]))

    def referring(to: int) -> Source:
        bodies = [Function((Op("plain", (0,), word),)) for word in ("sine", "cosine")]
        return Source((Function((Op(kind, (0,), "my.word", (to,)), Op("sharded", (1,)))), *bodies), meshes=((2, 1),))

    pool = (*NAMES, *NAMES_IN_THE_WAY)
    one, other = (canonical(source, data.draw(names_for(source, pool))) for source in (referring(1), referring(2)))
    assert one != other


@pytest.mark.parametrize("name", [*NAMES, *NAMES_IN_THE_WAY], ids=ascii)
def test_the_function_that_is_called_counts_beside_a_mesh_that_is_renamed(name: str) -> None:
    def calling(callee: int, names: tuple[str, str]) -> bytes:
        bodies = [Function((Op("plain", (0,), word),)) for word in ("sine", "cosine")]
        main = Function((Op("call", (0,), functions=(callee,)), Op("sharded", (1,))))
        return canonical(Source((main, *bodies), meshes=((2, 1),)), Names(names, ("q",)))

    assert calling(1, (name, "other")) != calling(2, ("other", name))


AN_UNKNOWN_REFERENCE = """
    module @jit_f {{
      func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
        %0 = stablehlo.custom_call @target(%a) {{my.ref = {reference}, my.text = "{filling}"}}
          : (tensor<4xf32>) -> tensor<4xf32>
        return %0 : tensor<4xf32>
      }}
      func.func private {first}(%a: tensor<4xf32>) -> tensor<4xf32> {{
        %0 = stablehlo.sine %a : tensor<4xf32>
        return %0 : tensor<4xf32>
      }}
      func.func private {second}(%a: tensor<4xf32>) -> tensor<4xf32> {{
        %0 = stablehlo.cosine %a : tensor<4xf32>
        return %0 : tensor<4xf32>
      }}
    }}
"""
WRAPPED = ("{}", "[{}]", "{{a = [1 : i32, {}]}}")


@pytest.mark.parametrize("wrap", WRAPPED)
@pytest.mark.parametrize("name", [*NAMES, *NAMES_IN_THE_WAY], ids=ascii)
def test_a_reference_in_a_place_that_nobody_knows_counts(name: str, wrap: str) -> None:
    def refers(first: str, second: str, filling: str) -> bytes:
        reference = wrap.replace("{{", "{").replace("}}", "}").replace("{}", symbol(name))
        return program(
            AN_UNKNOWN_REFERENCE.format(
                first=symbol(first), second=symbol(second), reference=reference, filling=filling
            )
        ).canonical

    # The lengths of strings stand before the strings; that of a string of 16,384 has a zero byte in it.
    for filling in ("", "z" * 16384):
        assert refers(name, "other", filling) != refers("other", name, filling)


def test_a_reference_in_a_place_that_nobody_knows_follows_its_function_to_another_name() -> None:
    def refers(name: str, first: str, second: str) -> bytes:
        words = {"reference": f"[{symbol(name)}]", "filling": ""}
        return program(AN_UNKNOWN_REFERENCE.format(first=symbol(first), second=symbol(second), **words)).canonical

    assert refers("g", "g", "h") == refers("hé", "hé", "add") == refers("h", "h", "g")


def test_what_a_mesh_is_called_does_not_count_and_what_it_is_does() -> None:
    text = """
        module @m {{
          sdy.mesh {one} = <["x"={size}]{ids}>
          sdy.mesh {other} = <["x"=4]>
          func.func public @main(%a: tensor<4xf32> {{sdy.sharding = #sdy.sharding<{used}, [{{"x"}}]>}})
            -> tensor<4xf32> {{
            return %a : tensor<4xf32>
          }}
        }}
    """

    def meshes(one: str = "mesh", other: str = "mesh_0", used: str = "", size: int = 2, ids: str = "") -> bytes:
        words = {"one": symbol(one), "other": symbol(other), "used": symbol(used or one), "size": size}
        return program(text.format(ids=ids, **words)).canonical

    for one, other in (("mesh_0", "mesh"), ("q", "mesh"), ("mesh_1", "mesh_2"), ("mesh_0", "mesh_1")):
        assert meshes(one, other) == meshes()
        assert meshes(one, other, used=other) == meshes(used="mesh_0") != meshes()
    # The name of a mesh of one device says which device that is.
    apart = [meshes(), meshes(used="mesh_0"), meshes(size=8), meshes(ids=", device_ids=[1, 0]")]
    assert len({*apart, meshes("maximal_mesh_0", used="mesh_0"), meshes("maximal_mesh_1", used="mesh_0")}) == 6


def test_names_count_where_an_operation_of_an_unknown_dialect_may_refer_to_them() -> None:
    text = """
        module @jit_f {{
          sdy.mesh {mesh} = <["x"=2]>
          func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
            %0 = call {name}(%a) : (tensor<4xf32>) -> tensor<4xf32>
            %1 = "my.loop"(%0) ({{ "my.yield"() : () -> () }}) {{by_name = "{word}"}}
              : (tensor<4xf32>) -> tensor<4xf32>
            return %1 : tensor<4xf32>
          }}
          func.func private {name}(%a: tensor<4xf32>) -> tensor<4xf32> {{
            return %a : tensor<4xf32>
          }}
        }}
    """

    def named(name: str, word: str, mesh: str = "mesh", module: str = "jit_f") -> bytes:
        words = {"name": symbol(name), "word": word, "mesh": symbol(mesh)}
        return program(text.format(**words).replace("jit_f", module), unregistered=True).canonical

    assert named("g", "g") == named("g", "g", module="jit_other")
    for name in ("h", *NAMES_IN_THE_WAY):
        if name != "mesh":
            assert named(name, "g") != named("g", "g")
        assert named(name, "g", mesh="q") != named("g", "g", mesh="q")


def test_names_count_in_a_program_of_several_modules() -> None:
    text = """
        module @outer {{
          func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
            %0 = call @{name}(%a) : (tensor<4xf32>) -> tensor<4xf32>
            return %0 : tensor<4xf32>
          }}
          func.func private @{name}(%a: tensor<4xf32>) -> tensor<4xf32> {{
            return %a : tensor<4xf32>
          }}
          module @{inner} {{
            func.func private @{name}(%a: tensor<4xf32>) -> tensor<4xf32> {{
              %0 = call @{within}(%a) : (tensor<4xf32>) -> tensor<4xf32>
              return %0 : tensor<4xf32>
            }}
            func.func private @{within}(%a: tensor<4xf32>) -> tensor<4xf32> {{
              return %a : tensor<4xf32>
            }}
          }}
        }}
    """
    words = {"name": "g", "inner": "i", "within": "w"}
    plain = program(text.format(**words)).canonical
    assert program(text.format(**words)).canonical == plain
    found = {program(text.format(**{**words, place: "other"})).canonical for place in words}
    assert len(found | {plain}) == 4


def test_names_count_beside_a_public_function_of_a_canonical_name() -> None:
    """It keeps its name, so no private one may be given it."""
    source = Source((*CALL_BOTH.functions, Function((Op("plain", (0,), "tanh"),), private=False)), CALL_BOTH.meshes)
    found = [canonical(source, Names((one, other, "f.0"), ("mesh",))) for one, other in (("g", "h"), ("h", "g"))]
    called = [canonical(source, Names(("g", "h", public), ("mesh",))) for public in ("f.0", "f.1", "other")]
    assert len({*found, *called}) == 4


def test_a_thousand_private_functions() -> None:
    def large(prefix: str, odd: int = 0) -> str:
        calls = [f"%{n} = call @{prefix}{n}(%{n - 1}) : (tensor<4xf32>) -> tensor<4xf32>" for n in range(2, 1001)]
        calls[500] = calls[500].replace(f"@{prefix}502", f"@{prefix}{odd or 502}")
        bodies = [
            f"func.func private @{prefix}{n}(%a: tensor<4xf32>) -> tensor<4xf32> {{\n"
            f"%0 = stablehlo.constant dense<{n}.0> : tensor<4xf32>\n"
            f"%1 = stablehlo.add %a, %0 : tensor<4xf32>\nreturn %1 : tensor<4xf32>\n}}"
            for n in range(1, 1001)
        ]
        first = f"%1 = call @{prefix}1(%0) : (tensor<4xf32>) -> tensor<4xf32>"
        main = "func.func public @main(%0: tensor<4xf32>) -> tensor<4xf32> {\n" + "\n".join([first, *calls])
        return "\n".join([f"module @jit_{prefix} {{", main, "return %1000 : tensor<4xf32>\n}", *bodies, "}"])

    plain = program(large("helper_")).canonical
    assert program(large("other_")).canonical == plain
    assert program(large("f_")).canonical == plain
    assert program(large("helper_", odd=503)).canonical != plain


# -- metadata, callbacks, programs without a key -------------------------------------------------------------------


def test_names_and_locations_count_with_metadata_in_the_key() -> None:
    names = Names(("one", "two"), ("mesh",), "jit_f", "result", "a.py")
    others = [
        names,
        names._replace(functions=("one", "three")),
        names._replace(meshes=("mesh_0",)),
        names._replace(module="jit_g"),
        names._replace(result="other"),
        names._replace(file="b.py"),
        names._replace(file=""),
    ]
    found = [program(text_of(CALL_BOTH, one), metadata_in_key=True) for one in others]
    assert len({one.canonical for one in found}) == len(others)
    again = program(text_of(CALL_BOTH, names), metadata_in_key=True)
    assert again == found[0]
    assert [one.name for one in found] == [one.module for one in others]


def custom_calls(*calls: tuple[str, str], file: str = "") -> str:
    """A program of custom calls: target and configuration of each."""
    lines = [
        f"%{n} = stablehlo.custom_call @{target}(%{n - 1}) {{backend_config = {string(config)}}}"
        f" : (tensor<4xf32>) -> tensor<4xf32>" + (f' loc("{file}":{n}:1)' if file else "")
        for n, (target, config) in enumerate(calls, 1)
    ]
    body = "\n".join([*lines, f"return %{len(calls)} : tensor<4xf32>"])
    return f"module @jit_f {{\nfunc.func public @main(%0: tensor<4xf32>) -> tensor<4xf32> {{\n{body}\n}}\n}}"


@pytest.mark.parametrize("metadata", [False, True])
@given(addresses=st.lists(st.integers(10**9, 2**64 - 1).map(str), min_size=2, max_size=5))
@settings(relaxed, max_examples=30)
def test_addresses_of_callbacks_are_told_in_order_and_do_not_count(addresses: list[str], metadata: bool) -> None:
    calls = [("CustomSPMDPartitioning", address) for address in addresses]
    calls.insert(1, ("target", "17"))
    found = program(custom_calls(*calls), metadata_in_key=metadata)
    assert found.callbacks == tuple(addresses)
    assert not any(address.encode() in found.canonical for address in addresses)
    others = [(target, config if target == "target" else "140000000000000") for target, config in calls]
    assert program(custom_calls(*others), metadata_in_key=metadata).canonical == found.canonical
    others[1] = ("target", "18")
    assert program(custom_calls(*others), metadata_in_key=metadata).canonical != found.canonical
    assert program(custom_calls(*calls[:-1]), metadata_in_key=metadata).callbacks == tuple(addresses[:-1])


def test_inspecting_a_sharding_leaves_no_key_and_nothing_else_does() -> None:
    assert program(custom_calls(("InspectSharding", "raw"))).unkeyable == "inspect_array_sharding"
    assert program(custom_calls(("target", ""), ("InspectSharding", "raw"))).unkeyable == "inspect_array_sharding"
    for target in ("inspectsharding", "Sharding", "CustomSPMDPartitioning", "xla_ffi_python_cpu_callback"):
        assert program(custom_calls((target, "0"))).unkeyable is None


# -- the module that is compiled -----------------------------------------------------------------------------------


def asm(module: Any) -> str:
    return str(module.operation.get_asm(enable_debug_info=True))


EVERYTHING = (
    ("CustomSPMDPartitioning", "140000000000000"),
    ("tpu_custom_call", '{"custom_call_config": {"body": "AAAA", "debug_locations": "q"}}'),
)


@given(st.data())
@settings(relaxed, max_examples=15)
def test_the_module_stays_as_it_is(data: st.DataObject) -> None:
    source = data.draw(sources())
    text = text_of(source, data.draw(names_for(source, (*NAMES, *NAMES_IN_THE_WAY))))
    module = parse(text)
    before = asm(module)
    for metadata in (False, True):
        canonical_program(module, metadata_in_key=metadata)
        assert asm(module) == before


@pytest.mark.parametrize("metadata", [False, True])
@pytest.mark.parametrize("step", ["write", "strip_locations", "without_locations"])
def test_the_module_stays_as_it_is_when_a_step_fails(
    step: str, metadata: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = parse(custom_calls(*EVERYTHING, file="a.py"))
    before = asm(module)
    canonical_program(module, metadata_in_key=metadata)
    assert asm(module) == before

    def fails(*_: Any) -> Any:
        raise RuntimeError("made up")

    monkeypatch.setattr(payloads, step, fails)
    if step == "write" or not metadata:
        with pytest.raises(RuntimeError, match="made up"):
            canonical_program(module, metadata_in_key=metadata)
    assert asm(module) == before
    assert "a.py" in before
    assert "140000000000000" in before


# -- real programs -------------------------------------------------------------------------------------------------

REAL = """
    import hashlib, json, os, sys
    import jax, jax.numpy as jnp, numpy as np
    from rewarm.identity.program import canonical_program

    def {helper}(x, y):
        return jnp.where(x > y, jnp.clip(x, 0, 1), jnp.sort(y)) * {number}

    def {body}(carry, _):
        return jax.jit({helper})(carry, carry + 1), carry.sum()

    def {step}(x):
        table = jnp.asarray(np.arange(4096, dtype=np.float32))
        out, sums = jax.lax.scan({body}, x, None, length=3)
        return {{{key!r}: out, "sums": sums, "table": table[:3] + jax.random.normal(jax.random.key(0), (3,))}}

    lowered = jax.jit({step}, donate_argnums=0).lower(jax.ShapeDtypeStruct((8,), np.float32))
    module = lowered.compiler_ir("stablehlo")
    found = canonical_program(module, metadata_in_key=False)
    print(json.dumps([found.name, hashlib.sha256(found.canonical).hexdigest()]))
"""


def test_the_bytes_are_the_same_in_every_process_and_at_every_place(program: Program, tmp_path: Path) -> None:
    words = {"helper": "helper", "body": "body", "step": "step", "key": "out", "number": 2}
    elsewhere = tmp_path / "elsewhere" / "deep"
    elsewhere.mkdir(parents=True)

    def digest(before: str = "", *, cwd: Path = tmp_path, env: dict[str, str] | None = None, **other: Any) -> str:
        source = before + REAL.format(**{**words, **other})
        return str(program(source, cwd=cwd, ok=True, **(env or {})).json[1])

    plain = digest()
    assert digest("\n\n\n", cwd=elsewhere, env={"PYTHONHASHSEED": "12345", "HOME": str(elsewhere)}) == plain
    renamed = digest(helper="_where", body="f", step="main", key="loss", env={"PYTHONHASHSEED": "1"})
    assert renamed == plain
    assert digest(number=3) != plain


# -- the slow ones -------------------------------------------------------------------------------------------------


@pytest.mark.campaign
@given(st.data())
@settings(relaxed, max_examples=700)
def test_names_and_locations_do_not_count_at_length(data: st.DataObject) -> None:
    source = data.draw(sources())
    pool = (*NAMES, *NAMES_IN_THE_WAY)
    one, other = data.draw(names_for(source, pool)), data.draw(names_for(source, pool))
    assert canonical(source, one) == canonical(source, other)


@pytest.mark.campaign
@given(st.data())
@settings(relaxed, max_examples=200)
def test_every_one_change_counts_at_length(data: st.DataObject) -> None:
    source, pool = data.draw(sources()), (*NAMES, *NAMES_IN_THE_WAY)
    plain = canonical(source, data.draw(names_for(source, pool)))
    for other in changed(source):
        chosen = data.draw(names_for(other, pool))
        assert canonical(other, chosen) != plain, text_of(other, chosen)
