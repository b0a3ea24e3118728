"""The recording: which Python runs while a function is traced and lowered, and what it reaches outside itself.

Not promised: what other threads do; what C code does unless Python's audit events tell of it; a second namespace of
one code object; the second callee of one call in code of Python or of a library (in the user's code each is seen).

From Python 3.12 on this is `sys.monitoring`: code is told of once and then runs at full speed. Before, it is
`sys.setprofile`, which makes a trace three to five times as long.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FrameType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    TracebackType,
    WrapperDescriptorType,
)
from typing import Any, Protocol

from rewarm.errors import RewarmError
from rewarm.guards.changing import kind_of_change, states
from rewarm.guards.harmless import is_of_no_interest, may_python_call
from rewarm.guards.holdings import snapshot
from rewarm.guards.places import kind_of_file
from rewarm.guards.seen import Called, Effect, Ran, Seen

# The environment as a mapping: it is not read here for rewarm's own sake, the program's readings of it are noticed.
_ENVIRONMENT: Any = type(vars(os)["environ"])
_READ_ONE = frozenset({_ENVIRONMENT.__getitem__.__code__})
_READ_ALL = frozenset(
    vars(_ENVIRONMENT)[name].__code__ for name in ("__iter__", "__len__", "__repr__", "copy", "__or__", "__ror__")
)
_IMPORTING = frozenset({"_find_and_load", "_find_and_load_unlocked", "_handle_fromlist", "_call_with_frames_removed"})
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # noqa: PTH100, PTH120 - text again
_TELLING = os.path.join("jax", "_src", "monitoring.py")  # noqa: PTH118 - text again
# Python's own way to put a warning into words, for which it reads a line of the source.
_WARNING = getattr(vars(warnings).get("_formatwarnmsg_impl"), "__code__", None)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
_METHODS = (MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType)
# Audit events beside files and imports that tell of something outside the program.
_EFFECTS = frozenset(
    {"os.listdir", "os.scandir", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen"}
    | {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "ctypes.dlopen", "ctypes.dlsym", "os.putenv"}
    | {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chdir", "os.truncate", "os.link", "os.symlink"}
    | {"os.unsetenv", "mmap.__new__", "sqlite3.connect", "urllib.Request", "tempfile.mkstemp", "tempfile.mkdtemp"}
    | {"pickle.find_class"}
)
_TOLD = _EFFECTS | {"open", "import"}


class RecorderError(RewarmError, RuntimeError):
    """This thread cannot be recorded: something else watches it."""


class _Watcher(Protocol):
    def start(self) -> None: ...
    def stop(self) -> None: ...


class Recorder:
    """One recording, of the thread that enters it.

    Args:
      leave_out: folders whose code is not recorded, nor what it does. rewarm's own is always left out.
    """

    def __init__(self, *, leave_out: Iterable[str] = ()) -> None:
        self.seen = Seen()
        self._left_out = (_HERE, *(folder.rstrip(os.sep) + os.sep for folder in leave_out))
        self._thread = 0
        self._pauses = 0
        self._watcher: _Watcher | None = None
        self._before: dict[str, object] = {}

    @staticmethod
    def is_cheap() -> bool:
        """Whether recording costs little: a trace takes less than half as long again."""
        return hasattr(sys, "monitoring")

    def __enter__(self) -> Recorder:
        if self._watcher is not None:
            raise RecorderError("a recording is entered once")
        self._thread = threading.get_ident()
        self._before = states()
        watcher: _Watcher = _Monitoring(self) if hasattr(sys, "monitoring") else _Profiling(self)
        watcher.start()
        self._watcher = watcher
        _auditors().append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ValueError):
            _auditors().remove(self)
        if self._watcher is not None:
            self._watcher.stop()
        after = states()
        # What cannot be compared has been changed by whoever asked for that.
        self.seen.unchanged = {what for what, before in self._before.items() if _is_same(before, after.get(what))}

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Within it nothing is recorded."""
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1

    # What the watchers tell. Each is called on the recorded thread only.

    def is_listening(self) -> bool:
        """Whether what happens now belongs to the recording."""
        return threading.get_ident() == self._thread and not self._pauses

    def is_left_out(self, code: CodeType) -> bool:
        """Whether this is code of rewarm's, or what the caller named."""
        return code.co_filename.startswith(self._left_out)

    def started(self, code: CodeType, frame: FrameType) -> bool:
        """A piece of code starts. True if it need not be told of again."""
        if self.is_left_out(code):
            return True
        if code in _READ_ONE or code in _READ_ALL:
            self._read_environment(code, frame)
            return False
        if self._changes(code, frame):
            self._note(code, frame)
            return False
        if id(code) not in self.seen.codes:
            if _is_told(frame) or self._is_made_for_us(code, frame):
                return False
            self._note(code, frame)
        return True

    def _is_made_for_us(self, code: CodeType, frame: FrameType) -> bool:
        """Whether this is code without a file, such as a named tuple's, that rewarm's own code calls."""
        asking = frame.f_back
        return kind_of_file(code.co_filename) == "made" and asking is not None and self.is_left_out(asking.f_code)

    def _changes(self, code: CodeType, frame: FrameType) -> bool:
        """Whether this is code that changes the process; if it is, it is noted who asked for that."""
        kind = kind_of_change(code.co_qualname, frame)
        if kind is None:
            return False
        asking = _asking(frame.f_back)
        whose = kind_of_file(asking.f_code.co_filename) if asking is not None else "python"
        is_theirs = whose in ("user", "made") or (whose == "library" and kind.by_libraries)
        if asking is not None and is_theirs and not _is_importing(frame) and not self.is_left_out(asking.f_code):
            self.seen.changes.setdefault((kind.what, code.co_qualname), asking.f_code)
        return True

    def _note(self, code: CodeType, frame: FrameType) -> None:
        scope = frame.f_globals
        kind = kind_of_file(code.co_filename)
        first = None
        if code.co_argcount and (kind == "made" or (kind != "user" and code.co_varnames[0] == "self")):
            one = frame.f_locals.get(code.co_varnames[0])
            first = one if isinstance(one, type) else type(one)
        if kind == "library" and id(scope) not in self.seen.values:
            self.seen.values[id(scope)] = snapshot(scope)
        self.seen.codes[id(code)] = Ran(code, scope, first)

    def _read_environment(self, code: CodeType, frame: FrameType) -> None:
        asking = _asking(frame)
        if asking is not None and self.is_left_out(asking.f_code):
            return
        if code in _READ_ALL:
            self.seen.whole_environment = True
            return
        name = frame.f_locals.get("key")
        if isinstance(name, bytes):
            name = os.fsdecode(name)
        if isinstance(name, str) and name not in self.seen.environment:
            self.seen.environment[name] = environment_value(name)

    def called(self, code: CodeType, scope: Callable[[], FrameType], callee: Any, first: Any) -> bool:
        """Some code calls something. True if this call need not be told of again."""
        found = name_of(callee, first)
        if found is None or is_of_no_interest(*found) or self.is_left_out(code):
            return True
        frame = scope()
        if _is_told(frame):
            return False
        if kind_of_file(code.co_filename) == "python" and may_python_call(*found, str(frame.f_globals.get("__name__"))):
            return True
        asking = _asking(frame)
        asker = asking.f_code if asking is not None else None
        if asker is not None and self.is_left_out(asker):
            return False
        key = (*found, id(code), id(asker))
        if key not in self.seen.calls:
            importing = _is_importing(frame)
            self.seen.calls[key] = Called(*found, code, frame.f_globals, asker, _module(asking), importing)
        # Code of Python's is asked by many.
        return asker is code

    def audited(self, event: str, arguments: tuple[Any, ...], frame: FrameType) -> None:
        """Python tells of something."""
        what, writes = _what(event, arguments)
        if what is None:
            return
        asking = _asking(frame)
        code = asking.f_code if asking is not None else None
        if (code is not None and self.is_left_out(code)) or _is_told(frame):
            return
        key = (event, what, id(code))
        home = _module(asking)
        if key not in self.seen.effects or (writes and not self.seen.effects[key].writes):
            self.seen.effects[key] = Effect(event, what, code, home, _is_importing(frame), writes)


