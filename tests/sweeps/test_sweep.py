"""Sweeps with stand-ins for pipelines: what they write depends on the item's number, the seed and the steps alone."""

import json
import random
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from flexmdm.canvas import Prompt
from flexmdm.data.tokenizers import Unanswerable
from flexmdm.evaluation.intervals import Interval
from flexmdm.generation.defaults import DEFAULTS, Defaults
from flexmdm.reports.benchmarks import draw, table_of
from flexmdm.sweeps.sweep import (
    Entrant,
    Refused,
    Scored,
    differences,
    fingerprint,
    options_of,
    split_of,
    sweep,
    written,
)
from flexmdm.tasks.pipeline import Answer


def answer(text, evaluations, **more):
    return Answer(text, (text,), (), evaluations, False, Prompt.empty(), **more)


class Pipeline:
    """Refuses items with an x in them, and stops after so many calls."""

    def __init__(self, skill=0.5, calls=1000):
        self.skill, self.calls, self.asked = skill, calls, []

    def __call__(self, items, *, seed, first_sequence, callback, steps, **options):
        self.calls -= 1
        if self.calls < 0:
            raise KeyboardInterrupt
        if any("x" in item for item in items):
            raise Unanswerable("there is no room for an x")
        self.asked += items
        numbers = range(first_sequence, first_sequence + len(items))
        draws = [random.Random(f"{seed} {number} {steps}").random() for number in numbers]
        return [answer("right" if draw < self.skill else f"wrong {draw}", steps) for draw in draws]


@dataclass(frozen=True)
class Words:
    items: tuple[str, ...] = tuple(f"item {number}" for number in range(20))
    name: str = "words"
    title: str = "Words"
    measure: str = "accuracy"
    groups: tuple[str, ...] | None = None
    defaults: Defaults = field(default_factory=lambda: DEFAULTS["gsm8k"])

    def line(self, number, answer):
        return {"item": self.items[number], "text": answer.text}

    def score(self, lines, file):
        right = [line["text"] == "right" for line in lines]
        return Scored(Interval(sum(right) / len(right), 0.0, 1.0), right, {"lines": len(lines)})


@pytest.fixture
def console():
    return Console(record=True, width=120)


def run(pipeline, name="mine", model="flexmdm", weights="w"):
    return Entrant(name, model, model == "flexmdm", weights, pipeline)


