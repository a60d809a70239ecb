import io
import math

import pytest
from rich.console import Console

from flexmdm.tasks.code.pipeline import CodePipeline
from flexmdm.tasks.pipeline import generated
from flexmdm.tasks.previews import Preview

PAIRS = [("def f(x):\n", "    return y\n"), ("", "\n"), ("def é(", "):\n    return '😀'\n"), ("    x = ", ""), ("", "")]
SAMPLERS = [{}, {"sampler": "adaptive", "confidence": "top_prob", "temperature": 0.0}]


@pytest.mark.parametrize("options", SAMPLERS, ids=["default", "paper"])
@pytest.mark.parametrize("model", ["flexmdm", "mdm"])
def test_prefix_suffix_and_separators_survive_and_no_special_token_is_found(make_pipeline, model, options):
    """An untrained model gives every token about the same chance; 8 middles for each of 5 pairs."""
    pipeline = make_pipeline(model)
    task = pipeline.task
    sides = [pipeline.encode(pair) for pair in PAIRS]
    prompts = [pipeline.prompt(side) for side in sides]
    lengths = set()
    for one in generated(task, pipeline.model, prompts, 8, steps=4, **options):
        side = sides[one.prompt]
        middle = list(pipeline.decode(PAIRS[one.prompt], side, prompts[one.prompt], one).tokens)
        ahead, behind = task.around(*side)
        if model == "flexmdm":
            assert one.sequence == ahead + middle + behind
        else:
            assert one.sequence[: len(ahead) + len(middle)] == ahead + middle
            assert len(one.sequence) == task.width
            assert set(one.sequence[len(ahead) :]).isdisjoint(task.never_found)
        assert all(token < task.text.size for token in middle)
        lengths.add(len(middle))
    assert len(lengths) > 1 or options


@pytest.mark.parametrize("model", ["flexmdm", "mdm"])
def test_strings_in_strings_out(make_pipeline, model):
    pipeline = make_pipeline(model)
    filled = pipeline.fill(PAIRS, steps=4)
    assert len(filled) == len(PAIRS)
    for one, (prefix, suffix) in zip(filled, PAIRS, strict=True):
        assert one.text == pipeline.task.text.decode(one.tokens) and one.evaluations >= 1
        assert one.context == sum(map(len, pipeline.encode((prefix, suffix))))
    assert pipeline.fill([], steps=4) == [] and len(pipeline.fill(PAIRS[:1], num=3, steps=4)) == 3
    assert pipeline.fill(PAIRS, steps=4, batch_size=2) == filled


def test_a_text_without_room_is_shortened(make_pipeline):
    pipeline = make_pipeline()
    (filled,) = pipeline.fill([("x = 1\n" * 500, "y = 2\n" * 500)], steps=4)
    assert filled.context <= pipeline.task.width * 7 / 8


@pytest.mark.parametrize("model", ["flexmdm", "mdm"])
def test_a_preview_shows_middles_and_measures_held_out_ones(make_pipeline, tmp_path, model):
    pipeline = make_pipeline(model)
    figures = Preview(pipeline.task, tmp_path, Console(file=io.StringIO()))(pipeline.model, 7)
    assert {"eval_bits_per_token", "eval_bits_per_character"} <= set(figures)
    assert all(math.isfinite(value) and value > 0 for value in figures.values())
    shown = (tmp_path / "samples.txt").read_text()
    assert shown.count("--- step 7") == shown.count("⟦") == 2


def test_a_run_of_another_task_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is not a run"):
        CodePipeline.from_pretrained(tmp_path)
