"""The `flexmdm` program: its commands, and how errors reach the user.

Keep imports here light. `flexmdm --help` must answer at once, so torch and everything like it
is imported inside the commands.
"""

import os
import re
import sys
import warnings
from typing import Annotated, Any

import typer

from flexmdm.cli import demo, evaluate, generation, retrofit, serve, shared, train

EXAMPLES = shared.examples("""
`flexmdm demo maze`: train FlexMDM and MDM on a small maze and compare them
`flexmdm train names.txt --out runs/names`: train a model on the lines of your file
`flexmdm sample runs/names --num 10`: let it write new ones
`flexmdm infill runs/names "an___a"`: let it fill gaps
`flexmdm train --task maze --size 11 --subgoals 2-6 --minutes 3 --out runs/maze11`: train a model
`flexmdm eval runs/maze11 --subgoals 2,4,6`: measure it
`flexmdm sample runs/maze11 --through 1,1 5,3 9,9`: let it plan
`flexmdm serve --pretrained text`: answer requests of OpenAI's clients
`flexmdm demo oracle`: see samplers against the exact answer
`flexmdm demo --help`: all demos
""")
_DEBUGGING = "If a command ends with an error and you want to see where it came from, set `FLEXMDM_DEBUG=1`."

_MEMORY_ERRORS = ("MemoryError", "OutOfMemoryError")  # the second is torch's, whose import takes seconds
_NO_MEMORY = ("out of memory", "can't allocate memory")  # what other errors of torch say then
_LESS_MEMORY = {
    "train": "take a smaller --batch-size with more --accumulation, gradient_checkpointing = true in the [recipe] of a "
    "--config, or --shard under torchrun",
    "retrofit": "take a smaller --batch-size with more --accumulation, gradient_checkpointing = true in the [recipe] "
    "of a --config, --shard under torchrun, or --four-bit",
    "eval": "take a smaller --batch-size (--benchmark) or --num, or --device cpu",
}

# Optional packages that no extra of flexmdm installs.
_ALONE = ("tensorboard", "trackio", "wandb", "bitsandbytes", "zstandard")

app = typer.Typer(
    name="flexmdm",
    help="Variable-length masked diffusion: sequences that grow by insertion and are revealed in any order.",
    epilog=f"{EXAMPLES}\n\n{_DEBUGGING}",
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.add_typer(demo.app, name="demo")
app.command("train", epilog=train.EXAMPLES)(train.train)
app.command("retrofit", epilog=retrofit.EXAMPLES)(retrofit.retrofit)
app.command("eval", epilog=evaluate.EXAMPLES)(evaluate.evaluate)
app.command("sample", epilog=generation.SAMPLE_EXAMPLES)(generation.sample)
app.command("complete", help=generation.COMPLETE, epilog=generation.COMPLETE_EXAMPLES)(generation.complete)
app.command("infill", help=generation.INFILL, epilog=generation.INFILL_EXAMPLES)(generation.infill)
app.command("serve", epilog=serve.EXAMPLES)(serve.serve)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if show_version:
        from importlib.metadata import version  # with the parser of e-mails, a tenth of a second

        typer.echo(f"flexmdm {version('flexmdm')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run the command line; what a user can mend becomes one line on stderr and exit code 2, a warning one line."""
    if os.environ.get("FLEXMDM_DEBUG") == "1":
        _run(*sys.argv[1:])
        return
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning  # ty: ignore[invalid-assignment]
            _run(*sys.argv[1:])
    except SystemExit as leaving:
        stopped = _interruption(leaving) if leaving.code else None
        if stopped is not None:
            print("; ".join(["interrupted", *map(str, stopped.args)]), file=sys.stderr)
        raise
    except Exception as error:
        problem = _problem(error)
        if problem is None:
            raise
        print("error:", *problem.split(), file=sys.stderr)
        sys.exit(2)


def _run(name: str = "", *arguments: str) -> None:
    """Run a command without those beside it: building all of them takes longer than most of the help."""
    groups: dict[str | None, Any] = {group.name: group.typer_instance for group in app.registered_groups}
    commands = {info.name: info for info in app.registered_commands}
    if name in commands:
        markup = app.rich_markup_mode
        run: Any = typer.main.get_command_from_info(
            commands[name], pretty_exceptions_short=True, rich_markup_mode=markup
        )
    elif name in groups:
        run = groups[name]
    else:
        return app()
    return run(arguments, prog_name=f"{app.info.name} {name}")


def _interruption(leaving: BaseException | None) -> KeyboardInterrupt | None:
    """Return the Ctrl-C that typer left because of, if it was one; its text says what is kept."""
    while leaving is not None and not isinstance(leaving, KeyboardInterrupt):
        leaving = leaving.__cause__ or leaving.__context__
    return leaving


def _show_warning(message: Warning | str, *_: Any) -> None:
    print("warning:", *str(message).split(), file=sys.stderr)


def _problem(error: Exception) -> str | None:
    """Return what the user can do about an error; ``None`` if it is a mistake of flexmdm."""
    if isinstance(error, ModuleNotFoundError):
        return _missing((error.name or "").partition(".")[0])
    if isinstance(error, MemoryError | RuntimeError) and (
        type(error).__name__ in _MEMORY_ERRORS or any(sign in str(error) for sign in _NO_MEMORY)
    ):
        advice = _LESS_MEMORY.get(" ".join(sys.argv[1:2]), "ask for fewer at a time (--num), or take --device cpu")
        return f"out of memory ({str(error).partition(chr(10))[0].rstrip('.') or 'of this computer'}): {advice}"
    if type(error).__name__ == "SafetensorError":  # no ValueError, and its library is no light import
        return (
            f"the weights cannot be read, a .safetensors file is damaged ({error}): copy or fetch the model again, or "
            "take an earlier checkpoint of the run"
        )
    return str(error) if isinstance(error, ValueError | OSError) else None


def _missing(package: str) -> str | None:
    """Return how to install an optional package that is missing; ``None`` if flexmdm has none of that name."""
    if package in _ALONE:
        return f"this needs the package {package}, which is not installed: pip install {package}"
    from importlib.metadata import requires

    for required in requires("flexmdm") or ():
        name, extra = re.match(r"[\w-]+", required), re.search(r"extra == ['\"](\w+)", required)
        if name and extra and name[0].replace("-", "_").lower() == package != "flexmdm":
            return f"this needs the package {package}, which is not installed: pip install 'flexmdm[{extra[1]}]'"
    return None