def lines(folder, name="mine-4.jsonl"):
    rows = [json.loads(line) for line in (folder / name).read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


@pytest.mark.parametrize("calls", [0, 1, 2, 3])
def test_an_interrupted_sweep_gives_what_an_uninterrupted_one_gives(tmp_path, console, calls):
    """20 items in batches of 6: four batches, interrupted after 0 to 3 of them."""
    whole, first, second = Pipeline(), Pipeline(calls=calls), Pipeline()
    (expected,) = sweep(Words(), [run(whole)], [4], folder=tmp_path / "whole", batch_size=6, console=console)
    with pytest.raises(KeyboardInterrupt) as stopped:
        sweep(Words(), [run(first)], [4], folder=tmp_path / "cut", batch_size=6, console=console)
    assert str(stopped.value) == (
        f"mine, 4 steps: {6 * calls} of 20 items are kept in {tmp_path / 'cut'}"
        + ("" if calls else " (6 are written down at a time: --batch-size)")
        + "; the same command goes on"
    )
    (point,) = sweep(Words(), [run(second)], [4], folder=tmp_path / "cut", batch_size=6, console=console)
    assert lines(tmp_path / "cut") == lines(tmp_path / "whole") and point.right == expected.right
    assert first.asked + second.asked == list(Words().items) and len(first.asked) == 6 * calls
    assert not calls or f"mine, 4 steps: {6 * calls} of 20 were there already" in console.export_text()


def test_an_interrupted_sweep_without_a_folder_says_that_nothing_is_kept():
    with pytest.raises(KeyboardInterrupt, match="nothing is kept without --json"):
        sweep(Words(), [run(Pipeline(calls=1))], [4], batch_size=6)


def test_items_in_batches_of_any_size_are_the_same(tmp_path):
    for size in (1, 7, 20):
        sweep(Words(), [run(Pipeline())], [4], folder=tmp_path / str(size), batch_size=size)
    assert lines(tmp_path / "1") == lines(tmp_path / "7") == lines(tmp_path / "20")


def test_more_and_fewer_items_reuse_what_is_there(tmp_path):
    sweep(Words(), [run(Pipeline())], [4], num=8, folder=tmp_path)
    more = Pipeline()
    (all_of_them,) = sweep(Words(), [run(more)], [4], folder=tmp_path)
    assert more.asked == list(Words().items[8:]) and all_of_them.num == 20
    none = Pipeline(calls=0)
    (few,) = sweep(Words(), [run(none)], [4], num=5, folder=tmp_path)
    assert few.num == 5 and few.right == all_of_them.right[:5] and few.figures == {"lines": 5}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 1}, "seed"),
        ({"temperature": 0.5}, "temperature"),
        ({"window": (2.0, 8)}, "window"),
        ({"sampler": "tau"}, "sampler, confidence, window"),
        ({"weights": "others"}, "weights"),
        ({"items": ("other", "items")}, "problems"),
    ],
)
def test_a_changed_option_begins_anew_and_says_so(tmp_path, console, changes, named):
    sweep(Words(), [run(Pipeline())], [4], folder=tmp_path)
    before = lines(tmp_path)
    again = Pipeline()
    words = Words(changes.pop("items", Words().items))
    sweep(words, [run(again, weights=changes.pop("weights", "w"))], [4], folder=tmp_path, console=console, **changes)
    assert again.asked == list(words.items) == [row["item"] for row in lines(tmp_path)]
    moved = tmp_path / "mine-4.1.jsonl"
    said = f"mine, 4 steps: begun anew, as these have changed: {named}; what was there is now in {moved}\n"
    assert said in console.export_text() and lines(tmp_path, moved.name) == before


def test_another_number_of_steps_leaves_the_others_alone(tmp_path, console):
    sweep(Words(), [run(Pipeline())], [4], folder=tmp_path)
    again = Pipeline()
    points = sweep(Words(), [run(again)], [4, 8], folder=tmp_path, console=console)
    assert len(again.asked) == 20 and [point.steps for point in points] == [4, 8]
    assert [point.evaluations for point in points] == [4, 8] and points[1].items == tmp_path / "mine-8.jsonl"


def test_items_that_are_refused_count_as_wrong_and_change_no_others(tmp_path):
    items = [f"item {number}" for number in range(20)]
    items[3] = items[4] = items[13] = "x"
    (point,) = sweep(Words(tuple(items)), [run(Pipeline(1.0))], [4], folder=tmp_path)
    assert point.refused == 3 and [number for number, right in enumerate(point.right) if not right] == [3, 4, 13]
    assert point.evaluations == 4 and lines(tmp_path)[3]["refused"] == "there is no room for an x"
    sweep(Words(), [run(Pipeline())], [4], folder=tmp_path / "plain")
    sweep(Words(tuple(items)), [run(Pipeline())], [4], folder=tmp_path / "some")
    for mine, other in zip(lines(tmp_path / "plain"), lines(tmp_path / "some"), strict=True):
        assert "refused" in other or mine == other
    with pytest.raises(ValueError, match="mine could take none of the 2 items; the first: there is no room for an x"):
        sweep(Words(("x", "x")), [run(Pipeline())], [4])


def test_the_progress_of_halves_adds_up():
    seen = []

    def write(items, first_sequence, callback):
        if "x" in items:
            raise Unanswerable("x")
        callback(len(items), None)
        return [answer(f"{first_sequence + row}", 1) for row in range(len(items))]

    found = written(write, ["a", "b", "x", "c", "d"], 10, lambda done, _: seen.append(done))
    assert [one.text for one in found] == ["10", "11", "", "13", "14"] and isinstance(found[2], Refused)
    assert seen == [12, 15]


