"""Steps are tried before a training and leave no trace; the faster number of threads is taken and kept."""

from dataclasses import replace

import pytest
import torch

from flexmdm.runs import probing
from flexmdm.runs import train as module
from flexmdm.runs.building import build
from flexmdm.runs.config import RunConfig
from flexmdm.runs.probing import choose_threads, compare_threads, seconds_per_step
from flexmdm.runs.train import train


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    """Torch has two threads and nobody has chosen."""
    monkeypatch.setattr(module, "draw_losses", lambda logs, file: None)
    monkeypatch.setattr(probing, "_cores", lambda: 2)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def measured(monkeypatch):
    """Return a function that sets what is measured; it returns a list of what was asked."""

    def make(**seconds):
        asked = []

        def compare(seconds_of, numbers, probe):
            asked.append((numbers, probe))
            seconds_of(0)
            return dict(zip(numbers, (seconds["one"], seconds["two"]), strict=True))

        monkeypatch.setattr(probing, "compare_threads", compare)
        return asked

    return make


@pytest.mark.parametrize(("accumulation", "seconds"), [(1, 0.1), (2, 0.2)])
def test_a_step_is_measured_and_taken_back(accumulation, seconds, tiny, monkeypatch):
    class Clock:  # a tenth of a second from look to look
        now = 0.0

        @classmethod
        def perf_counter(cls):
            cls.now += 0.1
            return cls.now

    config = tiny(accumulation=accumulation)
    task, model = build(config)
    before = [p.detach().clone() for p in model.parameters()]
    monkeypatch.setattr(probing, "time", Clock)
    assert seconds_per_step(config, task, model, 0.3) == pytest.approx(seconds)
    assert all(map(torch.equal, before, model.parameters()))


def test_numbers_of_threads_are_compared_in_turn_on_the_same_steps(monkeypatch):
    """Each has the same share of a noise that comes and goes, and a single slow step does not count."""
    asked = []

    def seconds_of(step):
        asked.append((step, torch.get_num_threads()))
        return (9.0 if step == 1 else 0.1) * torch.get_num_threads()

    looks = iter(range(100))
    monkeypatch.setattr(probing.time, "perf_counter", lambda: float(next(looks)))
    assert compare_threads(seconds_of, (1, 2), 4.5) == {1: 0.1, 2: 0.2}
    assert asked == [(0, 2), *[(step, number) for step in range(5) for number in (1, 2)]]
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(("one", "two", "chosen"), [(0.125, 0.5, 1), (0.5, 0.25, 2), (0.25, 0.25, 1)])
def test_the_faster_number_of_threads_is_taken_and_said(one, two, chosen, tiny, measured, console):
    config = tiny(steps=200, threads=None)
    asked = measured(one=one, two=two)
    assert choose_threads(config, *build(config), console) == chosen
    assert asked == [((1, 2), 1.5)]
    assert console.file.getvalue() == (
        f"training with {chosen} thread{'s' * (chosen > 1)}, as a pass takes {one:.3g} s with 1 thread and {two:.3g} s "
        "with 2 threads; OMP_NUM_THREADS says otherwise\n"
    )
    measured(one=one, two=two)
    assert choose_threads(config, *build(config), console, minutes=0.5) == chosen


@pytest.mark.parametrize(
    ("changes", "options", "threads", "chosen"),
    [
        ({"threads": 1}, {}, None, 1),  # the recipe says it
        ({"steps": 199}, {}, None, 2),  # not worth it
        ({}, {"resume": True}, None, 2),  # as many as it had, where that was not written down
        ({}, {}, "2", 2),  # the environment says it
        ({"threads": 1}, {}, "2", 2),  # and comes first
        ({"threads": 64}, {}, None, 2),  # there are but two cores
    ],
)
def test_nothing_is_measured_where_the_number_is_known(
    changes, options, threads, chosen, tiny, measured, monkeypatch, console
):
    if threads:
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
    config = tiny(**{"steps": 200, "threads": None, **changes})
    asked = measured(one=1.0, two=1.0)
    assert choose_threads(config, *build(config), console, **options) == chosen and not asked
    differs = config.recipe.threads not in (None, chosen)
    assert ("results agree up to rounding" in console.file.getvalue()) == differs


def test_one_thread_needs_no_choice(tiny, measured, console):
    torch.set_num_threads(1)
    asked, config = measured(one=2.0, two=1.0), tiny(steps=200, threads=None)
    assert choose_threads(config, *build(config), console) == 1 and not asked and not console.file.getvalue()


def test_a_run_keeps_the_number_it_was_started_with_and_the_process_its_own(
    tiny, tmp_path, measured, monkeypatch, console, same, weights
):
    """What was measured leaves no trace in the weights either."""
    monkeypatch.setattr(probing, "FEW_STEPS", 1)
    used = []
    step = module.FlexMDMTrainer.training_step
    monkeypatch.setattr(
        module.FlexMDMTrainer, "training_step", lambda *a, **k: (used.append(torch.get_num_threads()), step(*a, **k))[1]
    )
    asked = measured(one=0.1, two=0.2)
    chosen = train(tiny(steps=4, threads=None, dropout=0.3), tmp_path / "chosen", device="cpu", console=console)
    assert used == [1] * 4 and torch.get_num_threads() == 2 and len(asked) == 1
    stored = RunConfig.read(tmp_path / "chosen")
    assert stored.recipe.threads == 1
    told = train(tiny(steps=4, threads=1, dropout=0.3), tmp_path / "told", device="cpu")
    assert same(weights(chosen), weights(told)) and len(asked) == 1

    def go_on(steps):
        config = replace(stored, recipe=replace(stored.recipe, steps=steps, threads=None))  # who does not know
        train(config, tmp_path / "chosen", resume=True, device="cpu", console=console)

    go_on(6)
    assert used == [1] * 10 and RunConfig.read(tmp_path / "chosen").recipe.threads == 1 and len(asked) == 1
    assert "rounding" not in console.file.getvalue()
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    go_on(7)
    assert used[-1] == 2 and "training with 2 threads, where recipe.threads says 1: " in console.file.getvalue()
    assert RunConfig.read(tmp_path / "chosen").recipe.threads == 2
