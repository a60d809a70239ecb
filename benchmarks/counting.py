"""Does an insertion head count? Trainings on a source whose nats and lengths are known exactly.

Sequences are bigrams over 16 tokens whose lengths follow a log-normal law with the quantiles of paragraphs, halved. A
small network is trained by each recipe with each pair of schedules, then measured: the excess over the exact nats per
token, the W1 of the lengths of samples (`spaced`, 64 steps), and on canvases of masks alone the ratio of the expected
insertions to their true number, which the lengths alone tell. A padded MDM is trained by the whole recipe for the same
processor time as the FlexMDM of its steps and seed.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flexmdm import (
    Canvas,
    EarlySchedule,
    FlexMDMConfig,
    FlexMDMInterpolant,
    FlexMDMModel,
    LinearSchedule,
    PolynomialSchedule,
    Ragged,
    SineSchedule,
    Template,
    generate,
    likelihood,
)
from flexmdm.evaluation.distances import wasserstein, wasserstein_floor
from flexmdm.tasks.layouts import Layout, layout_of
from flexmdm.training.collation import Collator
from flexmdm.training.ema import EMA
from flexmdm.training.optimizers import make_optimizer
from flexmdm.training.recipe import Recipe

EXAMPLES = """examples:
  python benchmarks/counting.py                       all of it, hours on one core; goes on where it stopped
  python benchmarks/counting.py --steps 600 --seeds 0 --recipes whole --schedules early    one training, 2 minutes
"""
RESULTS = Path(__file__).parent / "results"
TOKENS, LONGEST, HELD_OUT, SAMPLES, BATCH = 16, 128, 256, 1000, 64
RATE, WARMUP, DECAY = 5e-3, 30, 0.2
MDM = "mdm late"  # padded, revealed by t^3: what the MDM is trained with
SCHEDULES = {
    "linear": FlexMDMInterpolant(LinearSchedule(), LinearSchedule()),
    "early": FlexMDMInterpolant(SineSchedule(), PolynomialSchedule(3.0)),
    "earlier": FlexMDMInterpolant(EarlySchedule(4.0), PolynomialSchedule(3.0)),
    MDM: FlexMDMInterpolant(LinearSchedule(), PolynomialSchedule(3.0)),
}


@dataclass(frozen=True)
class Setup:
    """What the compared trainings differ in."""

    counts: bool  # an insertion head that counts and a clock in logarithms, or a head per gap and a clock of waves
    clip: float
    largest_weight: float | None = None


RECIPES = {
    "per gap": Setup(counts=False, clip=1.0),
    "counting": Setup(counts=True, clip=1000.0),
    "whole": Setup(counts=True, clip=50.0, largest_weight=1.0),
}
CLOCKS = (0.01, 0.03, 0.1, 0.3, 0.6, 0.9)


class Source:
    """Bigrams with a law of lengths."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(7)
        gammas = torch._standard_gamma(torch.full((TOKENS + 1, TOKENS), 0.3, dtype=torch.float64), generator=generator)
        self.first, self.next = (gammas / gammas.sum(1, keepdim=True)).split([1, TOKENS])
        length = torch.arange(1, LONGEST + 1, dtype=torch.float64)
        law = torch.exp(-((length.log() - math.log(41)) ** 2) / (2 * 0.587**2)) / length
        self.lengths = torch.cat([torch.zeros(1), law / law.sum()])  # [129]

    def draw(self, num: int, seed: int) -> Ragged:
        """Draw ``num`` sequences."""
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.multinomial(self.lengths, num, True, generator=generator)
        columns = [torch.multinomial(self.first[0], num, True, generator=generator)]
        for _ in range(LONGEST - 1):
            columns.append(torch.multinomial(self.next[columns[-1]], 1, generator=generator)[:, 0])
        return Ragged.from_padded(torch.stack(columns, 1), lengths)

    def nats(self, x1: Ragged) -> Tensor:
        """Return -log p of each sequence, ``[B]``."""
        first = x1.columns == 0
        behind = torch.roll(x1.values, 1)
        token = torch.where(first, self.first[0][x1.values], self.next[behind, x1.values]).log()
        return -x1.sum(token) - self.lengths[x1.lengths].log()

    def missing(self, masks: int, alpha: float) -> float:
        """Return E[missing | ``masks`` masks and nothing else, alpha]."""
        length = torch.arange(len(self.lengths), dtype=torch.float64)
        rest = (length - masks).clamp(min=0)
        log_weight = self.lengths.log() + torch.lgamma(length + 1) - torch.lgamma(rest + 1) + rest * math.log1p(-alpha)
        return float((torch.where(length >= masks, log_weight, -torch.inf).softmax(0) * rest).sum())


