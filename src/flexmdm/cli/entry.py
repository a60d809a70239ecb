"""The `flexmdm` program: its commands, and how errors reach the user.

Keep imports here light. `flexmdm --help` must answer at once, so torch and everything like it
is imported inside the commands.
"""

import os
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from flexmdm.cli import demo, evaluate, infill, retrofit, sample, train

EXAMPLES = """
**Examples**

* `flexmdm demo maze`: train FlexMDM and MDM on a small maze and compare them

* `flexmdm train names.txt --out runs/names`: train a model on the lines of your file

* `flexmdm sample runs/names --num 10`: let it write new ones

* `flexmdm infill runs/names "an___a"`: let it fill gaps

* `flexmdm train --task maze --size 11 --subgoals 2-6 --minutes 3 --out runs/maze11`: train a model

* `flexmdm eval runs/maze11 --subgoals 2,4,6`: measure it

* `flexmdm sample runs/maze11 --through 1,1 5,3 9,9`: let it plan

* `flexmdm demo oracle`: see samplers against the exact answer

* `flexmdm demo --help`: all demos

If a command ends with an error and you want to see where it came from, set `FLEXMDM_DEBUG=1`.
"""

app = typer.Typer(
    name="flexmdm",
    help="Variable-length masked diffusion: sequences that grow by insertion and are revealed in any order.",
    epilog=EXAMPLES,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.add_typer(demo.app, name="demo")
app.command(epilog=train.EXAMPLES)(train.train)
app.command(epilog=retrofit.EXAMPLES)(retrofit.retrofit)
app.command(name="eval", epilog=evaluate.EXAMPLES)(evaluate.evaluate)
app.command(epilog=sample.EXAMPLES)(sample.sample)
app.command(epilog=infill.COMPLETE_EXAMPLES)(infill.complete)
app.command(epilog=infill.INFILL_EXAMPLES)(infill.infill)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"flexmdm {version('flexmdm')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run the command line; a `ValueError` or `OSError` becomes one line on stderr and exit code 2."""
    try:
        app()
    except (ValueError, OSError) as error:
        if os.environ.get("FLEXMDM_DEBUG") == "1":
            raise
        print("error:", *str(error).split(), file=sys.stderr)
        sys.exit(2)
