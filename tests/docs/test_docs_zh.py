"""The Chinese pages keep step with the English ones: structure, code blocks, figures, names and links, by section.

Not promised: that a sentence says what the English one says. A change of the English page that touches none of what is
compared here (headings, paragraphs, items, tables, blocks, figures, names in backticks, links) is not noticed.
"""

from __future__ import annotations

import os.path
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from pathlib import PurePosixPath
from urllib.parse import unquote

import pytest
from doc_blocks import DOCS, ROOT, text_of
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

TRANSLATED = ("index.md", "concepts.md", "troubleshooting.md")
PAIRS = {
    "README.md": "README.zh-CN.md",
    **{f"docs/{name}": f"docs/zh/{name}" for name in TRANSLATED},
    **{f"docs/how-to/{path.name}": f"docs/zh/how-to/{path.name}" for path in sorted(DOCS.glob("how-to/*.md"))},
}

# The part that the Chinese page has beyond the English one, at its end.
GLOSSARY = ("docs/zh/concepts.md", "术语表")

# Units as the two languages write them; symbols may stay as they are.
_UNITS = {
    **dict.fromkeys(("s", "second", "seconds", "秒"), "s"),
    **dict.fromkeys(("ms", "milliseconds", "毫秒"), "ms"),
    **dict.fromkeys(("minute", "minutes", "分钟"), "min"),
    **dict.fromkeys(("hour", "hours", "小时"), "h"),
    **dict.fromkeys(("day", "days", "天"), "d"),
    **{symbol: symbol for symbol in ("µs", "%", "KiB", "MiB", "GiB", "KB", "MB", "GB")},
}
_FIGURE = re.compile(
    rf"(\d+(?:[.,]\d+)*)(?:\s?({'|'.join(sorted(map(re.escape, _UNITS), key=len, reverse=True))})(?![A-Za-z]))?"
)

_CJK, _LATIN = re.compile(r"[\u4e00-\u9fff]"), re.compile(r"[A-Za-z]")
# Words of Latin letters in a row, which is a sentence that was forgotten; names come in shorter rows.
_LATIN_SENTENCE = re.compile(r"(?:\b[A-Za-z][\w'-]*[,;:]?\s+){6,}")
# What the program prints, quoted in a heading or a sentence.
_MESSAGE = re.compile(r"“[^”]*”")
_CODE = "\ufffc"


@dataclass
class Section:
    """What stands below one heading, up to the next one.

    Attributes:
      level: the heading's tag; "" for what comes before the first.
      title: its text.
      blocks: fenced blocks and HTML comments in their order, each with its info string.
      shape: how many paragraphs and list items there are, and the columns of each row of each table.
      texts: the text of each paragraph, item and cell, without what stands in backticks.
      names: what stands in backticks.
      links: where links lead, as they are written.
    """

    level: str = ""
    title: str = ""
    blocks: list[tuple[str, str]] = field(default_factory=list)
    shape: Counter[str] = field(default_factory=Counter)
    texts: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)

    @property
    def figures(self) -> list[tuple[str, str]]:
        """The figures of the text in their order, each with its unit or ""."""
        return [(number, _UNITS.get(unit, "")) for text in self.texts for number, unit in _FIGURE.findall(text)]


def sections_in(text: str) -> list[Section]:
    """The sections of a page."""
    found, columns, table = [Section()], 0, 0
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for number, token in enumerate(tokens):
        here = found[-1]
        if token.type == "heading_open":
            found.append(Section(token.tag, tokens[number + 1].content))
        elif token.type == "fence":
            here.blocks.append((token.info, token.content))
        elif token.type == "html_block":
            here.blocks.append(("html", token.content.strip()))
        elif token.type in ("paragraph_open", "list_item_open"):
            here.shape[token.type.removesuffix("_open")] += 1
        elif token.type == "table_open":
            table += 1
        elif token.type in ("th_open", "td_open"):
            columns += 1
        elif token.type == "tr_close":
            here.shape[f"rows of {columns} columns in table {table}"] += 1
            columns = 0
        elif token.type == "inline":
            _read(found[-1], token)
    return found[1:] if not found[0].texts and not found[0].blocks else found


def _read(section: Section, inline: Token) -> None:
    text = ""
    for child in inline.children or ():
        if child.type == "code_inline":
            section.names.add(child.content)
            text += _CODE
        elif child.type == "link_open":
            section.links.append(unquote(str(child.attrs["href"])))
        else:
            text += child.content or " " * (child.type == "softbreak")
    section.texts.append(text)


