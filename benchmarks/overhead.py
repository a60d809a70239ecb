"""What sampling and training cost beside the network: sampler steps, interpolant and alignment against one pass.

The network is a plain transformer (8 layers, 256 wide, 8 heads, 1024 tokens) on a padded batch of 64 states that the
interpolant draws at random times from sequences of about 64 tokens; logits at the masks only. Everything is measured in
turns within one run, and medians are compared. The ratio is the larger one of wall clock and processor time: on a busy
machine something short may run undisturbed while the long forward pass waits, which would flatter it.

Targets: a sampler step and a draw of the interpolant each within 10% of a forward pass, the alignment within 20% of a
forward and backward pass.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

from flexmdm import FlexMDMInterpolant, InterpolantSample, Prediction, Ragged, align
from flexmdm.canvas import gaps_of
from flexmdm.generation import AdaptiveSampler, Grid, Sampler, SpacedSampler, TauSampler
from flexmdm.randomness import StepRandomness

EXAMPLES = """examples:
  python benchmarks/overhead.py                  one to four minutes
  python benchmarks/overhead.py --repeats 50     steadier medians
  python benchmarks/overhead.py --quick          a few repeats, to see that it works (nothing is written)
"""
BATCH, LENGTH, SPREAD, VOCAB = 64, 64, 16, 1024
LAYERS, WIDTH, HEADS = 8, 256, 8
STEPS = 64  # of the samplers' grid
SAMPLER_LIMIT, ALIGNMENT_LIMIT = 0.10, 0.20


class Block(nn.Module):
    """Attention and a feed-forward layer, normalised before; no dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor, inside: Tensor) -> Tensor:
        batch, length, _ = x.shape
        qkv = self.qkv(self.first(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [B, heads, n, width / heads]
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=inside[:, None, None])
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.feed(self.second(x))


class Transformer(nn.Module):
    """The yardstick: tokens to logits at the masks, and one number for the gap before each position."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB + 1, WIDTH), nn.Embedding(4 * LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head, self.gaps = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB), nn.Linear(WIDTH, 1)

    def forward(self, tokens: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities ``[M, V]`` and insertions ``[B, n]``, from ``tokens`` and ``inside`` ``[B, n]``."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, inside)
        x = self.norm(x)
        return self.head(x[tokens == VOCAB]).log_softmax(-1), nn.functional.softplus(self.gaps(x)).squeeze(-1)


@dataclass(frozen=True)
class Item:
    """Something to measure, and what its median is compared with."""

    name: str
    action: Callable[[int], object]
    against: str | None = None
    limit: float | None = None


def draw_states(seed: int) -> InterpolantSample:
    """64 states of sequences of 48 to 80 random tokens, at uniform times."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(LENGTH - SPREAD, LENGTH + SPREAD + 1, (BATCH,), generator=generator)
    x1 = Ragged(torch.randint(VOCAB, (int(lengths.sum()),), generator=generator), lengths)
    times = torch.rand(BATCH, generator=generator, dtype=torch.float64)
    return FlexMDMInterpolant().sample(x1, times, seed=seed, mask_id=VOCAB)


def random_prediction(state: InterpolantSample, seed: int) -> Prediction:
    """Random log f, and a g that is as large as what is missing."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(len(state.canvas.masks), VOCAB, generator=generator)
    noise = torch.rand(len(state.gaps.values), generator=generator) * 0.5 + 0.75
    return Prediction(logits.log_softmax(1), gaps_of(state.canvas.tokens, state.gaps.values * noise))


def items(states: list[InterpolantSample], network: Transformer) -> list[Item]:
    """Everything that is measured; each action takes the number of the repeat and picks its states by it."""
    predictions = [random_prediction(state, seed) for seed, state in enumerate(states)]
    interpolant, grid = FlexMDMInterpolant(), Grid(STEPS)

    def inputs(repeat: int) -> tuple[Tensor, Tensor]:
        tokens = states[repeat % len(states)].canvas.tokens
        inside = torch.arange(tokens.max_length) < tokens.lengths[:, None].clamp(min=1)
        return tokens.to_padded(0), inside

    def forward(repeat: int) -> None:
        with torch.no_grad():
            network(*inputs(repeat))

    def forward_backward(repeat: int) -> None:
        network.zero_grad(set_to_none=True)
        state = states[repeat % len(states)]
        log_probs, gaps = network(*inputs(repeat))
        targets = state.targets.values[state.canvas.is_mask]
        (nn.functional.nll_loss(log_probs, targets) + gaps.mean()).backward()

    def step(sampler: Sampler) -> Callable[[int], object]:
        def action(repeat: int) -> object:
            state, prediction = states[repeat % len(states)], predictions[repeat % len(states)]
            with torch.no_grad():
                return sampler.step(
                    state.canvas, prediction, state.alpha, StepRandomness(0, torch.arange(BATCH), repeat)
                )

        return action

    def sample(repeat: int) -> object:
        state = states[repeat % len(states)]
        return interpolant.sample(state.x1, state.t, seed=repeat, mask_id=VOCAB)

    def alignment(repeat: int) -> object:
        state = states[repeat % len(states)]
        return align(state.canvas, state.x1, state.template)

    return [
        Item("forward", forward),
        Item("forward + backward", forward_backward),
        Item("tau step", step(TauSampler(grid)), "forward", SAMPLER_LIMIT),
        Item("adaptive step (top_prob)", step(AdaptiveSampler(grid)), "forward", SAMPLER_LIMIT),
        Item("spaced step", step(SpacedSampler(grid)), "forward", SAMPLER_LIMIT),
        Item("interpolant.sample", sample, "forward", SAMPLER_LIMIT),
        Item("align", alignment, "forward + backward", ALIGNMENT_LIMIT),
    ]


def measure(chosen: list[Item], repeats: int, console: Console) -> dict[str, list[tuple[float, float]]]:
    """Wall clock and processor time, in ms, of every item in every repeat; they take turns, in changing order."""
    times: dict[str, list[tuple[float, float]]] = {item.name: [] for item in chosen}
    for repeat in track(range(-2, repeats), "measuring", console=console, transient=True):
        for item in chosen[repeat % len(chosen) :] + chosen[: repeat % len(chosen)]:
            start, busy = time.perf_counter(), time.process_time()
            item.action(max(repeat, 0))
            passed = 1000 * (time.perf_counter() - start), 1000 * (time.process_time() - busy)
            if repeat >= 0:  # the first two rounds warm up
                times[item.name].append(passed)
    return times


def report(chosen: list[Item], times: dict[str, list[tuple[float, float]]]) -> list[dict]:
    """Medians, quartiles, ratios and verdicts."""
    medians = {name: [median(kind) for kind in zip(*values, strict=True)] for name, values in times.items()}
    rows = []
    for item in chosen:
        wall, busy = medians[item.name]
        ordered = sorted(wall for wall, _ in times[item.name])
        row = {
            "name": item.name,
            "milliseconds": round(wall, 3),
            "quartiles": [round(ordered[len(ordered) // 4], 3), round(ordered[3 * len(ordered) // 4], 3)],
            "processor milliseconds": round(busy, 3),
        }
        if item.against is not None and item.limit is not None:
            ratio = max(wall / medians[item.against][0], busy / medians[item.against][1])
            row |= {"against": item.against, "ratio": round(ratio, 4), "limit": item.limit}
            row["verdict"] = "PASS" if ratio <= item.limit else "FAIL"
        rows.append(row)
    return rows


def settings(repeats: int, states: list[InterpolantSample]) -> dict:
    """What the figures hold for."""
    tokens = sum(int(state.canvas.lengths.sum()) for state in states)
    places = sum(BATCH * state.canvas.tokens.max_length for state in states)
    return {
        "repeats": repeats,
        "batch": BATCH,
        "clean length": [LENGTH - SPREAD, LENGTH + SPREAD],
        "mean padded width": places / BATCH / len(states),
        "mean masks per batch": sum(len(state.canvas.masks) for state in states) / len(states),
        "share of padding": round(1 - tokens / places, 3),
        "network": {"layers": LAYERS, "width": WIDTH, "heads": HEADS, "vocabulary": VOCAB},
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "flexmdm": version("flexmdm"),
    }


def markdown(rows: list[dict], held: dict) -> str:
    """The report as a table."""
    lines = [
        "# Overhead beside the network",
        "",
        f"Made by `python benchmarks/overhead.py`: medians of {held['repeats']} repeats in turns, {held['cpus']} CPUs "
        f"({held['threads']} threads, load {held['load']}), torch {held['torch']}. {BATCH} states of sequences of "
        f"{held['clean length'][0]} to {held['clean length'][1]} tokens at uniform times, padded to "
        f"{held['mean padded width']:.0f} ({held['share of padding']:.0%} padding), {held['mean masks per batch']:.0f} "
        f"masks; {LAYERS} layers, {WIDTH} wide, {HEADS} heads, vocabulary {VOCAB}.",
        "",
        "| | ms | quartiles | processor ms | against | ratio | limit | |",
        "|---|---:|---:|---:|---|---:|---:|---|",
    ]
    return "\n".join([*lines, *(f"| {' | '.join(_cells(row))} |" for row in rows)]) + "\n"


def _cells(row: dict) -> list[str]:
    low, high = row["quartiles"]
    times = [f"{row['milliseconds']:.1f}", f"{low:.1f} to {high:.1f}", f"{row['processor milliseconds']:.1f}"]
    if "ratio" not in row:
        return [row["name"], *times, "", "", "", ""]
    return [row["name"], *times, row["against"], f"{row['ratio']:.1%}", f"{row['limit']:.0%}", row["verdict"]]


def main() -> None:
    """Parse the command line, measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=30, help="rounds to take the medians of (default 30)")
    parser.add_argument("--quick", action="store_true", help="three rounds, nothing written")
    parser.add_argument("--threads", type=int, help="of torch (default: torch's own choice)")
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parent / "results", help="folder (default benchmarks/results)"
    )
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {options.repeats}")
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    console, repeats = Console(), 3 if options.quick else options.repeats
    torch.manual_seed(0)  # of the network's weights
    states = [draw_states(seed) for seed in range(4)]
    chosen = items(states, Transformer())
    rows, held = report(chosen, measure(chosen, repeats, console)), settings(repeats, states)

    table = Table("", "ms", "cpu ms", "ratio", "limit", "", title="Overhead beside the network")
    for row in rows:
        name, wall, _, busy, against, *verdict = _cells(row)
        table.add_row(f"{name}, of {against}" if against else name, wall, busy, *verdict)
    console.print(table)
    if not options.quick:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "overhead.json").write_text(json.dumps({"settings": held, "results": rows}, indent=2) + "\n")
        (options.output / "overhead.md").write_text(markdown(rows, held))
        console.print(f"Written: overhead.json and overhead.md in {options.output}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
