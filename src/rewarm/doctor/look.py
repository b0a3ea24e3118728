"""A look at a Python from inside it, printed as JSON. It runs alone: the Python need not have rewarm, or JAX.

Not promised: to see what a startup file does by way of other modules; only its own words are read.

Nothing of rewarm is imported here, and nothing that is not in the standard library of Python 3.8.
"""

from __future__ import annotations

import json
import re
import sys

# The source is handed over with `-c`, which puts the current directory first, where anything may lie.
if sys.path and not sys.path[0]:
    del sys.path[0]

_WORDS = re.compile(r"\b(?:jax|rewarm|JAX_[A-Z_]+|REWARM[A-Z_]*|XLA_FLAGS)\b")


def _distributions() -> tuple[dict[str, str], list[list[str]]]:
    """Versions by name, and the entry points that JAX calls: name, module, distribution."""
    from importlib import metadata

    versions: dict[str, str] = {}
    plugins: list[list[str]] = []
    for found in metadata.distributions():
        name = re.sub(r"[-_.]+", "-", str(found.metadata["Name"] or "")).lower()
        if not name or name in versions:  # the first on the path is the one that counts
            continue
        versions[name] = str(found.version)
        plugins += [[point.name, point.value, name] for point in found.entry_points if point.group == "jax_plugins"]
    return versions, plugins


def _origin(module: str) -> str | None:
    from importlib import util

    try:
        spec = util.find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return None
    return spec.origin if spec is not None else None


def _startup_files() -> list[list[str]]:
    """Files that Python runs at each start and that speak of JAX or rewarm: path, words."""
    import site
    from pathlib import Path

    found = []
    for module in ("sitecustomize", "usercustomize"):
        path = getattr(sys.modules.get(module), "__file__", None)
        if path:
            found.append(_told(Path(path), lines_of="all"))
    folders = [*site.getsitepackages(), site.getusersitepackages()] if hasattr(site, "getsitepackages") else []
    for folder in folders:
        for path in sorted(Path(folder).glob("*.pth")):
            found.append(_told(path, lines_of="import"))
    return [row for row in found if row[1]]


def _told(path: object, lines_of: str) -> list[str]:
    from pathlib import Path

    try:
        text = Path(str(path)).read_text(errors="replace")
    except OSError:
        text = ""
    if lines_of == "import":  # other lines of a .pth file name directories, and are not run
        text = "\n".join(line for line in text.splitlines() if line.startswith(("import ", "import\t")))
    code = "\n".join(line.partition("#")[0] for line in text.splitlines())
    return [str(path), ", ".join(sorted(set(_WORDS.findall(code))))]


def look() -> dict[str, object]:
    """What there is to see."""
    preloaded = sorted({"jax", "jaxlib", "rewarm"} & set(sys.modules))
    versions, plugins = _distributions()
    return {
        "executable": sys.executable,
        "version": ".".join(map(str, sys.version_info[:3])),
        "versions": versions,
        "plugins": plugins,
        "rewarm": _origin("rewarm"),
        "jax": _origin("jax"),
        "startup": _startup_files(),
        "preloaded": preloaded,
    }


if __name__ == "__main__":
    print(json.dumps(look()))
