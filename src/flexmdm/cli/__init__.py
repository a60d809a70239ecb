"""The command line: `flexmdm COMMAND`. Commands are thin; they import the work they do only when they run."""

from flexmdm.cli.entry import main

__all__ = ["main"]
