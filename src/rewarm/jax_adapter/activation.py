"""On and off: who is asked when JAX compiles.

Not promised: effect on what JAX has compiled already. Promised: `disable` leaves JAX as it was found.

The function that JAX calls is replaced once (`_compile_or_get_cached`); whether rewarm serves a call is decided at
each call, so settings that change, JAX's and rewarm's, act at the next compile.
"""

from __future__ import annotations

import atexit
import functools
import importlib.metadata
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol

from rewarm import settings
from rewarm.cache import Request
from rewarm.coordination import SingleFlight
from rewarm.errors import RewarmError, UnsupportedJaxError
from rewarm.in_force import HostOptions, Said, resolve
from rewarm.jax_adapter import distributed, events, first_runs, loading_ahead, seam
from rewarm.jax_adapter.options import host_options
from rewarm.jax_adapter.requests import note_flags
from rewarm.jax_adapter.seam import Call, CompileFunction, JaxOptions
from rewarm.jax_adapter.session import Runs, Session
from rewarm.ledger import Event, Stats, of_this_process
from rewarm.telling import Teller

logger = logging.getLogger("rewarm")

_SESSIONS_KEPT = 16


# Files whose frames are left out of the tracebacks that users see, as JAX's own are.
_INTERNAL = (Path(__file__).parent, Path(__file__).parent.parent / "cache")


class _Stop(Exception):  # noqa: N818 - not an error: it ends a compile that must not happen
    pass


class Capture:
    """What a compile would have asked for: a request, or why rewarm would not have served it."""

    def __init__(self, without_override: str) -> None:
        self.without_override = without_override
        self.call: Call | None = None
        self.request: Request[Any] | None = None
        self.left_to_jax = ""


class Watch(Protocol):
    """Who wants to know which programs a thread compiles, and to stand aside meanwhile."""

    def pause(self) -> AbstractContextManager[object]:
        """A program is about to be looked up, or compiled."""

    def served(self, call: Call, request: Request[Any], executable: Any) -> None:
        """It was."""


