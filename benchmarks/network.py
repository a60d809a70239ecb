"""How fast the network trains: packed against padded, and how much of the machine's matrix multiplication it reaches.

The network is the paper's maze model (256 wide, 8 layers, 8 heads), on two kinds of batches: states of maze paths (the
interpolant at random times) and states of paragraph-length sequences. The padded baseline is the same network with the
same weights on a rectangle as wide as its longest sequence: every linear layer works on padding, attention masks it.
Everything is measured in turns within one run, and medians are compared.

Targets: packed at least 1.5 times the tokens per second of padded, forward and backward; forward and backward at 45% of
the matrix-multiply peak of the same run.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from flexmdm import FlexMDMInterpolant, InterpolantSample, Ragged
from flexmdm.backbones.attention import Layout
from flexmdm.backbones.dit import DiT, gap_features
from flexmdm.backbones.heads import Regions
from flexmdm.tasks.maze.task import MazeTask
from flexmdm.training.collation import Collator

EXAMPLES = """examples:
  python benchmarks/network.py                the whole table: a few minutes
  python benchmarks/network.py --repeats 3    a quick look
  python benchmarks/network.py --compile      with compiled blocks beside it
"""
RESULTS = Path(__file__).parent / "results"
LIMIT_RATIO, LIMIT_SHARE = 1.5, 0.45
HEADINGS = (
    "batch", "padding", "packed tokens/s", "padded tokens/s", "ratio", "of peak", "memory", "padded", "compiled ratio"
)  # fmt: skip


def maze_batch(size: int) -> tuple[str, InterpolantSample, int]:
    """States of paths in the paper's maze, as training sees them."""
    task = MazeTask(pairs=2000, paths_per_pair=4)
    batch = Collator(task.train, FlexMDMInterpolant(), task.vocab_size)(list(range(size)))
    return "maze 41 x 41", batch.sample, task.vocab_size


def paragraph_batch(size: int) -> tuple[str, InterpolantSample, int]:
    """States of sequences with the lengths of paragraphs (10%, 50%, 90%: 34, 83, 175 tokens)."""
    vocab = 4096
    generator = torch.Generator().manual_seed(0)
    lengths = (torch.randn(size, generator=generator) * 0.64 + 4.42).exp().round().long().clamp(4, 512)
    x1 = Ragged(torch.randint(vocab, (int(lengths.sum()),), generator=generator), lengths)
    t = torch.rand(size, generator=generator, dtype=torch.float64)
    return "paragraphs", FlexMDMInterpolant().sample(x1, t, mask_id=vocab), vocab


BATCHES = {"maze": maze_batch, "paragraphs": paragraph_batch}


def packed_pass(network: DiT, sample: InterpolantSample) -> tuple[Tensor, Tensor]:
    """As in training."""
    canvas = sample.canvas
    return network(
        canvas.tokens.values, canvas.lengths, canvas.given.values, canvas.open_gaps.values, sample.alpha.float()
    )


