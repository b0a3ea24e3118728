"""What mkdocs.yml asks of the code: the table of settings, pages that lie elsewhere, links that leave the docs.

Not promised: that anything here is of use without MkDocs, which loads this file as its hook. It imports `rewarm`, and
neither JAX nor an extra.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import rewarm
from rewarm import settings

ROOT = Path(__file__).parents[1]

# Pages of the site that are files elsewhere in the repository.
ELSEWHERE = {"benchmarks-prewarm.md": "benchmarks/prewarm.md"}

# Folders of docs/ with pages in other languages, under the names of their originals.
TRANSLATIONS = {"zh": "中文"}

# The options of JAX that say the same. Source: src/rewarm/jax_adapter/options.py.
JAX_OPTIONS = {
    "directory": "jax_compilation_cache_dir",
    "min_compile_seconds": "jax_persistent_cache_min_compile_time_secs",
    "min_entry_bytes": "jax_persistent_cache_min_entry_size_bytes",
    "metadata_in_key": "jax_compilation_cache_include_metadata_in_key",
    "check_contents": "jax_compilation_cache_check_contents",
    "strict": "jax_raise_persistent_cache_errors",
    "explain": "jax_explain_cache_misses",
    "salt": "cache_key.custom_hook",
    "max_size": "jax_compilation_cache_max_size",
    "autotune": "jax_persistent_cache_enable_xla_caches",
    "remote": "jax_compilation_cache_dir",
}

_SETTINGS = "<!-- here: the table of settings -->"


def on_config(config: Any) -> Any:
    """Name the commands, and add translations to the navigation."""
    from rewarm.cli import group

    docs = Path(config["docs_dir"])
    _named(group)
    originals = config["nav"]
    found = {title: _translated(originals, docs, folder) for folder, title in TRANSLATIONS.items()}
    config["nav"] = [*originals, *({title: translated} for title, translated in found.items() if translated)]
    return config


def _named(group: click.Group) -> None:
    """Give each command the name it is called by, since mkdocs-click prints the object's; its help as Markdown."""
    group.help = _as_markdown(group.help)
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        command.name = name
        if isinstance(command, click.Group):
            _named(command)
        else:
            command.help = _as_markdown(command.help)


def _as_markdown(help_: str | None) -> str | None:
    """Help in which paragraphs that click does not wrap (those that begin with a backspace) are blocks."""
    if help_ is None:
        return None
    return re.sub(r"\x08\n(.*?)(?=\n[ \t]*\n|\Z)", r"```text\n\1\n```", inspect.cleandoc(help_), flags=re.DOTALL)


def _translated(nav: list[Any], docs: Path, folder: str) -> list[str]:
    """The pages of a translation, in the order of the originals; those of no original come last."""
    there = {path.relative_to(docs).as_posix() for path in (docs / folder).rglob("*.md")}
    known = [f"{folder}/{target}" for target in _targets(nav)]
    return [*(path for path in known if path in there), *sorted(there - set(known))]


def _targets(items: list[Any]) -> Iterator[str]:
    for item in items:
        (_, target), *_ = item.items()
        if isinstance(target, list):
            yield from _targets(target)
        else:
            yield target


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages that lie elsewhere."""
    from mkdocs.structure.files import File

    for name, source in ELSEWHERE.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The page as MkDocs is to read it."""
    for name, source in ELSEWHERE.items():
        markdown = markdown.replace(f"](../{source})", f"]({name})")
    if page.file.src_uri == "reference/settings.md":
        assert _SETTINGS in markdown, f"{page.file.src_uri} has no line {_SETTINGS}"
        markdown = markdown.replace(_SETTINGS, settings_table())
    return markdown


def on_page_context(context: Any, *, page: Any, config: Any, nav: Any) -> Any:
    """In the header, the same page in the other languages, or their first page where there is none."""
    del nav
    docs = Path(config["docs_dir"])
    there = {*ELSEWHERE, *(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))}
    here = page.file.src_uri
    plain = here.partition("/")[2] if _language(here) else here
    for one in config["extra"]["alternate"]:
        folder = f"{one['lang']}/" if one["lang"] in TRANSLATIONS else ""
        name = f"{folder}{plain}" if f"{folder}{plain}" in there else f"{folder}index.md"
        one["link"] = f"{name.removesuffix('.md')}.html"
    return context


def on_post_page(output: str, *, page: Any, config: Any) -> str:
    """A translated page says its language, by which browsers choose letters and break lines."""
    language = _language(page.file.src_uri)
    before = f'<html lang="{config["theme"]["language"]}"'
    return output.replace(before, f'<html lang="{language}"') if language else output


def _language(page: str) -> str:
    """Of a page in the folder of a translation; "" for an original."""
    folder = page.partition("/")[0]
    return folder if folder in TRANSLATIONS else ""


def settings_table() -> str:
    """Each argument of `rewarm.enable` with its variable, the values it takes, JAX's option, and what it does.

    Raises:
      KeyError: an argument has no variable or no line in the docstring.
    """
    told = _arguments(rewarm.enable.__doc__ or "")
    rows = []
    for name in inspect.signature(rewarm.enable).parameters:
        variable, _, values = settings._FORMS[name]
        rows.append(f"| `{name}` | `{variable}` | {_cell(values)} | {_jax(name)} | {_cell(told[name])} |")
    head = ["| argument | variable | values | JAX's option | what it is |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*head, *rows])


def _jax(name: str) -> str:
    return f"`{JAX_OPTIONS[name]}`" if name in JAX_OPTIONS else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _arguments(docstring: str) -> dict[str, str]:
    """Argument -> its text, of a docstring in Google's style."""
    part = re.search(r"\n *Args:\n(.*?)\n\n", docstring, re.DOTALL)
    return dict(_entries(part.group(1))) if part else {}


def _entries(block: str) -> Iterator[tuple[str, str]]:
    for entry in re.split(r"\n {6}(?=\w+: )", "\n" + block):
        if entry.strip():
            name, text = entry.split(": ", 1)
            yield name.strip(), " ".join(text.split())
