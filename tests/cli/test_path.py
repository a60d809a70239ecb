"""The way from the arguments of a command to the printed text is short, and reads the configuration once."""

import subprocess
import sys

SCRIPT = """
import sys
from pathlib import Path

import flexmdm
from flexmdm.cli import main

HOUSE = str(Path(flexmdm.__file__).parent) + "/"
GOALS = {"FlexMDMModel.from_pretrained", "TextTokenizer.encode", "TextTokenizer.decode", "generate"}
path, read = {}, []


def follow(frame):
    stack = []
    while frame is not None:
        stack.append(frame.f_code)
        frame = frame.f_back
    for code in reversed(stack):
        if code.co_filename.startswith(HOUSE) and not code.co_qualname.endswith(">"):  # comprehensions, lambdas
            path[code.co_filename.removeprefix(HOUSE), code.co_qualname] = None


def hook(frame, event, argument):
    if event == "call" and frame.f_code.co_filename.startswith(HOUSE) and frame.f_code.co_qualname in GOALS:
        follow(frame.f_back)


class Printed:
    def __getattr__(self, name):
        return getattr(sys.__stdout__, name)

    def write(self, text):
        follow(sys._getframe(1))
        return sys.__stdout__.write(text)


def watch(event, arguments):
    if event == "open" and str(arguments[0]).endswith("/config.json"):
        read.append(arguments[0])


sys.argv = ["flexmdm", *sys.argv[1:]]
sys.stdout = Printed()
sys.addaudithook(watch)
sys.setprofile(hook)
try:
    main()
except SystemExit:
    sys.setprofile(None)
print("read", len(read), file=sys.stderr)
for file, function in path:
    print("path", file, function, file=sys.stderr)
"""


def test_infill_takes_few_calls_in_few_files_through_the_public_pipeline_and_reads_the_configuration_once():
    """Counted are the functions that lead to the model, to its tokens and to the printed text."""
    arguments = "infill", "--pretrained", "text", "The ___ is a city.", "--steps", "2", "--device", "cpu"
    done = subprocess.run([sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("The ")
    lines = [line.split()[1:] for line in done.stderr.splitlines() if line.startswith(("path ", "read "))]
    (reads, *_), *path = lines
    assert int(reads) == 1
    assert ["tasks/text/pipeline.py", "TextPipeline.infill"] in path
    assert len(path) <= 22 and len({file for file, _ in path}) <= 9, path
