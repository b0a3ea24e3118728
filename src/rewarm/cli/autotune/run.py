"""`rewarm autotune run`.

Not promised: what `rewarm run` does, which puts the program in its own place; here rewarm must outlive the program to
gather what it tuned. The program has rewarm's standard streams, open files, working directory, process group and
terminal. Signals to rewarm go on to it, but for those that a terminal sent to both. One that `kill` sent to the whole
group reaches the program twice. Killed with SIGKILL, rewarm leaves the program running and gathers nothing; what was
tuned lies in the place, and the next run gathers it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from rewarm import settings
from rewarm.autotune.formats import TuningEntry
from rewarm.autotune.places import Place
from rewarm.cli.autotune.options import place_options
from rewarm.cli.autotune.programs import NoDeviceError, environment, folder_of, own_environment, place_for, prepared
from rewarm.errors import RewarmError

NOT_FOUND, NOT_STARTED = 127, 126
_PASSED_ON = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGALRM")
_PAUSE = 1.0


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@place_options
@click.option("--json", "as_json", is_flag=True, help="Print the line about new results as JSON.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
def command(
    directory: str | None,
    target: str | None,
    this_device: bool,
    build: str | None,
    python: str,
    as_json: bool,
    program: tuple[str, ...],
) -> None:
    """Run any program with XLA in it, and gather what it tuned: `rewarm autotune run -- python train.py`.

    Without --target it is for the GPU that is attached. The exit code is the program's, and a signal that ended it ends
    rewarm; 127 and 126 stand for a program that is not found or cannot be started. One line on standard error says what
    was new. Where the place for results cannot be used, the program runs all the same, and that line says why.
    """
    words = list(program)
    environment_given, place, why = own_environment(), None, ""
    try:
        place = place_for(directory, target, this_device or target is None, build, python)
        done = prepared(place)
        environment_given, why = environment(done, words), done.why
    except NoDeviceError as wrong:
        why = str(wrong)
    code = ran(words, environment_given)
    if place is None or why:
        _say({"new": 0, "why": why}, f"nothing was prepared or gathered: {why}", as_json)
    else:
        _gather(place, words, as_json)
    end_as(code)


def ran(words: Sequence[str], environment_given: Mapping[str, str]) -> int:
    """Run a command to its end; returns its exit code, or the number of the signal that ended it, negative."""
    passed_on = {getattr(signal, name) for name in _PASSED_ON}
    watched = {*passed_on, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        process = subprocess.Popen(
            words,
            env=environment_given,
            close_fds=False,  # what was inherited is the program's: a job server of make, a socket of systemd
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),  # noqa: PLW1509 - no thread is left
        )
    except OSError as wrong:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        click.echo(f"Error: {words[0]}: {wrong.strerror}", err=True)
        sys.exit(NOT_FOUND if isinstance(wrong, FileNotFoundError) else NOT_STARTED)
    # The signals stay held back until the results are gathered: what asks the program to end is no reason to lose them.
    while (code := process.poll()) is None:
        told = signal.sigtimedwait(watched, _PAUSE)
        # The kernel's own code is above 0: a terminal, which has told the program, too.
        if told is not None and told.si_signo != signal.SIGCHLD and told.si_code <= 0:
            process.send_signal(told.si_signo)
    return code


def end_as(code: int) -> None:
    """End as the program did."""
    if code >= 0:
        sys.exit(code)
    import resource

    with contextlib.suppress(OSError, ValueError):  # a core would be rewarm's, over the program's
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    with contextlib.suppress(OSError, ValueError):  # SIGKILL and SIGSTOP have no handler
        signal.signal(-code, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
    os.kill(os.getpid(), -code)
    sys.exit(128 - code)  # a signal that ends nothing here


def _gather(place: Place, words: Sequence[str], as_json: bool) -> None:
    """Keep what came, in the store too, and say what it was. Whatever is wrong is one line and no hindrance."""
    since = time.monotonic()
    try:
        new = place.collect(lambda entries: _keep(place, entries, words))
        total = place.set_at_hand()[1]
    except (RewarmError, OSError) as wrong:
        _say(
            {"new": 0, "why": str(wrong)},
            f"what was tuned is in {place.directory} and was not gathered: {wrong}",
            as_json,
        )
        return
    counted = Counter(entry.backend for entry in new)
    kinds = ", ".join(f"{count} {backend or 'unknown'}" for backend, count in sorted(counted.items()))
    told = {
        "backends": dict(counted),
        "directory": str(place.directory),
        "new": len(new),
        "results": total,
        "seconds": round(time.monotonic() - since, 3),
    }
    what = f"{len(new)} new tuning results ({kinds})" if len(new) > 1 else f"1 new tuning result ({kinds})"
    _say(told, f"{what if new else 'no new tuning results'}; {total} in {folder_of(place.directory)}", as_json)


def _keep(place: Place, entries: tuple[TuningEntry, ...], words: Sequence[str]) -> None:
    from rewarm import __version__
    from rewarm.autotune import batches
    from rewarm.sharing.made import made_by
    from rewarm.store import LocalStore
    from rewarm.store.limits import bounds_of

    asked = settings.of_command(directory=str(place.cache_root))
    if asked.max_size == 0:  # the place has them
        return
    store = LocalStore(place.cache_root)
    store.bounds = bounds_of(asked, store.total()[0])
    producer = {"rewarm": __version__, "build": place.build}
    name = Path(words[0]).name  # and not its arguments, which may hold secrets and would go into remotes
    key, data = batches.sealed(place, entries, program=f"tuning of {name}", producer=producer)
    batches.keep(store, place, key, data, made=made_by(asked, store).add)


def _say(told: Mapping[str, object], line: str, as_json: bool) -> None:
    with contextlib.suppress(OSError, ValueError):  # nobody reads standard error any more
        click.echo(json.dumps(told, sort_keys=True) if as_json else f"rewarm: {line}", err=True)