def padded_pass(network: DiT, sample: InterpolantSample) -> tuple[Tensor, Tensor]:
    """The same network on a rectangle ``[B, W]``: linear layers see every place, attention leaves padding out."""
    canvas = sample.canvas
    lengths = canvas.lengths + 1
    size, width = len(canvas), int(lengths.max())
    real = (torch.arange(width) < lengths[:, None]).flatten()
    layout = Layout.of(torch.full((size,), width))
    start = torch.full((size, 1), network.vocab_size + 1)
    ids = torch.cat([start, canvas.tokens.to_padded(0)], 1).flatten()
    given = torch.cat([torch.zeros(size, 1, dtype=torch.bool), canvas.given.to_padded(False)], 1).flatten()
    gaps = canvas.open_gaps.to_padded(False).flatten()
    x = network.embedding(ids) + network.given(given.long()) + network.open(gaps.long())
    condition = network.clock(sample.alpha.float())
    rotation = layout.rotation(network.head_width, x.dtype)
    for block in network.blocks:
        modulation = block.modulation(condition).index_select(0, layout.sequence)
        shift1, scale1, gate1, *rest = modulation.unflatten(1, (6, -1)).unbind(1)
        q, k, v = (y.unflatten(0, (size, width)).transpose(1, 2) for y in block.project(x, shift1, scale1, rotation))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=real.view(size, 1, 1, width))
        x = block.feed(x, mixed.transpose(1, 2).reshape(size * width, -1), gate1, *rest)
    shift, scale = network.modulation(condition).index_select(0, layout.sequence).unflatten(1, (2, -1)).unbind(1)
    x = network.norm(x) * (1 + scale) + shift
    logits = network.token_head(x[(ids == network.vocab_size) & real])
    rows = Layout.of(lengths, varlen=True)  # of what is no padding; without buckets, as nothing attends any more
    regions = Regions.of(canvas.lengths, canvas.given.values, ~canvas.is_mask)
    insertions = network.insertion_head(gap_features(x[real], rows), sample.alpha.float(), regions)
    return logits, insertions * canvas.open_gaps.values


PASSES = {"packed": packed_pass, "padded": padded_pass}


def forward_backward(network: DiT, run: Callable, sample: InterpolantSample) -> float:
    """Seconds of one pass with gradients."""
    network.zero_grad()
    start = time.perf_counter()
    logits, insertions = run(network, sample)
    (logits.logsumexp(1).sum() + insertions.sum()).backward()
    return time.perf_counter() - start


def operations(network: DiT, sample: InterpolantSample) -> float:
    """Floating-point operations of matrix products in one forward and backward pass of the packed network."""
    lengths = sample.canvas.lengths + 1
    rows, masks = int(lengths.sum()), len(sample.canvas.masks)
    hidden = network.embedding.weight.shape[1]
    per_row = len(network.blocks) * 12 * hidden**2 + 2 * hidden**2  # blocks, insertion head
    attention = len(network.blocks) * 2 * hidden * float(lengths.double().pow(2).sum())
    return 6 * (rows * per_row + masks * hidden * network.vocab_size + attention)


def matrix_peak() -> float:
    """Operations per second of a product of two large matrices."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    start = time.perf_counter()
    for _ in range(20):
        a @ b
    return 20 * 2 * 1024**3 / (time.perf_counter() - start)


def peak_memory(kind: str, how: str, size: int) -> float:
    """Megabytes that a process needs for one pass with gradients, all libraries included."""
    _, sample, vocab = BATCHES[kind](size)
    forward_backward(DiT(vocab, dropout=0.0), PASSES[how], sample)
    # Not ru_maxrss: a child starts with that of the process that made it.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


def peak_memory_elsewhere(kind: str, how: str, size: int) -> float:
    """`peak_memory` in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(peak_memory, kind, how, size).result()


def measure(name: str, sample: InterpolantSample, vocab: int, repeats: int, compiled: bool) -> dict[str, Any]:
    """Packed, padded and bare matrix products in turns, on one batch."""
    torch.manual_seed(0)
    network = DiT(vocab, dropout=0.0)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    packed, padded = packed_pass(network, sample), padded_pass(network, sample)
    error = max(float((a - b).detach().abs().max()) for a, b in zip(packed, padded, strict=True))
    times: dict[str, list[float]] = {"packed": [], "padded": [], "peak": [], "compiled": []}
    fast = None
    if compiled:
        fast = DiT(vocab, dropout=0.0)
        fast.load_state_dict(network.state_dict())
        fast.compile_blocks()
        forward_backward(fast, packed_pass, sample)
    for _ in track(range(repeats), description=name, console=Console(stderr=True)):
        times["packed"].append(forward_backward(network, packed_pass, sample))
        times["padded"].append(forward_backward(network, padded_pass, sample))
        times["peak"].append(matrix_peak())
        if fast is not None:
            times["compiled"].append(forward_backward(fast, packed_pass, sample))
    tokens = sample.canvas.tokens.values.shape[0]
    seconds = median(times["packed"])
    row: dict[str, Any] = {
        "batch": name,
        "tokens": tokens,
        "padding": 1 - tokens / (len(sample.canvas) * sample.canvas.tokens.max_length),
        "packed_tokens_per_second": tokens / seconds,
        "padded_tokens_per_second": tokens / median(times["padded"]),
        "ratio": median(b / a for a, b in zip(times["packed"], times["padded"], strict=True)),
        "peak_gflops": median(times["peak"]) / 1e9,
        "share_of_peak": operations(network, sample) / seconds / median(times["peak"]),
        "largest_difference": error,
    }
    if fast is not None:
        row["compiled_ratio"] = median(a / c for a, c in zip(times["packed"], times["compiled"], strict=True))
    return row


