"""The site builds strictly, its references have all that the code has, and every table of figures names its command."""

from __future__ import annotations

import html
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest
from doc_blocks import DOCS, ROOT, pages, text_of
from markdown_it import MarkdownIt
from markdown_it.token import Token

import rewarm
from rewarm import settings
from rewarm.cli import group

# Of a page, compressed as servers send it: with search, styles and scripts of the theme.
PAGE_AT_MOST = 150_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    pytest.importorskip("mkdocs", reason="MkDocs is not installed: pip install '.[docs]'")
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "ignore"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    # Not --quiet: what it does not print, it does not count.
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def _words(page: Path) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


def test_every_page_is_in_the_site(site: Path) -> None:
    for page in pages():
        if page.startswith("docs/"):
            assert (site / page.removeprefix("docs/")).with_suffix(".html").exists(), page


def test_pages_say_their_language_and_name_themselves_in_the_other(site: Path) -> None:
    for path in sorted(site.rglob("*.html")):
        if path.name == "404.html":
            continue
        text, here = path.read_text(encoding="utf-8"), path.relative_to(site).as_posix()
        assert f'<html lang="{"zh" if here.startswith("zh/") else "en"}"' in text, here
        links = dict(re.findall(r'<a href="([^"]*)" hreflang="(\w+)" class="md-select__link"', text))
        named = {
            language: (path.parent / link).resolve().relative_to(site.resolve()) for link, language in links.items()
        }
        plain = here.removeprefix("zh/")
        assert named["en"].as_posix() == (plain if (site / plain).exists() else "index.html"), here
        other = f"zh/{plain}"
        assert named["zh"].as_posix() == (other if (site / other).exists() else "zh/index.html"), here


def test_the_search_divides_chinese_into_words(site: Path) -> None:
    pytest.importorskip("jieba", reason="jieba is not installed: pip install '.[docs]'")
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert index["config"]["lang"] == ["en", "zh"]
    assert re.split(index["config"]["separator"], "两\u200b词") == ["两", "词"]
    text = "".join(one["title"] + one["text"] for one in index["docs"] if one["location"].startswith("zh/"))
    assert {"缓存", "编译"} <= set(text.split("\u200b"))


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"<(?:script|img|iframe)[^>]+src=[\"']?https?:", text), page
        assert not re.search(r"<link[^>]+rel=[\"']?(?:stylesheet|preload|preconnect)[^>]+https?:", text), page


def test_links_and_anchors_lead_somewhere(site: Path) -> None:
    """Also those that MkDocs makes by itself, in references, and between pages and their parts."""
    ids = {page: set(re.findall(r'\bid="([^"]+)"', page.read_text(encoding="utf-8"))) for page in site.rglob("*.html")}
    wrong = []
    for page in ids:
        if page.name == "404.html":  # it may be shown for any address, so its links are absolute
            continue
        for link in re.findall(r'<a\b[^>]*\bhref="([^"#:]*)(#[^"]*)?"', page.read_text(encoding="utf-8")):
            path, anchor = html.unescape(link[0]), html.unescape(link[1]).lstrip("#")
            target = (page.parent / path).resolve() if path not in ("", ".") else page
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (anchor and target in ids and anchor not in ids[target] and anchor != "__top"):
                wrong.append(f"{page.relative_to(site)}: {path}#{anchor}")
    assert not wrong


def test_links_of_the_readme_lead_somewhere() -> None:
    for page in sorted(ROOT.glob("README*.md")):
        for path in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8")):
            assert (ROOT / path).exists(), f"{page.name}: {path}"


def test_pages_are_light(site: Path) -> None:
    import gzip

    shared = sum(len(gzip.compress(path.read_bytes())) for path in _of_every_page(site))
    heaviest = max((len(gzip.compress(page.read_bytes())), page) for page in site.rglob("*.html"))
    assert shared + heaviest[0] < PAGE_AT_MOST, (shared, heaviest)


def _of_every_page(site: Path) -> list[Path]:
    text = (site / "index.html").read_text(encoding="utf-8")
    named = re.findall(r'<(?:script|link)[^>]+(?:src|href)="([^"]+\.(?:js|css))"', text)
    return [site / name for name in named]


# -- references ---------------------------------------------------------------------------------------------------


def test_every_setting_and_variable_is_in_the_reference(site: Path) -> None:
    words = _words(site / "reference" / "settings.html")
    missing = {*inspect.signature(rewarm.enable).parameters, *settings.VARIABLES} - set(re.findall(r"\w+", words))
    assert not missing


def test_the_readmes_table_has_every_setting() -> None:
    rows = [line for line in text_of("README.md").splitlines() if line.startswith("| `") and "`REWARM_" in line]
    missing = [
        name for name in inspect.signature(rewarm.enable).parameters if not any(f"`{name}`" in row for row in rows)
    ]
    assert not missing


