import json
import subprocess
import sys
import warnings
from dataclasses import fields
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from flexmdm.cli import entry, main, shared
from flexmdm.generation.defaults import QUALITIES
from flexmdm.generation.generate import SAMPLERS
from flexmdm.tasks.registry import settings_class, task_class, task_names

runner = CliRunner()


def fake_demo(monkeypatch, run):
    """Put a module in the place of `flexmdm.demos.oracle`, so that the command runs nothing but `run`."""
    demos, oracle = ModuleType("flexmdm.demos"), ModuleType("flexmdm.demos.oracle")
    demos.oracle, oracle.run = oracle, run
    monkeypatch.setitem(sys.modules, "flexmdm.demos", demos)
    monkeypatch.setitem(sys.modules, "flexmdm.demos.oracle", oracle)


def fail(**_):
    raise ValueError("samples must be\npositive, got -1")


def test_version_is_printed():
    result = runner.invoke(entry.app, ["--version"])
    assert result.exit_code == 0
    assert result.output.split()[0] == "flexmdm"


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_without_a_command_help_is_printed(arguments):
    result = runner.invoke(entry.app, arguments)
    assert result.exit_code == 0
    assert "demo" in result.output and "Examples" in result.output


def test_options_of_the_oracle_demo_reach_it(monkeypatch, tmp_path):
    calls = []
    fake_demo(monkeypatch, lambda **options: calls.append(options))
    arguments = ["demo", "oracle", "-o", str(tmp_path), "--samples", "7", "--seed", "3", "--steps", "2", "--steps", "5"]
    result = runner.invoke(entry.app, arguments)
    assert result.exit_code == 0, result.output
    assert calls == [{"output": tmp_path, "samples": 7, "seed": 3, "json": None, "steps": [2, 5]}]


def test_value_error_is_one_line_and_exit_code_2(monkeypatch, capsys):
    fake_demo(monkeypatch, fail)
    monkeypatch.setattr(sys, "argv", ["flexmdm", "demo", "oracle"])
    monkeypatch.delenv("FLEXMDM_DEBUG", raising=False)
    with pytest.raises(SystemExit) as exit:
        main()
    assert exit.value.code == 2
    assert capsys.readouterr().err == "error: samples must be positive, got -1\n"


def test_value_error_keeps_its_traceback_when_debugging(monkeypatch):
    fake_demo(monkeypatch, fail)
    monkeypatch.setattr(sys, "argv", ["flexmdm", "demo", "oracle"])
    monkeypatch.setenv("FLEXMDM_DEBUG", "1")
    with pytest.raises(ValueError, match="positive"):
        main()


def runs(monkeypatch, capsys, run, *arguments):
    """What the program prints to stderr, and its exit code, if the demo is `run`."""
    fake_demo(monkeypatch, run)
    monkeypatch.setattr(sys, "argv", ["flexmdm", *(arguments or ["demo", "oracle"])])
    monkeypatch.delenv("FLEXMDM_DEBUG", raising=False)
    with pytest.raises(SystemExit) as exit:
        main()
    return capsys.readouterr().err, exit.value.code


def raising(error):
    def run(**_):
        raise error

    return run


def test_a_warning_is_one_line_without_its_source(monkeypatch, capsys):
    shown = warnings.showwarning

    def run(**_):
        warnings.warn("the run is\nnot finished", stacklevel=1)

    assert runs(monkeypatch, capsys, run) == ("warning: the run is not finished\n", 0)
    assert warnings.showwarning is shown


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.\nMore of it"),
        RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        MemoryError(),
    ],
)
def test_out_of_memory_is_one_line(monkeypatch, capsys, error):
    err, code = runs(monkeypatch, capsys, raising(error))
    assert code == 2 and err.startswith("error: out of memory (") and err.count("\n") == 1 and "More of it" not in err


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        (
            "train",
            ["--batch-size with more --accumulation", "gradient_checkpointing = true in the [recipe]", "--shard"],
        ),
        ("retrofit", ["--batch-size with more --accumulation", "--shard under torchrun", "--four-bit"]),
        ("eval", ["--batch-size", "--num"]),
        ("sample", ["--num"]),
    ],
)
def test_out_of_memory_says_what_to_do(monkeypatch, capsys, command, advice):
    def run(*_):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(entry, "_run", run)
    err, code = runs(monkeypatch, capsys, None, command)
    assert code == 2 and all(part in err for part in advice)


