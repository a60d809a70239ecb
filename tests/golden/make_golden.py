"""Record what flexmdm draws, learns, measures and prints, as small JSON files beside this one.

    python tests/golden/make_golden.py --write             # all parts
    python tests/golden/make_golden.py --write help        # one part

`test_golden.py` computes every part again and compares. Everything goes through doors that stay where they are: the
command line, the names of `flexmdm` and ``from_pretrained``; so the outputs can be compared across a change of the
inner modules. Record again only when an output is meant to change, and say so in the commit.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import io
import json
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

import flexmdm
from flexmdm import FiniteDistribution, FlexMDMModel, HiddenMarkovSource, Prompt
from flexmdm.cli import main

HERE = Path(__file__).parent
PRETRAINED = Path(str(files("flexmdm"))) / "pretrained"
DROPPED = {  # times, what depends on the machine, and paths that differ with every call
    "seconds", "command", "sandbox", "tokens_per_second", "elapsed", "memory", "timings",
}  # fmt: skip
COMMANDS = [
    [], ["demo"], ["demo", "maze"], ["demo", "oracle"], ["train"], ["retrofit"], ["eval"], ["sample"], ["complete"],
    ["infill"], ["serve"],
]  # fmt: skip
CONFIG = """
[task]
name = "{task}"
{more}
[network]
hidden = 16
layers = 1
heads = 2
condition = 16

