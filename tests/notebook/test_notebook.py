"""`%load_ext rewarm` in a real kernel: commands, rich outputs, and a kernel that has compiled before."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from conftest import clean_environment

manager = pytest.importorskip("jupyter_client.manager")
pytest.importorskip("ipykernel")

# Of zmq, tornado and jupyter_client, on the test's side.
pytestmark = pytest.mark.filterwarnings("ignore")

COMPILE = """
import jax, numpy as np
def {name}(x):
    return x * {number}
print(float(np.asarray(jax.jit({name})(np.ones(2, np.float32)))[0]))
"""


class Cell:
    """What a cell gave: its outputs by kind."""

    def __init__(self) -> None:
        self.text = self.html = self.out = self.err = self.error = ""

    def take(self, kind: str, content: dict[str, Any]) -> None:
        if kind in ("execute_result", "display_data"):
            self.text += content["data"].get("text/plain", "")
            self.html += content["data"].get("text/html", "")
        elif kind == "stream" and content["name"] == "stdout":
            self.out += content["text"]
        elif kind == "stream":
            self.err += content["text"]
        elif kind == "error":
            self.error += f"{content['ename']}: {content['evalue']}"


Kernel = Callable[[str], Cell]


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    """A fresh kernel; `kernel(source)` runs a cell."""
    home = {"HOME": str(tmp_path), "IPYTHONDIR": str(tmp_path / "ipython"), "JUPYTER_RUNTIME_DIR": str(tmp_path)}
    one = manager.KernelManager(kernel_name="python3", connection_file=str(tmp_path / "kernel.json"))
    one.start_kernel(env=clean_environment(**home), cwd=str(tmp_path))
    client = one.blocking_client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=120)

        def run(source: str) -> Cell:
            cell = Cell()
            client.execute_interactive(
                source,
                timeout=200,
                allow_stdin=False,
                output_hook=lambda message: cell.take(message["header"]["msg_type"], message["content"]),
            )
            return cell

        yield run
    finally:
        client.stop_channels()
        one.shutdown_kernel(now=True)


class Page(HTMLParser):
    """Tags that are opened and closed, as they should be; texts of cells."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.seen: list[str] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert self.opened == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:  # noqa: ARG002 - the parser's signature
        self.opened.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_notebook_from_cold_to_warm(kernel: Kernel, tmp_path: Path) -> None:
    place = tmp_path / "a cache"
    before = kernel(COMPILE.format(name="early", number=2))
    assert before.out == "2.0\n"
    assert kernel("%load_ext rewarm").error == ""
    on = kernel(f"%rewarm on '{place}'")
    assert f"rewarm is on, in {place}" in on.text
    found = re.search(r"(\d+) programs were compiled before", on.text)
    assert found is not None
    assert int(found[1]) >= 1
    assert "jax.clear_caches()" in on.html

    kernel(COMPILE.format(name="step", number=2))
    kernel(COMPILE.format(name="step", number=3))
    stats = kernel("%rewarm stats")
    assert re.search(r"misses +\d", stats.text)
    assert Page(stats.html).seen.count("table") == 1
    events = kernel("%rewarm events 1")
    assert "the last 1 of" in events.text
    assert Page(events.html).seen.count("tr") == 2
    assert "jit_step" in events.text
    why = kernel("%rewarm explain jit_step")
    assert why.text.count("jit_step  ") == 2
    assert "other constants" in why.text
    assert "2.0" in why.text
    assert Page(why.html).seen.count("details") == 2

    # What was compiled before is asked for again, once JAX has let it go, and the whole is a hit the next time.
    kernel("jax.clear_caches()")
    assert kernel(COMPILE.format(name="early", number=2)).out == "2.0\n"
    kernel("jax.clear_caches()")
    kernel(COMPILE.format(name="early", number=2))
    last = kernel("import rewarm; print(rewarm.events()[-1].program, rewarm.events()[-1].outcome)")
    assert last.out == "jit_early hit\n"

    off = kernel("%rewarm off")
    assert off.text == "rewarm is off"
    requests = kernel("print(rewarm.stats().requests)").out
    kernel(COMPILE.format(name="later", number=2))
    assert kernel("print(rewarm.stats().requests)").out == requests


def test_wrong_commands_say_what_is_right(kernel: Kernel, tmp_path: Path) -> None:
    kernel("%load_ext rewarm")
    assert "expected one of on [DIRECTORY], off, stats" in kernel("%rewarm start").err
    assert "expected one of" in kernel("%rewarm off now").err
    assert "expected a number of events" in kernel("%rewarm events many").err
    assert "no program's name contains 'nothing'; there are: none yet" in kernel("%rewarm explain nothing").err
    assert "expected a path of a local directory" in kernel("%rewarm on s3://bucket/x").err
    assert kernel("%rewarm explain").text == "no misses"
    assert "programs asked for" in kernel("%rewarm").text
    assert "Start warm" in kernel("print(get_ipython().find_line_magic('rewarm').__doc__)").out
    kernel("%unload_ext rewarm")
    assert "not found" in kernel("%rewarm stats").err


def test_before_jax_is_imported(kernel: Kernel, tmp_path: Path) -> None:
    kernel("%load_ext rewarm")
    on = kernel(f"%rewarm on {tmp_path}/cache")
    assert on.text == f"rewarm is on, in {tmp_path}/cache"
    kernel(COMPILE.format(name="first", number=2))
    assert int(kernel("import rewarm; print(rewarm.stats().misses)").out) > 0


def test_names_of_programs_are_text(tmp_path: Path) -> None:
    from rewarm.ledger import Event, Seconds, Stats
    from rewarm.ledger.explanation import Explanation, Finding
    from rewarm.notebook.views import EventsView, ExplanationsView, StatsView

    bad = "<script>alert(1)</script>&\"'"
    said = Explanation(bad, bad, ("program",), (), (Finding("constants", bad),))
    event = Event(bad, None, "miss", None, bad, False, bad, Seconds(), 0.0, 0, 0, None, 1.0, said)
    for view in (EventsView([event], 5), ExplanationsView([event]), StatsView(Stats(not_stored={bad: 1}))):
        page = Page(view._repr_html_())
        assert "script" not in page.seen
        assert bad in "".join(page.texts)
        assert bad in repr(view)
