import subprocess
import sys
from types import ModuleType

import pytest
from typer.testing import CliRunner

from flexmdm.cli import entry, main

runner = CliRunner()


def fake_demo(monkeypatch, run):
    """Put a module in the place of `flexmdm.demos.oracle`, so that the command runs nothing but `run`."""
    demos, oracle = ModuleType("flexmdm.demos"), ModuleType("flexmdm.demos.oracle")
    demos.oracle, oracle.run = oracle, run
    monkeypatch.setitem(sys.modules, "flexmdm.demos", demos)
    monkeypatch.setitem(sys.modules, "flexmdm.demos.oracle", oracle)


def fail(**_):
    raise ValueError("samples must be\npositive, got -1")


def test_version_is_printed():
    result = runner.invoke(entry.app, ["--version"])
    assert result.exit_code == 0
    assert result.output.split()[0] == "flexmdm"


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_without_a_command_help_is_printed(arguments):
    result = runner.invoke(entry.app, arguments)
    assert result.exit_code == 0
    assert "demo" in result.output and "Examples" in result.output


def test_options_of_the_oracle_demo_reach_it(monkeypatch, tmp_path):
    calls = []
    fake_demo(monkeypatch, lambda **options: calls.append(options))
    arguments = ["demo", "oracle", "-o", str(tmp_path), "--samples", "7", "--seed", "3", "--steps", "2", "--steps", "5"]
    result = runner.invoke(entry.app, arguments)
    assert result.exit_code == 0, result.output
    assert calls == [{"output": tmp_path, "samples": 7, "seed": 3, "json": None, "steps": [2, 5]}]


def test_value_error_is_one_line_and_exit_code_2(monkeypatch, capsys):
    fake_demo(monkeypatch, fail)
    monkeypatch.setattr(sys, "argv", ["flexmdm", "demo", "oracle"])
    monkeypatch.delenv("FLEXMDM_DEBUG", raising=False)
    with pytest.raises(SystemExit) as exit:
        main()
    assert exit.value.code == 2
    assert capsys.readouterr().err == "error: samples must be positive, got -1\n"


def test_value_error_keeps_its_traceback_when_debugging(monkeypatch):
    fake_demo(monkeypatch, fail)
    monkeypatch.setattr(sys, "argv", ["flexmdm", "demo", "oracle"])
    monkeypatch.setenv("FLEXMDM_DEBUG", "1")
    with pytest.raises(ValueError, match="positive"):
        main()


def test_importing_the_command_line_loads_nothing_heavy():
    code = "import sys, flexmdm.cli; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "numpy", "matplotlib", "transformers", "datasets", "gradio"} & set(loaded)
