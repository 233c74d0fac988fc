"""ranklaunch layout: what people are shown of how Megatron spreads a model over ranks."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranklaunch.entrypoints import layout
from ranklaunch.errors import ConfigError, UsageError
from ranklaunch.layout.svg import MOST_NUMBERED
from ranklaunch.plan.megatron import Stages

SVG = "{http://www.w3.org/2000/svg}"


def shown(capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    assert layout.main([str(word) for word in argv], {}) == 0
    return capsys.readouterr().out


def test_sixteen_ranks_on_two_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    """The groups that explanations of Megatron show."""
    text = shown(capsys, "--world-size", 16, "--tp", 2, "--pp", 4, "--num-layers", 32, "--virtual-stages", 2)
    for groups in (
        "[g0, g1], [g2, g3], [g4, g5], [g6, g7], [g8, g9], [g10, g11], [g12, g13], [g14, g15]",
        "[g0, g4, g8, g12], [g1, g5, g9, g13], [g2, g6, g10, g14], [g3, g7, g11, g15]",
        "[g0, g2], [g1, g3], [g4, g6], [g5, g7], [g8, g10], [g9, g11], [g12, g14], [g13, g15]",
        "[g0, g1, g4, g5, g8, g9, g12, g13], [g2, g3, g6, g7, g10, g11, g14, g15]",
        "[g0, g12], [g1, g13], [g2, g14], [g3, g15]",
    ):
        assert f": {groups}\n" in text
    assert "warning" not in text
    assert text.splitlines()[-5].split() == ["g11", "1", "3", "1", "1", "2", "8-11,", "24-27"]


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(shown(capsys, "--world-size", 12, "--tp", 2, "--pp", 2, "--slots", "8,4", "--num-layers", 6, "--format", "json"))
    assert (found["world_size"], found["tp"], found["dp"]) == (12, 2, 3)
    assert found["nodes"] == [{"index": 0, "first_rank": 0, "slots": 8}, {"index": 1, "first_rank": 8, "slots": 4}]
    assert found["stages"] == [{"stage": 0, "layers": [[0, 2]]}, {"stage": 1, "layers": [[3, 5]]}]
    assert found["groups"]["mp"] == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]
    assert found["groups"].keys() == {"tp", "pp", "dp", "mp", "embedding"}
    assert ["dp 3" in warning for warning in found["warnings"]] == [True]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--world-size", 16, "--tp", 4, "--slots", "6,10"], ["tp 4: ranks 4, 5, 6 and 7 share each layer and are spread over nodes"]),
        (["--world-size", 16, "--tp", 16], ["tp 16: ranks 0 to 15"]),
        (["--world-size", 16, "--tp", 8, "--cp", 2], ["cp 2: ranks 0 and 8 are spread over nodes"]),
        (["--world-size", 6, "--pp", 3], ["pp 3: groups of an odd size"]),
        (["--world-size", 16, "--tp", 8, "--ep", 2], ["ep 2: ranks 0 and 8"]),
    ],
)
def test_what_is_doubtful_is_said(capsys: pytest.CaptureFixture[str], argv: list[object], words: list[str]) -> None:
    told = [line for line in shown(capsys, *argv).splitlines() if line.startswith("warning: ")]
    assert len(told) == len(words)
    assert all(word in line for word, line in zip(words, told))


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--world-size", "16", "--tp", "3"], "16 ranks cannot be divided by tp 3"),
        (["--world-size", "16", "--pp", "4", "--num-layers", "30"], "30 layers cannot be divided by pp 4"),
        (["--world-size", "16", "--pp", "4", "--num-layers", "32", "--virtual-stages", "3"], "pp 4 x 3 virtual stages"),
        (["--world-size", "16", "--pp", "4", "--num-layers", "32", "--first-stage-layers", "33"], "33 of them"),
        (["--world-size", "16", "--num-layers", "32", "--virtual-stages", "2"], "more than one stage"),
        (["--world-size", "16", "--slots", "8,4"], "these nodes have 12 ranks in all, expected 16"),
        (["--world-size", "16", "--slots", "5"], "16 ranks do not fill whole nodes"),
    ],
)
def test_what_cannot_be_is_refused(argv: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        layout.main(argv, {})


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "no --world-size"),
        (["--world-size", "1e3"], "--world-size 1e3: expected a whole number from 1 to"),
        (["--world-size", "99999999"], "expected a whole number"),
        (["--world-size", "16", "--order", "tp-pp"], "--order tp-pp: expected"),
        (["--world-size", "16", "--format", "xml"], "--format xml: expected text, json, svg"),
        (["--world-size", "16", "--slots", "a,b"], "--slots a,b: expected"),
        (["--world-size", "16", "--virtual-stages", "2"], "give --num-layers too"),
        (["--world-size", "16", "x.py"], "expected only options"),
    ],
)
def test_a_command_line_that_is_none(argv: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        layout.main(argv, {})


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 5), st.sampled_from([None, 1, 2]), st.sampled_from([None, 1, 3]))
def test_each_layer_is_in_one_stage(pp: int, chunks: int, each: int, first: int | None, last: int | None) -> None:
    given = [count for count in (first, last) if count is not None]
    stages = Stages(
        sum(given) * chunks + each * chunks * max(0, pp - len(given)), pp, chunks, first and first * chunks, last and last * chunks
    )
    if any(stages.problems()):
        assert pp <= len(given) or (chunks > 1 and pp == 1)
        return
    in_turn = [layer for chunk in range(chunks) for stage in range(pp) for layer in stages.of(stage)[chunk]]
    assert in_turn == list(range(stages.layers))


def picture(capsys: pytest.CaptureFixture[str], *argv: object) -> ET.Element:
    return ET.fromstring(shown(capsys, *argv, "--format", "svg"))


def test_a_picture_of_few_ranks_has_each(capsys: pytest.CaptureFixture[str]) -> None:
    root = picture(capsys, "--world-size", 16, "--tp", 2, "--pp", 4, "--num-layers", 8)
    texts = [element.text or "" for element in root.iter(f"{SVG}text")]
    assert [text for text in texts if text.startswith("g")] == [f"g{rank}" for rank in range(16)]
    assert [text for text in texts if text.startswith("stage")] == [
        f"stage {stage}: layers {2 * stage}-{2 * stage + 1}" for stage in range(4)
    ]
    assert len(root.findall(f"{SVG}rect[@class='group']")) == 8
    colours = [box.get("fill") for box in root.findall(f"{SVG}g/{SVG}rect")]
    assert [colours.index(colour) for colour in colours] == [rank // 4 * 4 for rank in range(16)]


@pytest.mark.parametrize("size", [MOST_NUMBERED, MOST_NUMBERED + 8, 4096])
def test_a_picture_holds_all_that_it_shows(capsys: pytest.CaptureFixture[str], size: int) -> None:
    root = picture(capsys, "--world-size", size, "--tp", 8, "--pp", 4 if size % 32 == 0 else 1)
    width, height = int(root.get("width", "")), int(root.get("height", ""))
    boxes = list(root.iter(f"{SVG}rect"))
    assert max(int(box.get("x", "")) + int(box.get("width", "")) for box in boxes) <= width <= 2000
    assert max(int(box.get("y", "")) + int(box.get("height", "")) for box in boxes) <= height <= 3000
    covered = sum("ranks" in (title.text or "") or "rank" in (title.text or "") for title in root.iter(f"{SVG}title"))
    assert covered == (size if size <= MOST_NUMBERED else size // 8)