def test_an_error_of_ours_keeps_its_traceback(monkeypatch):
    fake_demo(monkeypatch, raising(RuntimeError("the sampler made no progress")))
    monkeypatch.setattr(sys, "argv", ["flexmdm", "demo", "oracle"])
    with pytest.raises(RuntimeError, match="no progress"):
        main()


def test_damaged_weights_are_one_line(monkeypatch, capsys, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 100)
    err, code = runs(monkeypatch, capsys, lambda **_: load_file(tmp_path / "model.safetensors"))
    assert code == 2 and err.startswith("error: the weights cannot be read, a .safetensors file is damaged (")
    assert "copy or fetch the model again" in err and err.count("\n") == 1


def test_an_interruption_is_said(monkeypatch, capsys):
    assert runs(monkeypatch, capsys, raising(KeyboardInterrupt())) == ("interrupted\n", 130)
    kept = KeyboardInterrupt("2 of 20 items are kept")
    assert runs(monkeypatch, capsys, raising(kept)) == ("interrupted; 2 of 20 items are kept\n", 130)


def help_of(command):
    """In one line, without the frame around it."""
    return " ".join(runner.invoke(entry.app, [command, "--help"]).output.replace("│", " ").split())


@pytest.mark.parametrize("command", ["sample", "infill", "complete", "eval"])
def test_the_help_says_which_samplers_and_devices_are_the_default(command):
    help = help_of(command)
    assert "or (MDM only) low_confidence." in help
    assert "[default: FlexMDM: spaced; MDM: tau on text, low_confidence on mazes" in help
    assert "cpu, cuda or mps. [default: what there is]" in help


def test_the_help_of_eval_says_what_its_json_is():
    what = "an object for one result, a list for several (of --subgoals, --steps or runs), each with its run"
    assert what in help_of("eval")


def test_the_help_of_eval_has_the_defaults_of_its_tasks():
    help = help_of("eval")
    for default in (
        "with commas. [default: 7]",
        "[default: auto]",
        "[default: 200]",
        "Seed of generation. [default: 0]",
    ):
        assert default in help


def test_the_help_of_eval_has_the_defaults_of_a_benchmark():
    help = help_of("eval")
    for default in (
        "[default: 1; maze, --benchmark: 0]",
        "[default: of spaced random; of adaptive, so of --benchmark, top_prob]",
        "[default: among all; --benchmark: 5,64]",
        "[default: one for each core we may use]",
        "after an interruption (Ctrl-C) the same command goes on",
    ):
        assert default in help


@pytest.mark.parametrize("command", ["sample", "infill", "complete", "eval"])
def test_the_help_says_that_a_step_is_no_evaluation(command):
    said = "A step of spaced may take several evaluations of the network, and likeliest one more for every token."
    assert said in help_of(command)


def test_the_command_line_knows_all_samplers():
    assert set(shared._SAMPLERS) == set(SAMPLERS)
    assert shared._QUALITIES == tuple(QUALITIES)


def test_the_help_of_an_option_says_which_tasks_have_it():
    help = help_of("train")
    for said in ("text, sft, code: Most tokens of a sequence", "sft: Field of the prompt", "maze: Number of subgoals"):
        assert said in help


@pytest.mark.parametrize("name", task_names())
def test_a_task_has_the_settings_that_its_options_are_made_of(name):
    made, used = fields(settings_class(name)), fields(task_class(name))
    assert {one.name for one in made} == {one.name for one in used}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["infill", "--pretrained", "text", "a ___", "--sampler", "magic"],
            "--sampler magic: there is none such; choo",
        ),
        (
            ["complete", "--pretrained", "text", "a", "--sampler", "magic"],
            "from tau, adaptive, spaced, entropy_bounded, dilated, likeliest, low_confidence",
        ),
        (
            ["sample", "--pretrained", "text", "--quality", "best"],
            "--quality best: there is none such; choose from fast, balanced, exact",
        ),
        (
            ["infill", "--pretrained", "text", "a ___", "--min", "5", "--max", "2"],
            "at least 5 (--min) and at most 2 (--m",
        ),
        (
            ["sample", "--pretrained", "text", "--through", "1,1"],
            "--through is for runs on maze, and text was trained on text",
        ),
        (["sample", "--pretrained", "text", "--sampler", "magic"], "--sampler magic"),
        (["eval", "--pretrained", "text", "--sampler", "magic"], "--sampler magic"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_loaded(monkeypatch, capsys, arguments, message):
    monkeypatch.setitem(sys.modules, "flexmdm.tasks.loading", None)
    err, code = runs(monkeypatch, capsys, None, *arguments)
    assert code == 2 and message in err


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["1,1"], "a path needs a start and a goal: give at least two cells, got (1, 1)"),
        (["1,1", "2;3"], "a cell is row,column such as 3,5; got '2;3'"),
        (["one"], "a cell is row,column such as 3,5; got 'one'"),
    ],
)
def test_bad_cells_are_named_before_anything_is_loaded(monkeypatch, capsys, cells, message):
    monkeypatch.setitem(sys.modules, "flexmdm.tasks.loading", None)
    for run in (["runs/any"], ["--pretrained", "maze41"]):
        err, code = runs(monkeypatch, capsys, None, "sample", *run, "--through", *cells)
        assert code == 2 and message in err


