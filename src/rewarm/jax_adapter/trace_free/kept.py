"""Whether JAX kept something of a trace from before, so that code did not run although the function leads to it.

Not promised: that it did. Code that did not run may as well be a branch that was not taken; then a second trace is for
nothing. Methods are left out, since most classes have some that nobody calls.

JAX keeps traces by function: of the function itself (`jax.eval_shape(f, x)` before `jit(f)(x)`), and of bodies of
loops, branches, checkpointed layers and inner jitted functions that several functions share. What such code reads was
read before anybody recorded it.
"""

from __future__ import annotations

from types import CodeType

from rewarm.errors import NotFingerprintableError
from rewarm.guards import Rules, Seen
from rewarm.guards.places import kind_of_file
from rewarm.guards.roots import code_digest, walk_root


def has_not_run(fun: object, seen: Seen, rules: Rules) -> bool:
    """Whether some code of the user's that the function leads to did not run while it was traced."""
    # Most of what ran is JAX's own, thousands of functions, and a digest of each takes longer than the trace.
    objects = {id(one.code) for one in seen.codes.values()}
    digests = {code_digest(one.code) for one in seen.codes.values() if _is_users(one.code)}

    def ran(code: CodeType) -> bool:
        return id(code) in objects or (_is_users(code) and code_digest(code) in digests)

    try:
        codes = walk_root(fun, rules, ran, strictly=False).codes
    except NotFingerprintableError:
        return False  # it is refused for that
    return any(_is_users(code) and not ran(code) for code in codes.values())


def _is_users(code: CodeType) -> bool:
    return kind_of_file(code.co_filename) in ("user", "made")
