"""`flexmdm demo`: short programs that show what the package does."""

from pathlib import Path
from typing import Annotated

import typer

from flexmdm.cli import shared

app = typer.Typer(
    add_completion=False,
    help="Short programs that show what flexmdm does.",
    epilog=shared.examples("`flexmdm demo maze`\n`flexmdm demo oracle`"),
    rich_markup_mode="markdown",
    no_args_is_help=True,
)

MAZE_EXAMPLES = shared.examples("""
`flexmdm demo maze`
`flexmdm demo maze --minutes 10 --size 15 --subgoals 2-8 --output demo15`
`flexmdm demo maze --seed 1 --num 500 --json maze.json`
""")
ORACLE_EXAMPLES = shared.examples("""
`flexmdm demo oracle`
`flexmdm demo oracle --samples 20000 --seed 1`
`flexmdm demo oracle --steps 16 --steps 64 --json demo/oracle.json`
""")
Seed = Annotated[int, typer.Option(help="Seed of all randomness.")]


@app.command(epilog=MAZE_EXAMPLES)
def maze(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the page, the figures and the runs.", file_okay=False)
    ] = Path("demo"),
    minutes: Annotated[float, typer.Option(min=0.05, help="Training time of each model.")] = 3.0,
    size: Annotated[int, typer.Option(min=5, help="Cells per side of the maze, odd.")] = 11,
    subgoals: Annotated[str, typer.Option(help="How many subgoals a problem has, from-to or one number.")] = "2-6",
    num: Annotated[int, typer.Option(min=1, help="Held-out problems for each number of subgoals.")] = 200,
    seed: Seed = 0,
    json: shared.Json = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Train for so many steps instead of --minutes.")] = None,
) -> None:
    """Train FlexMDM and MDM on a small maze, side by side, and compare how they plan; makes a page to look at."""
    from flexmdm.demos import maze as demo
    from flexmdm.tasks.maze.settings import span

    low, high = span(subgoals)
    demo.run(
        output=output, minutes=minutes, size=size, subgoals=(low, high), num=num, seed=seed, json=json, steps=steps
    )


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
    seed: Seed = 0,
    json: shared.Json = None,
    steps: Annotated[
        list[int] | None, typer.Option(min=1, help="Sampler steps; repeat for several. [default: 16, 32, 64, 128]")
    ] = None,
) -> None:
    """Draw from a source whose exact denoiser is known, and measure how far each sampler is from the truth."""
    from flexmdm.demos import oracle as demo

    demo.run(output=output, samples=samples, seed=seed, json=json, steps=steps or [16, 32, 64, 128])
