"""A large text file on its way to a training run: seconds and memory, the first time and from the cache.

The file is made up, words of Zipf's law in lines of 5 to 60; a file of your own: --file PATH.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console

RESULTS = Path(__file__).parent / "results"
_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes that the system counts memory in


def write_text(file: Path, megabytes: int, seed: int = 0) -> None:
    """Lines of words, the n-th most frequent of 50,000 with a chance like 1 / n."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("etaoinshrdlucmfwypvbgkqjxz"))
    chance = 1 / np.arange(1, 27)
    words = np.array(
        ["".join(rng.choice(letters, rng.integers(1, 11), p=chance / chance.sum())) for _ in range(50_000)]
    )
    frequency = 1 / np.arange(1, len(words) + 1)
    reached = np.cumsum(frequency / frequency.sum())
    with file.open("w") as handle:
        while handle.tell() < megabytes * 10**6:
            lengths = rng.integers(5, 61, 5000)
            drawn = words[np.searchsorted(reached, rng.random(lengths.sum()))]
            for line in np.split(drawn, lengths.cumsum()[:-1]):
                handle.write(" ".join(line) + "\n")


def measured(command: list[str], cache: Path) -> tuple[float, float]:
    """Seconds, and gigabytes at most, of a command; what it prints stays on the screen."""
    began = time.perf_counter()
    process = subprocess.Popen(command, env={**os.environ, "FLEXMDM_CACHE": str(cache)})
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return time.perf_counter() - began, usage.ru_maxrss * _UNIT / 1e9


def main() -> None:
    """Measure, print, and write benchmarks/results/preparation.{json,md}."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, help="instead of a text that is made up")
    parser.add_argument("--megabytes", type=int, default=100, help="of the text that is made up")
    parser.add_argument("--vocab-size", type=int, default=8000, help="tokens of the BPE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = arguments.file or Path(folder) / "text.txt"
        if arguments.file is None:
            write_text(file, arguments.megabytes)
        size = file.stat().st_size / 1e6
        train = [str(Path(sys.executable).with_name("flexmdm")), "train", str(file), "--dry-run"]
        command = [*train, "--tokenizer", "bpe", "--vocab-size", str(arguments.vocab_size)]
        rows = [measured(command, Path(folder) / "cache") for _ in range(2)]
    made_by = "python benchmarks/preparation.py" + "".join(
        f" --{name.replace('_', '-')} {'FILE' if name == 'file' else value}"
        for name, value in vars(arguments).items()
        if value != parser.get_default(name)
    )
    lines = [
        f"{size:.0f} MB of text, a BPE of {arguments.vocab_size:,} tokens learned from it, `flexmdm train FILE "
        f"--dry-run` (it times a step too) on {os.cpu_count()} cores. Made by `{made_by}`.",
        "",
        "| | seconds | memory at most |",
        "|---|---|---|",
        *(
            f"| {name} | {seconds:.0f} | {gigabytes:.1f} GB |"
            for name, (seconds, gigabytes) in zip(("the first time", "from the cache"), rows, strict=True)
        ),
    ]
    RESULTS.mkdir(exist_ok=True)
    content = {"command": made_by, "megabytes": size, "cores": os.cpu_count(), "rows": rows}
    (RESULTS / "preparation.json").write_text(json.dumps(content, indent=1) + "\n")
    (RESULTS / "preparation.md").write_text("\n".join(lines) + "\n")
    Console().print("\n".join(lines), markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
