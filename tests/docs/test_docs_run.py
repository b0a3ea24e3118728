"""Every page's blocks, as printed, one after the other: real JAX on CPU, fresh processes, a folder of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from doc_blocks import PYTHON, SHELL, blocks_of, bucket_of, pages
from doc_shell import compare, run_page
from servers import KEY, SECRET, Server, request

pytest_plugins = ["remote_fixtures"]

# By default the pages that a newcomer reads first; the others in the campaigns.
_FIRST = ("docs/index.md", "docs/concepts.md")


def _with_blocks() -> list[object]:
    found = [
        page
        for page in pages()
        if any(block.info in {*SHELL, PYTHON} and not block.not_run for block in blocks_of(page))
    ]
    return [page if page in _FIRST else pytest.param(page, marks=pytest.mark.campaign) for page in found]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", _with_blocks())
def test_every_block_of_a_page_does_what_the_page_says(
    page: str, tmp_path: Path, server: Callable[[str], Server]
) -> None:
    bucket = bucket_of(page)
    environment = _credentials(server("moto"), bucket) if bucket else {}
    assert run_page(page, tmp_path, **environment) > 0


def _credentials(moto: Server, bucket: str) -> dict[str, str]:
    """What S3's clients read, for a new bucket of a server on loopback."""
    assert request(moto.port, "PUT", f"/{bucket}") == 200
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{moto.port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }


def test_figures_and_paths_of_an_output_do_not_count_and_words_and_counts_do() -> None:
    shown = "rewarm: 3 requests, 1 hits, 0.0 s saved\n/home/me/train.py:9 0c076ac6bd2f\n...\nend\n"
    compare("here", shown, "rewarm: 3 requests, 1 hits, 12.5 s saved\n/tmp/x/train.py:9 92cc52f7eb6f\na\nb\nend\n")
    for other in (shown.replace("1 hits", "2 hits"), shown.replace("end", "and"), "rewarm: nothing\n" + shown):
        with pytest.raises(AssertionError, match="shows"):
            compare("here", shown, other.replace("...", "x"))
