import math

from flexmdm.evaluation import Estimate, Outcome, Quality, Trial
from flexmdm.evaluation.charts import Curve, Panel, draw_panels, quality_panel, save_figure


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
    assert panel.curves[0].evaluations == [8.0, 32.0]
    assert panel.curves[0].quality == [0.4, 0.1] and panel.curves[0].errors == [0.02, 0.01]
    assert panel.floor == 0.02


def test_the_same_figures_give_the_same_files(tmp_path):
    outcomes = [outcome("tau", steps, Estimate(1 / steps - 0.05, 0.01)) for steps in (4, 16, 64)]
    for name in ("first", "second"):
        figure = draw_panels([quality_panel("a chain", outcomes, NOISE, samples=100)], "error")
        save_figure(figure, [tmp_path / f"{name}.png", tmp_path / f"{name}.svg"])
    for ending in ("png", "svg"):
        assert (tmp_path / f"first.{ending}").read_bytes() == (tmp_path / f"second.{ending}").read_bytes()


def test_a_panel_without_curves_is_drawn_empty():
    panels = [quality_panel("nothing", [], NOISE, samples=2)] * 3
    assert len(draw_panels(panels, "nothing at all").axes) == 4


def test_shares_are_drawn_with_their_intervals_from_zero():
    curve = Curve("mine", [4.0, 16.0], [0.0, 0.5], [(0.0, 0.2), (0.2, 0.3)])
    (axes,) = draw_panels([Panel("40 items", "accuracy", [curve])], "a benchmark").axes
    bottom, top = axes.get_ylim()
    assert -0.1 < bottom < 0 and 0.8 <= top <= 1.02  # with room for a marker at 0
    assert min(tick for tick in axes.get_yticks() if tick >= bottom) == 0
    assert "%" in axes.yaxis.get_major_formatter()(0.5)
