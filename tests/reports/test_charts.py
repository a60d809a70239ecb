import math
import re

import pytest

from flexmdm.evaluation.distances import Estimate
from flexmdm.evaluation.intervals import Interval
from flexmdm.evaluation.trials import Outcome, Quality, Trial
from flexmdm.reports.charts import (
    THEME,
    Curve,
    Panel,
    draw_lengths,
    draw_losses,
    draw_panel,
    draw_panels,
    inline_svg,
    quality_panel,
    save_figure,
)


def outcome(sampler, steps, excess):
    return Outcome(Trial(sampler, steps), Quality(None, excess, 0.1, 0.1, 0.1, 0.0), float(steps), 1.0)


NOISE = Quality(None, Estimate(0.0, 0.01), 0.1, 0.1, 0.1, 0.0)


def test_curves_go_by_evaluations_and_leave_out_what_has_no_value():
    outcomes = [
        outcome("tau", 32, Estimate(0.1, 0.01)),
        outcome("tau", 8, Estimate(0.4, 0.02)),
        outcome("tau", 1, Estimate(math.nan, math.nan)),
        outcome("spaced", 1, Estimate(math.nan, math.nan)),
    ]
    panel = quality_panel("a chain", outcomes, NOISE, samples=100)
    assert [curve.label for curve in panel.curves] == ["tau"]
    assert panel.curves[0].x == [8.0, 32.0]
    assert panel.curves[0].y == [Interval(0.4, 0.4 - 0.02, 0.4 + 0.02), Interval(0.1, 0.1 - 0.01, 0.1 + 0.01)]
    assert panel.floor == 0.02


def test_the_same_figures_give_the_same_files(tmp_path):
    outcomes = [outcome("tau", steps, Estimate(1 / steps - 0.05, 0.01)) for steps in (4, 16, 64)]
    for name in ("first", "second"):
        figure = draw_panels([quality_panel("a chain", outcomes, NOISE, samples=100)], "error")
        save_figure(figure, tmp_path / f"{name}.png", tmp_path / f"{name}.svg")
    for ending in ("png", "svg"):
        assert (tmp_path / f"first.{ending}").read_bytes() == (tmp_path / f"second.{ending}").read_bytes()


def test_a_panel_without_curves_is_drawn_empty():
    panels = [quality_panel("nothing", [], NOISE, samples=2)] * 3
    assert len(draw_panels(panels, "nothing at all").axes) == 3


def test_shares_are_drawn_with_their_intervals_from_zero():
    curve = Curve("mine", [4.0, 16.0], [Interval(0.0, 0.0, 0.2), Interval(0.5, 0.3, 0.8)])
    (axes,) = draw_panels([Panel("40 items", "accuracy", [curve])], "a benchmark").axes
    bottom, top = axes.get_ylim()
    assert -0.1 < bottom < 0 and 0.8 <= top <= 1.02  # with room for a marker at 0
    assert min(tick for tick in axes.get_yticks() if tick >= bottom) == 0
    assert "%" in axes.yaxis.get_major_formatter()(0.5)


LINE = {"step": 1, "seconds": 4.0, "loss": 3.0}
HELD_OUT = {"step": 1, "seconds": 5.0, "eval_loss": 3.5}


@pytest.mark.parametrize(
    "logs",
    [
        {},
        {"flexmdm": []},
        {"flexmdm": [LINE]},
        {"flexmdm": [HELD_OUT]},
        {"flexmdm": [LINE, HELD_OUT], "mdm": []},
        {"flexmdm": [{**LINE, "seconds": 9000.0 * k, "loss": 3.0 / k} for k in range(1, 50)], "mdm": [LINE]},
    ],
    ids=["no runs", "no lines", "one batch", "one evaluation", "both", "hours"],
)
def test_curves_can_be_drawn_of_whatever_there_is(logs, tmp_path):
    draw_losses(logs, tmp_path / "loss.png")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_every_run_has_its_curve(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, *_, **__: drawn.append(figure))
    draw_losses({f"run {k}": [LINE, HELD_OUT] for k in range(6)}, tmp_path / "loss.png")
    names = [text.get_text() for text in drawn[0].axes[0].get_legend().get_texts()]
    assert names == [f"run {k}" for k in range(6)]


# Inside a page -------------------------------------------------------------------------------------------------------


def charts():
    curve = Curve("a $b$ <run>", [16, 64], [Interval(200.0, 180.0, 230.0), Interval(100.0, 90.0, 105.0)])
    steps = Panel("", "", [curve], scale="log", references={"held-out & \ud800": 35.0})
    return [
        inline_svg(draw_panel(steps, ["a $b$ <run>"]), "one"),
        inline_svg(draw_panel(steps, ["a $b$ <run>"]), "another"),
        inline_svg(draw_lengths([0, 1, 2], [0.5, 0.5], [("#0072b2", [1.0, 0.0])], "cells"), 'a "third"'),
    ]


def test_charts_of_a_page_share_no_identifier_and_refer_to_their_own_alone():
    found = [(set(re.findall(r' id="([^"]*)"', svg)), set(re.findall(r'href="#([^"]*)"', svg))) for svg in charts()]
    for ids, references in found:
        assert ids == references
    assert not found[0][0] & found[1][0] and found[0][0]
    assert charts() == charts()


def test_charts_of_a_page_take_the_colours_of_its_style_sheet():
    for svg in charts():
        colours = set(re.findall(r"#[0-9a-f]{6}\b", re.sub(r"var\(--[^)]*\)", "", svg)))
        assert not colours & set(THEME), "a colour that a dark page cannot change"
        assert "<style" not in svg and "url(" not in svg


def test_texts_of_a_chart_stay_texts():
    svg = charts()[0]
    assert "held-out &amp; ?: 35" in svg and 'aria-label="a &quot;third&quot;"' in charts()[2]


def test_a_logarithmic_axis_has_room_for_all_intervals_and_references():
    panel = Panel("", "", [Curve("a", [16], [Interval(200.0, 50.0, 500.0)])], scale="log", references={"truth": 35.0})
    (axes,) = draw_panel(panel, ["a"]).axes
    low, high = axes.get_ylim()
    assert low < 35 and high > 500 and len(axes.get_yticks()) >= 3
