"""One line in a recipe is an option, a key of a configuration file and a key of a run."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
LINE = '    smoothing: float = setting(0.0, help="Share of the loss on other tokens.", max=1.0)\n'
SCRIPT = """
import sys
from pathlib import Path
from typer.testing import CliRunner
from flexmdm.cli import entry

out = sys.argv[1]
new = ["train", "--task", "maze", "--size", "7", "--steps", "1", "--hidden", "16", "--layers", "1", "--heads", "2"]
for arguments in [
    ["train", "--help"],
    [*new, "--config", "new.toml", "--out", out],
    ["train", "--out", out, "--resume", "--smoothing", "0.5"],
]:
    result = CliRunner().invoke(entry.app, arguments)
    print(result.output, result.exception)
"""


def test_a_setting_of_one_line_is_in_the_help_the_configuration_and_the_run(tmp_path):
    shutil.copytree(SOURCE, tmp_path / "src", ignore=shutil.ignore_patterns("pretrained", "__pycache__"))
    recipe = tmp_path / "src" / "flexmdm" / "training" / "recipe.py"
    above, seed, below = recipe.read_text().partition("    seed: int")
    recipe.write_text(above + LINE + seed + below)
    (tmp_path / "new.toml").write_text("[recipe]\nsmoothing = 0.25\nbatch_size = 8\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src"), "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    printed = subprocess.run(
        [sys.executable, "-c", SCRIPT, "run"], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    help = " ".join(printed.stdout.replace("│", " ").split())
    assert "--smoothing <float range> [x<=1.0] Share of the loss on other tokens." in help, printed.stderr
    assert json.loads((tmp_path / "run" / "run.json").read_text())["recipe"]["smoothing"] == 0.25
    assert "recipe.smoothing: 0.25 in the run, 0.5 now" in printed.stdout
