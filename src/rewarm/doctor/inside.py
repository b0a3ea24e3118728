"""A look at JAX from inside a process of the Python that is meant: `python -m rewarm.doctor.inside REPORT [MODULE]`.

Not promised: to be the user's program. JAX is imported here as a program imports it, on the CPU alone, so that an
accelerator that another process holds is not asked for.

The report is a file, since what is imported here may print.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any

from rewarm import settings
from rewarm.errors import RewarmError

_STEERING = ("JAX_", "XLA_", "REWARM", "TPU_", "LIBTPU_")


def steering(environment: dict[str, str]) -> dict[str, str]:
    """The variables that steer JAX, XLA and rewarm. `REWARM` itself is not among them: it is asked for elsewhere.

    What may be a secret is not told: a report is made to be shown to others.
    """
    secret = settings.secret_variables()
    return {
        name: "***" if name in secret else _without_credentials(value)
        for name, value in environment.items()
        if name.startswith(_STEERING) and name != "REWARM"
    }


def _without_credentials(text: str) -> str:
    """A text without what stands before the "@" and behind the "?" of a URL."""
    if "://" not in text:
        return text
    scheme, _, rest = text.partition("://")
    place, mark, _ = rest.partition("?")
    user, at, where = place.rpartition("@")
    return f"{scheme}://{'***@' if at else ''}{where if at else user + where}{'?***' if mark else ''}"


def _options() -> dict[str, Any]:
    """JAX's options of the cache, without credentials."""
    from rewarm.jax_adapter import seam

    told = seam.read_options()._asdict()
    return {name: _without_credentials(value) if isinstance(value, str) else value for name, value in told.items()}


def _report(module: str | None, memo: Path) -> dict[str, Any]:
    told: dict[str, Any] = {"environment": steering(settings.child_environment(None, ""))}
    try:
        from rewarm.jax_adapter import seam

        told["jax"] = seam.version()
        told["jaxlib"] = seam.jaxlib_version()
    except Exception as error:  # noqa: BLE001 - anything can go wrong on the way into JAX
        return {**told, "no_jax": _words(error)}
    try:
        seam.probe()
    except RewarmError as error:
        return {**told, "unsupported": str(error)}
    told["options"] = _options()
    told["in_force"] = _in_force()
    told["machine"] = _machine(memo)
    if module is not None:
        told["imported"] = _imported(module)
    return told


def _in_force() -> dict[str, Any] | str:
    from rewarm.in_force import resolve
    from rewarm.jax_adapter import seam
    from rewarm.jax_adapter.options import host_options

    seam.remember_defaults()
    try:
        found = resolve(settings.say(), host_options(seam.read_options())).without_secrets()
    except RewarmError as error:
        return str(error)
    plain = (bool, int, float, str, type(None))
    return {name: value if isinstance(value, plain) else str(value) for name, value in found.items()}


def _machine(memo: Path) -> list[Any] | str:
    """The CPU that this host compiles for, or why it cannot be found out."""
    import jax

    from rewarm.jax_adapter import machines, seam

    try:
        device = jax.devices("cpu")[0]
        topology, fingerprint = seam.topology([device])
        return list(machines.cpu_machine(device.client, topology, fingerprint, "", memo))
    except Exception as error:  # noqa: BLE001 - whatever a backend says, the rest of the report stands
        return _words(error)


def _imported(module: str) -> dict[str, Any]:
    """What importing a module of the user's does to JAX's options of the cache."""
    before = _options()
    sys.path.insert(0, "")
    try:
        importlib.import_module(module)
    except BaseException:  # noqa: BLE001 - SystemExit too: it is the user's
        return {"error": traceback.format_exc(limit=-1).strip().splitlines()[-1]}
    after = _options()
    return {"changed": {name: [before[name], after[name]] for name in before if before[name] != after[name]}}


def _words(error: BaseException) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"


if __name__ == "__main__":
    place = Path(sys.argv[1])
    report = _report(sys.argv[2] if len(sys.argv) > 2 else None, place.with_name("machines.json"))
    place.write_text(json.dumps(report))
