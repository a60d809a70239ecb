"""Runs in lm-evaluation-harness (the extra ``eval``): the model ``flexmdm``, and our benchmarks as its tasks.

    import lm_eval
    from flexmdm.integrations import lm_eval as harness

    lm_eval.simple_evaluate(
        model="flexmdm",
        model_args={"run": "runs/gsm8k", "steps": 64},
        tasks=[harness.gsm8k("data/gsm8k")],  # or the name of any task of lm-eval that generates
    )

Importing this module registers the model. Our tasks read the official files, without a network, and score as ``flexmdm
eval`` does. On the command line they have names, and with anything else this is ``lm_eval`` with the model:

    python -m flexmdm.evaluation.harness gsm8k --run runs/gsm8k --data data/gsm8k --limit 100 --json gsm8k.json
    python -m flexmdm.evaluation.harness humaneval-infill --run runs/code --data data/humaneval-infilling
    python -m flexmdm.evaluation.harness --model flexmdm --model_args run=runs/gsm8k,steps=64 --tasks gsm8k
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flexmdm.objective import likelihood
from flexmdm.sweeps.gsm8k import GSM8K
from flexmdm.sweeps.humaneval import HumanEvalInfill
from flexmdm.sweeps.sweep import Benchmark, asked, options_of
from flexmdm.tasks.layouts import gap_examples
from flexmdm.tasks.pipeline import BATCH
from flexmdm.tasks.sft.pipeline import SFTPipeline
from flexmdm.tasks.task import Task
from flexmdm.tasks.text.pipeline import TextPipeline

if TYPE_CHECKING:
    from flexmdm.backbones.model import FlexMDMModel

try:
    from lm_eval.api import model as lm_eval_model
    from lm_eval.api import registry as lm_eval_registry
except ImportError:  # then there is nobody to register with; `FlexMDMRun` says so when it is used
    lm_eval_model = lm_eval_registry = None

_LM: Any = lm_eval_model.LM if lm_eval_model else object
_register: Any = lm_eval_registry.register_model if lm_eval_registry else lambda _: lambda kind: kind

_MISSING = "lm-eval is not installed: pip install 'flexmdm[eval]'"
GAP = "<|gap|>"  # in a context of an infilling task


@_register("flexmdm")
class FlexMDMRun(_LM):
    """A run as a model of lm-eval.

    A run on prompts and answers gets each context as a question, in its own format; one on code or text fills the `GAP`
    of the context, or else goes on behind it. What it writes is cut at the first of the strings that the task ends at.
    The options are those of the `Responder`; lm-eval always gives ``max_batch_size``, which is not used.
    """

    def __init__(self, run: str, device: str | None = None, max_batch_size: int | None = None, **options: Any) -> None:
        if lm_eval_model is None:
            raise ImportError(_MISSING)
        super().__init__()
        from flexmdm.tasks.loading import load

        self.responder = Responder(*load(Path(run), device), **options)

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Return a text for each (context, arguments), of which only ``until`` counts, the rest is the run's."""
        texts = self.responder.texts([one.args[0] for one in requests])
        return [_cut(text, one.args[1].get("until")) for text, one in zip(texts, requests, strict=True)]

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Return for each (context, continuation) the bound, and false: as the order is free, nothing is greedy."""
        return [(self.responder.log_likelihood(*one.args), False) for one in requests]

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        raise NotImplementedError("a run has no window that rolls over a text: measure texts by flexmdm eval")


class Responder:
    """A run that answers what lm-eval asks of a model.

    Args:
        seed: of generation; the context with number i gets the random numbers of item i of ``flexmdm eval``.
        batch_size: contexts at a time.
        num_times: times per sequence for a likelihood.
        options: of `flexmdm.generate`; by default those of the paper, as in ``flexmdm eval``. On a command line, where
            a comma ends an option, the window is ``5:64``.
    """

    def __init__(
        self,
        task: Task,
        model: FlexMDMModel,
        steps: int = 64,
        seed: int = 0,
        batch_size: int | str | None = None,
        num_times: int = 64,
        **options: Any,
    ) -> None:
        self.pipeline = task.pipeline(model)
        self.answers = isinstance(self.pipeline, SFTPipeline)  # and does not fill gaps
        benchmark: Benchmark = GSM8K(()) if self.answers else HumanEvalInfill({})
        if isinstance(options.get("window"), str):
            share, _, most = options["window"].partition(":")
            options["window"] = float(share), int(most)
        self.task, self.model, self.num_times = task, model, num_times
        self.batch_size = BATCH if batch_size in (None, "auto") else int(batch_size)
        self.entrant = benchmark.entrant("the run", task, model)
        (chosen,) = options_of([self.entrant], benchmark.defaults, options).values()
        self.options: dict[str, Any] = {**chosen, "steps": steps, "seed": seed}

    def texts(self, contexts: Sequence[str]) -> list[str]:
        """Return a text for each context; empty where the model cannot take it."""
        items = contexts if self.answers else [context.partition(GAP)[::2] for context in contexts]
        batches = asked(self.entrant, items, batch_size=self.batch_size, **self.options)
        return [one.text for answers, _ in batches for one in answers]

    def log_likelihood(self, context: str, continuation: str) -> float:
        """Return a lower bound on that of the continuation given the context, marginalised over the embeddings."""
        task = self.pipeline.task
        if not self.answers and not isinstance(self.pipeline, TextPipeline):
            raise NotImplementedError(f"a run on {task.name} has no likelihood of what follows a context")
        prompt = task.encode((("user", context),)) if self.answers else task.text.encode([context])[0]
        x1, template = gap_examples([(prompt, task.text.encode([continuation])[0], [])])
        if not task.layout.inserts and x1.max_length > task.width:
            return -math.inf  # it has no masks for so many tokens
        x1, template = task.layout.example(x1, template)
        seed = self.options["seed"]
        found = likelihood(self.model.denoiser(), x1, num_times=self.num_times, seed=seed, template=template)
        return -float(found.nats)


def _cut(text: str, until: str | Sequence[str] | None) -> str:
    """Return the text up to the first of the strings ``until``.

    >>> _cut("18\\n\\nQuestion: next", ["Question:", "\\n\\n"])
    '18'
    """
    ends = [until] if isinstance(until, str) else until or ()
    return min((text.partition(end)[0] for end in ends if end), key=len, default=text)


# Tasks ----------------------------------------------------------------------------------------------------------------


def gsm8k(data: str | Path, split: str = "test", num: int | None = None) -> dict[str, Any]:
    """Return the first GSM8K problems of the official files as a task of lm-eval, scored by its flexible rule."""
    from flexmdm.tasks.math.answers import is_correct
    from flexmdm.tasks.math.problems import read_problems

    return _task(
        "flexmdm_gsm8k",
        [vars(problem) for problem in read_problems(Path(data), split)[:num]],
        lambda doc: doc["question"],
        lambda doc: doc["answer"],
        "accuracy",
        lambda doc, text: is_correct(text, doc["answer"].rpartition("####")[2]),
    )


def humaneval_infill(data: str | Path, split: str = "single-line", num: int | None = None) -> dict[str, Any]:
    """Return the first HumanEval-infilling problems of the official files as a task, scored by their tests."""
    from flexmdm.tasks.code.problems import Problem, Sample, read_problems
    from flexmdm.tasks.code.scoring import score

    def passes(doc: dict[str, str], text: str) -> bool:
        problem = Problem(**doc)
        return score({problem.task_id: problem}, [Sample(problem.task_id, text)], workers=1).items[0].passed

    return _task(
        f"flexmdm_humaneval_infill_{split.replace('-', '_')}",
        [vars(problem) for problem in islice(read_problems(Path(data), split).values(), num)],
        lambda doc: doc["prompt"] + GAP + doc["suffix"],
        lambda doc: doc["canonical_solution"],
        "pass@1",
        passes,
    )


def _task(name: str, docs: list[dict[str, str]], text: Any, target: Any, measure: str, right: Any) -> dict[str, Any]:
    """Return the configuration of a task that generates, each text right or wrong."""
    from datasets import Dataset, DatasetDict

    return {
        "task": name,
        "custom_dataset": lambda **_: DatasetDict({"test": Dataset.from_list(docs)}),
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": text,
        "doc_to_target": target,
        "generation_kwargs": {"until": []},
        "process_results": lambda doc, results: {measure: float(right(doc, results[0]))},
        "metric_list": [{"metric": measure, "aggregation": "mean", "higher_is_better": True}],
        "metadata": {"version": 1.0},
    }


# The command line -----------------------------------------------------------------------------------------------------

_TASKS = {"gsm8k": gsm8k, "humaneval-infill": humaneval_infill}


def main() -> None:
    """Run one of our tasks if the first argument names it; else ``lm_eval``."""
    parser = argparse.ArgumentParser(
        prog="python -m flexmdm.evaluation.harness",
        description="A run on one of our tasks in lm-evaluation-harness, without a network. "
        "Without the name of a task, all arguments are those of lm_eval, where --model flexmdm is known.",
    )
    parser.add_argument("task", choices=_TASKS)
    parser.add_argument("--run", type=Path, required=True, help="the folder that flexmdm train --out wrote")
    parser.add_argument("--data", type=Path, required=True, help="folder of the official files, or one file")
    parser.add_argument("--split", help="gsm8k: test or train; humaneval-infill: single-line and so on")
    parser.add_argument("--limit", type=int, metavar="N", help="the first so many problems; by default all")
    parser.add_argument("--steps", type=int, default=64, help="of the sampler; by default 64")
    parser.add_argument("--device", help="cpu, cuda or mps; by default what there is")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    first = sys.argv[1:2]
    if first in (["-h"], ["--help"]):
        parser.print_help()
        print("\nand of lm_eval:\n", flush=True)
    if lm_eval_model is None:
        parser.exit(1, f"{_MISSING}\n")
    if first and first[0] in _TASKS:
        _evaluate(parser)
    else:
        from lm_eval.__main__ import cli_evaluate

        cli_evaluate()


def _evaluate(parser: argparse.ArgumentParser) -> None:
    import lm_eval
    from lm_eval.tasks import TaskManager

    given = parser.parse_args()
    try:
        if given.limit is not None and given.limit < 1:
            raise ValueError(f"--limit is at least 1, got {given.limit}")
        for option, path in (("run", given.run), ("data", given.data)):
            if not path.exists():
                raise FileNotFoundError(f"--{option} {path}: no such folder")
        task = _TASKS[given.task](given.data, **({"split": given.split} if given.split else {}), num=given.limit)
        model = FlexMDMRun(str(given.run), given.device, steps=given.steps)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    ours_alone = TaskManager(include_defaults=False)  # to list all tasks of lm-eval takes many seconds
    found = lm_eval.simple_evaluate(model=model, tasks=[task], task_manager=ours_alone)
    measure, name = task["metric_list"][0]["metric"], task["task"]
    value, error = (found["results"][name][f"{measure}{kind},none"] for kind in ("", "_stderr"))
    num = len(found["samples"][name])
    print(f"{given.run} on {num:,} problems of {given.task}, {given.steps} steps: {measure} {value:.4f}")
    if given.json is not None:
        command = shlex.join([*parser.prog.split(), *sys.argv[1:]])
        result = {"command": command, "task": given.task, "run": str(given.run), "data": str(given.data)}
        result |= {"steps": given.steps, "problems": num, measure: value, "standard error": error}
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
