"""The text task: corpora in equal parts, and which runs can be compared."""

import pytest
import torch

from flexmdm.canvas import Role
from flexmdm.data import TextTokenizer
from flexmdm.tasks.text.task import TextTask


def test_balanced_corpora_are_seen_equally_often(tmp_path, monkeypatch):
    monkeypatch.setenv("FLEXMDM_CACHE", str(tmp_path / "cache"))
    TextTokenizer.train("characters", ["ab"]).save(tmp_path / "tokenizer")
    for letter, count in (("a", 10), ("b", 300)):
        (tmp_path / f"{letter}.txt").write_text("".join(f"{letter * (n % 5 + 1)}\n" for n in range(count)))
    data = (str(tmp_path / "a.txt"), str(tmp_path / "b.txt"))
    task = TextTask(data, tokenizer=str(tmp_path / "tokenizer"), held_out=0.2, balanced=True).settled()
    x1, _ = task.train.take(torch.arange(len(task.train)), torch.arange(len(task.train)))
    firsts = torch.tensor([row[0] for row in x1.tolist()])
    assert int((firsts == 0).sum()) == int((firsts == 1).sum()) == len(task.train) // 2
    assert torch.equal(x1.lengths, task.train.store.lengths)
    again = TextTask.from_dict(task.to_dict())
    assert len(again.validation) == len(task.validation) and again.vocab_size == 2


def test_balanced_corpora_need_one_tokenizer(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"{name}\n" * 9)
    task = TextTask((str(tmp_path / "a.txt"), str(tmp_path / "b.txt")), balanced=True)
    with pytest.raises(ValueError, match="one tokenizer for all"):
        task.settled()


def test_runs_with_other_held_out_data_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.setenv("FLEXMDM_CACHE", str(tmp_path / "cache"))
    for name, text in (("train", "ab\nba\n"), ("one", "a\n"), ("other", "b\n")):
        (tmp_path / f"{name}.txt").write_text(text * 20)
    tasks = [
        TextTask(
            (str(tmp_path / "train.txt"),), model, tokenizer="bytes", held_out_data=(str(tmp_path / name),)
        ).settled()
        for model, name in (("flexmdm", "one.txt"), ("mdm", "one.txt"), ("mdm", "other.txt"))
    ]
    assert tasks[0].compared_on == tasks[1].compared_on != tasks[2].compared_on


def test_data_in_another_order_is_noticed_by_what_is_held_out(tmp_path, monkeypatch):
    """The first and the last lines stay; in the middle, lines of the same length change places."""
    monkeypatch.setenv("FLEXMDM_CACHE", str(tmp_path / "cache"))
    file, lines = tmp_path / "lines.txt", [f"{number:05}" for number in range(4000)]
    file.write_text("\n".join(lines))
    stored = TextTask((str(file),), tokenizer="bytes").settled().to_dict()
    of_earlier_version = {**stored, "contents": stored["contents"].partition("-")[0]}
    for contents in (stored, of_earlier_version):
        assert TextTask.from_dict(contents).settled().to_dict() == contents
        assert len(TextTask.from_dict(contents).validation) > 100
    file.write_text("\n".join([*lines[:1500], *reversed(lines[1500:2500]), *lines[2500:]]))
    with pytest.raises(ValueError, match="the data is not what this run was trained on"):
        assert TextTask.from_dict(stored).validation
    assert len(TextTask.from_dict(of_earlier_version).validation) > 100  # knows no better


def test_datasets_in_folders_of_the_same_name_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.setenv("FLEXMDM_CACHE", str(tmp_path / "cache"))
    tasks = []
    for letter in "ab":
        folder = tmp_path / letter / "corpus"
        folder.mkdir(parents=True)
        (folder / "train.jsonl").write_text(f'{{"text": "{letter}"}}\n' * 40)
        monkeypatch.chdir(folder.parent)
        tasks.append(TextTask(("hf:./corpus",), tokenizer="bytes").settled())
    monkeypatch.chdir(tmp_path)
    for letter, task in zip("ab", tasks, strict=True):
        again = TextTask.from_dict(task.to_dict())
        assert again.data == (f"hf:{tmp_path / letter / 'corpus'}",)
        assert again.text.decode(again.prepared.train.take(torch.tensor([0])).tolist()[0]) == letter


# Marked regions -------------------------------------------------------------------------------------------------------


def chains(path, num=40):
    """A table of sequences whose first region is some a, and the second some b."""
    rows = [("a" * (n % 4), "b" * (1 + n % 3)) for n in range(num)]
    lines = [f"c{a}cc{b}c,1,{1 + len(a)},{3 + len(a)},{3 + len(a) + len(b)}" for a, b in rows]
    path.write_text("\n".join(["text,x_start,x_end,y_start,y_end", *lines]))
    return str(path)


def test_marked_regions_are_the_gaps_of_the_examples(tmp_path, monkeypatch):
    monkeypatch.setenv("FLEXMDM_CACHE", str(tmp_path / "cache"))
    settings = {"tokenizer": "characters", "long": "drop", "regions": ("x", "y"), "mixture": {"regions": 1.0}}
    task = TextTask((chains(tmp_path / "chains.csv"),), held_out=0.2, **settings).settled()
    index = torch.arange(len(task.train))
    x1, template = task.train.take(index, index)
    for tokens, roles in zip(x1.tolist(), template.roles.tolist(), strict=True):
        free = {letter for letter, role in zip(task.text.decode(tokens), roles, strict=True) if role == Role.FREE}
        kept = {letter for letter, role in zip(task.text.decode(tokens), roles, strict=True) if role == Role.FIXED}
        assert free <= {"a", "b"} and not free & kept and "c" in kept
    assert TextTask.from_dict(task.to_dict()).regions == ("x", "y")


def test_regions_have_half_of_the_weight_unless_somebody_says_more():
    assert TextTask(("one",), regions=("x",), long="drop").mixture["regions"] == 0.5
    assert "regions" not in TextTask(("one",)).mixture
    with pytest.raises(ValueError, match="unconditional, prefix, spans, known_length; got regions"):
        TextTask(("one",), mixture={"regions": 1.0})


def test_texts_with_regions_stay_whole(tmp_path, monkeypatch):
    monkeypatch.setenv("FLEXMDM_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ValueError, match="--long drop"):
        TextTask(("one",), regions=("x",))
    task = TextTask(
        (chains(tmp_path / "chains.csv"),), regions=("x", "y"), long="drop", tokenizer="bpe", vocabulary=270
    )
    with pytest.raises(ValueError, match="--tokenizer characters"):
        task.settled()
