"""Functions as examples: the same cuts for both models, token for token what generation starts from."""

import io

import pytest
import torch
from rich.console import Console

from flexmdm.canvas import Role
from flexmdm.tasks.code.cutting import Cutting
from flexmdm.tasks.code.task import CodeTask
from flexmdm.tasks.pipeline import Generated
from flexmdm.tasks.registry import task_of


def middle_of(pipeline, sides, sequence):
    """The tokens that are read out of a generated sequence."""
    return list(pipeline.decode(("", ""), sides, None, Generated(0, sequence, [], 1, False, ())).tokens)


def examples(task):
    """(tokens, roles, open gaps) of every training function."""
    index = torch.arange(len(task.train))
    x1, template = task.train.take(index, index)
    return list(zip(x1.tolist(), template.roles.tolist(), template.open_gaps.tolist(), strict=True))


@pytest.mark.parametrize("tokenizer", ["bpe", "bytes"])
def test_examples_are_what_generation_starts_from_with_the_middle_put_in(make_task, tokenizer):
    flexmdm, mdm = (make_task(model, tokenizer, mixture={"line": 1, "lines": 1}) for model in ("flexmdm", "mdm"))
    growing, padded = flexmdm.pipeline(None), mdm.pipeline(None)
    index = torch.arange(len(flexmdm.train))
    triples = flexmdm.train.triples(index, index)
    assert triples == mdm.train.triples(index, index) and len(triples) > 20
    for (prefix, middle, suffix), in_place, behind in zip(triples, examples(flexmdm), examples(mdm), strict=True):
        sides = growing.encode((prefix, suffix))
        if flexmdm.text.decode(sides[0]) != prefix or flexmdm.text.decode(sides[1]) != suffix:
            continue  # shortened
        found = [token for token, role in zip(*in_place[:2], strict=True) if role == Role.FREE]
        assert flexmdm.text.decode(found) == middle
        prompt = growing.prompt(sides)
        assert list(prompt.tokens) == [t for t, role in zip(*in_place[:2], strict=True) if role == Role.FIXED]
        assert list(prompt.open_gaps) == in_place[2]
        assert middle_of(growing, sides, in_place[0]) == found
        prompt = padded.prompt(sides)
        assert list(prompt.tokens) == [
            token if role == Role.FIXED else None for token, role in zip(*behind[:2], strict=True)
        ]
        masks = prompt.tokens.count(None)
        assert behind[0][-masks:] == found + [mdm.pad] * (masks - len(found))
        assert set(behind[1]) == {Role.FIXED, Role.PRESENT} and not any(behind[2] + list(prompt.open_gaps))
        assert middle_of(padded, sides, behind[0]) == found


def test_special_tokens_are_behind_those_of_the_tokenizer(make_task):
    flexmdm, mdm = make_task(), make_task("mdm")
    size = flexmdm.text.size
    assert (flexmdm.vocab_size, mdm.vocab_size) == (size + 1, size + 4)
    assert flexmdm.never_found == (size,) and mdm.never_found == (size, size + 1, size + 2) and mdm.pad == size + 3
    ids = flexmdm.text.encode(["[SEP] [PRE] [SUF] [PAD] <|endoftext|>"])[0]
    assert max(ids) < size
    assert mdm.clean([0, *range(size, size + 4), 1]) == [0, 1] and mdm.show([size, None, size + 3]) == "·"


def test_a_function_is_cut_anew_each_time_and_the_same_for_the_same_number(make_task):
    task = make_task()
    index = torch.ones(20, dtype=torch.int64)
    triples = task.train.triples(index, torch.arange(20))
    assert len(set(triples)) > 5 and len({"".join(three) for three in triples}) == 1
    assert task.train.triples(index[:1], torch.tensor([7])) == triples[7:8]
    short = Cutting(0, 0, 1, most_tokens=8, inside=0)
    assert max(len(middle) for _, middle, _ in task.train.cut(index, torch.arange(20), short)) <= 8


def test_modules_are_held_out_as_a_whole_and_functions_taken_once(make_task, programs):
    (programs / "module99.py").write_text((programs / "module00.py").read_text())
    console = Console(file=io.StringIO(), width=100)
    task = CodeTask((str(programs),), max_length=200, held_out=0.25).settled(console)
    counts = task.prepared.counts
    assert counts["documents"] == 50 and counts["duplicates"] == 2 and counts["sequences"] == 48
    assert "50 functions" in console.file.getvalue() and "2 functions left out" in console.file.getvalue()
    assert len(task.validation) % 2 == 0  # both functions of a module


@pytest.mark.parametrize("long", ["split", "drop"])
def test_long_functions_are_split_between_lines_or_dropped(make_task, programs, long):
    (programs / "long.py").write_text("def f():\n" + "".join(f"    x = {n}\n" for n in range(200)))
    task = make_task(long=long, max_length=120, mixture={"line": 1})
    assert task.prepared.counts["split" if long == "split" else "dropped"] >= 1
    assert task.width <= 120
    index = torch.arange(len(task.train))
    for prefix, middle, suffix in task.train.triples(index, index):
        assert (prefix + middle + suffix).endswith("\n") and middle.endswith("\n")


def test_what_is_farthest_from_the_gap_is_left_out(make_task):
    task = make_task(max_length=100)
    pipeline, most = task.pipeline(None), task.width - 3
    before, after = "".join(f"x{n} = 1\n" for n in range(300)), "".join(f"y{n} = 2\n" for n in range(300))
    for prefix, suffix in ((before, after), (before, ""), ("", after), ("a" * 3000, "b" * 2000), (before, "y\n")):
        sides = pipeline.encode((prefix, suffix))
        left, right = map(task.text.decode, sides)
        assert prefix.endswith(left) and suffix.startswith(right) and bool(left) == bool(prefix)
        used = sum(map(len, sides))
        assert most // 2 < used <= most * 7 / 8
        pipeline.prompt(sides)
    with pytest.raises(ValueError, match="prefix and suffix leave no room for a middle: they have 97 tokens"):
        pipeline.prompt(([0] * 50, [0] * 47))


def test_a_run_can_be_loaded_again(make_task, tmp_path):
    task = make_task(mixture={"span": 2})
    task.save(tmp_path / "run")
    again = task_of(task.to_dict(), tmp_path / "run")
    assert again.to_dict() == task.to_dict() and examples(again) == examples(task)
    assert task.mixture == {"line": 0.0, "lines": 0.0, "span": 2.0}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mixture": {"words": 1}}, "a mixture has the weights line, lines, span; got words"),
        ({"mixture": {"line": 0}}, "not all 0"),
        ({"max_length": 3}, "no room for a function"),
        ({"max_length": 6}, "48 longer than 3 tokens"),
        ({"model": "ar"}, "flexmdm or mdm"),
    ],
)
def test_bad_settings_are_refused(make_task, settings, message):
    with pytest.raises(ValueError, match=message):
        make_task(**settings)


def test_a_tokenizer_that_loses_blanks_is_refused(make_task, tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "def": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match="does not give a program back as it was"):
        make_task(tokenizer=str(tmp_path / "tokenizer.json"))
