"""The errors that rewarm raises.

Nothing here promises that an error reaches the user's program: a cache failure is a miss and one log line, and
only `strict` (or a call of the public API with wrong arguments) raises. Each class sits under `RewarmError` and,
where Python users expect one, under a built-in.
"""

from __future__ import annotations


class RewarmError(Exception):
    """Base of every error that rewarm raises."""


class SettingError(RewarmError, ValueError):
    """A setting has a name or a value that cannot be used; the message lists the good ones."""


class UnsupportedJaxError(RewarmError, RuntimeError):
    """This JAX does not have the one function that rewarm replaces, in the form that rewarm knows."""


class NotCacheableError(RewarmError, ValueError):
    """A program has no key: its compilation depends on something that cannot be identified."""


class NotFingerprintableError(RewarmError, TypeError):
    """A Python value has no fingerprint: something that can change its behaviour cannot be read, or may not stay.

    Attributes:
      path: how the object in the way was reached, such as "partition → global CONFIG → attribute cache".
      found: what it is, in a few words.
      reason: why it cannot be identified.
    """

    def __init__(self, path: str, found: str, reason: str) -> None:
        super().__init__(path, found, reason)
        self.path = path
        self.found = found
        self.reason = reason

    def __str__(self) -> str:
        return f"no fingerprint for {self.found} ({self.path}): {self.reason}"


class StoreError(RewarmError, OSError):
    """A store could not answer. Never means "no such entry", which is `None`."""


class BadEntryError(RewarmError, ValueError):
    """What lies under an entry's name is not that entry: damaged, foreign, for another key, or newer.

    Attributes:
      reason: a few words for a log line and for a counter, without the path.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class OtherMachineError(RewarmError, RuntimeError):
    """An executable was made for a CPU with instructions that this one has not. It was not loaded."""


class MissingTargetError(RewarmError, RuntimeError):
    """An executable calls a function by a name that is not registered in this process. Nothing of it was loaded.

    The entry is good: a process that registers the function can load it.

    Attributes:
      target: the name.
    """

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.target = target

    def __str__(self) -> str:
        return f"it calls {self.target}, which is not registered in this process (jax.ffi.register_ffi_target)"


class TraceMismatchError(RewarmError, RuntimeError):
    """A function of `rewarm.jit` was started without a trace, and a trace beside it came to another program.

    Results since the start may be wrong. The function is traced from then on; the message says what to declare.
    """


class SpaceError(RewarmError, ValueError):
    """A space of a tunable function, or a configuration of it, cannot be used; the message names the parameter.

    Also for a default that the space lacks, and for a constraint that raises.
    """


class UntunedError(RewarmError, LookupError):
    """A tunable function was called for arguments that nobody has tuned here, where that is not allowed."""


class ContentsDifferError(RewarmError, RuntimeError):
    """A freshly compiled executable differs from the stored one of the same key (`check_contents`).

    Attributes:
      key: the key of both, 64 hexadecimal digits.
      stored: the stored executable, serialised.
      compiled: the fresh executable, serialised.
    """

    def __init__(self, message: str, key: str, stored: bytes, compiled: bytes) -> None:
        super().__init__(message, key, stored, compiled)
        self.key = key
        self.stored = stored
        self.compiled = compiled

    def __str__(self) -> str:
        return str(self.args[0])