class Activation:
    """The state of one process: what the user said, and what stands in JAX's place."""

    def __init__(self) -> None:
        self.ledger = of_this_process()
        self._runs = Runs(self.ledger)
        self._flights = SingleFlight()
        self._renew_lock()
        if hasattr(os, "register_at_fork"):
            # Whoever held the lock when a process forked does not exist in the child.
            os.register_at_fork(after_in_child=self._renew_lock)
        self._said: Said | None = None
        # Kept for good once known: a call that was under way while rewarm went off still needs it.
        self._original: CompileFunction | None = None
        self._in_place = False
        self._sessions: dict[tuple[Said, JaxOptions], Session] = {}
        self.teller = Teller()
        self._announced = False
        self._capturing = threading.local()
        self._watching = threading.local()

    def _renew_lock(self) -> None:
        self._lock = threading.RLock()

    # -- on and off --------------------------------------------------------------------------------------------

    @property
    def said(self) -> Said | None:
        """What the user asked for; `None` while rewarm is off."""
        return self._said

    def turn_on(self, said: Said) -> None:
        """Use these settings from the next compile on."""
        with self._lock:
            self._said = said
            if "jax" in sys.modules or not _jax_will_call():
                self.attach()
            else:
                self._ask_ahead()

    def attach(self) -> None:
        """Stand in JAX's place, once JAX is there. Where this JAX is not known, say so and stay away.

        Raises:
          UnsupportedJaxError: rewarm is strict.
        """
        with self._lock:
            if self._said is None:
                return
            try:
                self._replace()
            except UnsupportedJaxError as error:
                strict, self._said = self._said.strict, None
                if strict:
                    raise
                self.teller.tell(str(error))
            self._ask_ahead()

    def _ask_ahead(self) -> None:
        """Have the remotes asked for what this start is likely to want, while the program imports and traces.

        What JAX's options say is known once JAX is there. They may change until something is compiled: then what was
        asked for is not used.
        """
        said = self._said
        if said is None:
            return
        options = seam.read_options() if "jax" in sys.modules else None
        if options is None and said.directory is None:
            return
        in_force = resolve(said, HostOptions() if options is None else host_options(options))
        loading_ahead.begin(in_force)
        if said.remote or (said.remote is None and options is not None and "://" in (options.cache_dir or "")):
            from rewarm.jax_adapter import remotes

            remotes.begin(in_force, self.teller.tell)

    def turn_off(self) -> None:
        """Put JAX's own function back, if nobody else has replaced it since."""
        with self._lock:
            self._said = None
            self._sessions.clear()
            first_runs.stop()
            loading_ahead.stop()
            if self._original is not None and self._in_place and seam.current() is _compile_or_get_cached:
                seam.install(self._original)
                self._in_place = False

    def _replace(self) -> None:
        current = seam.current()
        if current is _compile_or_get_cached:
            self._in_place = True  # ours, perhaps put back by somebody who had kept it
            return
        if self._in_place and current is not self._original:
            return  # perhaps with somebody else's function around ours
        seam.probe()
        note_flags()
        seam.remember_defaults()
        if self._original is None:
            events.listen_for_traces(self._traced, self._lowered)
            for path in _INTERNAL:
                seam.hide_from_tracebacks(str(path))
        self._original = current
        seam.install(_compile_or_get_cached)
        self._in_place = True

    def _traced(self, function: str, seconds: float) -> None:
        if self._said is not None:
            self.ledger.traced(function, seconds)

    def _lowered(self, module: str, seconds: float) -> None:
        if self._said is not None:
            self.ledger.lowered(module, seconds)

    # -- serving -----------------------------------------------------------------------------------------------

    def serve(self, call: Call) -> Any:
        """What JAX gets for one call."""
        capture: Capture | None = getattr(self._capturing, "capture", None)
        if capture is not None:
            self._capture(call, capture)
        found = self._session_or_why_not(call)
        if isinstance(found, Session):
            if not self._announced:
                self._announced = True
                events.task_uses_cache()
            watch: Watch | None = getattr(self._watching, "watch", None)
            if watch is None:
                return found.serve(call)
            with watch.pause():
                return found.serve(call, functools.partial(watch.served, call))
        if found is not None:
            self.ledger.left_to_jax(found)
            self.teller.tell(f"left to JAX's own code: {found}")
        assert self._original is not None
        original = functools.partial(self._original, *call)
        if found == seam.DESCRIBED and (session := self._session_of_described()) is not None:
            return session.compile_described(call, original)
        return original()

    def _session_or_why_not(self, call: Call) -> Session | str | None:
        """As `_session`, for a user whose program must run whatever happens here."""
        said = self._said
        try:
            return self._session(call, said)
        except Exception as error:
            if said is not None and said.strict:
                raise
            return f"{type(error).__name__}: {error}"

    def _session(self, call: Call, said: Said | None) -> Session | str | None:
        """The session that serves a call; or why JAX's own function does; or `None` while rewarm is off."""
        if said is None:
            return None
        options = seam.read_options()
        if not options.enabled:
            return None
        reason = _left_to_jax(call, options)
        if reason is not None:
            return reason
        return self._session_under(said, options)

    def _session_of_described(self) -> Session | None:
        """The session that looks after the tuning results of devices that are only described. Never raises."""
        said = self._said
        try:
            return None if said is None else self._session_under(said, seam.read_options())
        except Exception as error:  # noqa: BLE001 - the program runs whatever happens here
            self.teller.tell(f"no tuning results for described devices: {type(error).__name__}: {error}")
            return None

    def _session_under(self, said: Said, options: JaxOptions) -> Session:
        with self._lock:
            session = self._sessions.get((said, options))
            if session is None:
                while len(self._sessions) >= _SESSIONS_KEPT:
                    del self._sessions[next(iter(self._sessions))]
                session = self._sessions[said, options] = Session(said, options, self.ledger, self._flights, self._runs)
            return session

    def session(self) -> Session | None:
        """The session that would serve a call now; `None` where there is none. Never raises."""
        if not self._in_place and "jax" in sys.modules:
            # A program's first trace comes before JAX looks for its plugins: what that would turn on is on from here.
            with suppress(Exception):
                turn_on_if_asked()
        said = self._said
        if said is None or not self._in_place:
            return None
        try:
            options = seam.read_options()
            return self._session_under(said, options) if options.enabled else None
        except Exception:
            logger.debug("rewarm: no session", exc_info=True)
            return None

    @contextmanager
    def watching(self, watch: Watch) -> Iterator[None]:
        """Within it, `watch` hears of the requests of this thread."""
        before = getattr(self._watching, "watch", None)
        self._watching.watch = watch
        try:
            yield
        finally:
            self._watching.watch = before

    def paused(self) -> AbstractContextManager[object]:
        """Within it, whoever watches this thread stands aside."""
        watch: Watch | None = getattr(self._watching, "watch", None)
        return nullcontext() if watch is None else watch.pause()

    # -- keys without compiling --------------------------------------------------------------------------------

    def _capture(self, call: Call, capture: Capture) -> None:
        """Note what this compile asks for, and end it."""
        seam.drop_override(call, capture.without_override)
        found = self._session(call, self._said or settings.say())
        if isinstance(found, Session):
            capture.call, capture.request = call, found.identifier.request(call)
        else:
            capture.left_to_jax = found or "jax_enable_compilation_cache is off"
        raise _Stop

    @contextmanager
    def capturing(self, without_override: str) -> Iterator[Capture]:
        """Within it, the compile of this thread is noted instead of served, and nothing is compiled.

        The entry `without_override` of `compiler_options` is taken out first.
        """
        with self._lock:
            was_away = not self._in_place
            self._replace()
        capture = self._capturing.capture = Capture(without_override)
        try:
            yield capture
        except _Stop:
            pass
        finally:
            self._capturing.capture = None
            with self._lock:
                if was_away and self._said is None:
                    self.turn_off()


