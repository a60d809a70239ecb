import importlib.util
import json
import math
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def golden():
    """Load the module that records the outputs."""
    spec = importlib.util.spec_from_file_location("make_golden", Path(__file__).parent / "make_golden.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def runs(golden):
    """Give tiny runs, each trained once."""
    with golden.tiny_runs() as runs:
        yield runs


@pytest.fixture(scope="session")
def differences(golden, runs):
    """List where a part differs from its record, by the path in the JSON."""

    def find(part, tolerance=None):
        stored = golden.read(part)
        exact = stored["machine"] == golden.machine()
        found = json.loads(json.dumps(golden.PARTS[part](runs)))
        return list(compare(stored["recorded"], found, exact, tolerance or (0.0 if exact else 1e-4)))

    return find


def compare(recorded, found, exact, tolerance, path=""):
    """Yield a sentence for every difference; numbers may be off by ``tolerance``, and a digest counts if ``exact``."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        for key in recorded.keys() | found.keys():
            if key == "sha256" and not exact:
                continue
            yield from compare(recorded.get(key, "-"), found.get(key, "-"), exact, tolerance, f"{path} / {key}")
    elif isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        for number, (one, two) in enumerate(zip(recorded, found, strict=True)):
            yield from compare(one, two, exact, tolerance, f"{path} / {number}")
    elif isinstance(recorded, float) and isinstance(found, float):
        if not math.isclose(recorded, found, rel_tol=tolerance, abs_tol=tolerance * 1e-2):
            yield f"{path}: {recorded!r} was recorded, {found!r} was found"
    elif type(recorded) is not type(found) or recorded != found:
        yield f"{path}: {recorded!r} was recorded, {found!r} was found"
