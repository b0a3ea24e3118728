"""Run as a script: records or checks cases in a fresh process. Each case is a folder with `case.py`, in it `root`.

    guards_child.py record|check FOLDER SITE

Recording runs `before()` of each case, if there is one, then `root(2)` under a recorder. What came of each case goes to
standard output, and the guards into the case's folder.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rewarm.guards import Adapter, Guards, NotGuardableError, Recorder, Rules, check, guards_of, root_digest


def load(folder: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(f"case_{folder.name}", folder / "case.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module


def rules(module: types.ModuleType) -> Rules:
    adapters: tuple[Adapter, ...] = getattr(module, "ADAPTERS", ())
    return Rules({}, getattr(module, "companions", None), adapters, getattr(module, "DEPENDS_ON", ()))


def record(folder: Path) -> dict[str, Any]:
    module = load(folder)
    prepare: Callable[[], object] = getattr(module, "before", lambda: None)
    prepare()
    known = rules(module)
    with Recorder() as recorder:
        module.root(2)
    try:
        guards = guards_of(module.root, recorder.seen, known)
        before, after = root_digest(module.root, known), root_digest(module.root, known)
    except NotGuardableError as error:
        return {"refused": str(error)}
    (folder / "guards.json").write_text(json.dumps(guards.plain()))
    return {"digest": guards.digest, "summary": guards.summary(), "stable": before == after}


def look(folder: Path) -> dict[str, Any]:
    module = load(folder)
    guards = Guards.of_plain(json.loads((folder / "guards.json").read_text()))
    start = time.perf_counter()
    changes = check(module.root, guards, rules(module))
    took = time.perf_counter() - start
    return {"changes": [list(change) for change in changes], "took": took}


def main() -> None:
    what, folder, site = sys.argv[1:4]
    sys.path.append(site)
    found = {}
    for case in sorted(Path(folder).iterdir()):
        if what == "record" or (case / "guards.json").exists():
            found[case.name] = record(case) if what == "record" else look(case)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
