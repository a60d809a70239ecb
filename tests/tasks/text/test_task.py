"""The text task: corpora in equal parts, and which runs can be compared."""

import pytest
import torch

from flexmdm.data import TextTokenizer
from flexmdm.tasks.text import TextTask


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
