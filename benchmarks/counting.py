"""Does an insertion head count? Trainings on a source whose nats and lengths are known exactly.

Sequences are bigrams over 16 tokens whose lengths follow a log-normal law with the quantiles of paragraphs, halved. A
small network is trained with each head and each pair of schedules, then measured: the excess over the exact nats per
token, the W1 of the lengths of samples (`spaced`, 64 steps), and on canvases of masks alone the ratio of the expected
insertions to their true number, which the lengths alone tell.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flexmdm import (
    Canvas,
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
from flexmdm.training.collation import Collator
from flexmdm.training.ema import EMA
from flexmdm.training.optimizers import make_optimizer
from flexmdm.training.recipe import Recipe

EXAMPLES = """examples:
  python benchmarks/counting.py                               all of it, hours on one core; goes on where it stopped
  python benchmarks/counting.py --steps 600 --seeds 0 --heads count --schedules early    one training, about 2 minutes
"""
RESULTS = Path(__file__).parent / "results"
TOKENS, LONGEST, HELD_OUT, SAMPLES, BATCH = 16, 128, 256, 1000, 64
RATE, WARMUP, DECAY = 5e-3, 30, 0.2
SCHEDULES = {
    "linear": FlexMDMInterpolant(LinearSchedule(), LinearSchedule()),
    "early": FlexMDMInterpolant(SineSchedule(), PolynomialSchedule(3.0)),
    "earlier": FlexMDMInterpolant(PolynomialSchedule(0.5), PolynomialSchedule(2.0)),
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
    """Sequences with nothing given."""

    def __init__(self, x1: Ragged) -> None:
        self.x1 = x1

    def __len__(self) -> int:
        return len(self.x1)

    def take(self, index: Tensor, numbers: Tensor) -> tuple[Ragged, Template]:
        """Return the sequences ``index``."""
        x1 = self.x1[index]
        return x1, Template.free(x1)


def train(source: Source, head: str, schedules: str, steps: int, seed: int, clip: float) -> tuple[FlexMDMModel, float]:
    """Train a network for some steps; return it with the seconds of processor time."""
    data = source.draw(20_000, seed=1)
    interpolant, lengths = SCHEDULES[schedules], data.lengths.double()
    torch.manual_seed(seed)
    config = FlexMDMConfig(
        vocab_size=TOKENS, hidden_size=64, num_layers=3, num_heads=4, condition_size=64, dropout=0.0, neighbours=True,
        regions=(float(lengths.mean()), float(lengths.var())) if head == "count" else None,
        clock="logarithms" if head == "count" else "waves", interpolant=interpolant.to_dict(),
    )  # fmt: skip
    model = FlexMDMModel(config).train()
    optimizer = make_optimizer(model, Recipe(steps=steps, optimizer="muon", learning_rate=RATE))
    average, collate = EMA(model, 0.99), Collator(Examples(data), interpolant, config.mask_id, seed=seed)
    began = time.process_time()
    for step in range(steps):
        rate = RATE * min(1.0, (step + 1) / WARMUP, (steps - step) / (DECAY * steps))
        for group in optimizer.param_groups:
            group["lr"] = rate
        batch = collate(range(step * BATCH, (step + 1) * BATCH))
        output = model(**batch.inputs(config.mask_id))
        batch.loss(output.logits, output.insertions, interpolant).total.mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        average.update()
    average.apply()
    return model.eval(), time.process_time() - began


def measure(source: Source, model: FlexMDMModel) -> dict[str, Any]:
    """Return excess, length W1 and the ratios of expected insertions to their truth."""
    held_out, denoiser = source.draw(HELD_OUT, seed=2), model.denoiser()
    excess = likelihood(denoiser, held_out, num_times=32).nats - source.nats(held_out)
    mean = float(held_out.lengths.double().mean())
    out = generate(denoiser, SAMPLES, sampler="spaced", steps=64, seed=1, max_length=3 * LONGEST)
    found = torch.bincount(torch.tensor([len(sequence) for sequence in out.sequences])).double() / SAMPLES
    average = float((source.lengths * torch.arange(LONGEST + 1)).sum())
    ratios = {}
    for alpha in CLOCKS:
        for masks in sorted({int(share * alpha * average) for share in (0.5, 1.0, 1.5)}):
            canvas = Canvas(Ragged.from_lists([[model.config.mask_id] * masks]), mask_id=model.config.mask_id)
            g = denoiser(canvas, torch.tensor([alpha], dtype=torch.float64)).insertions.values.sum()
            ratios[f"{masks} masks at {alpha}"] = float(g) / source.missing(masks, alpha)
    return {
        "excess": float(excess.mean()) / mean,
        "excess_error": float(excess.std()) / mean / math.sqrt(HELD_OUT),
        "w1": wasserstein(found, source.lengths),
        "floor": wasserstein_floor(source.lengths, SAMPLES),
        "worst_ratio": max(ratios.values(), key=lambda ratio: abs(math.log(max(ratio, 1e-9)))),
        "ratios": ratios,
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the results as a page."""
    lines = [
        __doc__.strip().replace("\n", " "),
        f"Batches of {BATCH}, 64 wide, 3 layers, Muon; {SAMPLES:,} samples, {HELD_OUT} held-out sequences. The excess "
        "is in nats per token with its standard error; g / truth is the ratio that is farthest from 1. Made by "
        "`python benchmarks/counting.py`.",
        "",
        "| head | schedules | clip | steps | seed | excess | length W1 (floor) | g / truth | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (row["steps"], row["schedules"], row["head"], row["clip"], row["seed"])):
        lines.append(
            f"| {row['head']} | {row['schedules']} | {row['clip']:g} | {row['steps']} | {row['seed']} | "
            f"{row['excess']:.3f} ± {row['excess_error']:.3f} | {row['w1']:.1f} ({row['floor']:.1f}) | "
            f"{row['worst_ratio']:.2f} | {row['seconds']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Train, measure, and write benchmarks/results/counting.{json,md} after each training."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--heads", nargs="+", default=["gap", "count"], choices=["gap", "count"])
    parser.add_argument("--schedules", nargs="+", default=list(SCHEDULES), choices=list(SCHEDULES))
    parser.add_argument("--steps", nargs="+", type=int, default=[600, 2400])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--clip", nargs="+", type=float, default=[1.0, 1000.0], help="largest norms of the gradient")
    parser.add_argument("--name", default="counting", help="of the result files")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    source, file = Source(), RESULTS / f"{arguments.name}.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    wanted = [
        {"head": head, "schedules": schedules, "steps": steps, "seed": seed, "clip": clip}
        for steps in arguments.steps
        for seed in arguments.seeds
        for schedules in arguments.schedules
        for head in arguments.heads
        for clip in arguments.clip
    ]
    for one in wanted:
        if any(one.items() <= row.items() for row in rows):
            continue
        model, seconds = train(source, **one)
        rows.append({**one, "seconds": seconds, **measure(source, model)})
        print(json.dumps({key: value for key, value in rows[-1].items() if key != "ratios"}), flush=True)
        file.write_text(json.dumps(rows, indent=1) + "\n")
        file.with_suffix(".md").write_text(table(rows))


if __name__ == "__main__":
    main()
