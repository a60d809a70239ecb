"""A new task, as somebody would write one: a class, registered here, that every command works with."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import pytest
import torch

from flexmdm.canvas import Template
from flexmdm.sequences import Ragged
from flexmdm.settings import setting
from flexmdm.tasks import registry
from flexmdm.tasks.layouts import layout_of
from flexmdm.tasks.pipeline import Answer, Pipeline, texts_of
from flexmdm.tasks.settings import Stored

TINY = ["--hidden", 16, "--layers", 1, "--heads", 2, "--batch-size", 8, "--steps", 3, "--device", "cpu"]


@dataclass(frozen=True)
class DigitsTask(Stored):
    """Rising digits, such as 3456; an MDM has PAD behind them."""

    nouns: ClassVar[str] = "digits"
    previews: ClassVar[bool] = True

    model: str = "flexmdm"
    longest: int = setting(6, help="Most digits in a row.")
    name: str = setting("digits", init=False)

    max_length = width = property(lambda self: self.longest)
    layout = property(lambda self: layout_of(self.model, self.longest, self.longest, pad=10))
    vocab_size = property(lambda self: self.layout.vocabulary(10))

    @cached_property
    def train(self):
        return Digits(self, 64)

    @cached_property
    def validation(self):
        return Digits(self, 16)

    def settled(self, console=None):
        return self

    def check_base(self, base, vocab_size=None):
        """Any will do."""

    def save(self, folder):
        """There is nothing to save."""

    def show(self, tokens):
        return "".join("·" if token is None else str(token) for token in tokens if token != 10)

    def pipeline(self, model):
        return DigitsPipeline(self, model)


@dataclass(frozen=True, eq=False)
class Digits:
    task: DigitsTask
    num: int

    def __len__(self):
        return self.num

    def _rows(self, index):
        rows = [[(start + more) % 10 for more in range(1 + start % self.task.longest)] for start in index.tolist()]
        return Ragged.from_lists(rows)

    def take(self, index, numbers):
        x1 = self._rows(index)
        return self.task.layout.example(x1, Template.free(x1))

    def some(self, num, seed=0):
        return torch.arange(self.num)[:num]

    def to_find(self, index):
        lengths = self._rows(index).lengths
        return *self.take(index, index), lengths, lengths


@dataclass(frozen=True)
class DigitsPipeline(Pipeline):
    task_name: ClassVar[str] = "digits"
    uses: ClassVar[str] = "flexmdm sample RUN, flexmdm infill RUN 3_5"

    def sample(self, num=1, *, full=False, **options):
        return texts_of(self.answers([("",)], num, **options), one=False, full=full)

    def infill(self, text, num=1, *, full=False, gap_marker="_", **options):
        pairs = [tuple(one.split(gap_marker)) for one in ([text] if isinstance(text, str) else text)]
        return texts_of(self.answers(pairs, num, **options), isinstance(text, str), full)

    def encode(self, request: Sequence[str]) -> list[list[int]]:
        return [[int(digit) for digit in piece] for piece in request]

    def prompt(self, tokens: list[list[int]], **settings: Any):
        return self.task.layout.between([*tokens, []] if len(tokens) == 1 else tokens)

    def decode(self, request, tokens, prompt, one):
        text = self.task.show(self.task.layout.clean(one.sequence))
        gap = text[len(request[0]) : len(text) - len(request[-1])] if any(request) else text
        return Answer(text, (gap,), tuple(one.sequence), one.evaluations, one.hit_max_length, prompt, one.events)


@pytest.fixture(autouse=True, scope="module")
def registered():
    before = dict(registry._TASKS)
    registry.register("digits", DigitsTask)
    yield
    registry._TASKS.clear()
    registry._TASKS.update(before)


@pytest.fixture(scope="module")
def run(trained):
    return trained("digits", "train", "--task", "digits", "--longest", 5, *TINY)


def test_it_trains_with_an_option_of_its_own(run):
    stored = json.loads((run / "run.json").read_text())
    assert stored["task"] == {"model": "flexmdm", "longest": 5, "name": "digits"}
    assert (run / "samples.txt").read_text().count("--- step 3") == 2 and (run / "loss.png").is_file()


def test_its_option_is_in_the_help_and_for_no_other_task(command, run, tmp_path):
    assert "digits: Most digits in a row." in " ".join(command("train", "--help")[0].replace("│", " ").split())
    _, err, code = command("train", "--task", "digits", "--pairs", 3, "--out", tmp_path / "x")
    assert code == 2 and "--pairs is for --task maze, and this is digits: leave it out" in err


def test_it_goes_on(run, command):
    _, err, code = command("train", "--out", run, "--resume", "--steps", 4, "--device", "cpu")
    assert code == 0 and "going on from step 3" in err, err


def test_it_samples_and_infills(run, command, tmp_path):
    file = tmp_path / "out.json"
    out, err, code = command("sample", run, "--num", 3, "--steps", 4, "--watch", "--json", file)
    assert code == 0 and len(json.loads(file.read_text())) == 3 and "clock" in out, err
    out, err, code = command("infill", run, "3_5", "--num", 2, "--steps", 4, "--json", file)
    rows = json.loads(file.read_text())
    assert code == 0 and [row["text"] for row in rows] == out.split() and {row["prompt"] for row in rows} == {"3_5"}
    assert all(row["text"] == f"3{row['gaps'][0]}5" for row in rows)


def test_it_is_evaluated_by_the_likelihood_of_what_was_held_out(run, command, tmp_path):
    file = tmp_path / "out.json"
    out, err, code = command("eval", run, "--likelihoods", 8, "--json", file)
    assert code == 0 and "bits per token, by the likelihood of 8 held-out sequences" in out, err
    row = json.loads(file.read_text())
    assert row["run"] == str(run) and row["bits_per_token"] > 0 and row["likelihood_num"] == 8
    _, err, code = command("eval", run, "--steps", 4, "--sampler", "tau")
    assert code == 2 and "--steps, --sampler: a run on digits is measured by the likelihood" in err


def test_its_baseline_trains_too(trained, command):
    mdm = trained("mdm", "train", "--task", "digits", "--model", "mdm", *TINY)
    out, err, code = command("sample", mdm, "--steps", 4)
    assert code == 0 and all(digit in "0123456789" for digit in out.strip()), err


def test_what_it_cannot_do_is_said(run, command):
    _, err, code = command("complete", run, "34")
    assert code == 2 and "a run on digits does not go on behind a text: flexmdm sample RUN" in err
    _, err, code = command("sample", run, "--through", "1,1", "2,2")
    assert code == 2 and "--through is for runs on maze, and" in err
