"""What `env` and `run` share: the managed place for a program that need not be JAX's, and its environment.

Not promised: that the program's XLA is the build that was named. Results are kept by that name; two builds under one
name read each other's, of which XLA serves those whose versions it takes.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import click

from rewarm import settings
from rewarm.autotune import targets, xla_flags
from rewarm.autotune.build_ids import build_id, family_of, jax_of, with_family
from rewarm.autotune.formats import Family, TuningFormatError
from rewarm.autotune.locating import place_of, place_of_unknown
from rewarm.autotune.places import PATIENCE_OF_PROGRAMS, Place, Prepared
from rewarm.errors import RewarmError, StoreError

_JAX_CACHES = "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES"
_MODE = "xla_gpu_experimental_autotune_cache_mode"
_SECONDS = 120.0


class NoDeviceError(RewarmError, RuntimeError):
    """Which device is attached could not be asked; the message says why, and what else to do."""


class Here(NamedTuple):
    """What a Python with JAX says of its XLA, and of the device that is attached where it was asked.

    Attributes:
      build: what XLA's build is known by.
      jax: its version.
      device: XLA's device text; "" where this JAX does not tell it.
      target: the description of the device, for compilers that do not have it; "" likewise.
      about: what JAX's client says of the device.
    """

    build: str
    jax: str
    device: str
    target: str
    about: str


def place_for(directory: str | None, target: str | None, this_device: bool, build: str | None, python: str) -> Place:
    """The place that the options name, with the patience of a program that waits behind it.

    Raises:
      click.UsageError: they contradict each other, or one cannot be used.
      NoDeviceError: JAX cannot be asked.
    """
    if (target is None) is not this_device:
        raise click.UsageError("expected one of --target NAME|FILE and --this-device")
    root = settings.directory_of_command(directory)
    here = asked(python, root, device=this_device) if this_device or build is None else None
    try:
        text = here.device if target is None and here is not None else targets.device(str(target)).text
        name = _as_flags_say(build_id(build)) if build is not None else here.build if here is not None else ""
    except (targets.UnknownTargetError, TuningFormatError) as wrong:
        raise click.UsageError(f"--target: {wrong}") from None
    except ValueError as wrong:
        raise click.UsageError(f"--build: {wrong}") from None
    if not text and here is not None:
        place = place_of_unknown(root, name, here.about, _family(name))
    else:
        place = place_of(root, name, text, _family(name))
    place.patience = PATIENCE_OF_PROGRAMS
    return place


def _as_flags_say(build: str) -> str:
    """The build with the formats that `XLA_FLAGS` ask for, where it is one of JAX's."""
    from rewarm.jax_adapter.tuning_places import family_of as family_in_force

    asked = xla_flags.new_format(settings.xla_flags())
    return build if asked is None else with_family(build, family_in_force(jax_of(build), asked))


def _family(build: str) -> Family:
    """The formats that the place is for; one of a user's own build takes both."""
    return family_of(build) or Family.NEW


def asked(python: str, root: Path, *, device: bool) -> Here:
    """What a child process with JAX says; what it remembers of libraries goes to the cache directory `root`.

    Raises:
      NoDeviceError: there is no JAX, no GPU, or no answer.
    """
    instead = "name the GPU with --target and the program's XLA with --build, or a Python with JAX with --python"
    command = [python, "-m", "rewarm.cli.autotune.this_device", *(["--device"] if device else [])]
    try:
        done = subprocess.run(
            command,
            env={**settings.load_check_environment(), "REWARM_DIR": str(root)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        told = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {}
    except (OSError, subprocess.TimeoutExpired, ValueError) as wrong:
        raise NoDeviceError(f"{python} did not say what is here ({wrong}); {instead}") from None
    if "cannot" in told or not told:
        why = told.get("cannot") or (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise NoDeviceError(f"{python}: {why}; {instead}")
    return Here(*(str(told[name]) for name in Here._fields))


def environment(prepared: Prepared, arguments: Iterable[str] = ()) -> dict[str, str]:
    """This process's environment with the place in it.

    Raises:
      SettingError: `XLA_FLAGS` or the arguments name another place, or `XLA_FLAGS` cannot be added to.
    """
    given = own_environment()
    existing = settings.xla_flags()
    xla_flags.refuse_others(existing, arguments, way="directory")
    if prepared.directory is None:
        return given
    flags = {xla_flags.DIRECTORY: str(prepared.directory)}
    if not prepared.writes:
        flags[_MODE] = "AUTOTUNE_CACHE_MODE_READ"
    return {
        **given,
        "XLA_FLAGS": xla_flags.with_flags(existing, flags),
        _JAX_CACHES: xla_flags.xla_caches_of_jax(given.get(_JAX_CACHES)),
    }


def own_environment() -> dict[str, str]:
    """The environment as it is, with rewarm on or off as it was."""
    given = settings.child_environment(None, stats="")
    if not settings.variable_is_set("REWARM"):
        del given["REWARM"]
    elif not settings.environment_asks():
        given["REWARM"] = "0"
    return given


def prepared(place: Place) -> Prepared:
    """The place, made and checked, with what the cache directory's store has for it.

    What the store has is a help, and whatever is wrong with it no hindrance.
    """
    from rewarm.autotune import batches
    from rewarm.store import LocalStore

    store = LocalStore(place.cache_root)
    try:
        store.prepare()
    except StoreError as wrong:
        return Prepared(None, writes=False, why=str(wrong))
    done = place.prepare()
    if done.directory is None or not done.writes:
        return _readable(place, done)
    with contextlib.suppress(RewarmError, OSError):
        if batches.absorb(store, place, set()):
            return place.prepare()
    return done


def _readable(place: Place, done: Prepared) -> Prepared:
    """A place that cannot be written to is given only to a build that knows how to read alone."""
    if done.directory is not None and place.known_build is None:
        return Prepared(None, writes=False, why=f"{done.directory} cannot be written to")
    return done


def folder_of(path: Path) -> str:
    """A path for people: from the home folder where it is inside."""
    with contextlib.suppress(ValueError, RuntimeError):
        return f"~/{path.relative_to(Path.home())}"
    return str(path)