class Examples:
    """Sequences with nothing given, in the layout of a model."""

    def __init__(self, x1: Ragged, layout: Layout) -> None:
        self.x1, self.layout = x1, layout

    def __len__(self) -> int:
        return len(self.x1)

    def take(self, index: Tensor, numbers: Tensor) -> tuple[Ragged, Template]:
        """Return the sequences ``index``."""
        x1 = self.x1[index]
        return self.layout.example(x1, Template.free(x1))


def train(
    source: Source, setup: Setup, schedules: str, seed: int, steps: int | None = None, seconds: float | None = None
) -> tuple[FlexMDMModel, int, float]:
    """Train a network for some steps or seconds of processor time; return it with both numbers."""
    data = source.draw(20_000, seed=1)
    interpolant, layout = SCHEDULES[schedules], layout_of_schedules(schedules)
    shares = (torch.bincount(data.lengths) / len(data)).tolist()
    torch.manual_seed(seed)
    config = FlexMDMConfig(
        vocab_size=layout.vocabulary(TOKENS), hidden_size=64, num_layers=3, num_heads=4, condition_size=64,
        dropout=0.0, neighbours=True, insertions=layout.inserts,
        regions={"whole": shares, "between": shares} if setup.counts and layout.inserts else None,
        clock="logarithms" if setup.counts else "waves", interpolant=interpolant.to_dict(),
    )  # fmt: skip
    model = FlexMDMModel(config).train()
    optimizer = make_optimizer(model, Recipe(optimizer="muon", learning_rate=RATE))
    average = EMA(model, 0.99)
    collate = Collator(Examples(data, layout), interpolant, config.mask_id, layout.inserts, seed=seed)
    began, step = time.process_time(), 0
    while True:
        used = time.process_time() - began
        left = 1 - (step / steps if steps else used / (seconds or math.inf))
        if left <= 0:
            break
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / WARMUP, left / DECAY)
        batch = collate(range(step * BATCH, (step + 1) * BATCH))
        output = model(**batch.inputs(config.mask_id))
        loss = batch.loss(output.logits, output.insertions, interpolant)
        if setup.largest_weight is not None:
            loss = batch.softened(loss, interpolant, setup.largest_weight)
        loss.total.mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), setup.clip)
        optimizer.step()
        optimizer.zero_grad()
        average.update()
        step += 1
    average.apply()
    return model.eval(), step, time.process_time() - began


def layout_of_schedules(schedules: str) -> Layout:
    """Return how the model of these schedules sees a sequence."""
    return layout_of("mdm" if schedules == MDM else "flexmdm", LONGEST, LONGEST, pad=TOKENS)


