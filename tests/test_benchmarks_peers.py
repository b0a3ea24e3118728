"""The comparison with other caches: its damage and its verdicts, its page, and its parts for JAX's cache and rewarm."""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
peers = importlib.import_module("peers")
_peers = importlib.import_module("_peers")

PAGE = ROOT / "docs" / "comparison.md"


def outcome(*, result: str = "right", status: int = 0, compiled: bool = False, traced: bool = False) -> Any:
    return _peers.Outcome(1.0, status, result, compiled, traced=traced)


def ground(peer: Any) -> Any:
    made = peers.Ground.__new__(peers.Ground)
    made.peer, made.right, made.figures, made.trouble = peer, "right", peers.Figures(), ""
    return made


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (outcome(), "nothing compiled, right result"),
        (outcome(compiled=True), "compiled anew"),
        (outcome(traced=True), "traced anew"),
        (outcome(result="other"), "WRONG RESULT"),
        (outcome(result="other", compiled=True), "WRONG RESULT"),
        (outcome(status=1), "failed"),
        (outcome(status=-11), "crashed"),
    ],
)
def test_what_a_start_after_damage_did_is_told_apart(found: Any, words: str) -> None:
    assert ground(_peers.Native())._judged(found) == words


def test_an_edit_that_must_miss_and_hits_is_stale() -> None:
    one = ground(_peers.Native())
    comment, constant = peers.EDITS[0], peers.EDITS[-1]
    assert constant.must_miss
    assert one._edit_verdict(constant, outcome()) == "STALE RESULT"
    assert one._edit_verdict(constant, outcome(result="other", compiled=True)) == "miss"
    assert one._edit_verdict(comment, outcome()) == "hit"
    assert one._edit_verdict(comment, outcome(traced=True)) == "hit, traced anew"


def test_every_damage_is_one_and_every_edit_changes_each_helper() -> None:
    for _, change in peers.damages(3):
        assert change(b"some bytes") != b"some bytes"
    assert {len(change(b"some bytes")) for _, change in peers.damages(3)} == {10, 5, 0}
    helpers = sorted((ROOT / "benchmarks" / "peer_programs").glob("*/helper.*"))
    assert len(helpers) == 4
    for helper in helpers:
        text = helper.read_text(encoding="utf-8")
        edited = {edit.text(text, "#") for edit in peers.EDITS if edit.text}
        assert len(edited - {text}) == 4, helper


def test_rewarm_alone_makes_the_command_fail() -> None:
    for peer, said in ((_peers.Native(), []), (_peers.Rewarm(), ["rewarm: WRONG RESULT", "rewarm: 2 of 2"])):
        one = ground(peer)
        one.figures.damage["empty"] = Counter({"WRONG RESULT": 1, "compiled anew": 2})
        one.figures.crowd[2] = "2 of 2"
        assert peers.failures([one]) == said


def test_figures_are_json() -> None:
    one = ground(_peers.Rewarm())
    one.figures.cold.append(outcome(compiled=True))
    one.figures.damage["empty"] = Counter({"compiled anew": 2})
    one.figures.crowd[2] = "1 of 2"
    told = json.loads(json.dumps(peers.as_dict(one)))
    assert (told["damage"], told["crowd"]) == ({"empty": {"compiled anew": 2}}, {"2": "1 of 2"})
    assert told["cold"][0]["compiled"]


def test_a_page_gets_its_tables_between_its_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{peers.BEGIN}\nold\n{peers.END}\n\nafter\n", encoding="utf-8")
    peers.write(page, "new")
    assert page.read_text(encoding="utf-8") == f"before\n\n{peers.BEGIN}\nnew\n{peers.END}\n\nafter\n"
    page.write_text("no markers\n", encoding="utf-8")
    with pytest.raises(peers.BenchmarkError, match="expected one line"):
        peers.write(page, "new")
    assert page.read_text(encoding="utf-8") == "no markers\n"


def test_the_documentation_has_the_markers_and_a_table_of_each_part() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.count(peers.BEGIN) == text.count(peers.END) == 1
    block = text.partition(peers.BEGIN)[2].partition(peers.END)[0]
    headings = list(peers.tables([], SimpleNamespace(parts=peers.PARTS, many=10_000, crowds=[2, 8])))[::2]
    assert [heading for heading in headings if heading not in block] == []


def test_what_is_not_known_is_one_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        peers.main(["--parts", "sharing"])
    assert "unknown parts: sharing; there are: share, hits" in capsys.readouterr().err
    assert peers.main(["--peers", "cache"]) == 2
    assert "unknown: cache; there are: JAX's own" in capsys.readouterr().err


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_all_parts_for_jax_and_rewarm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With small sizes, and real starts."""
    monkeypatch.setattr(_peers, "LAYERS", 2)
    monkeypatch.setattr(_peers.Peer, "flips", 1)
    names = ["JAX's own", "rewarm"]
    told = tmp_path / "figures.json"
    sizes = ["--rounds", "1", "--hits", "1", "--many", "50", "--crowds", "2", "--json", str(told)]
    assert peers.main(["--peers", ",".join(names), *sizes]) == 0
    printed = capsys.readouterr().out
    figures = json.loads(told.read_text(encoding="utf-8"))["peers"]
    assert list(figures) == names
    for name, one in figures.items():
        assert len(one["cold"]) == len(one["warm"]) == len(one["many"]) == 1
        assert one["files"] >= 1
        assert [verdict.partition(",")[0] for verdict in one["edits"].values()] == ["hit"] * 5 + ["miss"]
        assert f"| {name} |" in printed
    assert figures["JAX's own"]["crowd"] == {"2": "2 of 2"}
    assert figures["rewarm"]["crowd"] == {"2": "1 of 2"}
    assert [counts["compiled anew"] for counts in figures["rewarm"]["damage"].values()] == [1, 1, 1]