@pytest.mark.parametrize("error", [ValueError("operands could not be broadcast"), IndexError("out of range")])
def test_an_error_of_ours_is_not_scored_as_a_refusal(error, tmp_path):
    """Items 0 to 5 are answered; the pipeline breaks on the second batch, and nothing of it is written down."""

    def write(items, **options):
        if "item 8" in items:
            raise error
        return [answer("right", 1) for _ in items]

    with pytest.raises(type(error), match=str(error)):
        sweep(Words(), [run(write)], [4], folder=tmp_path, batch_size=6)
    assert len(lines(tmp_path)) == 6


@pytest.fixture
def long_winded():
    """Every second item was shortened, and every fourth text wanted to grow beyond the longest."""

    class Long(Pipeline):
        def __call__(self, items, **options):
            texts = super().__call__(items, **options)
            numbers = [int(item.split()[1]) for item in items]
            return [
                replace(one, around=number % 2 == 0, hit_max_length=number % 4 == 0)
                for number, one in zip(numbers, texts, strict=True)
            ]

    return run(Long())


def test_items_that_were_shortened_are_counted_and_said(long_winded, tmp_path, console):
    points = sweep(Words(), [long_winded, run(Pipeline(), "whole")], [4], folder=tmp_path)
    assert [point.to_dict("accuracy")["shortened"] for point in points] == [10, 0]
    assert [row["shortened"] for row in lines(tmp_path)] == [True, False] * 10
    console.print(table_of(points, Words()))
    shown = " ".join(console.export_text().split())
    assert "saw only a part, as it was trained on shorter ones (--max-length): 10 of 20 (mine, 4 steps)" in shown
    assert "texts that wanted to grow beyond the longest: 5 of 20 (mine, 4 steps)" in shown
    console.print(table_of(points[1:], Words()))
    assert "only a part" not in console.export_text()


def test_lines_from_before_items_were_counted_as_shortened_are_still_read(long_winded, tmp_path, console):
    (point,) = sweep(Words(), [long_winded], [4], 10, folder=tmp_path)
    rows = [json.loads(line) for line in point.items.read_text().splitlines()]
    old = [{key: value for key, value in row.items() if key != "shortened"} for row in rows]
    point.items.write_text("".join(json.dumps(row) + "\n" for row in old))
    (again,) = sweep(Words(), [long_winded], [4], folder=tmp_path)
    assert again.right[:10] == point.right and again.num == 20
    assert again.shortened is None and again.to_dict("accuracy")["shortened"] is None  # of the first ten, who knows
    console.print(table_of([again], Words()))
    assert "only a part" not in console.export_text()


# Options --------------------------------------------------------------------------------------------------------------


def test_defaults_are_those_of_the_paper():
    chosen = options_of([run(None, "a"), run(None, "b", "mdm")], DEFAULTS["gsm8k"], {})
    assert chosen == {
        "a": {"sampler": "adaptive", "temperature": 0.0, "confidence": "top_prob", "window": (5.0, 64)},
        "b": {"sampler": "low_confidence", "temperature": 0.0, "block": 32},
    }
    (tau,) = options_of([run(None)], DEFAULTS["gsm8k"], {"sampler": "tau", "temperature": 1.0}).values()
    assert tau == {"sampler": "tau", "temperature": 1.0}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sampler": "best"}, "unknown sampler 'best'"),
        ({"sampler": "low_confidence"}, "low_confidence is a sampler for MDM, and mine is a FlexMDM"),
        ({"sampler": "tau", "window": (5.0, 64)}, "the sampler tau has no window"),
        ({"block": 8}, "the sampler adaptive has no block"),
        ({"confidence": "high"}, "unknown confidence 'high'"),
        ({"window": (0.0, 1)}, "window must be"),
        ({"temperature": -1.0}, "temperature must be"),
        ({"top_p": 2.0}, "top_p must lie"),
    ],
)
def test_bad_options_are_refused_before_anything_is_generated(given, message):
    pipeline = Pipeline()
    with pytest.raises(ValueError, match=message):
        sweep(Words(), [run(pipeline)], [4], **given)
    assert pipeline.asked == []


