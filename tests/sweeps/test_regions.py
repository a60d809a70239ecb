"""Regions of sequences as a benchmark."""

from pathlib import Path

import pytest

from flexmdm.sweeps.regions import Regions

TABLE = "sequence,h1_start,h1_end,h2_start,h2_end\nQVKARDYW,0,2,3,7\nKKARW,0,0,2,4\n"


@pytest.fixture
def table(tmp_path):
    (tmp_path / "test.csv").write_text(TABLE)
    return tmp_path / "test.csv"


def test_what_is_cut_out_is_what_the_split_names(table):
    one, both = (Regions.read(table, split) for split in ("h2", "h1,h2"))
    assert one.items == [("QVK", "W"), ("KK", "W")] and one.truth == [("ARDY",), ("AR",)]
    assert both.items == [("", "K", "W"), ("", "KK", "W")] and both.truth == [("QV", "ARDY"), ("", "AR")]
    assert both.title == "2 sequences without h1,h2"


def test_a_sequence_is_right_if_every_region_is(table):
    scored = Regions.read(table, "h1,h2").score(
        [{"gaps": ["QV", "ARD"], "sizes": [2, 3], "text": ""}, {"gaps": ["", "AR"], "sizes": [0, 2], "text": ""}]
    )
    assert scored.right == [False, True] and scored.figures["length"]["value"] == 0.75


def test_the_regions_have_to_be_named(table):
    with pytest.raises(ValueError, match="--split h1,h2,h3"):
        Regions.read(Path(table))
