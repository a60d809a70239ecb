import pytest

from flexmdm import FlexMDMConfig, FlexMDMModel
from flexmdm.tasks.text.pipeline import TextPipeline
from flexmdm.tasks.text.task import TextTask

LINES = [
    "The cat sat on the mat.", "A dog ran to the tree!", "Où est le café?", "naïve façade, 漢字 and 😀 emoji",
    "one two three four five", "the end of the day", "She said: 'no'.", "12 + 30 = 42", "tab\tand space", "é",
]  # fmt: skip


@pytest.fixture
def lines(tmp_path, monkeypatch):
    """A small file of lines, and a cache of its own."""
    monkeypatch.setenv("FLEXMDM_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(f"{line} {number}" for number in range(40) for line in LINES))
    return file


@pytest.fixture
def make_pipeline(lines):
    """An untrained pipeline on the lines."""

    def make(tokenizer="characters", model="flexmdm", max_length=96, expected_gap=3.0) -> TextPipeline:
        task = TextTask((str(lines),), model, tokenizer=tokenizer, max_length=max_length)
        config = FlexMDMConfig(
            vocab_size=task.vocab_size, hidden_size=16, num_layers=1, num_heads=2, condition_size=16, dropout=0.0,
            insertions=model == "flexmdm", expected_gap=expected_gap, task=task.to_dict(),
        )  # fmt: skip
        return TextPipeline(task, FlexMDMModel(config).eval())

    return make