@cache
def _headings(page: str) -> tuple[str, ...]:
    there = (ROOT / page).exists()  # another test names the page that is missing
    return tuple(_anchor(section.title) for section in sections_in(text_of(page))) if there else ()


def _anchor(title: str) -> str:
    """The anchor of a heading, as MkDocs makes it by the slugify of mkdocs.yml, and GitHub, too."""
    kept = re.sub(r"[^\w\s-]", "", unicodedata.normalize("NFKC", title)).strip().lower()
    return re.sub(r"[-\s]+", "-", kept)


def _targets(page: str, links: list[str]) -> Iterator[tuple[str, str]]:
    """Path below the repository and anchor of each link, but for those between the two languages of one page."""
    counterpart = {**PAIRS, **{translated: original for original, translated in PAIRS.items()}}[page]
    for link in links:
        path, _, anchor = link.partition("#")
        if not re.match(r"https?:", link):
            path = os.path.normpath(PurePosixPath(page).parent / path) if path else page
        if path != counterpart:
            yield path, anchor


def _in_chinese(path: str, anchor: str) -> tuple[str, str]:
    """Where the Chinese page leads in place of the English page's link."""
    if path not in PAIRS:
        return path, anchor
    heading = _headings(path).index(anchor) if anchor else -1
    translated = _headings(PAIRS[path])
    return PAIRS[path], translated[heading] if 0 <= heading < len(translated) else ""


def differences(original: str, text: str, translated: str, translated_text: str) -> list[str]:
    """What of a page is not in step with its original, each with its section: what was expected, what was found."""
    ours, theirs = sections_in(text), sections_in(translated_text)
    if translated == GLOSSARY[0] and theirs[-1].title == GLOSSARY[1]:
        theirs.pop()
    levels, found = [section.level for section in ours], [section.level for section in theirs]
    if levels != found:
        at = next(
            (at for at, (a, b) in enumerate(zip(levels, found, strict=False)) if a != b), min(len(ours), len(theirs))
        )
        title = ours[at].title if at < len(ours) else "nothing"
        return [f"{translated}: headings: expected {len(ours)}, found {len(theirs)}; the first amiss is {title!r}"]
    return [
        f"{translated}, {b.title!r} (in {original}: {a.title!r}): {what}: expected {expected!r}, found {there!r}"
        for a, b in zip(ours, theirs, strict=True)
        for what, expected, there in _compared(original, a, translated, b)
        if expected != there
    ]


def _compared(original: str, ours: Section, translated: str, theirs: Section) -> Iterator[tuple[str, object, object]]:
    yield from _first_unlike("block", ours.blocks, theirs.blocks)
    yield from _first_unlike("figure", ours.figures, theirs.figures)
    yield "paragraphs, items, rows", ours.shape, theirs.shape
    yield "names that are missing", set(), ours.names - theirs.names
    yield "names that the original has not", set(), theirs.names - ours.names
    expected = Counter(_in_chinese(*target) for target in _targets(original, ours.links))
    yield "links", expected, Counter(_targets(translated, theirs.links))


def _first_unlike(
    what: str, expected: Sequence[object], found: Sequence[object]
) -> Iterator[tuple[str, object, object]]:
    """The first place where two rows differ, with what stands before it."""
    pairs = enumerate(zip_longest(expected, found, fillvalue="nothing"))
    at = next((number for number, (one, other) in pairs if one != other), None)
    if at is not None:
        near = f", after {expected[at - 1]!r}" if at else ""
        yield f"{what} {at + 1}{near}", expected[at : at + 1], found[at : at + 1]


def test_every_page_that_is_to_be_translated_is_and_no_other() -> None:
    there = {path.relative_to(ROOT).as_posix() for path in (*DOCS.glob("zh/**/*.md"), *ROOT.glob("README.*.md"))}
    assert there == set(PAIRS.values())


@pytest.mark.parametrize(("original", "translated"), PAIRS.items())
def test_a_page_is_in_step_with_its_original(original: str, translated: str) -> None:
    found = differences(original, text_of(original), translated, text_of(translated))
    assert not found, "bring the Chinese page into step:\n" + "\n".join(found)


@pytest.mark.parametrize("page", PAIRS.values())
def test_links_lead_somewhere(page: str) -> None:
    for section in sections_in(text_of(page)):
        for path, anchor in _targets(page, section.links):
            assert path.startswith("http") or (ROOT / path).exists(), f"{page}, {section.title!r}: {path}"
            assert not anchor or anchor in _headings(path), f"{page}, {section.title!r}: {path}#{anchor}"


