"""Keep ``python -m flexmdm.evaluation.harness``, by which ``flexmdm.integrations.lm_eval`` is called."""

import runpy

if __name__ == "__main__":
    runpy.run_module("flexmdm.integrations.lm_eval", run_name="__main__", alter_sys=True)
