"""Keep the name ``flexmdm.evaluation.harness`` for `flexmdm.integrations.lm_eval`, also as ``python -m``."""

import runpy
from importlib import import_module
from typing import Any

_HOME = "flexmdm.integrations.lm_eval"


def __getattr__(name: str) -> Any:
    return getattr(import_module(_HOME), name)


if __name__ == "__main__":
    runpy.run_module(_HOME, run_name="__main__", alter_sys=True)