def _is_same(before: object, after: object) -> bool:
    try:
        return bool(before == after)
    except Exception:  # noqa: BLE001 - of objects of anybody's
        return False


def _is_told(frame: FrameType | None) -> bool:
    """Whether this runs since JAX tells listeners of an event (`jax.monitoring`), or since Python shows a warning: no
    part of any trace."""
    while frame is not None:
        if frame.f_code is _WARNING or frame.f_code.co_filename.endswith(_TELLING):
            return True
        frame = frame.f_back
    return False


def environment_value(name: str) -> str | None:
    """A variable of the environment, read for the program that read it."""
    value: str | None = vars(os)["environ"].get(name)
    return value


def _asking(frame: FrameType | None) -> FrameType | None:
    """The nearest frame that is not of Python's own library."""
    while frame is not None and kind_of_file(frame.f_code.co_filename) == "python":
        frame = frame.f_back
    return frame


def _module(frame: FrameType | None) -> str:
    name = frame.f_globals.get("__name__") if frame is not None else None
    return name if isinstance(name, str) else ""


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported, further out."""
    while frame is not None:
        code = frame.f_code
        if code.co_name in _IMPORTING and code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _what(event: str, arguments: tuple[Any, ...]) -> tuple[str | None, bool]:
    """The file or name of an event, and whether it writes; `None` if it is not of interest."""
    if event == "open":
        path, mode, flags = (*arguments, None, None, None)[:3]
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if not isinstance(path, str):  # a file that is open already
            return None, False
        writes = bool(set(mode) & set("wax+")) if isinstance(mode, str) else bool((flags or 0) & _WRITING)
        return path, writes  # a relative one stays so: from another folder it is another file
    if event == "import":
        return str(arguments[0]), False
    if event in _EFFECTS:
        return str(arguments[0]) if arguments else "", False
    return None, False


def name_of(callee: Any, first: Any) -> tuple[str, str] | None:  # noqa: PLR0911 - one line per kind
    """Module and name of something that is not written in Python, or `None`."""
    kind = type(callee)
    while kind is functools.partial:
        callee = callee.func
        kind = type(callee)
    if kind is FunctionType or kind is MethodType:
        return None
    if issubclass(kind, BuiltinFunctionType):
        return _bound(callee)
    if kind is MethodWrapperType:
        return str(callee.__objclass__.__module__), f"{callee.__objclass__.__qualname__}.{callee.__name__}"
    if kind in _METHODS:
        owner = callee.__objclass__
        if isinstance(first, owner) and owner is object:
            return None
        return str(owner.__module__), f"{owner.__qualname__}.{callee.__name__}"
    if issubclass(kind, type):
        return _class(callee)
    called = getattr(kind, "__call__", None)  # noqa: B004 - the method itself is looked at
    if type(called) is FunctionType:
        return None
    if kind.__module__ in ("builtins", "nanobind") or "cython" in kind.__name__:  # functions of C by other names
        said, name = getattr(callee, "__module__", None), getattr(callee, "__qualname__", None)
        return str(said), str(name)
    return str(kind.__module__), f"{kind.__qualname__}()"


def _bound(callee: Any) -> tuple[str, str]:
    owner = callee.__self__
    name = str(callee.__name__)
    if owner is None or type(owner) is ModuleType:
        return str(getattr(owner, "__name__", None) or callee.__module__ or ""), name
    cls = owner if isinstance(owner, type) else type(owner)
    home = next((base for base in cls.__mro__ if name in vars(base)), cls)
    return str(home.__module__), f"{home.__qualname__}.{name}"


def _class(callee: type) -> tuple[str, str] | None:
    """A class, unless all that making an instance does is written in Python or knows nothing of the outside."""
    home = next((base for base in callee.__mro__ if "__new__" in vars(base)), callee)
    maker = vars(home).get("__new__")
    # A function that was put there later, as `enum` does, is as it was made.
    if isinstance(maker, staticmethod | FunctionType) or home in vars(builtins).values():
        return None
    if home.__module__ == "builtins":
        return None
    return str(home.__module__), home.__qualname__


class _Monitoring:
    """The recording by `sys.monitoring`.

    Each recording takes a tool id of its own: whatever one has heard of and disabled is still told to another.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._id = -1

    def start(self) -> None:
        monitoring: Any = vars(sys)["monitoring"]
        for number in (4, 3, 5, 2, 1, 0):
            if monitoring.get_tool(number) is None:
                with contextlib.suppress(ValueError):
                    monitoring.use_tool_id(number, "rewarm")
                    self._id = number
                    break
        if self._id < 0:
            raise RecorderError("all of Python's monitoring tools are in use (debuggers, profilers, coverage)")
        events = monitoring.events
        recorder, disable = self._recorder, monitoring.DISABLE
        user: dict[int, tuple[CodeType, bool]] = {}
        frame = sys._getframe

        def starts(code: CodeType, _: int) -> Any:
            if not recorder.is_listening():
                return None
            return disable if recorder.started(code, frame(1)) else None

        def calls(code: CodeType, _: int, callee: Any, first: Any) -> Any:
            if not recorder.is_listening():
                return None
            is_python = type(callee) is FunctionType or type(callee) is MethodType
            is_enough = is_python or recorder.called(code, lambda: frame(3), callee, first)
            known = user.get(id(code))
            if known is None or known[0] is not code:
                known = user[id(code)] = (code, kind_of_file(code.co_filename) in ("user", "made"))
            return disable if is_enough and not known[1] else None

        monitoring.register_callback(self._id, events.PY_START, starts)
        monitoring.register_callback(self._id, events.CALL, calls)
        monitoring.set_events(self._id, events.PY_START | events.CALL)
        # What an earlier tool of this number had disabled would stay so.
        monitoring.restart_events()

    def stop(self) -> None:
        monitoring: Any = vars(sys)["monitoring"]
        events = monitoring.events
        monitoring.set_events(self._id, 0)
        monitoring.register_callback(self._id, events.PY_START, None)
        monitoring.register_callback(self._id, events.CALL, None)
        monitoring.free_tool_id(self._id)


class _Profiling:
    """The recording by `sys.setprofile`."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def start(self) -> None:
        if sys.getprofile() is not None:
            raise RecorderError("a profile function is set (a profiler)")
        recorder = self._recorder

        def told(frame: FrameType, event: str, argument: Any) -> None:
            if not recorder.is_listening():
                return
            if event == "call":
                recorder.started(frame.f_code, frame)
            elif event == "c_call":
                recorder.called(frame.f_code, lambda: frame, argument, getattr(argument, "__self__", None))

        sys.setprofile(told)

    def stop(self) -> None:
        sys.setprofile(None)


@functools.cache
def _auditors() -> list[Recorder]:
    """The recordings under way. The hook is added once and stays, as Python has it."""
    active: list[Recorder] = []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if not active or event not in _TOLD:
            return
        for recorder in tuple(active):
            if recorder.is_listening():
                recorder.audited(event, arguments, sys._getframe(1))

    sys.addaudithook(hook)
    return active
