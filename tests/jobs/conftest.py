import json

import pytest

from flexmdm import FlexMDMConfig, FlexMDMModel, TextPipeline
from flexmdm.jobs.job import Job
from flexmdm.tasks.text.task import TextTask

NAMES = ["anna", "hannah", "joanna", "ann", "marianne", "diana", "nathan", "aidan", "dan", "ian"]


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """An untrained model of names."""
    folder = tmp_path_factory.mktemp("jobs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLEXMDM_CACHE", str(folder / "cache"))
        (folder / "names.txt").write_text("\n".join(NAMES * 10))
        task = TextTask((str(folder / "names.txt"),), tokenizer="characters", max_length=24)
        config = FlexMDMConfig(
            vocab_size=task.vocab_size, hidden_size=16, num_layers=1, num_heads=2, condition_size=16, dropout=0.0,
            expected_gap=3.0, task=task.to_dict(),
        )  # fmt: skip
        TextPipeline(task, FlexMDMModel(config).eval()).save_pretrained(folder / "model")
    return folder / "model"


@pytest.fixture
def make_job(model_folder, tmp_path, monkeypatch):
    """A job of so many lines, some of them bad, with few lines at a time."""
    monkeypatch.setattr("flexmdm.jobs.job._SEQUENCES", 16)

    def make(num_lines=200, method="infill", num=1, name="lines.jsonl", **options):
        file = tmp_path / name
        rows = [
            json.dumps({"id": n, "prompt": f"{NAMES[n % 10][:2]}___{'ain'[n % 3 :]}"[:12]}) for n in range(num_lines)
        ]
        rows[3:3] = ['{"prompt": "an___', '{"text": "an___"}', '{"prompt": 5}', "[1]", '{"prompt": "ä___"}', ""]
        rows[40:40] = ['{"prompt": "anna"}', json.dumps({"prompt": "a" * 40 + "___"}), '{"prompt": "\\ud800___"}']
        file.write_text("\n".join(rows) + "\n")
        return Job(
            method, str(model_folder), num=num, file=str(file), seed=3, options={"steps": 3, "best": 0, **options}
        )

    return make
