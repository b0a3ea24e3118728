"""What a plan's module says to rewarm and to JAX's cache while it is imported, as a program that runs would hear it.

Not promised: what the program says elsewhere, such as in its `main`; `docs/prewarm.md` says where to put it.

What is part of keys counts as in a run: `rewarm.enable(salt=...)`, its files and variables, and JAX's own options.
Where entries lie is for the command to say, and where the module says otherwise the program's line names it: a run
looks there. So do settings that no plan can know: arguments of the program that are part of keys.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from rewarm import settings
from rewarm.in_force import Said

# Of `rewarm.enable`: where entries lie and who may read them, which the command says.
_OF_COMMAND = ("directory", "remote", "namespace", "read_namespaces")


class Heard(NamedTuple):
    """What came of a module.

    Attributes:
      said: the settings in force; the command's, with what the module says of keys.
      notes: what is to be said of each program.
    """

    said: Said
    notes: tuple[str, ...]


def heard() -> Heard:
    """What the module said that was just imported. rewarm is off afterwards."""
    import rewarm
    from rewarm.jax_adapter import activation

    by_command, by_module = settings.say(), activation.said()
    rewarm.disable()
    notes = list(_of_jax(by_module, str(by_command.directory)))
    if by_module is None:
        return Heard(by_command, tuple(notes))
    kept = {name: getattr(by_command, name) for name in _OF_COMMAND}
    for name, value in kept.items():
        own = getattr(by_module, name)
        if own is not None and _plain(own) != _plain(value or ()):
            notes.append(
                f"the plan's module says rewarm.enable({name}={_text(name, own)}): a run looks there, and what is "
                f"filled is {_text(name, value)}"
            )
    return Heard(by_module._replace(**kept), tuple(notes))


def heard_late() -> str | None:
    """What is to be said where the plan's function turned rewarm on, which no run does. rewarm is off afterwards."""
    import rewarm
    from rewarm.jax_adapter import activation

    if activation.said() is None:
        return None
    rewarm.disable()
    return "the plan calls rewarm.enable, which counts for nothing here: say it where the module is imported"


def _of_jax(by_module: Said | None, directory: str) -> Iterator[str]:
    from rewarm.jax_adapter import seam

    options, prefixes = seam.read_options(), seam.flag_prefixes()
    own = options.cache_dir and ("://" in options.cache_dir or os.path.abspath(options.cache_dir) != directory)  # noqa: PTH100
    if own and (by_module is None or by_module.directory is None or str(by_module.directory) == directory):
        yield (
            f"the plan's module says jax_compilation_cache_dir={options.cache_dir}: a run that is told no REWARM_DIR "
            f"looks there, and not in {directory}, which is filled"
        )
    if not options.enabled:
        yield "the plan's module turns jax_enable_compilation_cache off: a run is served nothing"
    if prefixes:
        yield (
            f"arguments of the program that begin with {', '.join(prefixes)} are part of keys "
            "(cache_key.add_flag_prefixes), and none are known here: a run with any of them asks for other keys"
        )


def _plain(value: Any) -> Any:
    """Addresses without their settings: those of a command are only read from."""
    return {one.partition("?")[0] for one in value} if isinstance(value, tuple) else value


def _text(name: str, value: Any) -> str:
    if name == "remote":  # an address may hold a password
        return "..." if value else "none"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
