"""`flexmdm demo`: short programs that show what the package does."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Short programs that show what flexmdm does.",
    epilog="**Example**\n\n* `flexmdm demo oracle`",
    rich_markup_mode="markdown",
    no_args_is_help=True,
)

ORACLE_EXAMPLES = """
**Examples**

* `flexmdm demo oracle`

* `flexmdm demo oracle --samples 20000 --seed 1`

* `flexmdm demo oracle --steps 16 --steps 64 --json demo/oracle.json`
"""


@app.command(epilog=ORACLE_EXAMPLES)
def oracle(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pictures.", file_okay=False)] = Path(
        "demo/oracle"
    ),
    samples: Annotated[
        int,
        typer.Option(
            min=1, help="Words to draw per sampler and number of steps (an eighth as many of the longer sequences)."
        ),
    ] = 4000,
    seed: Annotated[int, typer.Option(help="Seed of all randomness.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Also write the results to this file.", dir_okay=False)] = None,
    steps: Annotated[
        list[int] | None, typer.Option(min=1, help="Sampler steps; repeat for several. [default: 16, 32, 64, 128]")
    ] = None,
) -> None:
    """Draw from a source whose exact denoiser is known, and measure how far each sampler is from the truth."""
    from flexmdm.demos import oracle as demo

    demo.run(output=output, samples=samples, seed=seed, json=json, steps=steps or [16, 32, 64, 128])
