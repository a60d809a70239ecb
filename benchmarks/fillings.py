"""Twenty texts with gaps, filled by the text model that comes with the package: five answers each.

Seed 0 and the options of the command: the most probable of its draws, none left out. Whether they read as English is
for a reader to judge.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from flexmdm import TextPipeline

EXAMPLES = """examples:
  python benchmarks/fillings.py                       the committed results; about a minute
  python benchmarks/fillings.py --run runs/sentences --name mine      those of another run
"""
RESULTS = Path(__file__).parent / "results"
PROMPTS = [
    "She ___ the door and ___.",
    "I want ___ go home.",
    "Tom ___ Mary are friends.",
    "Where did you ___ that?",
    "My father ___ in the garden.",
    "We were late because ___.",
    "___ is the best day of the week.",
    "He opened the ___ and looked inside.",
    "Do you know ___ lives?",
    "The children ___ in the ___ all day.",
    "If it rains tomorrow, ___.",
    "I have never ___ before.",
    "Please ___ before you leave.",
    "She told me that ___.",
    "The train ___ at seven o'clock.",
    "Can you ___ me with ___?",
    "It is too ___ to go out.",
    "After dinner we ___.",
    "Nobody knows why Tom ___.",
    "The ___ was so ___ that I ___.",
]
NUM, SEED = 5, 0


def main() -> None:
    """Fill all gaps, print, and write benchmarks/results/fillings.{json,md}."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", default="text", help="folder of a run, or weights of the package by name")
    parser.add_argument("--temperature", type=float, default=None, help="default: that of the commands")
    parser.add_argument("--name", default="fillings", help="of the result files")
    arguments = parser.parse_args()
    options: dict[str, Any] = {} if arguments.temperature is None else {"temperature": arguments.temperature}
    pipeline = TextPipeline.from_pretrained(arguments.run)
    answers = pipeline.infill(PROMPTS, num=NUM, seed=SEED, full=True, **options)
    rows = {prompt: [one.text for one in answers if PROMPTS[one.request] == prompt] for prompt in PROMPTS}
    setting = f", temperature {arguments.temperature:g}" if options else ""
    command = "python benchmarks/fillings.py" + (f" --temperature {arguments.temperature:g}" if options else "")
    lines = [f"Made by `{command}`: seed {SEED}{setting}, the first {NUM} answers to each text, none left out."]
    for prompt, found in rows.items():
        print(prompt, *(f"  {text}" for text in found), sep="\n")
        lines += ["", f"**{prompt}**", "", *(f"- {text}" for text in found)]
    (RESULTS / f"{arguments.name}.json").write_text(
        json.dumps({**options, "seed": SEED, "answers": rows}, indent=1) + "\n"
    )
    (RESULTS / f"{arguments.name}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
