import json

import pytest
from rich.console import Console

from flexmdm.cli.benchmark import benchmark
from flexmdm.tasks.sft.pipeline import SFTPipeline

PROBLEM = {
    "task_id": "test/0",
    "prompt": "def one():\n",
    "suffix": "1",
    "canonical_solution": "    return ",
    "test": "def check(candidate):\n    assert candidate() == 1",
    "entry_point": "one",
}


def lines(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def console():
    return Console(record=True, width=120)


def test_a_file_of_fillings_is_scored_on_its_own(tmp_path, console, capsys):
    data = lines(tmp_path / "problems.jsonl", [PROBLEM])
    samples = lines(
        tmp_path / "samples.jsonl", [{"task_id": "test/0", "completion": text} for text in ("    return ", "  pass ")]
    )
    out = tmp_path / "new" / "out.json"
    benchmark("humaneval-infill", samples, data, json=out, workers=1, console=console)
    figures = json.loads(out.read_text())
    assert (figures["split"], figures["pass@1"]) == ("problems.jsonl", 0.5)
    assert figures["outcomes"] == {"passed": 1, "failed": 1, "timed out": 0} and figures["sandbox"]
    items = [json.loads(line) for line in (tmp_path / "new" / "out.items.jsonl").read_text().splitlines()]
    assert [item["passed"] for item in items] == [True, False]
    assert figures["data"] == str(data)
    shown = console.export_text()
    assert (
        "pass@1 50.0%" in shown and f"{tmp_path.name}/problems.jsonl (in the form of HumanEval-infilling): 1" in shown
    )
    assert f"written to {out}, items in {out.with_suffix('.items.jsonl')}\n" in capsys.readouterr().err


def test_an_official_file_is_called_by_its_split(tmp_path, console):
    data = lines(tmp_path / "HumanEval-MultiLineInfilling.jsonl", [PROBLEM])
    samples = lines(tmp_path / "samples.jsonl", [{"task_id": "test/0", "completion": "    return "}])
    out = tmp_path / "out.json"
    benchmark("humaneval-infill", samples, data, json=out, workers=1, console=console)
    assert json.loads(out.read_text())["split"] == "multi-line"
    for name in ("humaneval-infill", "gsm8k"):
        with pytest.raises(ValueError, match="--split train does not fit --data .*MultiLineInfilling.jsonl, which is"):
            benchmark(name, samples, data, "train", console=console)


def test_a_file_of_solutions_is_scored_on_its_own(tmp_path, console):
    data = lines(tmp_path / "test.jsonl", [{"question": f"{n}?", "answer": f"#### {n}"} for n in range(2)])
    samples = lines(tmp_path / "samples.jsonl", [{"number": n, "generation": "It is 1."} for n in range(2)])
    benchmark("gsm8k", samples, tmp_path, json=tmp_path / "out.json", console=console)
    figures = json.loads((tmp_path / "out.json").read_text())
    assert figures["accuracy"] == 0.5 > figures["accuracy_low"] and figures["data"] == str(data)
    items = [json.loads(line) for line in (tmp_path / "out.items.jsonl").read_text().splitlines()]
    assert [(item["answer"], item["gold"], item["correct"]) for item in items] == [("1", "0", False), ("1", "1", True)]
    shown = console.export_text()
    assert "accuracy 50.0%" in shown and f"{tmp_path.name}/test.jsonl (in the form of GSM8K): 2 problems" in shown


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(ValueError, match="no benchmark 'mbpp'; choose from humaneval-infill, gsm8k"):
        benchmark("mbpp", tmp_path, tmp_path)
    with pytest.raises(ValueError, match="--samples FILE"):
        benchmark("gsm8k", None, tmp_path)
    with pytest.raises(ValueError, match="--data FOLDER"):
        benchmark("gsm8k", tmp_path, None)


# Runs -----------------------------------------------------------------------------------------------------------------

TINY = [
    "--hidden", "16", "--layers", "1", "--heads", "2", "--batch-size", "8", "--max-length", "24", "--device", "cpu",
    "--steps", "2", "--save-every", "2", "--eval-every", "2",
]  # fmt: skip


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    """A folder in the official form."""
    folder = tmp_path_factory.mktemp("sums")
    rows = [{"question": f"{a}+{b}", "answer": f"{a}+{b}={a + b}\n#### {a + b}"} for a in range(12) for b in range(8)]
    lines(folder / "train.jsonl", rows[:84])
    lines(folder / "test.jsonl", rows[84:])
    return folder


@pytest.fixture(scope="module")
def runs(sums, trained):
    train = ["train", sums / "train.jsonl", "--task", "sft", *TINY]
    return trained("flex", *train), trained("mdm", *train, "--model", "mdm")


def test_fine_tuned_runs_are_swept_compared_and_drawn(runs, sums, command, tmp_path):
    out, figure = tmp_path / "new" / "gsm8k.json", tmp_path / "new" / "gsm8k.png"
    arguments = ["eval", *runs, "--benchmark", "gsm8k", "--data", sums, "--json", out, "--batch-size", "5"]
    printed, err, code = command(*arguments, "--num", "7", "--steps", "2", "4", "--page", figure)
    assert code == 0 and f"{sums.name}/test.jsonl (in the form of GSM8K): 7 items" in " ".join(printed.split()), err
    assert "mdm - flex at 4 steps" in printed and "no answer" in " ".join(printed.split())
    assert f"written to {out}, items in {out.with_suffix('.items')}/" in err
    assert figure.read_bytes().startswith(b"\x89PNG")
    found = json.loads(out.read_text())
    assert [(row["run"], row["sampler"], row["steps"]) for row in found["results"]] == [
        (str(run), sampler, steps)
        for run, sampler in zip(runs, ("adaptive", "low_confidence"), strict=True)
        for steps in (2, 4)
    ]
    assert found["data"] == str(sums / "test.jsonl")
    assert [(row["run"], row["minus"]) for row in found["differences"]] == [(str(runs[1]), str(runs[0]))] * 2
    first, *_, last = found["results"]
    assert (first["window"], first["confidence"], first["temperature"]) == ([5.0, 64], "top_prob", 0.0)
    assert last["block"] == 32 and 1 <= last["evaluations"] <= 5 and 0 <= last["accuracy_low"] <= last["accuracy"]
    assert found["seed"] == 0 and found["command"].startswith("flexmdm eval") and len(found["differences"]) == 2

    assert first["items"] == "gsm8k.items/flex-2.jsonl"
    items = out.parent / first["items"]
    before = [json.loads(line)["generation"] for line in items.read_text().splitlines()]
    printed, err, code = command(*arguments, "--steps", "2")
    assert code == 0 and "flex, 2 steps: 7 of 12 were there already" in err, err
    after = [json.loads(line)["generation"] for line in items.read_text().splitlines()]
    assert len(after) == 12 and after[:7] == before
    printed, err, code = command(*arguments, "--steps", "2", "--seed", "1")
    assert code == 0 and "flex, 2 steps: begun anew, as these have changed: seed" in err, err


def test_code_runs_fill_the_gaps_of_functions(trained, command, tmp_path):
    data, functions = lines(tmp_path / "problems.jsonl", [PROBLEM]), tmp_path / "functions"
    functions.mkdir()
    for number in range(30):
        (functions / f"add{number}.py").write_text(f"def add{number}(x):\n    y = x + {number}\n    return y\n")
    train = ["train", functions, "--task", "code", *TINY, "--max-length", "64", "--tokenizer", "bytes"]
    runs = [trained(model, *train, "--held-out", "0.3", "--model", model) for model in ("flexmdm", "mdm")]
    out, figure = tmp_path / "out.json", tmp_path / "out.svg"
    arguments = ["--benchmark", "humaneval-infill", "--data", data, "--json", out]
    printed, err, code = command("eval", *runs, *arguments, "--steps", "2", "--page", figure, "--workers", "1")
    assert code == 0 and "problems.jsonl (in the form of HumanEval-infilling): 1 items" in " ".join(printed.split()), (
        err
    )
    assert "mdm" in figure.read_text() and "no answer" not in printed
    figures = json.loads(out.read_text())
    found = figures["results"]
    assert [(row["run"], row["sampler"]) for row in found] == [(str(run), "adaptive") for run in runs]
    assert all(sum(row["outcomes"].values()) == 1 and row["shortened"] == 0 for row in found)
    assert figures["split"] == "problems.jsonl" and f"sandbox: {found[0]['sandbox']}" in " ".join(printed.split())
    samples = out.parent / found[0]["items"]
    printed, err, code = command("eval", *arguments, "--samples", samples)
    assert code == 0 and f"pass@1 {100 * found[0]['pass@1']:.1f}%" in printed, err
    questions = lines(tmp_path / "test.jsonl", [{"question": "How many?", "answer": "#### 1"}])
    printed, err, code = command("eval", runs[0], "--benchmark", "gsm8k", "--data", questions)
    assert code == 2 and "flexmdm was trained on the task code, and gsm8k asks questions: fine-tune a run" in err, err


@pytest.mark.parametrize("samples", [False, True])
def test_programs_run_on_as_many_cores_as_asked(samples, command, monkeypatch):
    asked = []
    name = "benchmark" if samples else "compete"
    monkeypatch.setattr(f"flexmdm.cli.benchmark.{name}", lambda *given, **options: asked.append((given, options)))
    of = ["--samples", "a.jsonl"] if samples else ["--pretrained", "text"]
    printed, err, code = command("eval", *of, "--benchmark", "humaneval-infill", "--data", ".", "--workers", "3")
    ((given, options),) = asked
    assert code == 0 and (given[-1] if samples else options["workers"]) == 3, err


def test_an_interrupted_benchmark_says_what_is_kept_and_goes_on(runs, sums, command, tmp_path, monkeypatch):
    out, answers, calls = tmp_path / "out.json", SFTPipeline.answers, []

    def interrupted(self, *arguments, **options):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return answers(self, *arguments, **options)

    monkeypatch.setattr(SFTPipeline, "answers", interrupted)
    arguments = ["eval", runs[0], "--benchmark", "gsm8k", "--data", sums, "--batch-size", "4", "--steps", "2"]
    printed, err, code = command(*arguments, "--json", out)
    items = out.with_suffix(".items")
    begun = "flex, 2 steps: 12 to write ... "  # as there is no terminal with a bar
    expected = f"{begun}interrupted; flex, 2 steps: 8 of 12 items are kept in {items}; the same command goes on"
    assert (err, code) == (expected, 130) and not out.exists()
    printed, err, code = command(*arguments, "--json", out)
    assert code == 0 and "8 of 12 were there already" in err and out.exists()
    calls[:] = [1, 1]
    assert command(*arguments)[1:] == (f"{begun}interrupted; nothing is kept without --json", 130)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--benchmark", "mbpp", "--data", "."], "no benchmark 'mbpp'; choose from humaneval-infill, gsm8k"),
        (["--benchmark", "gsm8k"], "gsm8k needs its official problems: --data FOLDER"),
        (["--benchmark", "gsm8k", "--data", "nowhere"], "--data nowhere: no such folder"),
        (["--benchmark", "gsm8k", "--data", "SUMS", "--split", "valid"], "has no valid.jsonl"),
        (["--benchmark", "gsm8k", "--data", "SUMS", "--page", "page.html"], "a figure, .png or .svg; got page.html"),
        (["--benchmark", "gsm8k", "--data", "SUMS", "--window", "5"], "--window is two numbers"),
        (["--benchmark", "gsm8k", "--data", "SUMS", "--sampler", "tau", "--block", "8"], "tau has no block"),
        (["--benchmark", "gsm8k", "--data", "SUMS", "--samples", "a.jsonl"], "--samples are scored on their own"),
        (["--benchmark", "humaneval-infill", "--data", "SUMS"], "has no HumanEval-SingleLineInfilling.jsonl.gz"),
        (["--benchmark", "humaneval-infill", "--data", "SUMS", "--split", "lines"], "no split 'lines'"),
        (
            ["--benchmark", "gsm8k", "--data", "SUMS", "--subgoals", "7", "--reference", "none", "--likelihoods", "0"],
            "--subgoals, --reference, --likelihoods: for what a run was trained on, and --benchmark measures it on",
        ),
        (["--benchmark", "gsm8k", "--data", "SUMS", "--workers", "2"], "--workers: for humaneval-infill, and no prog"),
        (["--data", "SUMS", "--split", "test"], "--data, --split: for --benchmark, and there is none; leave that out"),
        (["--batch-size", "8", "--workers", "2"], "--batch-size, --workers: for --benchmark, and there is none"),
    ],
)
def test_what_is_wrong_with_a_benchmark_of_runs_is_said(options, message, runs, sums, command):
    printed, err, code = command("eval", runs[0], *(sums if option == "SUMS" else option for option in options))
    assert code == 2 and err.startswith("error:") and message in err, err


def test_a_run_of_the_wrong_task_is_named(runs, command, tmp_path):
    data = lines(tmp_path / "problems.jsonl", [PROBLEM])
    printed, err, code = command("eval", runs[0], "--benchmark", "humaneval-infill", "--data", data)
    assert code == 2 and "flex was trained on the task sft, and humaneval-infill has gaps to fill" in err, err


def test_options_of_runs_beside_samples_are_refused(command, tmp_path):
    data = lines(tmp_path / "problems.jsonl", [PROBLEM])
    asked = ("eval", "--benchmark", "humaneval-infill", "--samples", "a.jsonl", "--data", data)
    printed, err, code = command(*asked, "--num", "5", "--steps", "7", "--page", "x.png")
    assert code == 2 and "--num, --steps, --page: for runs, and --samples are scored as they are" in err, err
    printed, err, code = command(*asked, "--subgoals", "7", "--likelihoods", "0", "--seed", "0", "--device", "cpu")
    assert code == 2 and "--subgoals, --likelihoods, --seed, --device: for runs, and --samples are scored" in err, err