def test_options_of_jax_in_the_reference_are_those_that_are_read() -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import docs_site
    finally:
        sys.path.pop(0)
    read = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/rewarm/jax_adapter").rglob("*.py"))
    assert set(docs_site.JAX_OPTIONS) <= set(inspect.signature(rewarm.enable).parameters)
    for option in docs_site.JAX_OPTIONS.values():
        assert option.removeprefix("cache_key.").removeprefix("jax_") in read, option


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    ids = set(re.findall(r'\bid="([^"]+)"', (site / "reference" / "api.html").read_text(encoding="utf-8")))
    names = {name for name in rewarm.__all__ if not name.startswith("_")}
    text = text_of("docs/reference/api.md")
    assert not {name for name in names if f"::: rewarm.{name}\n" not in text}
    assert any(name.endswith("enable.directory") or name == "rewarm.enable" for name in ids)


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _commands(found, f"{path} {name}")


def test_every_command_and_option_is_in_the_reference(site: Path) -> None:
    words = _words(site / "reference" / "cli.html")
    assert not re.search(r"UNSET|\x08|: command\b", words)
    for path, command in _commands(group, "rewarm"):
        assert re.search(rf"\b{re.escape(path)}\b", words), path
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert all(option in words for option in parameter.opts), (path, parameter.opts)


def test_every_command_is_in_the_readme_or_a_page() -> None:
    told = "\n".join(text_of(page) for page in pages())
    missing = [path for path, _ in _commands(group, "rewarm") if path.count(" ") == 1 and f"{path}" not in told]
    assert not missing


# -- figures ------------------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"[-<~]?[\d,]*\.?\d+( ?(s|ms|µs|%|KiB|MiB|GiB|KB|MB|GB))?( \([^)]*\))?")


def test_every_table_of_figures_names_its_command() -> None:
    wrong = [
        f"{page}: the table at line {line} ({head})"
        for page in (*pages(), "benchmarks/prewarm.md")
        for line, head, said in _tables_of_figures(page)
        if not any((ROOT / path).exists() for path in re.findall(r"benchmarks/\w+\.py", said))
    ]
    assert not wrong, "\n".join(wrong)


def _tables_of_figures(page: str) -> Iterator[tuple[int, str, str]]:
    """Line and head of each table that has measured figures, with the text of its part and of the page's beginning."""
    source = text_of(page) if page in pages() else (ROOT / page).read_text(encoding="utf-8")
    tokens, lines = MarkdownIt("commonmark").enable("table").parse(source), source.splitlines()
    headings = [token.map[0] for token in tokens if token.type == "heading_open" and token.map and token.tag != "h1"]
    first = headings[0] if headings else len(lines)
    for number, token in enumerate(tokens):
        if token.type == "table_open" and token.map is not None:
            cells = _cells(tokens[number:])
            begin = max((at for at in headings if at < token.map[0]), default=0)
            end = min((at for at in headings if at > token.map[0]), default=len(lines))
            if _are_figures(cells):
                yield token.map[0] + 1, lines[token.map[0]], "\n".join(lines[:first] + lines[begin:end])


def _cells(tokens: Sequence[Token]) -> list[str]:
    """The cells of a table, but for the first of each row, which names it."""
    found, column = [], 0
    for token in tokens:
        if token.type == "table_close":
            break
        if token.type == "tr_open":
            column = 0
        elif token.type == "td_open":
            column += 1
        elif token.type == "inline" and column > 1:
            found.append(token.content.strip("* "))
    return found


def _are_figures(cells: list[str]) -> bool:
    filled = [cell for cell in cells if cell]
    numbers = [cell for cell in filled if _NUMBER.fullmatch(cell)]
    return len(numbers) >= 4 and len(numbers) > 0.3 * len(filled) and any("." in cell for cell in numbers)


def test_figures_that_two_pages_have_are_the_same() -> None:
    """The pages of figures repeat tables of others; a row that begins alike has the same figures."""
    original = {line for page in pages() if page != "docs/performance.md" for line in text_of(page).splitlines()}
    for line in text_of("docs/performance.md").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and any(_NUMBER.fullmatch(cell) for cell in cells):
            name = re.sub(r" \([^)]*\)", "", cells[0])
            assert any(_is_row_of(other, name, cells[1:]) for other in original), line


def _is_row_of(line: str, name: str, figures: list[str]) -> bool:
    cells = [re.sub(r" \([^)]*\)", "", cell.strip()) for cell in line.strip("|").split("|")]
    return cells[0] == name and cells[1 : 1 + len(figures)] == [re.sub(r" \([^)]*\)", "", cell) for cell in figures]


def test_every_page_says_what_is_not_promised_or_not_run() -> None:
    for page in DOCS.glob("how-to/*.md"):
        assert "Not promised:" in page.read_text(encoding="utf-8"), page