def test_steps_must_be_at_least_one():
    with pytest.raises(ValueError, match="steps must be at least 1"):
        sweep(Words(), [run(Pipeline())], [0])


# Showing --------------------------------------------------------------------------------------------------------------


def test_two_runs_are_compared_item_by_item_in_a_table_and_a_figure(tmp_path, console):
    runs = [run(Pipeline(0.3), "weak/run", "mdm"), run(Pipeline(0.9), "strong")]
    points = sweep(Words(), runs, [4, 16], folder=tmp_path)
    (mine, base, difference), (_, _, second) = differences(points)
    assert (mine.run, base.run, mine.steps, base.steps) == ("strong", "weak/run", 4, 4)
    assert difference.value == pytest.approx(mine.measured.value - base.measured.value)
    assert difference.low > 0 and second.low > 0 and (tmp_path / "weak_run-4.jsonl").exists()
    console.print(table_of(points, Words()))
    shown = console.export_text()
    assert "Words: 20 items" in shown and "low_confidence 16" in shown and "refused" not in shown
    draw(points, Words(), tmp_path / "figures" / "words.svg")
    assert "strong" in (tmp_path / "figures" / "words.svg").read_text()


def test_items_of_a_group_tell_less_in_a_difference():
    """20 items: all of the first five groups of two are right for one run alone, then as many for the other alone."""
    groups = tuple(f"group {number // 2}" for number in range(20))
    pair = run(lambda items, **_: texts(items, range(12))), run(lambda items, **_: texts(items, range(10, 20)), "other")

    def texts(items, right):
        return [answer("right" if int(item.split()[1]) in right else "wrong", 1) for item in items]

    ((_, _, alone),) = differences(sweep(Words(), pair, [4]))
    ((_, _, grouped),) = differences(sweep(Words(groups=groups), pair, [4]))
    assert grouped.value == alone.value and grouped.low < alone.low - 0.05 and grouped.high > alone.high + 0.05
    few = sweep(Words(groups=groups), pair, [4], num=5)  # has the groups of these alone
    assert len(few[0].groups) == 5 and next(differences(few))


@pytest.mark.parametrize(
    ("data", "given", "split"),
    [
        (".", None, "first"),
        (".", "second", "second"),
        ("words-2.jsonl", None, "second"),
        ("words-2.jsonl.gz", "second", "second"),
        ("mine.jsonl", None, "mine.jsonl"),
    ],
)
def test_the_split_of_a_file_is_what_its_name_says(data, given, split):
    assert split_of(Path(data), given, "first", {"first": "words-1", "second": "words-2"}) == split


@pytest.mark.parametrize(("data", "is_one"), [("words-2.jsonl", "second"), ("mine.jsonl", "mine.jsonl")])
def test_a_file_that_is_another_split_is_refused(data, is_one):
    message = rf"--split first does not fit --data {data}, which is one file \({is_one}\): leave --split out"
    with pytest.raises(ValueError, match=message):
        split_of(Path(data), "first", "first", {"first": "words-1", "second": "words-2"})


def test_samplers_of_one_run_are_curves_of_their_own(tmp_path):
    points = [
        point for sampler in ("tau", "spaced") for point in sweep(Words(), [run(Pipeline())], [4, 16], sampler=sampler)
    ]
    draw(points, Words(), tmp_path / "words.svg")
    shown = (tmp_path / "words.svg").read_text()
    assert "<!-- mine, tau -->" in shown and "<!-- mine, spaced -->" in shown


def test_the_table_counts_what_was_not_answered(console):
    (point,) = sweep(Words(), [run(Pipeline())], [4])
    console.print(table_of([replace(point, figures={"unanswered": 17})], Words()))
    shown = console.export_text()
    assert "no answer" in shown and "│        17 │" in shown and "no answer: texts without one" in shown
    console.print(table_of([point], Words()))
    assert "no answer" not in console.export_text()


def test_a_fingerprint_tells_weights_apart():
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    before = fingerprint(model)
    assert fingerprint(model) == before
    with torch.no_grad():
        model.weight[1, 2] += 1
    assert fingerprint(model) != before
