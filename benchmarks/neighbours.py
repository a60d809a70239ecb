"""Heads that look left and right from the start against heads that find their neighbours themselves.

FlexMDM and MDM learn pieces of text for as many steps with either start; everything else is the same. Needs a file of
text, one document per line or with a field "text".
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from flexmdm.runs.config import RunConfig
from flexmdm.runs.train import train
from flexmdm.tasks import task_of
from flexmdm.training.progress import read_log
from flexmdm.training.recipe import Network, Recipe

EXAMPLES = """examples:
  python benchmarks/neighbours.py PATH/train.jsonl.gz                the committed results; about ten minutes
  python benchmarks/neighbours.py PATH/train.jsonl.gz --steps 200 --name quick    a quick look
"""
RESULTS = Path(__file__).parent / "results"
EVERY = 100


def run(model: str, neighbours: bool, data: Path, steps: int, folder: Path) -> dict[str, object]:
    """Train once; bits per token of held-out text by step."""
    recipe = Recipe(
        steps=steps, batch_size=64, optimizer="muon", learning_rate=5e-3, warmup=50, schedule="constant", ema=0.99,
        eval_every=EVERY, eval_size=256, save_every=steps, keep=1,
    )  # fmt: skip
    task = task_of({
        "name": "text", "model": model, "data": [str(data)], "tokenizer": "bpe", "vocabulary": 2048, "max_length": 64,
        "long": "split", "mixture": {"unconditional": 1.0}, **({"field": "text"} if "json" in data.name else {}),
    })  # fmt: skip
    network = Network(hidden=64, layers=2, heads=2, condition=64, dropout=0.0, neighbours=neighbours)
    train(RunConfig(task.to_dict(), network, recipe), folder, device="cpu", console=Console(quiet=True))
    log = read_log(folder / "log.jsonl")
    bits = {row["step"]: row["eval_bits_per_token"] for row in log if "eval_bits_per_token" in row}
    error = next(row["eval_bits_per_token_standard_error"] for row in reversed(log) if "eval_bits_per_token" in row)
    return {"model": model, "neighbours": neighbours, "bits_per_token": bits, "standard_error": error}


def main() -> None:
    """Train, print, and write benchmarks/results/neighbours.{json,md}."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--name", default="neighbours", help="of the result files")
    arguments = parser.parse_args()
    console, rows = Console(), []
    with tempfile.TemporaryDirectory() as name:
        for model in ("flexmdm", "mdm"):
            for neighbours in (True, False):
                console.print(f"{model}, {'looking aside' if neighbours else 'plain'} ...")
                folder = Path(name) / f"{model}-{neighbours}"
                rows.append(run(model, neighbours, arguments.data, arguments.steps, folder))
    marks = sorted(rows[0]["bits_per_token"])  # ty: ignore[invalid-argument-type]
    table = Table("model", "start", *(f"{mark} steps" for mark in marks))
    lines = [
        f"Bits per token of held-out text (marginalised likelihood; standard error {rows[0]['standard_error']:.2f}, "
        "the same text for all). Two layers of 64, batches of 64, pieces of at most 64 tokens, one seed. Made by "
        f"`python benchmarks/neighbours.py PATH/{arguments.data.name} --steps {arguments.steps}`.",
        "",
        "| model | start | " + " | ".join(f"{mark} steps" for mark in marks) + " |",
        "|---" * (2 + len(marks)) + "|",
    ]
    for row in rows:
        start = "looking aside" if row["neighbours"] else "plain"
        cells = [str(row["model"]), start, *(f"{row['bits_per_token'][mark]:.2f}" for mark in marks)]  # ty: ignore
        table.add_row(*cells)
        lines.append("| " + " | ".join(cells) + " |")
    console.print(table)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{arguments.name}.json").write_text(
        json.dumps({"steps": arguments.steps, "rows": rows}, indent=1) + "\n"
    )
    (RESULTS / f"{arguments.name}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