@pytest.mark.parametrize("subgoals", ["2", "2,3"])
def test_eval_of_a_maze_writes_an_object_or_a_list_with_the_run(monkeypatch, capsys, tmp_path, subgoals):
    file, options = tmp_path / "new" / "score.json", ["--num", "2", "--steps", "4", "--device", "cpu", "--json"]
    arguments = "eval", "--pretrained", "maze41", "--subgoals", subgoals, *options, str(file)
    err, code = runs(monkeypatch, capsys, None, *arguments)
    assert code == 0 and f"written to {file}" in err
    scores = json.loads(file.read_text())
    assert isinstance(scores, dict) == (subgoals == "2")
    for score in [scores] if subgoals == "2" else scores:
        assert score["run"] == "maze41" and {"success", "evaluations"} <= set(score)


COMMANDS = [
    "",
    "train",
    "retrofit",
    "eval",
    "sample",
    "complete",
    "infill",
    "serve",
    "demo",
    "demo maze",
    "demo oracle",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_loads_nothing_heavy(command):
    code = (
        "import sys; sys.argv = ['flexmdm', *sys.argv[1:], '--help']\nfrom flexmdm.cli import main\n"
        "try: main()\nfinally: print('loaded', *{name.split('.')[0] for name in sys.modules})"
    )
    arguments = [sys.executable, "-c", code, *command.split()]
    printed = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    loaded = printed.rpartition("loaded ")[2].split()
    assert "typer" in loaded
    assert not {"torch", "numpy", "matplotlib", "transformers", "datasets", "gradio"} & set(loaded)


# Missing packages -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "install"),
    [
        ("transformers", "pip install 'flexmdm[train]'"),
        ("peft", "pip install 'flexmdm[train]'"),
        ("tokenizers", "pip install 'flexmdm[train]'"),
        ("huggingface_hub", "pip install 'flexmdm[train]'"),
        ("lm_eval", "pip install 'flexmdm[eval]'"),
        ("gguf", "pip install 'flexmdm[eval]'"),
        ("rdkit", "pip install 'flexmdm[eval]'"),
        ("tensorboard", "pip install tensorboard"),
    ],
)
def test_a_missing_package_is_one_line_with_the_command_that_installs_it(monkeypatch, capsys, package, install):
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not there
    err, code = runs(monkeypatch, capsys, lambda **_: __import__(f"{package}.some.part"))
    assert code == 2 and err == f"error: this needs the package {package}, which is not installed: {install}\n"


def test_a_missing_module_of_ours_keeps_its_traceback(monkeypatch):
    fake_demo(monkeypatch, lambda **_: __import__("flexmdm.nowhere"))
    monkeypatch.setattr(sys, "argv", ["flexmdm", "demo", "oracle"])
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        main()


@pytest.mark.parametrize(("log", "said"), [("wandb", "pip install wandb"), ("paper", "there is no logger 'paper'")])
def test_a_log_that_cannot_be_kept_is_said_before_training_begins(monkeypatch, capsys, tmp_path, log, said):
    monkeypatch.setattr("flexmdm.runs.train.find_spec", lambda name: None)
    monkeypatch.setattr("flexmdm.runs.train.settle", None)  # not to be called
    arguments = "train", "--task", "maze", "--size", "7", "--log", log, "--device", "cpu", "--out", str(tmp_path / "x")
    err, code = runs(monkeypatch, capsys, None, *arguments)
    assert code == 2 and said in err and not (tmp_path / "x").exists()