def verdicts(rows: list[dict[str, Any]]) -> list[str]:
    """Whether each target holds on each batch, in words."""
    wanted = (
        ("times the tokens per second of padded", "ratio", LIMIT_RATIO, ".2f"),
        ("of the peak", "share_of_peak", LIMIT_SHARE, ".0%"),
    )
    return [
        f"{'holds' if row[key] >= limit else 'MISSED'}: {row['batch']}, {row[key]:{form}} {what}, wanted {limit:{form}}"
        for row in rows
        for what, key, limit, form in wanted
    ]


def cells(row: dict[str, Any]) -> list[str]:
    """A row of the table, under ``HEADINGS``."""
    return [
        row["batch"], f"{row['padding']:.0%}", f"{row['packed_tokens_per_second']:,.0f}",
        f"{row['padded_tokens_per_second']:,.0f}", f"{row['ratio']:.2f}", f"{row['share_of_peak']:.0%}",
        f"{row['packed_memory_mb']:,.0f} MB", f"{row['padded_memory_mb']:,.0f} MB",
        f"{row['compiled_ratio']:.2f}" if "compiled_ratio" in row else "-",
    ]  # fmt: skip


def markdown(rows: list[dict[str, Any]], setting: dict[str, Any]) -> str:
    """The table and whether the targets hold."""
    lines = [
        f"One forward and backward pass of the paper's maze model, {setting['threads']} threads on "
        f"{setting['machine']}, torch {setting['torch']}. Made by `{setting['command']}`.",
        "",
        f"| {' | '.join(HEADINGS)} |",
        "|---" * len(HEADINGS) + "|",
        *(f"| {' | '.join(cells(row))} |" for row in rows),
        "",
        *(f"- {verdict}" for verdict in verdicts(rows)),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and write benchmarks/results/network.{json,md}."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--maze-batch", type=int, default=128, help="paths per batch")
    parser.add_argument("--paragraph-batch", type=int, default=32, help="paragraphs per batch")
    parser.add_argument("--compile", action="store_true", help="also measure compiled blocks")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for kind, size in (("maze", arguments.maze_batch), ("paragraphs", arguments.paragraph_batch)):
        row = measure(*BATCHES[kind](size), repeats=arguments.repeats, compiled=arguments.compile)
        memory = {f"{how}_memory_mb": peak_memory_elsewhere(kind, how, size) for how in PASSES}
        rows.append({**row, "sequences": size, **memory})
    table = Table(title="One forward and backward pass of the paper's maze model")
    for heading in HEADINGS:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*cells(row))
    console = Console()
    console.print(table)
    for verdict in verdicts(rows):
        console.print(verdict, highlight=False)
    RESULTS.mkdir(exist_ok=True)
    setting = {
        "command": shlex.join(["python", "benchmarks/network.py", *sys.argv[1:]]),
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "torch": version("torch"),
        "targets": {"ratio": LIMIT_RATIO, "share_of_peak": LIMIT_SHARE},
    }
    (RESULTS / "network.json").write_text(json.dumps({**setting, "rows": rows}, indent=2) + "\n")
    (RESULTS / "network.md").write_text(markdown(rows, setting))


if __name__ == "__main__":
    main()
