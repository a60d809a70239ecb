"""Many requests in one batch: each gets what it would get alone, whoever else is there, comes or goes."""

import random
import threading
import time
from concurrent.futures import CancelledError, wait

import pytest

from flexmdm.generation.loop import Room
from flexmdm.serve.engine import Closed, Engine, Full
from flexmdm.tasks.pipeline import generated

WAYS = [{"steps": 4}, {"steps": 6, "temperature": 0.7}, {"sampler": "tau", "steps": 5}]


@pytest.fixture
def engine(pipeline):
    engine = Engine(pipeline, Room(samples=7, tokens=60), most_waiting=200)
    yield engine
    engine.close(20)


def alone(pipeline, prompts, num, seed, **options):
    return [one.sequence for one in generated(pipeline.task, pipeline.model, prompts, num, seed=seed, **options)]


def prompts_of(pipeline, *texts):
    return [pipeline.prompt(pipeline.encode(text.split("_")), minimum=1) for text in texts]


def test_requests_of_many_get_what_they_would_get_alone(pipeline, engine):
    rng = random.Random(0)
    asked = []
    for seed in range(12):
        texts = [rng.choice(["_", "a_", "_b", "a_b", "ab_ba_a"]) for _ in range(rng.randint(1, 3))]
        asked.append((prompts_of(pipeline, *texts), rng.randint(1, 4), seed % 5, rng.choice(WAYS)))
    jobs = []

    def ask(one):
        prompts, num, seed, options = one
        time.sleep(rng.random() / 20)
        jobs.append((one, engine.submit(prompts, num, seed, **options)))

    threads = [threading.Thread(target=ask, args=(one,)) for one in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for (prompts, num, seed, options), job in jobs:
        found = job.result.result(30)
        assert [one.sequence for one in found] == alone(pipeline, prompts, num, seed, **options)
        assert [one.prompt for one in found] == [index for index in range(len(prompts)) for _ in range(num)]
    assert engine.unfinished == 0


def test_limits_of_one_request_hold_beside_requests_without_any(pipeline, engine):
    limited = [pipeline.prompt([[], []], minimum=2, maximum=3)]
    jobs = [engine.submit(limited, 20, 1, **WAYS[0]), engine.submit(prompts_of(pipeline, "_"), 20, 2, **WAYS[0])]
    found = [[one.sequence for one in job.result.result(30)] for job in jobs]
    assert {len(one) for one in found[0]} <= {2, 3} and max(map(len, found[1])) > 3
    assert found[0] == alone(pipeline, limited, 20, 1, **WAYS[0])


def test_a_request_that_is_cancelled_leaves_and_the_others_do_not_notice(pipeline, engine):
    prompts = prompts_of(pipeline, "_", "a_")
    gone, stays = engine.submit(prompts, 40, 3, steps=64), engine.submit(prompts, 3, 4, steps=64)
    engine.cancel(gone)
    assert [one.sequence for one in stays.result.result(60)] == alone(pipeline, prompts, 3, 4, steps=64)
    with pytest.raises(CancelledError):
        gone.result.result(30)
    assert engine.unfinished == 0


def test_who_comes_after_a_cancelled_request_that_still_waited_is_answered(pipeline):
    engine = Engine(pipeline, Room(samples=2), most_waiting=200)
    prompts = prompts_of(pipeline, "_")
    first, gone, waits = (engine.submit(prompts, num, seed, steps=16) for seed, num in enumerate((6, 20, 4)))
    while engine.steps == 0:
        time.sleep(0.001)
    engine.cancel(gone)
    later = engine.submit(prompts, 5, 7, steps=16)
    for job, num, seed in ((first, 6, 0), (waits, 4, 2), (later, 5, 7)):
        assert [one.sequence for one in job.result.result(30)] == alone(pipeline, prompts, num, seed, steps=16)
    engine.close(30)
    assert gone.result.cancelled() and engine.unfinished == 0


def test_too_much_at_a_time_is_refused_and_what_was_accepted_is_finished(pipeline):
    engine = Engine(pipeline, Room(samples=4), most_waiting=30)
    prompts = prompts_of(pipeline, "_")
    accepted = [engine.submit(prompts, 10, seed, steps=16) for seed in range(3)]
    with pytest.raises(Full, match="30 samples are waited for"):
        engine.submit(prompts, 1, 9, steps=16)
    engine.close(60)
    assert all(len(job.result.result(0)) == 10 for job in accepted)
    with pytest.raises(Closed):
        engine.submit(prompts, 1, 9, steps=16)


def test_an_error_reaches_those_who_asked_and_nobody_else(pipeline, engine, monkeypatch):
    prompts = prompts_of(pipeline, "_")
    with pytest.raises(ValueError, match="no spacing"):
        engine.submit(prompts, 1, 0, sampler="tau", spacing=2.0)
    from flexmdm.generation.samplers import TauSampler

    def broken(*_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(TauSampler, "step", broken)
    bad, good = engine.submit(prompts, 1, 0, sampler="tau"), engine.submit(prompts, 1, 0, steps=4)
    wait([bad.result, good.result], 30)
    assert isinstance(bad.result.exception(), RuntimeError) and len(good.result.result()) == 1
    assert engine.call(lambda: 7).result(10) == 7