@pytest.mark.parametrize("page", PAIRS.values())
def test_the_text_is_chinese_with_its_punctuation(page: str) -> None:
    texts = [_MESSAGE.sub("", text) for section in sections_in(text_of(page)) for text in section.texts]
    for text in texts:
        assert not _LATIN_SENTENCE.search(text), f"{page}: not translated: {text}"
        assert len(_LATIN.findall(text)) < 60 or _share(text) > 0.3, f"{page}: not translated: {text}"
        assert not re.search(r"[\u4e00-\u9fff][,;:?!]", text), f"{page}: Latin punctuation in Chinese: {text}"
    assert _share("".join(texts)) > 0.6, page


def _share(text: str) -> float:
    """Of the letters of a text the share that are Chinese."""
    return len(_CJK.findall(text)) / max(1, len(_CJK.findall(text)) + len(_LATIN.findall(text)))


def test_terms_of_the_glossary_are_those_of_the_pages() -> None:
    """Each English term has one Chinese term, which the pages use."""
    *_, glossary = sections_in(text_of(GLOSSARY[0]))
    assert glossary.title == GLOSSARY[1]
    _, _, _, *cells = glossary.texts[1:]  # without the heading, and the head of the table
    terms = dict(zip(cells[::3], cells[1::3], strict=True))
    assert len(terms) == len(cells) // 3 == len(set(terms.values())) >= 30
    told = "".join(text_of(page).split(f"## {GLOSSARY[1]}")[0] for page in PAIRS.values())
    assert not [term for term in terms.values() if term not in told]


# -- that it notices ----------------------------------------------------------------------------------------------

_CHANGES = {
    "a figure": ("others by 5 s,", "others by 6 s,", "Several processes at once"),
    "a unit": ("(5 s) in all", "(5 minutes) in all", "Sharing"),
    "a figure in a table": ("| 10,000 operations | 24 |", "| 10,000 operations | 25 |", "Measured"),
    "a row": ("| `rewarm du` |", "| `rewarm du` | x | 0 |\n| `rewarm du` |", "The command"),
    "a block": ("rewarm keys new  ", "rewarm keys add  ", "Sharing"),
    "an info string": ("```python\n@rewarm.jit", "```py\n@rewarm.jit", "Starts that do not trace"),
    "a block's comment": (
        "```python\nimport jax",
        "<!-- exit: 1 -->\n\n```python\nimport jax",
        "What a program can ask",
    ),
    "a name": ("`REWARM_EXPLAIN=1`", "`REWARM_SAY=1`", "Why was it compiled again?"),
    "a link": ("](docs/eviction.md)", "](docs/tuner.md)", "What stays, and what goes"),
    "an item": ("* Windows is untested.", "* Windows is untested.\n* Nor is DOS.", "What is not promised"),
    "a paragraph": ("`rewarm.disable()` leaves", "Words.\n\n`rewarm.disable()` leaves", "Three ways on"),
}


@pytest.mark.parametrize("change", _CHANGES)
def test_a_change_that_is_not_followed_is_found_with_its_section(change: str) -> None:
    before, after, section = _CHANGES[change]
    text = text_of("README.md")
    assert before in text, "the page changed; change another place of it"
    changed = text.replace(before, after, 1)
    new = set(differences("README.md", changed, "README.zh-CN.md", text_of("README.zh-CN.md")))
    new -= set(differences("README.md", text, "README.zh-CN.md", text_of("README.zh-CN.md")))
    assert new
    assert all(f"(in README.md: {section!r})" in one for one in new), new


@pytest.mark.parametrize("heading", ["## Sharing\n", "# rewarm\n"])
def test_headings_that_are_added_removed_or_moved_are_found(heading: str) -> None:
    text, translated = text_of("README.md"), text_of("README.zh-CN.md")
    for changed in (
        text.replace(heading, ""),
        text.replace(heading, f"#{heading}"),
        text.replace(heading, f"{heading}\n## More\n"),
    ):
        assert "headings" in differences("README.md", changed, "README.zh-CN.md", translated)[0]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_digit_that_changes_is_noticed(data: st.DataObject) -> None:
    """In text, tables, headings, blocks, their comments, names and links; not the numbers of a list's items."""
    original = data.draw(st.sampled_from(tuple(PAIRS)))
    text = text_of(original)
    places = [found.start() for found in re.finditer(r"(?<!\n)\d", text)]
    at = data.draw(st.sampled_from(places or [-1]))
    changed = text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :] if places else f"{text}\n1"
    assert differences(original, changed, PAIRS[original], text_of(PAIRS[original]))
