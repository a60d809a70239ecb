import gzip
import json

import pytest

from flexmdm import FlexMDMConfig, FlexMDMModel
from flexmdm.tasks.code.pipeline import CodePipeline
from flexmdm.tasks.code.task import CodeTask

ROWS = [
    {
        "task_id": f"SingleLineInfilling/Test/{number}/L0",
        "prompt": f'def helper(x):\n    return x + {number}\n\ndef add(x):\n    """Add {number}."""\n',
        "canonical_solution": f"    y = x + {number}\n",
        "suffix": "    return y\n" if number else "    return y",
        "test": ("\n\n" if number else "")
        + "def check(candidate):\n    for x in range(3):\n        assert candidate(x) == helper(x)\n",
        "entry_point": "add",
    }
    for number in range(3)
]


@pytest.fixture
def rows():
    """Made-up problems in the official format."""
    return [dict(row) for row in ROWS]


@pytest.fixture
def folder(tmp_path, rows):
    """The same as in the official folder."""
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "HumanEval-SingleLineInfilling.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "HumanEval-RandomSpanInfilling.jsonl").write_text(text)
    return tmp_path


@pytest.fixture
def write_samples(tmp_path):
    """Write (task id, completion) pairs to a file in the official format."""

    def write(pairs, name="samples.jsonl"):
        lines = [json.dumps({"task_id": task_id, "completion": completion}) for task_id, completion in pairs]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        return tmp_path / name

    return write


PROGRAM = '''
import os

@decorated
def first(x):
    """Été: 漢字 😀."""
    total = 0

    for item in x:
        total += item * NUMBER
    return total


def short(): pass


class Thing:
    async def second(self, name="y"):
        def inner():
            return name

        text = """
left
        """
        if name:
            return inner() + text
        return NUMBER + NUMBER
'''


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder of small programs, and a cache of its own."""
    monkeypatch.setenv("FLEXMDM_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "programs"
    folder.mkdir()
    for number in range(24):
        (folder / f"module{number:02}.py").write_text(PROGRAM.replace("NUMBER", str(number)))
    return folder


@pytest.fixture
def make_task(programs):
    def make(model="flexmdm", tokenizer="bpe", **settings) -> CodeTask:
        settings = {"max_length": 700 if tokenizer in ("bytes", "characters") else 200, "held_out": 0.25, **settings}
        return CodeTask((str(programs),), model, tokenizer=tokenizer, **settings).settled()

    return make


@pytest.fixture
def make_pipeline(make_task):
    """An untrained pipeline on the programs."""

    def make(model="flexmdm", tokenizer="bpe", expected_gap=3.0, **settings) -> CodePipeline:
        task = make_task(model, tokenizer, **settings)
        config = FlexMDMConfig(
            vocab_size=task.vocab_size, hidden_size=16, num_layers=1, num_heads=2, condition_size=16,
            dropout=0.0, insertions=model == "flexmdm", expected_gap=expected_gap, task=task.to_dict(),
        )  # fmt: skip
        return CodePipeline(task, FlexMDMModel(config).eval())

    return make
