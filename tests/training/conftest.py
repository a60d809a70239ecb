"""A clock that is moved by hand, for all that looks at the time while training."""

import pytest

from flexmdm.training import progress, timing


class Clock:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for module in (progress, timing):
        monkeypatch.setattr(module, "time", clock)
    return clock
