import gzip
import json

import pytest

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
