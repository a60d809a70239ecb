"""Outputs stay what they were, to the last bit: tokens, losses, weights, figures and help texts.

`make_golden.py` recorded them in the JSON files of this folder, and each file names the CPU and the version of PyTorch
that it was made with. Where these are the same, everything must be equal, the SHA-256 of trained weights included. On
another machine rounding may differ: numbers may then be off by 1e-4 of their size and weights are not compared, but
tokens and texts still are, as a draw changes only where rounding carries a probability across a random number.
"""

import json


def test_every_sampler_draws_the_recorded_tokens_with_exact_denoisers(differences):
    assert not differences("oracles")


def test_every_sampler_draws_the_recorded_tokens_with_the_bundled_weights(differences):
    assert not differences("weights")


def test_the_records_of_samplers_cover_every_sampler(golden):
    names = set(golden.sampler_names())
    for part, sources in (("oracles", ("finite", "hidden Markov")), ("weights", ("text", "maze41"))):
        for source in sources:
            assert {case.partition(",")[0] for case in golden.read(part)["recorded"][source]} == names


def test_the_bundled_text_model_gives_sentences_the_recorded_likelihood(differences):
    assert not differences("likelihoods", tolerance=1e-6)


def test_short_trainings_have_the_recorded_losses_and_weights(differences):
    assert not differences("training")


def test_a_resumed_training_ends_with_the_weights_of_an_uninterrupted_one(golden, runs, differences):
    assert golden.resumed(runs)["sha256"] == golden.digest(runs("text-flexmdm"))
    assert not differences("resumed")


def test_the_help_of_every_command_reads_as_recorded(differences):
    assert not differences("help")


def test_the_records_of_help_cover_every_command(golden):
    helps = golden.read("help")["recorded"]
    listed = {
        f"{group} {line.split()[1]}"
        for group in ("flexmdm", "flexmdm demo")
        for line in helps[group][[number for number, one in enumerate(helps[group]) if "─ Commands ─" in one][0] :]
        if line.startswith("│ ") and line[2] != " "
    }
    assert listed and listed <= helps.keys()


def test_evaluations_of_tiny_runs_give_the_recorded_figures(differences):
    assert not differences("evaluations")


def test_sample_complete_and_infill_write_the_recorded_answers(differences):
    assert not differences("answers")


def test_pipelines_give_the_recorded_texts(differences):
    assert not differences("pipelines")


def test_no_record_mentions_where_it_was_made(golden):
    for part in golden.PARTS:
        text = json.dumps(golden.read(part)["recorded"])
        assert "/tmp" not in text and "/home" not in text and str(golden.HERE) not in text