[recipe]
steps = 4
batch_size = 8
learning_rate = 1e-2
warmup = 1
ema = 0.9
eval_every = 4
eval_size = 8
save_every = 2
keep = 9
log_every = 1
"""
MAZE = "size = 7\npairs = 60\npaths_per_pair = 2\nsubgoals = [2, 4]\nheld_out = 0.3\n"
NAMES = ["anna", "hannah", "joanna", "ann", "marianne", "diana", "nathan", "aidan", "dan", "ian"]
PROBLEM = {
    "task_id": "test/0",
    "prompt": "def one():\n",
    "suffix": "1",
    "canonical_solution": "    return ",
    "test": "def check(candidate):\n    assert candidate() == 1",
    "entry_point": "one",
}


def machine() -> dict[str, str]:
    """Return what floating-point results may depend on: the model of the CPU and the version of PyTorch."""
    try:
        model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        model = None
    return {"cpu": model[1] if model else platform.processor(), "torch": torch.__version__}


def run_command(*arguments: Any, exit_code: int = 0) -> str:
    """Run the program as the shell would and return what it prints, or its error message if it is to fail."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    settings = {"COLUMNS": "100", "NO_COLOR": "1", "FLEXMDM_DEBUG": ""}
    with (
        mock.patch.dict(os.environ, settings),
        mock.patch.object(sys, "argv", ["flexmdm", *map(str, arguments)]),
        mock.patch.object(sys.modules["__main__"], "__package__", ""),  # else the help says python -m pytest
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as leaving:
            code = leaving.code or 0
    assert code == exit_code, out.getvalue() + err.getvalue()
    return re.sub(r"\x1b\[[0-9;]*m", "", err.getvalue() if exit_code else out.getvalue())


def lines_of(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def portable(value: Any, folder: Path) -> Any:
    """Return a JSON value without times and without the folder that the runs are in."""
    if isinstance(value, dict):
        return {key: portable(one, folder) for key, one in value.items() if key not in DROPPED}
    if isinstance(value, list | tuple):
        return [portable(one, folder) for one in value]
    return value.replace(str(folder), "FOLDER") if isinstance(value, str) else value


def digest(run: Path) -> str:
    """Return the SHA-256 of the names and bytes of the weights of a run."""
    found = hashlib.sha256()
    for name, tensor in sorted(load_file(run / "model.safetensors").items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode() + tensor.numpy().tobytes())
    return found.hexdigest()


class Runs:
    """Tiny runs in a folder, each trained when it is first asked for: ``runs("text-mdm")``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trained: set[str] = set()

    def __call__(self, name: str) -> Path:
        run = self.folder / name
        if name not in self.trained:
            task, model = name.split("-")
            gc.freeze()  # the Trainer collects garbage at every start: half a second if it looks through the libraries
            if task == "retrofit":
                run_command("retrofit", self(f"text-{model}"), "--steps", 2, "--device", "cpu", "--out", run)
            else:
                config = self.write(f"{task}.toml", CONFIG.format(task=task, more=MAZE if task == "maze" else ""))
                given = ["--config", config, "--model", model, "--device", "cpu", "--out", run]
                run_command("train", *self.data(task), *given)
            self.trained.add(name)
        return run

    def write(self, name: str, text: str) -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def write_rows(self, name: str, rows: Sequence[dict[str, Any]]) -> Path:
        return self.write(name, "".join(json.dumps(row) + "\n" for row in rows))

    def data(self, task: str) -> list[Any]:
        """Return the arguments of `flexmdm train` that name the data of a task, which are written."""
        if task == "text":
            return [self.write("names.txt", "\n".join(NAMES * 10)), "--max-length", 24]
        if task == "sft":
            return [self.sums() / "train.jsonl", "--max-length", 24]
        if task == "code":
            for n in range(30):
                self.write(f"functions/add{n:02}.py", f"def add{n}(x):\n    y = x + {n}\n    return y\n")
            return [self.folder / "functions", "--max-length", 64, "--tokenizer", "bytes", "--held-out", 0.3]
        return []

    def sums(self) -> Path:
        """Write sums in the form of GSM8K and return their folder."""
        pairs = [(a, b) for a in range(12) for b in range(8)]
        rows = [{"question": f"{a}+{b}", "answer": f"{a}+{b}={a + b}\n#### {a + b}"} for a, b in pairs]
        self.write_rows("sums/train.jsonl", rows[:84])
        return self.write_rows("sums/test.jsonl", rows[84:]).parent

    def json_of(self, *arguments: Any) -> Any:
        """Return what a command writes to its ``--json``, without times and paths."""
        file = Path(tempfile.mkdtemp(dir=self.folder)) / "out.json"
        run_command(*arguments, "--json", file)
        return portable(portable(json.loads(file.read_text()), file.parent), self.folder)


@contextmanager
def tiny_runs() -> Iterator[Runs]:
    """Give runs in a new folder, with one thread and a cache of their own for prepared data."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        with mock.patch.dict(os.environ, {"FLEXMDM_CACHE": f"{folder}/cache"}):
            yield Runs(Path(folder).resolve())
    torch.set_num_threads(threads)


# Samplers -------------------------------------------------------------------------------------------------------------


def sampler_names() -> list[str]:
    """Return the names of all samplers, from the error that lists them."""
    try:
        flexmdm.generate(words().denoiser(), sampler="?")
    except ValueError as error:
        return str(error).partition("the known ones are ")[2].split(", ")
    raise AssertionError("an unknown sampler must be an error that lists the known ones")


def words() -> FiniteDistribution:
    return FiniteDistribution({(0, 1): 0.2, (0, 2, 1): 0.3, (3, 0, 2, 1): 0.2, (0, 2, 2, 2, 1): 0.3}, vocab_size=4)


def chain() -> HiddenMarkovSource:
    moves = [[0.2, 0.5, 0.2], [0.6, 0.1, 0.1], [0.3, 0.3, 0.1]]
    return HiddenMarkovSource([0.5, 0.3, 0.2], moves, [0.1, 0.2, 0.3], [0, 1, 2], vocab_size=3, empty=0.05)


@cache
def bundled(name: str) -> FlexMDMModel:
    return FlexMDMModel.from_pretrained(PRETRAINED / name, dtype=torch.float32).eval()


def drawn(denoiser: Any, **options: Any) -> dict[str, Any]:
    out = flexmdm.generate(denoiser, **options)
    return {"sequences": out.sequences, "evaluations": out.evaluations, "hit_max_length": out.hit_max_length}


def drawn_by_all(denoiser: Any, prompts: dict[str, Prompt], **options: Any) -> dict[str, Any]:
    """Draw from every prompt with every sampler; low_confidence reveals masks only, and inserts nothing."""
    return {
        f"{sampler}, {name}": drawn(denoiser, sampler=sampler, prompts=[prompt], seed=3, **options)
        for sampler in sampler_names()
        for name, prompt in prompts.items()
        if sampler != "low_confidence" or not any(prompt.open_gaps)
    }


def oracles(_: Runs) -> dict[str, Any]:
    """Draw from sources whose exact denoiser is known."""
    of_words = {
        "empty": Prompt.empty(),
        "prefix": Prompt.prefix([0]),
        "infill": Prompt.infill([[0], [2], []]),
        "bounded infill": Prompt.infill([[0], [1]], minimum=1, maximum=3),
        "through": Prompt.through([0, 2, 1]),
        "masks": Prompt.masks(4),
    }
    of_chain = {
        "empty": Prompt.empty(),
        "prefix": Prompt.prefix([2, 1]),
        "infill": Prompt.infill([[], [0, 1], [2], []]),
        "through": Prompt.through([0, 2, 1]),
        "masks": Prompt.masks(7),
    }
    options: dict[str, dict[str, Any]] = {
        "cold": {"sampler": "tau", "steps": 5, "temperature": 0.0},
        "top k, top p": {"sampler": "tau", "steps": 5, "top_k": 2, "top_p": 0.8},
        "window": {"sampler": "adaptive", "steps": 5, "confidence": "entropy", "window": (2.0, 3)},
        "margin": {"sampler": "adaptive", "steps": 5, "confidence": "margin"},
        "spacing": {"sampler": "spaced", "steps": 3, "spacing": 2.0, "confidence": "top_prob"},
        "block": {"sampler": "low_confidence", "steps": 5, "block": 2, "prompts": [Prompt.masks(6)]},
        "defaults": {"seed": 1, "max_length": 6, "batch_size": 1, "first_sequence": 5},
    }
    traced = flexmdm.generate(chain().denoiser(), 2, steps=4, seed=2, trace=True)
    return {
        "finite": drawn_by_all(words().denoiser(), of_words, num_samples=2, steps=4),
        "hidden Markov": drawn_by_all(chain().denoiser(), of_chain, num_samples=2, steps=4, max_length=12),
        "options": {
            name: drawn(chain().denoiser(), **{"seed": 4, "num_samples": 2, **given}) for name, given in options.items()
        },
        "trace": [[list(vars(event).values()) for event in events] for events in traced.trace or []],
    }


def weights(_: Runs) -> dict[str, Any]:
    """Draw with the weights that come with the package."""
    of_text = {
        "empty": Prompt.empty(),
        "prefix": Prompt.prefix([500, 17, 900]),
        "infill": Prompt.infill([[500, 17], [900], []], minimum=1, maximum=6),
        "masks": Prompt.masks(8),
    }
    of_maze = {
        "empty": Prompt.empty(),
        "infill": Prompt.infill([[42, 43], [130]]),
        "through": Prompt.through([42, 130]),
        "masks": Prompt.masks(8),
    }
    return {
        "text": drawn_by_all(bundled("text").denoiser(), of_text, steps=3, max_length=10),
        "maze41": drawn_by_all(bundled("maze41").denoiser(), of_maze, steps=3, max_length=10),
    }


def likelihoods(_: Runs) -> dict[str, Any]:
    """Estimate -log p of two sentences with the bundled text model."""
    tokenizer = Tokenizer.from_file(str(PRETRAINED / "text" / "tokenizer.json"))
    sentences = ["The city was founded in the 12th century.", "It is the largest of the three islands."]
    tokens = [tokenizer.encode(sentence).ids for sentence in sentences]
    found = flexmdm.likelihood(bundled("text").denoiser(), tokens, num_times=16, seed=0)
    return {"tokens": tokens, "nats": found.nats.tolist(), "standard_error": found.standard_error.tolist()}


# Training -------------------------------------------------------------------------------------------------------------


def trained(run: Path, folder: Path) -> dict[str, Any]:
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    config = json.loads((run / "run.json").read_text())
    preview = run / "samples.txt"  # which the maze does not write
    shown = lines_of(preview.read_text()) if preview.exists() else []
    return portable({"log": log, "config": config, "samples": shown, "sha256": digest(run)}, folder)


def training(runs: Runs) -> dict[str, Any]:
    """Train a few steps on every task, and turn an MDM into a FlexMDM."""
    names = [f"{task}-{model}" for task in ("text", "sft", "code", "maze") for model in ("flexmdm", "mdm")]
    return {name: trained(runs(name), runs.folder) for name in [*names, "retrofit-mdm"]}


def resumed(runs: Runs) -> dict[str, Any]:
    """Go on with a copy of a run as if it had been interrupted after its first checkpoint."""
    copy = runs.folder / "resumed"
    if not copy.exists():
        shutil.copytree(runs("text-flexmdm"), copy)
        shutil.rmtree(copy / "checkpoint-4")
        (copy / "model.safetensors").unlink()
        run_command("train", "--resume", "--device", "cpu", "--out", copy)
    return {"sha256": digest(copy)}


# Commands -------------------------------------------------------------------------------------------------------------


def help_texts(_: Runs) -> dict[str, Any]:
    """Print the help of every command, 100 columns wide and without colour."""
    return {" ".join(["flexmdm", *command]): lines_of(run_command(*command, "--help")) for command in COMMANDS}


def evaluations(runs: Runs) -> dict[str, Any]:
    """Measure tiny runs on their tasks and on made-up problems in the form of the benchmarks."""
    texts = ["--num", 6, "--steps", 4, "--reference", "none", "--likelihoods", 2]
    mazes = ["--num", 3, "--steps", 4, "--subgoals"]
    sums, problems = runs.sums(), runs.write_rows("problems.jsonl", [PROBLEM])
    gsm8k = ["--benchmark", "gsm8k", "--data", sums, "--num", 4]
    infill = ["--benchmark", "humaneval-infill", "--data", problems, "--workers", 1]
    solved = runs.write_rows("solved.jsonl", [{"number": n, "generation": f"It is {7 + n}."} for n in range(12)])
    pairs = [{"task_id": "test/0", "completion": text} for text in ("    return ", "  pass ")]
    filled = runs.write_rows("filled.jsonl", pairs)
    each, both = {}, ["flexmdm", "mdm"]
    for model in both:
        each[f"text, {model}"] = runs.json_of("eval", runs(f"text-{model}"), *texts)
        each[f"maze, {model}"] = runs.json_of("eval", runs(f"maze-{model}"), *mazes, "2,4")
    return {
        **each,
        "text, both": runs.json_of("eval", *(runs(f"text-{model}") for model in both), 8, *texts, "--sampler", "tau"),
        "maze, tau": runs.json_of("eval", runs("maze-flexmdm"), *mazes, 3, "--sampler", "tau", "--seed", 1),
        "gsm8k, both": runs.json_of("eval", *(runs(f"sft-{model}") for model in both), *gsm8k, "--steps", 2, 4),
        "gsm8k, samples": runs.json_of("eval", *gsm8k[:-2], "--samples", solved),
        "humaneval-infill, both": runs.json_of("eval", *(runs(f"code-{m}") for m in both), *infill, "--steps", 2),
        "humaneval-infill, samples": runs.json_of("eval", *infill, "--samples", filled),
        "sft": lines_of(run_command("eval", runs("sft-flexmdm"), exit_code=2)),
        "code": lines_of(run_command("eval", runs("code-flexmdm"), exit_code=2)),
    }


def answers(runs: Runs) -> dict[str, Any]:
    """Sample, complete and infill from the command line."""
    text, path = ["--pretrained", "text", "--steps", 3], ["--output", runs.folder / "path.png"]
    both = ["flexmdm", "mdm"]
    given = runs.write("texts.txt", "The ___ of the ___\n\n___ is a city\n")
    program = runs.write("program.py", "def f(x):\n    y = ___\n\n    return y\n")
    gaps = "The city of ___ was founded in ___."
    beginning = "The history of"
    return {
        "sample": runs.json_of("sample", *text, "--num", 2),
        "sample, tau": runs.json_of("sample", *text, "--sampler", "tau", "--temperature", 0.7, "--top-p", 0.9),
        "sample, watched": lines_of(run_command("sample", runs("text-flexmdm"), "--steps", 6, "--watch")),
        **{f"sample, text-{m}": runs.json_of("sample", runs(f"text-{m}"), "--steps", 6) for m in both},
        **{f"sample, maze-{m}": runs.json_of("sample", runs(f"maze-{m}"), *path, "--steps", 6) for m in both},
        "complete": runs.json_of("complete", *text, beginning),
        "complete, printed": lines_of(run_command("complete", *text, beginning, "--sampler", "adaptive")),
        **{f"complete, sft-{m}": runs.json_of("complete", runs(f"sft-{m}"), "3+4", "--steps", 4) for m in both},
        "infill": runs.json_of("infill", *text, gaps, "--num", 2, "--max", 12),
        "infill, likeliest": runs.json_of("infill", *text, gaps, "--sampler", "likeliest", "--min", 1, "--max", 3),
        "infill, file": runs.json_of("infill", *text, "--file", given, "--max", 8, "--temperature", 0.5),
        "infill, printed": lines_of(run_command("infill", *text, gaps, "--temperature", 0, "--max", 8)),
        **{
            f"infill, code-{m}": runs.json_of("infill", runs(f"code-{m}"), "--file", program, "--steps", 8)
            for m in both
        },
    }


def pipelines(runs: Runs) -> dict[str, Any]:
    """Sample, complete, infill and answer from Python."""
    text = flexmdm.TextPipeline.from_pretrained("text", "cpu")
    gaps = ["The ___ sat on the ___.", "In ___, the"]
    filled = text.fill([["The ", " of the ", "."]], 2, minimum=1, maximum=4, steps=4, seed=2)
    questions = flexmdm.SFTPipeline.from_pretrained(runs("sft-flexmdm"), "cpu")
    code = flexmdm.CodePipeline.from_pretrained(runs("code-flexmdm"), "cpu")
    middles = code.fill([("def f(x):\n", "    return y\n")], 2, steps=4)
    return {
        "sample": text.sample(2, steps=3, max_length=40),
        "complete": text.complete("The river", steps=3, seed=1, max_length=40),
        "complete, list": text.complete(["The river", "In the"], 2, steps=3, sampler="adaptive"),
        "infill": text.infill(gaps[0], steps=3),
        "infill, list": text.infill(gaps, steps=3, seed=1, temperature=0.5, max_length=40),
        "fill": [[one.text, list(one.gaps), list(one.tokens), one.evaluations] for one in filled],
        "answer": questions.answer(["3+4", "5+6"], 2, steps=4),
        "code": [[one.text, list(one.tokens), one.evaluations, one.context, one.around] for one in middles],
    }


def demos(runs: Runs) -> dict[str, Any]:
    """Run the demos in small."""
    oracle = ["--samples", 16, "--steps", 4, "--steps", 8, "--output", runs.folder / "demo-oracle"]
    maze = ["--steps", 2, "--size", 5, "--subgoals", "2-3", "--num", 2, "--output", runs.folder / "demo-maze"]
    return {"oracle": runs.json_of("demo", "oracle", *oracle), "maze": runs.json_of("demo", "maze", *maze)}


PARTS: dict[str, Callable[[Runs], dict[str, Any]]] = {
    "oracles": oracles,
    "weights": weights,
    "likelihoods": likelihoods,
    "training": training,
    "resumed": resumed,
    "help": help_texts,
    "evaluations": evaluations,
    "answers": answers,
    "pipelines": pipelines,
    "demos": demos,
}


def write(part: str, runs: Runs) -> Path:
    """Record one part."""
    file = HERE / f"{part}.json"
    file.write_text(as_json({"machine": machine(), "recorded": PARTS[part](runs)}) + "\n")
    return file


def read(part: str) -> dict[str, Any]:
    """Return what was recorded of one part, and by which machine."""
    return json.loads((HERE / f"{part}.json").read_text())


def as_json(value: Any, indent: str = "") -> str:
    """Return JSON with one line for each short entry, so that a change is seen where it is."""
    short = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(short) + len(indent) <= 160:
        return short
    if isinstance(value, dict):
        inside = [f"{json.dumps(key)}: {as_json(one, indent + '  ')}" for key, one in value.items()]
    else:
        inside = [as_json(one, indent + "  ") for one in value]
    start, end = "{}" if isinstance(value, dict) else "[]"
    return start + "\n" + ",\n".join(f"{indent}  {one}" for one in inside) + f"\n{indent}{end}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Record the outputs that test_golden.py compares with.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"Parts to record: {', '.join(PARTS)}. Default: all.")
    parser.add_argument("--write", action="store_true", required=True, help="Replace the JSON files.")
    chosen = parser.parse_args().parts or list(PARTS)
    with tiny_runs() as runs:
        for part in chosen:
            print(write(part, runs))
