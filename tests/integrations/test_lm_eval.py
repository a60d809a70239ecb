"""What lm-eval asks, with stand-ins everywhere; and lm-eval itself where it is installed."""

import json
import math
import sys

import pytest

from flexmdm import FlexMDMConfig, FlexMDMModel, Prompt
from flexmdm.integrations import lm_eval as harness
from flexmdm.sweeps.gsm8k import GSM8K
from flexmdm.sweeps.humaneval import HumanEvalInfill
from flexmdm.sweeps.sweep import sweep
from flexmdm.tasks.code.pipeline import CodePipeline
from flexmdm.tasks.code.task import CodeTask
from flexmdm.tasks.pipeline import Answer
from flexmdm.tasks.sft.task import SFTTask

PROBLEMS = [
    {
        "task_id": f"test/{number}",
        "prompt": f"def add(x):\n    # {number}\n",
        "canonical_solution": f"    y = x + {number}\n",
        "suffix": "    return y",
        "test": f"def check(candidate):\n    assert candidate(1) == {1 + number}\n",
        "entry_point": "add",
    }
    for number in range(3)
]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """An untrained run on sums."""
    monkeypatch.setenv("FLEXMDM_CACHE", str(tmp_path / "cache"))
    rows = [{"question": f"{a}+{b}", "answer": f"{a + b}"} for a in range(10) for b in range(10)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def make(model="flexmdm"):
        task = SFTTask((str(tmp_path / "sums.jsonl"),), model, tokenizer="characters", max_length=12).settled()
        config = FlexMDMConfig(
            vocab_size=task.vocab_size, hidden_size=16, num_layers=1, num_heads=2, condition_size=16, dropout=0.0,
            insertions=model == "flexmdm", expected_gap=3.0, task=task.to_dict(),
        )  # fmt: skip
        return task, FlexMDMModel(config).eval()

    return make


@pytest.fixture
def code_run(tmp_path, monkeypatch):
    """An untrained run on functions; what stands for its fillings is right in two cases of three."""
    monkeypatch.setenv("FLEXMDM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "functions").mkdir()
    for number in range(20):
        (tmp_path / f"functions/add{number}.py").write_text(f"def add(x):\n    y = x + {number}\n    return y\n")
    task = CodeTask((str(tmp_path / "functions"),), "mdm", tokenizer="bytes", max_length=64, held_out=0.2).settled()
    config = FlexMDMConfig(
        vocab_size=task.vocab_size, hidden_size=16, num_layers=1, num_heads=2, condition_size=16, insertions=False
    )

    def fill(pipeline, pairs, **options):
        numbers = [int(prefix.split("# ")[1]) for prefix, _ in pairs]
        texts = [f"    y = x + {number if number < 2 else 0}\n" for number in numbers]
        return [Answer(text, (text,), (), 1, False, Prompt.empty()) for text in texts]

    monkeypatch.setattr(CodePipeline, "fill", fill)
    return task, FlexMDMModel(config).eval()


@pytest.fixture
def problems(tmp_path):
    file = tmp_path / "problems.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in PROBLEMS))
    return file


@pytest.mark.parametrize("model", ["flexmdm", "mdm"])
def test_contexts_are_answered_as_items_of_a_benchmark_are(run, model):
    task, network = run(model)
    questions = [f"{number}+1" for number in range(7)]
    responder = harness.Responder(task, network, steps=4, seed=3, batch_size=3, temperature=1.0)
    assert responder.options["sampler"] == {"flexmdm": "adaptive", "mdm": "low_confidence"}[model]
    options = {key: value for key, value in responder.options.items() if key != "seed"}
    answers = GSM8K(()).entrant("", task, network).write(questions, seed=3, **options)
    assert responder.texts(questions) == [answer.text for answer in answers]
    assert responder.texts(["0+1" * 9, "0+1"])[0] == ""  # no room


def test_a_window_comes_from_the_command_line_too(run):
    assert harness.Responder(*run(), window="2:8").options["window"] == (2.0, 8)


def test_the_likelihood_is_that_of_the_answer_given_the_question(run):
    """Every token more costs an untrained model some nats; an MDM has no masks for more than the longest pair."""
    responder = harness.Responder(*run(), num_times=256)
    short, long = responder.log_likelihood("1+1", "2"), responder.log_likelihood("1+1", "2345")
    assert long < short - 1 < -1 and responder.log_likelihood("1+1", "2") == short
    padded = harness.Responder(*run("mdm"), num_times=16)
    assert -math.inf < padded.log_likelihood("1+1", "2") < 0
    assert padded.log_likelihood("1+1", "2345") == -math.inf


def test_what_has_no_likelihood_says_so(code_run):
    with pytest.raises(NotImplementedError, match="a run on code has no likelihood"):
        harness.Responder(*code_run).log_likelihood("a", "b")


def test_without_lm_eval_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(harness, "lm_eval_model", None)
    with pytest.raises(ImportError, match=r"pip install 'flexmdm\[eval\]'"):
        harness.FlexMDMRun("runs/mine")
    with pytest.raises(SystemExit) as left:
        command(monkeypatch, "gsm8k", "--run", "runs/mine", "--data", "data")
    assert left.value.code == 1 and "pip install 'flexmdm[eval]'" in capsys.readouterr().err


def evaluate(monkeypatch, loaded, task, **options):
    lm_eval = pytest.importorskip("lm_eval")
    monkeypatch.setattr("flexmdm.tasks.loading.load", lambda folder, device: loaded)
    arguments = {"run": "runs/mine", "steps": 4, **options}
    ours_alone = pytest.importorskip("lm_eval.tasks").TaskManager(include_defaults=False)  # all tasks take long
    found = lm_eval.simple_evaluate(
        model="flexmdm", model_args=arguments, tasks=[task], batch_size=4, task_manager=ours_alone
    )
    return found["results"][task["task"]], [sample["resps"][0][0] for sample in found["samples"][task["task"]]]


def test_lm_eval_and_our_own_evaluation_of_gsm8k_agree(run, monkeypatch, tmp_path):
    """The references are what the untrained run answers, for every second question; so it is right sometimes."""
    pytest.importorskip("lm_eval")
    task, network = run()
    file, questions = tmp_path / "test.jsonl", [f"{a}+{b}" for a in range(5) for b in range(3)]

    def write(answers):
        pairs = zip(questions, answers, strict=True)
        file.write_text("".join(json.dumps({"question": q, "answer": f"#### {a}"}) + "\n" for q, a in pairs))

    def ours():
        benchmark = GSM8K.read(file)
        mine = benchmark.entrant("mine", task, network)
        (point,) = sweep(benchmark, [mine], [4], folder=tmp_path / "items", temperature=1.0)
        return point, [json.loads(line) for line in point.items.read_text().splitlines()]

    write(["0"] * 15)
    write([row["answer"] or "7" if row["number"] % 2 else "123456" for row in ours()[1]])
    point, rows = ours()
    theirs, texts = evaluate(monkeypatch, (task, network), harness.gsm8k(file), temperature=1.0)
    assert texts == [row["generation"] for row in rows]
    assert theirs["accuracy,none"] == point.measured.value and 0 < point.measured.value < 1


def test_lm_eval_and_our_own_evaluation_of_infilling_agree(code_run, monkeypatch, problems):
    pytest.importorskip("lm_eval")
    benchmark = HumanEvalInfill.read(problems, workers=1)
    (point,) = sweep(benchmark, [benchmark.entrant("mine", *code_run)], [4])
    theirs, texts = evaluate(monkeypatch, code_run, harness.humaneval_infill(problems))
    assert theirs["pass@1,none"] == point.measured.value == pytest.approx(2 / 3)
    assert texts[0] == "    y = x + 0\n"


def test_a_task_can_have_the_first_few_problems(problems):
    pytest.importorskip("datasets")
    config = harness.humaneval_infill(problems, num=2)
    (doc, _) = config["custom_dataset"]()["test"]
    assert config["doc_to_text"](doc) == "def add(x):\n    # 0\n<|gap|>    return y"
    assert config["process_results"](doc, ["    y = x\n"]) == {"pass@1": 1.0}


# The command line -----------------------------------------------------------------------------------------------------


def command(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["harness", *map(str, arguments)])
    harness.main()


def test_a_command_runs_gsm8k_from_its_folder(run, monkeypatch, tmp_path, capsys):
    """A saved run and 5 of 6 problems; what stands for its answers is right for every second one."""
    pytest.importorskip("lm_eval")
    _, network = run()
    network.save_pretrained(tmp_path / "run")
    rows = [{"question": f"{number}+0", "answer": f"#### {number}"} for number in range(6)]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def texts(responder, contexts):
        assert responder.task.name == "sft" and responder.options["steps"] == 4
        return [context[0] if int(context[0]) % 2 == 0 else "7" for context in contexts]

    monkeypatch.setattr(harness.Responder, "texts", texts)
    places = ["--run", tmp_path / "run", "--data", tmp_path / "data", "--device", "cpu"]
    command(monkeypatch, "gsm8k", *places, "--limit", "5", "--steps", "4", "--json", tmp_path / "new" / "out.json")
    found = json.loads((tmp_path / "new" / "out.json").read_text())
    assert found["accuracy"] == pytest.approx(3 / 5) and found["problems"] == 5
    assert found["command"].startswith("python -m flexmdm.evaluation.harness gsm8k --run ")
    assert "on 5 problems of gsm8k, 4 steps: accuracy 0.6000" in capsys.readouterr().out


def test_a_command_runs_infilling(code_run, monkeypatch, problems, tmp_path, capsys):
    pytest.importorskip("lm_eval")
    monkeypatch.setattr("flexmdm.tasks.loading.load", lambda folder, device: code_run)
    command(monkeypatch, "humaneval-infill", "--run", tmp_path, "--data", problems, "--json", tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text())["pass@1"] == pytest.approx(2 / 3)
    assert "on 3 problems of humaneval-infill, 64 steps: pass@1 0.6667" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--run", "{here}/none", "--data", "{here}"], "--run {here}/none: no such folder"),
        (["--run", "{here}", "--data", "{here}/none"], "--data {here}/none: no such folder"),
        (["--run", "{here}", "--data", "{here}"], "{here} has no test.jsonl"),
        (["--run", "{here}", "--data", "{here}/test.jsonl"], "{here} is not a run"),
        (["--run", "{here}", "--data", "{here}", "--limit", "0"], "--limit is at least 1"),
        (["--data", "{here}"], "required: --run"),
    ],
)
def test_a_command_says_what_is_missing(monkeypatch, tmp_path, capsys, options, said):
    pytest.importorskip("lm_eval")
    if any("test.jsonl" in option for option in options):
        (tmp_path / "test.jsonl").write_text('{"question": "1+1", "answer": "#### 2"}\n')
    with pytest.raises(SystemExit) as left:
        command(monkeypatch, "gsm8k", *(option.format(here=tmp_path) for option in options))
    assert left.value.code == 2 and said.format(here=tmp_path) in capsys.readouterr().err


def test_all_other_commands_are_those_of_lm_eval(monkeypatch, capsys):
    main = pytest.importorskip("lm_eval.__main__")
    asked = []
    monkeypatch.setattr(main, "cli_evaluate", lambda: asked.append(sys.argv[1:]))
    for arguments in ([], ["ls", "tasks"], ["--model", "flexmdm", "--tasks", "gsm8k"]):
        command(monkeypatch, *arguments)
        assert asked.pop() == arguments and capsys.readouterr().out == ""
    command(monkeypatch, "--help")
    assert asked == [["--help"]] and "humaneval-infill" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        command(monkeypatch, "gsm8k", "--help")
    assert "--limit" in capsys.readouterr().out and len(asked) == 1
