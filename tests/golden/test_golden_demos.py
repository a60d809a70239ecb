"""The demos, which take half a minute: apart from `test_golden.py`, so that it stays quick."""

import pytest


@pytest.mark.slow
def test_demos_report_the_recorded_figures(differences):
    assert not differences("demos")
