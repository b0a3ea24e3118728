"""Builds the charting library that the report's page carries, and says whether it is the one that is here.

    python tools/report_library.py            compare with src/rewarm/report/page/echarts.min.js
    python tools/report_library.py --write    put it there, with its digest in NOTICE

Not promised: the same bytes from other versions of the packages than those pinned below. Needs npm, and its registry.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "src" / "rewarm" / "report" / "page"
PACKAGES = ("echarts@6.1.0", "zrender@6.1.0", "tslib@2.3.0", "esbuild@0.28.2")

# What the page draws with, and nothing else: a third of the whole library.
ENTRY = """
import * as echarts from 'echarts/core';
import { CustomChart, TreemapChart } from 'echarts/charts';
import { GridComponent, TooltipComponent, DataZoomComponent } from 'echarts/components';
import { CanvasRenderer } from 'echarts/renderers';
echarts.use([CustomChart, TreemapChart, GridComponent, TooltipComponent, DataZoomComponent, CanvasRenderer]);
export { init, version } from 'echarts/core';
"""

BUNDLE = ("--bundle", "--minify", "--format=iife", "--global-name=echarts", "--legal-comments=eof", "--target=es2020",
          "--charset=ascii")  # fmt: skip


def build(folder: Path) -> bytes:
    """The library, built in an empty folder."""
    (folder / "entry.js").write_text(ENTRY)
    (folder / "package.json").write_text('{"private": true}')
    npm = ("npm", "install", "--no-fund", "--no-audit", "--ignore-scripts", "--save-exact", *PACKAGES)
    subprocess.run(npm, cwd=folder, check=True, stdout=sys.stderr)
    esbuild = ("node_modules/@esbuild/linux-x64/bin/esbuild", "entry.js", *BUNDLE, "--outfile=out.js")
    subprocess.run(esbuild, cwd=folder, check=True, stdout=sys.stderr)
    return (folder / "out.js").read_bytes()


def main() -> int:
    """Build, and compare or write."""
    with tempfile.TemporaryDirectory() as folder:
        made = build(Path(folder))
    digest = hashlib.sha256(made).hexdigest()
    if "--write" in sys.argv[1:]:
        (PAGE / "echarts.min.js").write_bytes(made)
        notice = PAGE / "NOTICE"
        notice.write_text(re.sub(r"[0-9a-f]{64}", digest, notice.read_text()))
        print(f"written, {len(made)} bytes, SHA-256 {digest}")
        return 0
    same = made == (PAGE / "echarts.min.js").read_bytes()
    print(f"{'the same' if same else 'NOT the same'}: {digest}")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