def _left_to_jax(call: Call, options: JaxOptions) -> str | None:
    """Why rewarm does not serve a call, or `None`."""
    if options.profile_guided or call.pgle_profiler is not None:
        return "profile-guided compilation is on"
    obstacle = seam.backend_obstacle(call.backend)
    if obstacle is None and len({device.process_index for device in call.flat_devices()}) > 1:
        if options.share_binary:
            return "jax_share_binary_between_hosts is on for a program of several processes"
        if call.backend.platform == "gpu" and seam.mocked_gpus() and seam.job_client() is not None:
            return "jax_mock_gpu_topology in a job of jax.distributed, which JAX's own rules exclude"
        if distributed.compile_together(call) and distributed.agreements() is None:
            return "a program that several processes compile together, without jax.distributed"
    return obstacle


def _jax_will_call() -> bool:
    """Whether JAX will find rewarm's plugin by itself: only an installed package has entry points."""
    try:
        points = importlib.metadata.distribution("rewarm").entry_points
    except importlib.metadata.PackageNotFoundError:
        return False
    return any(point.group == "jax_plugins" for point in points)


_activation = Activation()
_disabled = False


def _compile_or_get_cached(
    backend: Any,
    computation: Any,
    devices: Any,
    compile_options: Any,
    host_callbacks: Any,
    executable_devices: Any,
    pgle_profiler: Any = None,
) -> Any:
    """What stands in the place of JAX's function of the same name, with its signature."""
    return _activation.serve(
        Call(backend, computation, devices, compile_options, host_callbacks, executable_devices, pgle_profiler)
    )


# ---------------------------------------------------------------------------------------------------------------
# What the package's public functions call


def enable(directory: Any = None, **arguments: Any) -> None:
    """See `rewarm.enable`."""
    global _disabled  # noqa: PLW0603 - the last word of the program
    said = settings.say(directory=directory, **arguments)
    _disabled = False
    turn_on(said)


def turn_on(said: Said) -> None:
    """Turn rewarm on with settings that are already read."""
    for line in settings.unknown_variables():
        _activation.teller.tell(line)
    if form := settings.stats_at_exit():
        _print_stats_at_exit(form)
    if said.summary:
        _print_summary_at_exit()
    if asked := settings.watching():
        from rewarm.metrics import starting

        starting.begin(asked, _activation.teller.tell)
    _activation.turn_on(said)


def turn_on_if_asked() -> None:
    """What JAX's plugin discovery calls: act where `enable` was called before, or the environment asks."""
    if _activation.said is not None:
        _activation.attach()
        return
    if _disabled:  # a word of the program, given before JAX came here
        return
    try:
        if settings.environment_asks():
            turn_on(settings.say())
    except RewarmError as error:
        _activation.teller.tell(f"{error}; rewarm stays off")


def disable() -> None:
    """See `rewarm.disable`."""
    global _disabled  # noqa: PLW0603 - as above
    _disabled = True
    _activation.turn_off()


def stats() -> Stats:
    """See `rewarm.stats`."""
    return _activation.ledger.stats()


def events_so_far() -> list[Event]:
    """See `rewarm.events`."""
    return _activation.ledger.events()


def capturing(without_override: str) -> AbstractContextManager[Capture]:
    """See `Activation.capturing`."""
    return _activation.capturing(without_override)


def said() -> Said | None:
    """What the program told rewarm; `None` while it is off."""
    return _activation.said


def session() -> Session | None:
    """See `Activation.session`."""
    return _activation.session()


def watching(watch: Watch) -> AbstractContextManager[None]:
    """See `Activation.watching`."""
    return _activation.watching(watch)


def paused() -> AbstractContextManager[object]:
    """See `Activation.paused`."""
    return _activation.paused()


def tell(line: str) -> None:
    """Tell the user something, once."""
    _activation.teller.tell(line)


_exit_line_registered = False


@functools.cache
def _print_summary_at_exit() -> None:
    atexit.register(_print_summary)


def _print_summary() -> None:
    # Settings that were changed later may say that it is not wanted any more; turning rewarm off does not.
    if _activation.said is None or _activation.said.summary:
        print(f"rewarm: {stats().summary()}", file=sys.stderr, flush=True)


def _print_stats_at_exit(form: str) -> None:
    global _exit_line_registered  # noqa: PLW0603 - one line per process
    if not _exit_line_registered:
        _exit_line_registered = True
        atexit.register(_print_stats, form)


def _print_stats(form: str) -> None:
    numbers = stats()
    line = json.dumps(numbers.as_dict(), sort_keys=True) if form == "json" else f"rewarm: {numbers.line()}"
    print(line, file=sys.stderr, flush=True)