def measure(source: Source, model: FlexMDMModel, schedules: str) -> dict[str, Any]:
    """Return excess, length W1 and, of a FlexMDM, the ratios of expected insertions to their truth."""
    held_out, denoiser, layout = source.draw(HELD_OUT, seed=2), model.denoiser(), layout_of_schedules(schedules)
    x1, template = layout.example(held_out, Template.free(held_out))
    excess = likelihood(denoiser, x1, num_times=32, template=template).nats - source.nats(held_out)
    mean = float(held_out.lengths.double().mean())
    whole = layout.between([[], []])
    out = generate(
        denoiser, prompts=[whole], num_samples=SAMPLES, sampler="spaced", steps=64, seed=1, max_length=3 * LONGEST
    )
    found = torch.bincount(torch.tensor([len(layout.found(sequence)) for sequence in out.sequences])).double() / SAMPLES
    result = {
        "excess": float(excess.mean()) / mean,
        "excess_error": float(excess.std()) / mean / math.sqrt(HELD_OUT),
        "w1": wasserstein(found, source.lengths),
        "floor": wasserstein_floor(source.lengths, SAMPLES),
    }
    if not layout.inserts:
        return result
    average = float((source.lengths * torch.arange(LONGEST + 1)).sum())
    ratios = {}
    for alpha in CLOCKS:
        for masks in sorted({int(share * alpha * average) for share in (0.5, 1.0, 1.5)}):
            canvas = Canvas(Ragged.from_lists([[model.config.mask_id] * masks]), mask_id=model.config.mask_id)
            g = denoiser(canvas, torch.tensor([alpha], dtype=torch.float64)).insertions.values.sum()
            ratios[f"{masks} masks at {alpha}"] = float(g) / source.missing(masks, alpha)
    worst = max(ratios.values(), key=lambda ratio: abs(math.log(max(ratio, 1e-9))))
    return {**result, "worst_ratio": worst, "ratios": ratios}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the results as a page."""
    differ = "; ".join(
        f"{name}: {'counting head, clock in logarithms' if setup.counts else 'head per gap, clock of waves'}, "
        f"gradients clipped at {setup.clip:g}"
        + (f", weights of states up to {setup.largest_weight:g}" if setup.largest_weight else "")
        for name, setup in RECIPES.items()
    )
    lines = [
        __doc__.strip().replace("\n", " "),
        f"Recipes: {differ}. Batches of {BATCH}, 64 wide, 3 layers, Muon; {SAMPLES:,} samples, {HELD_OUT} held-out "
        "sequences. The excess is in nats per token with its standard error; g / truth is the ratio that is farthest "
        "from 1. Made by `python benchmarks/counting.py`.",
        "",
        "| steps | schedules | recipe | seed | excess | length W1 (floor) | g / truth | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (row["steps"], [*SCHEDULES].index(row["schedules"]), row["recipe"])):
        ratio = f"{row['worst_ratio']:.2f}" if "worst_ratio" in row else ""
        taken = f"{row['steps']}" if row["schedules"] != MDM else f"{row['steps']} (took {row['taken']})"
        lines.append(
            f"| {taken} | {row['schedules']} | {row['recipe']} | {row['seed']} | "
            f"{row['excess']:.3f} ± {row['excess_error']:.3f} | {row['w1']:.1f} ({row['floor']:.1f}) | {ratio} | "
            f"{row['seconds']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Train, measure, and write benchmarks/results/counting.{json,md} after each training."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipes", nargs="+", default=["per gap", "whole"], choices=list(RECIPES))
    parser.add_argument("--schedules", nargs="+", default=list(SCHEDULES), choices=list(SCHEDULES))
    parser.add_argument("--steps", nargs="+", type=int, default=[600, 2400])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--name", default="counting", help="of the result files")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    source, file = Source(), RESULTS / f"{arguments.name}.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    wanted = [
        {"recipe": recipe, "schedules": schedules, "steps": steps, "seed": seed}
        for steps in arguments.steps
        for seed in arguments.seeds
        for schedules in arguments.schedules
        for recipe in (["whole"] if schedules == MDM else arguments.recipes)
    ]
    for one in wanted:
        if any(one.items() <= row.items() for row in rows):
            continue
        budget = {"steps": one["steps"]}
        if one["schedules"] == MDM:  # as long as the FlexMDM of its steps and seed took
            like = {**one, "schedules": "early"}
            budget = {"seconds": next((row["seconds"] for row in rows if like.items() <= row.items()), None)}
            if budget["seconds"] is None:
                parser.error(f"{MDM} takes as long as early by the recipe whole: add these")
        setup = RECIPES[one["recipe"]]
        model, taken, seconds = train(source, setup, one["schedules"], one["seed"], **budget)
        rows.append({**one, "taken": taken, "seconds": seconds, **measure(source, model, one["schedules"])})
        print(json.dumps({key: value for key, value in rows[-1].items() if key != "ratios"}), flush=True)
        file.write_text(json.dumps(rows, indent=1) + "\n")
        file.with_suffix(".md").write_text(table(rows))


if __name__ == "__main__":
    main()
