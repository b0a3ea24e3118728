"""The page in a browser: what it shows, that it answers, asks for nothing, and runs nothing of what it shows."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import browser
import pytest
import report_world as world
from browser import Page

from rewarm.envelope import Header, seal
from rewarm.explain.afterwards import explanation_of
from rewarm.report import Kind, Report, Sources, build, chosen_starts, to_html
from rewarm.report.starts import Start
from rewarm.small_files import PRIVATE
from rewarm.store import LocalStore, evicted
from rewarm.store.inventory import survey

STARTED = 1_796_000_000.0


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    browser.need_browser()
    with browser.browser() as found:
        yield found


def report_of(root: Path, *, last: int = 1, run: str | None = None, against: Start | None = None) -> Report:
    store = LocalStore(root)
    kinds = [Kind("entries", 3, 9000), Kind("runs", 2, 800), Kind("explain", 2, 300)]
    sources = Sources(store, list(survey(store)), kinds, explanation_of)
    return build(sources, chosen_starts(root, run, last), against)


def opened(page: Page, report: Report, path: Path) -> float:
    page.run("localStorage.clear()") if page.driver.current_url.startswith("file") else None
    page.prefer("light")
    path.write_text(to_html(report), "utf-8")
    page.complaints(), page.requests()
    return page.open(path)


@pytest.fixture
def small(tmp_path: Path) -> Report:
    """One start with all there is to show, against one of before."""
    root = world.directory(tmp_path / "cache")
    before = world.write_run(
        root, [world.miss("jit_step", STARTED), world.hit("jit_gone", STARTED + 1)], started=STARTED
    )
    later = STARTED + 1000
    events = [
        world.hit("jit_init", later, load=0.2, saved=2.0),
        world.hit("jit_step", later + 1, ahead="loaded", load=0.0, saved=0.5),
        world.miss("jit_loss", later + 2, compile_=1.5),
        world.miss("jit_random", later + 4, compile_=0.7, why="a seed", stored=False, not_stored="it has callbacks"),
    ]
    run = world.write_run(root, events, started=later, number=1)
    evicted.note(str(root), world.key_of("jit_init"), 1234, evicted.SIZE, PRIVATE)
    return report_of(root, run=run, against=chosen_starts(root, before, 1)[0])


# What the headers of entries said that the compiler of JAX 0.12.0.1 made for an H200, of whose four fusions two had
# results.
_TUNED = {"entries": 2, "fusions": 2, "new": 0, "place": "jax-0.12.0.1-b6de513893c0-a4baa03864db7cfb", "untuned": 0,
          "set": "a9542747eeaea75ab18d3f441c56d81b79a12d351a0d4b1812220044c410fe04", "state": "complete"}  # fmt: skip
_MISSING = ["920905dd059e02873b510e0f2fc6764f", "cee82e592530d68aab0d9683cf669b68"]


def test_how_complete_tuning_was_is_shown(page: Page, tmp_path: Path) -> None:
    store = LocalStore(world.directory(tmp_path / "cache"))
    untuned = {**_TUNED, "state": "incomplete", "untuned": 2, "missing": _MISSING}
    for program, told in (("jit_mlp", _TUNED), ("jit_other", untuned)):
        key, device = world.key_of(program), "gpu NVIDIA H200 141GB HBM3e x1"
        header = Header("executable", key, (), program, 2.0, STARTED, {"jax": "0.12.0.1"}, device, tuning=told)
        store.put(key, seal(header, {"executable": b"x"}))
    report = build(Sources(store, list(survey(store)), [], explanation_of), [], None)
    opened(page, report, tmp_path / "r.html")
    assert page.column("tuning-table", 0) == ["jit_other", "jit_mlp"]
    assert page.column("tuning-table", 2) == ["incomplete 1", "complete 1"]
    assert page.column("tuning-table", 4) == ["2 (100.0 %)", "0 (0.0 %)"]
    assert page.column("tuning-table", 5) == [", ".join(_MISSING), ""]
    assert (page.complaints(), page.requests()) == ([], [])


def test_each_part_is_there_and_nothing_complains(page: Page, small: Report, tmp_path: Path) -> None:
    opened(page, small, tmp_path / "r.html")
    narrow = "return [...document.querySelectorAll('tbody th')].filter(one => one.getBoundingClientRect().width < 140)"
    assert page.run(f"{narrow}.map(one => one.textContent)") == [], "names of programs are not broken in the middle"
    titles = page.run("return [...document.querySelectorAll('main section > h2')].map(one => one.textContent)")
    assert titles == ["Summary", "Comparison", "Timeline", "Programs", "Misses", "Not stored", "Store", "History"]
    assert "4 programs asked for, 2 found in the cache (50.0 %)" in page.text("#summary")
    assert page.text(".figures .value") == "2.50 s"
    assert "it has callbacks" in page.text("#not-stored")
    assert "%0 = constant 3.0 a seed" in page.text("#misses-list")
    assert "the store was at max_size" in page.text("#history-table")
    assert page.column("comparison-table", 1).count("gone") == 1
    assert "now hit" in page.text("#comparison-table")
    assert page.run("return document.querySelectorAll('#timeline-chart canvas, #store-chart canvas').length") == 2
    assert page.complaints() == []
    assert page.requests() == []


def test_the_charts_draw_something(page: Page, small: Report, tmp_path: Path) -> None:
    opened(page, small, tmp_path / "r.html")
    colours = page.run(
        "const found = {}; for (const name of ['timeline-chart', 'store-chart']) {"
        " const one = document.querySelector(`#${name} canvas`);"
        " const bytes = one.getContext('2d').getImageData(0, 0, one.width, one.height).data; const seen = new Set();"
        " for (let n = 0; n < bytes.length; n += 44) seen.add(bytes[n] + ',' + bytes[n + 1] + ',' + bytes[n + 2]);"
        " found[name] = seen.size } return found"
    )
    assert colours["timeline-chart"] > 10
    assert colours["store-chart"] > 5


def test_search_filters_and_sorts(page: Page, small: Report, tmp_path: Path) -> None:
    from selenium.webdriver.common.by import By

    opened(page, small, tmp_path / "r.html")
    assert page.column("programs-table", 0) == ["jit_loss", "jit_random", "jit_init", "jit_step"]  # by seconds
    search = page.driver.find_element(By.ID, "programs-table-search")
    search.send_keys("RAND")
    assert page.column("programs-table", 0) == ["jit_random"]
    assert page.text("#programs-table-status") == "1 of 4 rows"
    search.clear()
    search.send_keys("x")
    search.send_keys("\b")
    page.driver.find_element(By.CSS_SELECTOR, "#programs-table-filter option:nth-child(2)").click()  # hits
    assert sorted(page.column("programs-table", 0)) == ["jit_init", "jit_step"]
    page.driver.find_element(By.CSS_SELECTOR, "#programs-table-filter option:nth-child(1)").click()
    head = page.driver.find_element(By.CSS_SELECTOR, "#programs-table th:nth-child(1) button")
    for expected, names in (("ascending", sorted), ("descending", lambda found: sorted(found, reverse=True))):
        head.click()
        cell = "return document.querySelector('#programs-table th').getAttribute('aria-sort')"
        assert page.run(cell) == expected
        assert page.column("programs-table", 0) == names(page.column("programs-table", 0))
    assert page.run("return document.querySelectorAll('#programs-table [aria-sort]').length") == 1


def test_a_miss_is_found_from_its_program(page: Page, small: Report, tmp_path: Path) -> None:
    opened(page, small, tmp_path / "r.html")
    page.run("document.querySelector('#programs-table tbody tr:nth-child(2) a').click()")
    assert "jit_random" in page.text("#misses-list h3")
    assert page.run("return document.querySelectorAll('#misses-list article').length") == 1


def test_all_can_be_reached_and_done_with_keys(page: Page, small: Report, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    opened(page, small, tmp_path / "r.html")
    reached, rings = [], []
    for _ in range(90):
        page.press(Keys.TAB)
        told = page.run(
            "const one = document.activeElement; const style = getComputedStyle(one);"
            " const label = one.labels && one.labels.length ? one.labels[0].textContent : '';"
            " const named = one.getAttribute('aria-label') || one.textContent.trim() || label;"
            " return [one.tagName, one.id, named.slice(0, 40), style.outlineStyle]"
        )
        if told[0] == "BODY":
            break
        reached.append(tuple(told[:3]))
        rings.append(told[3])
    assert reached[0][2] == "Skip to the report"
    assert {"programs-table-search", "programs-table-filter", "timeline-view", "misses-search"} <= {
        one[1] for one in reached
    }
    assert {"Zoom in", "Zoom out", "Earlier", "Later", "Dark", "Program", "The timeline as a table"} <= {
        one[2] for one in reached
    }
    assert "none" not in rings  # what has the focus shows it
    assert all(name for _, _, name in reached)  # and says what it is
    assert page.complaints() == []


def test_screen_readers_find_landmarks_names_and_tables(page: Page, small: Report, tmp_path: Path) -> None:
    opened(page, small, tmp_path / "r.html")
    assert page.run("return document.documentElement.lang") == "en"
    assert (
        page.run("return ['header', 'nav', 'main', 'footer'].map(one => document.querySelectorAll(one).length)")
        == [1] * 4
    )
    unnamed = page.run(
        "return [...document.querySelectorAll('section, canvas, table, input, select, button')].filter(one =>"
        " one.tagName === 'CANVAS' ? !one.closest('[role=img][aria-label]') :"
        " one.tagName === 'SECTION' ? !document.getElementById(one.getAttribute('aria-labelledby')) :"
        " one.tagName === 'TABLE' ? !one.caption :"
        " one.tagName === 'BUTTON' ? !(one.textContent || one.getAttribute('aria-label')) : !one.labels.length)"
        ".map(one => one.outerHTML.slice(0, 80))"
    )
    assert unnamed == []
    assert page.run("return [...document.querySelectorAll('thead th')].every(one => one.scope === 'col')")
    assert page.run("return [...document.querySelectorAll('tbody th')].every(one => one.scope === 'row')")
    ids = page.run("return [...document.querySelectorAll('[id]')].map(one => one.id)")
    assert len(ids) == len(set(ids))
    headings = page.run("return [...document.querySelectorAll('h1, h2, h3')].map(one => Number(one.tagName[1]))")
    assert headings[0] == 1
    assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(headings))


_CONTRASTS = """
const parse = (text) => text.match(/[\\d.]+/g).map(Number);
const linear = (one) => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4;
const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
const back = (one) => {
  for (; one; one = one.parentElement) {
    const found = parse(getComputedStyle(one).backgroundColor);
    if (found.length === 3 || found[3] > 0) return found;
  }
  return [255, 255, 255];
};
const wrong = [];
for (const one of document.querySelectorAll('main *, header *, footer *')) {
  if (![...one.childNodes].some(node => node.nodeType === 3 && node.textContent.trim())) continue;
  if (one.disabled || one.matches('option, noscript, noscript *')) continue;
  const [a, b] = [light(parse(getComputedStyle(one).color)), light(back(one))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) wrong.push([one.tagName, one.className, one.textContent.slice(0, 30), ratio]);
}
return wrong;
"""


def test_light_and_dark(page: Page, small: Report, tmp_path: Path) -> None:
    from selenium.webdriver.common.by import By

    opened(page, small, tmp_path / "r.html")
    back = "return getComputedStyle(document.body).backgroundColor"
    light = page.run(back)
    assert page.run(_CONTRASTS) == []
    page.prefer("dark")
    page.wait("return document.documentElement.hasAttribute('data-dark')")
    dark = page.run(back)
    assert dark != light
    assert page.run(_CONTRASTS) == []
    page.driver.find_element(By.CSS_SELECTOR, "[data-theme-choice=light]").click()
    assert page.run(back) == light
    page.driver.find_element(By.CSS_SELECTOR, "[data-theme-choice=auto]").click()
    assert page.run(back) == dark
    assert page.complaints() == []


def test_prints_light_and_whole(page: Page, small: Report, tmp_path: Path) -> None:
    opened(page, small, tmp_path / "r.html")
    page.prefer("dark")
    page.wait("return document.documentElement.hasAttribute('data-dark')")
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    assert not page.run("return document.documentElement.hasAttribute('data-dark')")
    printed = page.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert len(printed["data"]) > 20_000
    page.run("window.dispatchEvent(new Event('afterprint'))")
    assert page.run("return document.documentElement.hasAttribute('data-dark')")


def test_names_are_text_whatever_they_are(page: Page, tmp_path: Path) -> None:
    root = world.directory(tmp_path / "cache")
    events = []
    for number, name in enumerate(world.HOSTILE):
        when = STARTED + number
        events.append(world.miss(name, when, why=name, stored=False, not_stored=name, options=name))
        events.append(world.hit(f"{name} served", when + 0.5, tier=name))
    run = world.write_run(root, events, started=STARTED, argv=("/x/" + world.HOSTILE[0], *world.HOSTILE))
    report = report_of(root, run=run)
    opened(page, report, tmp_path / "hostile.html")
    shown = page.column("programs-table", 0)
    assert set(world.HOSTILE[:-1]) <= set(shown)
    assert page.run("return window.struck") is None
    assert page.run("return document.scripts.length") == 4
    assert page.run("return document.querySelectorAll('img, svg, iframe, object, embed').length") == 0
    assert page.complaints() == []
    assert page.requests() == []
    # And what did get in would not run: the page's policy has no inline handler, no eval and no network.
    page.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.struck = 9\">')")
    page.run(
        "const one = document.createElement('script'); one.textContent = 'window.struck = 8'; document.body.append(one)"
    )
    time.sleep(0.2)
    assert page.run("return window.struck") is None
    assert any("Content Security Policy" in line for line in page.complaints())


@pytest.mark.parametrize(("programs", "ranks"), [(2000, 1), pytest.param(2000, 64, marks=pytest.mark.campaign)])
def test_many_programs_and_ranks(page: Page, tmp_path: Path, programs: int, ranks: int) -> None:
    root = world.directory(tmp_path / "cache")
    world.large(root, programs, ranks)
    report = report_of(root)
    ready = opened(page, report, tmp_path / "large.html")
    assert page.text("#programs-table-status") == f"{programs:,} rows"
    assert page.run("return document.querySelectorAll('#programs-table tbody tr').length") == 50
    took = page.run(
        "const input = document.getElementById('programs-table-search'); const since = performance.now();"
        " input.value = 'step_7'; input.dispatchEvent(new Event('input')); return performance.now() - since"
    )
    assert "of 2,000 rows" in page.text("#programs-table-status")
    print(f"{programs} programs, {ranks} ranks: ready after {ready:.2f} s, a search in {took:.0f} ms, "
          f"{(tmp_path / 'large.html').stat().st_size / 2**20:.1f} MiB")  # fmt: skip
    # Under 2 s on a machine that does nothing else; this one may be shared.
    assert ready < 2 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert took < 500 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert page.complaints() == []


def test_a_rank_is_shown_program_by_program(page: Page, tmp_path: Path) -> None:
    from selenium.webdriver.common.by import By

    root = world.directory(tmp_path / "cache")
    world.large(root, 60, 4)
    opened(page, report_of(root), tmp_path / "ranks.html")
    assert page.column("lanes-table", 0) == ["0", "1", "2", "3"]
    options = [one.text for one in page.driver.find_elements(By.CSS_SELECTOR, "#timeline-view option")]
    assert options == ["all ranks", *(f"rank {rank}, program by program" for rank in range(4))]
    page.driver.find_element(By.CSS_SELECTOR, "#timeline-view option:nth-child(3)").click()
    page.driver.find_element(By.CSS_SELECTOR, "[aria-label='Zoom in']").click()
    page.driver.find_element(By.CSS_SELECTOR, ".legend button").click()
    assert page.run("return document.querySelector('.legend button').getAttribute('aria-pressed')") == "false"
    assert page.complaints() == []


def test_a_store_alone(page: Page, tmp_path: Path) -> None:
    root = world.directory(tmp_path / "cache")
    store = LocalStore(root)
    report = build(Sources(store, [], [Kind("books", 1, 100)], explanation_of), [])
    opened(page, report, tmp_path / "store.html")
    titles = page.run("return [...document.querySelectorAll('main section > h2')].map(one => one.textContent)")
    assert titles == ["Store", "History"]
    assert page.complaints() == []
