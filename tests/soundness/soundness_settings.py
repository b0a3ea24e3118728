"""Settings as libraries for them keep them: flags of a command line, models and classes that a library makes."""

from __future__ import annotations

from soundness_case import SKIPPED, Case, case

_FLAGS = """
    from absl import flags
    flags.DEFINE_float("rate", 0.5, "said")
    SIZE = flags.DEFINE_integer("size", 2, "said")
    FLAGS = flags.FLAGS
    FLAGS(sys.argv)
    def f(x): return x * FLAGS.rate + SIZE.value
"""
_MODEL = """
    import pydantic
    class Settings(pydantic.BaseModel):
        rate: float = 0.5
        size: int = pydantic.Field(2, gt=0)
        layers: list[int] = [1, 2]
        @pydantic.field_validator("rate")
        @classmethod
        def checked(cls, value): return value * 2
    S = Settings(rate=0.25, size=3)
    def f(x): return x * S.rate + S.size + sum(S.layers)
"""
_ATTRS = """
    import attrs
    @attrs.frozen
    class Settings:
        rate: float = 0.5
        size: object = attrs.field(factory=lambda: 2.0)
    S = Settings()
    def f(x): return x * S.rate + S.size
"""

SETTINGS: list[Case] = [
    case("absl: a flag", _FLAGS, argv=((), ("--rate=0.75",)), needs=("absl-py",)),
    case("absl: a flag behind its holder", _FLAGS, argv=((), ("--size=3",)), needs=("absl-py",)),
    case("absl: the default of a flag", _FLAGS, ('"rate", 0.5', '"rate", 0.75'), needs=("absl-py",)),
    case("pydantic: a field", _MODEL, ("size=3", "size=4"), needs=("pydantic",)),
    case("pydantic: a default", _MODEL, ("[1, 2]", "[1, 3]"), needs=("pydantic",)),
    case("pydantic: a validator", _MODEL, ("value * 2", "value * 3"), needs=("pydantic",)),
    case("attrs: a default", _ATTRS, ("rate: float = 0.5", "rate: float = 0.75"), needs=("attrs",)),
    case("attrs: what makes a default", _ATTRS, ("lambda: 2.0", "lambda: 3.0"), needs=("attrs",)),
]


def _kept(change: str, program: str, needs: str) -> Case:
    return case(change, program, ("def f", "idle = 1\ndef f"), expect=SKIPPED, needs=(needs,))


SETTINGS_KEPT: list[Case] = [
    _kept("absl: an idle line and another hash seed", _FLAGS, "absl-py"),
    _kept("pydantic: an idle line and another hash seed", _MODEL, "pydantic"),
    _kept("attrs: an idle line and another hash seed", _ATTRS, "attrs"),
]
