import json

import pytest
import torch
from rich.console import Console

from flexmdm.demos import oracle


def test_the_demo_prints_tables_and_writes_pictures_and_figures(tmp_path, capsys):
    threads = torch.get_num_threads()
    oracle.run(tmp_path / "pictures", samples=80, seed=0, json=tmp_path / "deep" / "figures.json", steps=[8, 2])
    assert torch.get_num_threads() == threads

    printed = capsys.readouterr().out
    assert "Nine words, 80 sequences" in printed and "Phased chain of 33 tokens, 10 sequences" in printed
    assert "adaptive (top_prob)" in printed and "The denoiser is exact" in printed
    for name in ("quality.png", "quality.svg", "growth.png"):
        assert (tmp_path / "pictures" / name).stat().st_size > 5000
        assert name in printed

    report = json.loads((tmp_path / "deep" / "figures.json").read_text())
    assert report["settings"]["steps"] == [2, 8]
    for source in report["sources"]:
        trials = [(outcome["trial"]["sampler"], outcome["trial"]["steps"]) for outcome in source["outcomes"]]
        assert trials == [(sampler, n) for sampler in ("tau", "adaptive", "spaced") for n in (2, 8)]
    words, chain = report["sources"]
    assert words["noise"]["total_variation"] > 0 and chain["outcomes"][-1]["quality"]["excess"]["value"] is not None


def test_the_same_seed_gives_the_same_figures():
    figures = []
    for seed in (4, 4):
        results = oracle.run_all(samples=16, steps=[4], seed=seed, console=Console(quiet=True))
        figures.append([outcome.quality for outcomes in results.values() for outcome in outcomes])
    assert figures[0] == figures[1]


def test_samplers_that_miss_the_support_altogether_are_reported_too(tmp_path, capsys):
    oracle.run(tmp_path, samples=1, seed=0, json=None, steps=[1])  # one step of tau inserts nothing
    assert "none" in capsys.readouterr().out


@pytest.mark.parametrize(("samples", "steps"), [(0, [4]), (4, []), (4, [0])])
def test_nothing_to_do_is_an_error(tmp_path, samples, steps):
    with pytest.raises(ValueError, match="at least 1"):
        oracle.run(tmp_path, samples=samples, seed=0, json=None, steps=steps)
