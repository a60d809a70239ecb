"""A checkpoint in the layout of the public FlexMDM from the command line: filled, answered, converted, measured."""

import json
import shutil

import pytest

from flexmdm import FlexMDMModel
from flexmdm.tasks.sft.pipeline import SFTPipeline
from flexmdm.tasks.text.pipeline import TextPipeline

PROGRAM = "def one():\n    return ___\n"
FEW = ("--steps", 4, "--device", "cpu")


def test_gaps_are_filled_and_what_is_given_stays(published, command, tmp_path):
    file = tmp_path / "filled.json"
    out, err, code = command("infill", published, PROGRAM, "--min", 2, "--num", 2, *FEW, "--json", file)
    assert code == 0, err
    rows = json.loads(file.read_text())
    assert len(rows) == 2 and all(len(row["gaps"][0]) >= 1 for row in rows)
    assert all(row["text"] == PROGRAM.replace("___", row["gaps"][0]) for row in rows)
    assert all(row["text"].rstrip() in out for row in rows)


def test_a_gap_sees_the_prompt_of_its_answer(published):
    pipeline = SFTPipeline.from_pretrained(published, device="cpu")
    options = {"full": True, "steps": 4, "seed": 1}
    plain, prompted = (pipeline.infill("a ___ b", prompt=prompt, **options)[0] for prompt in ("", "Write a word."))
    assert plain.prompt.tokens[:2] == (256, 257)
    assert prompted.prompt.tokens[:15] == (256, *b"Write a word.", 257)
    assert prompted.prompt.open_gaps.index(True) == 16 and sum(prompted.prompt.open_gaps) == 1  # behind "a"
    ranked = pipeline.infill("a ___ b", 6, best=2, **options)
    assert ranked[0].log_prob >= ranked[1].log_prob


def test_a_question_is_answered_behind_the_separator(published, command, tmp_path):
    file = tmp_path / "answers.json"
    out, err, code = command("complete", published, "def one():\n", *FEW, "--json", file)
    assert code == 0 and json.loads(file.read_text())[0]["prompt"] == "def one():\n", err


def test_special_tokens_in_a_text_are_text(published):
    pipeline = SFTPipeline.from_pretrained(published, device="cpu")
    assert pipeline.encode("<|mask|>") == [256, *b"<|mask|>", 257]


def test_converted_it_does_the_same_without_the_extras(published, command, tmp_path):
    asked = (PROGRAM, "--min", 2, "--seed", 5, *FEW)
    expected, err, code = command("infill", published, *asked)
    out, err, code = command("retrofit", published, "--merge", "--out", tmp_path / "run")
    assert code == 0 and "stands alone" in out, err
    shutil.rmtree(published)
    assert not (tmp_path / "run/flexmdm_extras.pt").exists()
    out, err, code = command("infill", tmp_path / "run", *asked)
    assert code == 0 and out == expected, err


def test_a_converted_one_learns_from_pairs_between_its_own_tokens(published, command, tmp_path):
    command("retrofit", published, "--merge", "--out", tmp_path / "run")
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text("".join(json.dumps({"prompt": f"{n}?", "answer": str(n)}) + "\n" for n in range(40)))
    options = ("--steps", 2, "--batch-size", 4, "--max-length", 16, "--eval-every", 2, "--save-every", 2)
    train = ("train", pairs, "--task", "sft", "--from", tmp_path / "run", *options, "--device", "cpu")
    out, err, code = command(*train, "--out", tmp_path / "trained")
    assert code == 0, err
    pipeline = SFTPipeline.from_pretrained(tmp_path / "trained", device="cpu")
    assert pipeline.encode("7?") == [256, *b"7?\n", 257]
    x1, _ = pipeline.task.train.take(*[pipeline.task.train.some(1)] * 2)
    assert x1.tolist()[0][0] == 256 and x1.tolist()[0].count(257) == 1


def test_a_benchmark_of_gaps_takes_it(published, command, tmp_path):
    problem = {
        "task_id": "test/0", "prompt": "def one():\n", "canonical_solution": "    return 1\n",
        "suffix": "    return 1\n", "entry_point": "one",
        "test": "def check(candidate):\n    assert candidate() == 1\n",
    }  # fmt: skip
    (tmp_path / "problems.jsonl").write_text(json.dumps(problem) + "\n")
    benchmark = ("--benchmark", "humaneval-infill", "--data", tmp_path / "problems.jsonl", "--num", 1)
    out, err, code = command("eval", published, *benchmark, *FEW, "--insertion-schedule", "power:2.9")
    assert code == 0 and "pass@1" in out, err


