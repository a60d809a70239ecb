import sys

import pytest
from typer.testing import CliRunner

from flexmdm.cli import entry, main


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    """Prepared data of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLEXMDM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train a run, and give its folder."""

    def train(name, *arguments):
        folder = tmp_path_factory.mktemp("runs") / name
        result = CliRunner().invoke(entry.app, [*map(str, arguments), "--out", str(folder)])
        assert result.exit_code == 0, result.output + str(result.exception)
        return folder

    return train


@pytest.fixture
def command(monkeypatch, capsys):
    """Run the program as the shell would; what it printed to stdout, to stderr (in one line), and its exit code."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["flexmdm", *map(str, arguments)])
        monkeypatch.delenv("FLEXMDM_DEBUG", raising=False)
        code = 0
        try:
            main()
        except SystemExit as exit:
            code = exit.code
        printed = capsys.readouterr()
        return printed.out, " ".join(printed.err.split()), code

    return run
