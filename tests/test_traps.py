"""Traps that other implementations fell into (section 2 of the design), and the tests that keep us out of them.

A trap with no test yet says what it waits for. The test below makes sure that every test named here exists.

| trap | test |
|---|---|
| a sequence that would outgrow max_length is flooded with masks | generation/test_generate.py::test_what_stays_shorter_than_max_length_is_what_it_was_without_it |
| | generation/test_generate.py::test_a_full_sequence_gets_as_many_masks_as_fit_and_no_more |
| ... or loses its suffix | generation/test_generate.py::test_max_length_is_never_exceeded_and_generation_goes_on_to_its_end |
| | test_canvas.py::test_the_limit_never_costs_an_old_token |
| K without the beta' / (1 - beta) factor | generation/test_samplers.py::test_adaptive_reveals_the_share_of_masks_that_the_schedule_says |
| | generation/test_samplers.py::test_a_known_length_is_revealed_evenly_over_the_steps |
| K larger than the number of eligible masks overwrites revealed tokens | generation/test_samplers.py::test_adaptive_never_reveals_more_than_there_is_and_never_overwrites |
| | generation/test_samplers.py::test_a_window_may_be_wider_than_the_masks_left |
| confidence taken from a softmax of a softmax | generation/test_policies.py::test_confidence_is_taken_from_f_and_not_from_a_softmax_of_a_softmax |
| "sampling" that is always argmax | generation/test_decoding.py::test_sampling_is_not_always_argmax |
| | generation/test_decoding.py::test_temperature_changes_the_law_to_p_to_the_one_over_t |
| mask or pad token predicted as output | generation/test_generate.py::test_no_mask_or_pad_token_is_ever_in_the_output |
| | generation/test_decoding.py::test_a_token_of_probability_0_is_never_drawn |
| | test_oracle.py::test_the_mask_is_never_predicted |
| | backbones/test_network.py::test_a_mask_id_inside_the_vocabulary_is_never_predicted |
| Poisson over batch x length x vocabulary where one Bernoulli and one categorical do | generation/test_samplers.py::test_a_step_draws_a_few_numbers_per_mask_and_gap_whatever_the_vocabulary |
| logits for positions that nobody reads | generation/test_generate.py::test_nothing_finished_is_asked_about_again |
| | backbones/test_dit.py::test_linear_layers_see_no_padding_and_the_token_head_sees_masks_only |
| canvas always max_length wide | generation/test_generate.py::test_a_canvas_is_not_as_wide_as_max_length |
| EMA weights lost on resume | runs/test_train.py::test_the_average_survives_a_resume |
| schedule used for sampling differs from the one trained with | generation/test_generate.py::test_schedules_stored_with_the_denoiser_are_used_and_can_be_overruled |
| | test_interpolants.py::test_an_interpolant_survives_json |
| ... stored in the checkpoint | runs/test_train.py::test_the_schedules_of_a_run_are_those_that_generation_uses |
| time embedding of [0, 1] left unscaled | backbones/test_dit.py::test_nearby_alphas_are_told_apart |
| insertion head initialised to predict hundreds of tokens per gap | backbones/test_dit.py::test_before_training_every_open_gap_is_expected_to_miss_what_it_was_told |
| AdaLN by forward hooks with hidden state (breaks gradient checkpointing) | backbones/test_dit.py::test_the_clock_reaches_the_blocks_without_hooks_or_hidden_state |
| | backbones/test_dit.py::test_gradient_checkpointing_changes_nothing |
| | backbones/test_model.py::test_gradient_checkpointing_is_reached_from_hugging_face_and_changes_nothing |
| a padded batch giving other results than a single sequence | generation/test_generate.py::test_batch_size_makes_no_difference |
| | generation/test_generate.py::test_the_company_of_other_sequences_makes_no_difference |
| | test_objective.py::test_the_loss_of_a_sequence_does_not_depend_on_its_batch |
| ... in the network | backbones/test_dit.py::test_a_sequence_gets_the_same_answer_alone_and_in_a_batch |
| | backbones/test_dit.py::test_packed_and_padded_are_the_same_network |
| | backbones/test_dit.py::test_gradients_add_up_over_the_sequences_and_are_those_of_the_padded_network |
| float32 Gumbel/categorical sampling quietly lowering the temperature | generation/test_decoding.py::test_a_token_of_probability_one_in_a_billion_is_drawn_in_its_interval |
| | generation/test_decoding.py::test_a_hundred_thousand_rare_tokens_keep_their_mass |
| a prompt's gap mask that does not shift as tokens are inserted | generation/test_generate.py::test_open_gaps_move_with_the_tokens_around_them |
| | test_canvas.py::test_the_gap_mask_of_a_prompt_shifts_as_tokens_are_inserted |
| log 0 in the insertion loss | test_objective.py::test_nothing_missing_and_nothing_predicted_costs_nothing |
| | test_objective.py::test_predicting_nothing_where_something_is_missing_is_dear_but_finite |
| freezing alpha' g / (1 - alpha) in t inserts nothing at first under a cosine schedule | generation/test_samplers.py::test_a_cosine_schedule_inserts_in_the_first_step |
| Algorithm 1's loop as printed omits the last gap | generation/test_samplers.py::test_insertions_land_in_all_gaps_also_the_last_and_that_of_an_empty_canvas |
| ... and ends with masks | generation/test_samplers.py::test_no_mask_is_left_at_the_end |
| ranking by the drawn token is biased at temperature > 0 | generation/test_samplers.py::test_low_confidence_is_biased_at_temperature_above_0_and_adaptive_is_not |
"""  # noqa: E501

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COVERED_BY = [line.split("|")[2].strip() for line in __doc__.splitlines() if line.startswith("|")][2:]


@pytest.mark.parametrize("entry", COVERED_BY)
def test_every_trap_has_a_test_that_exists_or_says_what_it_waits_for(entry):
    if entry.startswith("waits for: "):
        assert entry.removeprefix("waits for: ") in ("training", "backbones")
        return
    file, name = entry.split("::")
    tree = ast.parse((HERE / file).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_all_eighteen_traps_of_the_design_are_listed():
    traps = [line.split("|")[1].strip() for line in __doc__.splitlines() if line.startswith("|")][2:]
    beyond = 3  # the last ones are from elsewhere in the design
    assert sum(bool(trap) and not trap.startswith("...") for trap in traps) == 18 + beyond
