"""A job of 20,000 lines, killed five times at random (SIGKILL) and started again, beside one that nobody disturbs.

Some lines are bad on purpose. The model is a tiny one of names, trained for a few steps: what is measured is the job.
Both must end with the same bytes, one line for each line.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
NAMES = ["anna", "hannah", "joanna", "ann", "marianne", "diana", "nathan", "aidan", "dan", "ian"]
TINY = ["--hidden", 16, "--layers", 1, "--heads", 2, "--max-length", 16, "--steps", 20, "--device", "cpu"]
FILL = ["--steps", 2, "--best", 0, "--device", "cpu"]
COMMAND = [sys.executable, "-c", "from flexmdm.cli import main; main()"]


def main() -> None:
    """Run both jobs, and write benchmarks/results/jobs.{json,md}."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ["FLEXMDM_CACHE"] = str(folder / "cache")
        (folder / "names.txt").write_text("\n".join(NAMES * 20))
        run_command("train", folder / "names.txt", "--out", folder / "run", *TINY)
        bad = write_lines(folder / "lines.jsonl", arguments.lines, rng)
        job = ["infill", folder / "run", "--file", folder / "lines.jsonl", "--workers", arguments.workers, *FILL]
        whole, out = folder / "whole.jsonl", folder / "out.jsonl"
        began = time.perf_counter()
        said = run_command(*job, "--out", whole, code=3)
        seconds = time.perf_counter() - began
        began, kills = time.perf_counter(), []
        for number in range(arguments.kills):
            kills.append(killed(job, out, arguments.lines * (number + rng.random()) / arguments.kills))
        run_command(*job, "--out", out, code=3)
        disturbed = time.perf_counter() - began
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        prompts = [line for line in (folder / "lines.jsonl").read_text().split("\n") if line]
        in_place = sum(
            "error" in row or {"id": row["id"], "prompt": row["prompt"]} == json.loads(line)
            for row, line in zip(rows, prompts, strict=True)
        )
        results = {
            "command": f"python benchmarks/jobs.py --lines {arguments.lines} --kills {arguments.kills} "
            f"--workers {arguments.workers} --seed {arguments.seed}",
            "lines": arguments.lines,
            "bad": bad,
            "answered": len(rows),
            "in their place": in_place,
            "with an error": sum("error" in row for row in rows),
            "killed after lines": kills,
            "same bytes": whole.read_bytes() == out.read_bytes(),
            "sha256": hashlib.sha256(out.read_bytes()).hexdigest(),
            "seconds": round(seconds, 1),
            "seconds with kills": round(disturbed, 1),
            "last sentence": said.strip().splitlines()[-1].replace(f"{folder}/", ""),
        }
    (RESULTS / "jobs.json").write_text(json.dumps(results, indent=1) + "\n")
    table = [f"| {name} | {value} |" for name, value in results.items() if name != "command"]
    lines = [
        f"Made by `{results['command']}`, one core, beside other work: a job that",
        "is killed (SIGKILL) at random moments and started again by the same command, and one that runs through.",
        "",
        "| | |",
        "|---|---|",
        *table,
    ]
    (RESULTS / "jobs.md").write_text("\n".join(lines) + "\n")
    print(*lines, sep="\n")
    if not results["same bytes"]:
        raise SystemExit("the two files differ")


def run_command(*arguments: object, code: int = 0) -> str:
    """Run a command to its end, and return what it says."""
    ended = subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True)
    if ended.returncode != code:
        raise SystemExit(f"exit code {ended.returncode}, not {code}: {ended.stderr}")
    return ended.stderr


def killed(job: list[object], out: Path, after: float) -> int:
    """Start a job, kill it once so many lines are there, and return how many there were."""
    process = subprocess.Popen([*COMMAND, *map(str, job), "--out", str(out)], stderr=subprocess.DEVNULL)
    while process.poll() is None and count(out) < after:
        time.sleep(0.05)
    time.sleep(random.Random(after).random())
    process.kill()
    process.wait()
    return count(out)


def count(file: Path) -> int:
    """Return the number of lines of a file that may not be there yet."""
    return file.read_bytes().count(b"\n") if file.exists() else 0


def write_lines(file: Path, num: int, rng: random.Random) -> int:
    """Write lines with gaps, one in a hundred of them bad, and return how many are."""
    wrong = ['{"prompt": "an___', '{"text": "an___"}', '{"prompt": "anna"}', '{"prompt": "ä___"}', '{"prompt": 5}']
    wrong.append(json.dumps({"prompt": "a" * 40 + "___"}))
    bad = 0
    with open(file, "w") as lines:
        for number in range(num):
            name = rng.choice(NAMES)
            cut = rng.randrange(len(name))
            line = json.dumps({"id": number, "prompt": f"{name[:cut]}___{name[cut + 2 :]}"})
            if rng.random() < 0.01:
                line, bad = rng.choice(wrong), bad + 1
            lines.write(line + "\n")
    return bad


if __name__ == "__main__":
    main()