@pytest.mark.parametrize("which", ["folder", "name", "package"])
def test_a_dry_run_says_memory_and_time_without_loading_weights(which, published, command, tmp_path):
    for file in published.glob("*.safetensors"):
        file.unlink()  # the shape is enough
    asked = {"folder": [published], "name": ["yuyuanchen0/flexmdm"], "package": ["--pretrained", "text"]}[which]
    file = tmp_path / "estimate.json"
    out, err, code = command("infill", *asked, "--dry-run", "--steps", 512, "--device", "cpu", "--json", file)
    assert code == 0 and "this machine's CPU: about" in out and "one A100: about" in out and "per token" in out, err
    found = json.loads(file.read_text())
    assert found["evaluations"] == 512 and all(one["seconds_per_token"] > 0 for one in found["machines"].values())
    if which == "name":
        backbone, width, layers = 7_615_616_512, 3584, 28
        clock, adaln = 8 * width**2 + 5 * width, layers * 2 * width * (width + 1)
        assert (
            found["weights"] == backbone + clock + adaln + width**2 + 4 * width + 1
            and "8,450.8M weights in bfloat16" in out
        )
        assert 16.9 < sum(found["memory_gb"].values()) < 20 and "80.0 GB of memory, enough" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["infill", "--dry-run"],
            "--dry-run of what? Give the folder of a run, OWNER/NAME on the Hub, or --pretrained",
        ),
        (["infill", "LLAMA", "--dry-run"], "of the kind 'llama', which is no FlexMDM, so nothing is loaded from it"),
        (["infill", "LLAMA", "a ___"], "of the kind 'llama', which is no FlexMDM, so nothing is loaded from it"),
        (["infill", "PUBLISHED", "no gap"], "there is no gap in 'no gap'"),
        (["infill", "PUBLISHED", "a ___", "--prompt", "x" * 800], "the prompt leaves no room for an answer"),
        (["infill", "--pretrained", "text", "a ___", "--prompt", "x"], "--prompt is for runs on prompts and answers"),
        (["retrofit", "PUBLISHED", "--dry-run"], "is a FlexMDM already, in the layout it was"),
        (["retrofit", "PUBLISHED", "--data", "x.txt", "--out", "OUT"], "is a FlexMDM already, in the layout it was"),
    ],
)
def test_what_is_wrong_is_said(arguments, message, published, command, tmp_path):
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama/config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 8}))
    (tmp_path / "llama/model.safetensors").write_bytes(b"")
    places = {"LLAMA": tmp_path / "llama", "PUBLISHED": published, "OUT": tmp_path / "out"}
    out, err, code = command(*(places.get(one, one) for one in arguments))
    assert code == 2 and message in err, err


def test_a_pipeline_of_another_task_does_not_take_it(published):
    with pytest.raises(ValueError, match="was trained on the task sft, not on text"):
        TextPipeline.from_pretrained(published, device="cpu")


def test_saved_by_its_model_alone_it_has_its_tokenizer(published, tmp_path):
    FlexMDMModel.from_pretrained(published).save_pretrained(tmp_path / "copy")
    pipelines = [SFTPipeline.from_pretrained(folder, device="cpu") for folder in (published, tmp_path / "copy")]
    questions = ["def one():\n", "x=12345  ü don't\r\n\tok"]
    assert [pipelines[0].encode(one) for one in questions] == [pipelines[1].encode(one) for one in questions]


def test_a_harness_gets_answers_from_it(published):
    from flexmdm.integrations.lm_eval import Responder
    from flexmdm.tasks.loading import load

    options = {"steps": 4, "temperature": 0.1, "insertion_schedule": "power:2.9", "window": "5:64"}
    responder = Responder(*load(published, "cpu"), **options)
    assert len(responder.texts(["def one():\n", "def two():\n"])) == 2
    assert responder.options["sampler"] == "adaptive" and responder.log_likelihood("def one():\n", "    pass\n") < 0
