"""The maze as a task: what is learned, what is asked, and that both look the same to the network."""

import json
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flexmdm.canvas import Canvas, Role
from flexmdm.interpolants import FlexMDMInterpolant
from flexmdm.runs.config import RunConfig
from flexmdm.runs.train import train
from flexmdm.tasks import task_of
from flexmdm.tasks.loading import load
from flexmdm.tasks.maze import MazeTask
from flexmdm.training.recipe import Network, Recipe

SMALL = {"size": 9, "pairs": 120, "paths_per_pair": 3, "subgoals": (2, 5), "held_out": 0.2}
FLEX, MDM = MazeTask(**SMALL), MazeTask(**SMALL, model="mdm")
both = pytest.mark.parametrize("task", [FLEX, MDM], ids=["flexmdm", "mdm"])


def taken(task, numbers):
    numbers = torch.as_tensor(numbers)
    return task.train.take(numbers % len(task.train), numbers)


def ends(paths):
    return {(path[0], path[-1]) for path in paths.tolist()}


def is_subsequence(part, whole):
    rest = iter(whole)
    return all(token in rest for token in part)


# What a task is ------------------------------------------------------------------------------------------------------


@both
def test_a_task_survives_json(task):
    again = task_of(json.loads(json.dumps(task.to_dict())))
    assert again == task and again.subgoals == (2, 5)
    assert again.train.data.paths.tolist() == task.train.data.paths.tolist()


def test_an_unknown_task_is_refused():
    with pytest.raises(ValueError, match="unknown task 'chess'"):
        task_of({"name": "chess"})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"subgoals": (1, 4)}, "got 1-4"),
        ({"subgoals": (5, 4)}, "got 5-4"),
        ({"subgoals": [2]}, r"such as \[2, 12\], or one number; got \[2\]"),
        ({"subgoals": "2-12"}, "got '2-12'"),
        ({"subgoals": [2, "12"]}, "or one number; got"),
        ({"subgoals": [2.5, 4]}, "or one number; got"),
        ({"subgoals": True}, "or one number; got True"),
        ({"size": "41"}, "size of a maze is a whole number, got '41'"),
        ({"size": 41.0}, "size of a maze is a whole number, got 41.0"),
        ({"pairs": "many"}, "pairs of a maze is a whole number, got 'many'"),
        ({"held_out": "0.1"}, "held_out of a maze is a share between 0 and 1, got '0.1'"),
        ({"model": "gpt"}, "flexmdm or mdm, got 'gpt'"),
    ],
)
def test_a_task_that_makes_no_sense_is_refused(changes, words):
    """Also when it comes from a file, where a number may be written as a text."""
    with pytest.raises(ValueError, match=words):
        task_of({"name": "maze", **changes})


def test_one_number_of_subgoals_is_the_fewest_and_the_most():
    assert MazeTask(subgoals=7) == MazeTask(subgoals=(7, 7))


def test_more_subgoals_than_any_path_has_cells_are_refused_before_training():
    task = MazeTask(**{**SMALL, "subgoals": (2, 600)})
    with pytest.raises(ValueError, match=f"no path has 600 cells: the longest has {FLEX.longest_path}; take fewer"):
        task.settled()
    assert MazeTask(**{**SMALL, "subgoals": (2, FLEX.longest_path)}).settled().longest_path == FLEX.longest_path


def test_mdm_has_two_more_tokens_which_are_no_cells():
    assert FLEX.vocab_size == 81 and MDM.vocab_size == 83
    assert {MDM.separator, MDM.pad} == {81, 82}


@both
def test_no_example_is_longer_than_the_longest_answer(task):
    x1, _ = taken(task, range(len(task.train)))
    assert int(x1.lengths.max()) <= task.max_length


# Problems ------------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("subgoals", [2, 3, 5])
def test_problems_connect_pairs_that_training_never_saw(task, subgoals):
    problems = task.problems(200, subgoals)
    assert len(problems) == 200 and {len(problem) for problem in problems} == {subgoals}
    asked = {(problem[0], problem[-1]) for problem in problems}
    assert asked <= ends(task.validation.data.paths)
    assert not asked & ends(task.train.data.paths)


def test_the_subgoals_of_a_problem_lie_on_a_held_out_path_in_its_order():
    paths = FLEX.validation.data.paths.tolist()
    for problem in FLEX.problems(100, 4):
        assert any(is_subsequence(problem, path) for path in paths)


def all_problems(task, subgoals):
    """Every choice of subgoals on a held-out path."""
    paths = [path for path in task.validation.data.paths.tolist() if len(path) >= subgoals]
    return {(p[0], *inner, p[-1]) for p in paths for inner in combinations(p[1:-1], subgoals - 2)}


@pytest.mark.parametrize("subgoals", [2, 3, 4])
def test_no_problem_comes_twice_before_all_had_their_turn(subgoals):
    """At K = 2 all paths of a pair are one problem."""
    every = all_problems(FLEX, subgoals)
    problems = list(map(tuple, FLEX.problems(2 * len(every), subgoals)))
    assert set(problems[: len(every)]) == set(problems[len(every) :]) == every
    assert problems[: len(every)] == list(map(tuple, FLEX.problems(len(every), subgoals)))  # the first are the first


@pytest.mark.parametrize("subgoals", [2, 3, 5])
def test_no_pair_comes_twice_before_all_pairs_had_their_turn(subgoals):
    pairs = {(problem[0], problem[-1]) for problem in all_problems(FLEX, subgoals)}
    turn = FLEX.problems(len(pairs), subgoals)
    assert {(problem[0], problem[-1]) for problem in turn} == pairs


def test_both_models_get_the_same_problems_and_another_seed_gives_others():
    assert FLEX.problems(50, 4, seed=3) == MDM.problems(50, 4, seed=3)
    assert FLEX.problems(50, 4, seed=3) != FLEX.problems(50, 4, seed=4)


def test_impossible_problems_are_refused():
    with pytest.raises(ValueError, match="at least start and goal"):
        FLEX.problems(1, 1)
    with pytest.raises(ValueError, match="no held-out path has 1000 cells: the longest has"):
        FLEX.problems(1, 1000)


# Examples ------------------------------------------------------------------------------------------------------------


def test_flexmdm_learns_the_path_with_its_subgoals_fixed_and_the_gaps_between_them_open():
    x1, template = taken(FLEX, range(60))
    for path, roles, gaps in zip(x1.tolist(), template.roles.tolist(), template.open_gaps.tolist(), strict=True):
        assert roles[0] == roles[-1] == Role.FIXED
        assert set(roles[1:-1]) <= {Role.FIXED, Role.FREE}
        count = roles.count(Role.FIXED)
        assert 2 <= count <= 5 and gaps == [False, *[True] * (count - 1), False]
        assert len(path) == len(roles)


def test_mdm_learns_subgoals_then_sep_then_the_path_then_pad():
    plain, marked = taken(FLEX, range(60))
    x1, template = taken(MDM, range(60))
    rows = zip(plain.tolist(), marked.roles.tolist(), x1.tolist(), template.roles.tolist(), strict=True)
    for path, roles, padded, padded_roles in rows:
        subgoals = [token for token, role in zip(path, roles, strict=True) if role == Role.FIXED]
        padding = [MDM.pad] * (MDM.longest_path - len(path))
        assert padded == [*subgoals, MDM.separator, *path, *padding]
        prompt = len(subgoals) + 1
        assert padded_roles == [Role.FIXED] * prompt + [Role.PRESENT] * MDM.longest_path
    assert not bool(template.open_gaps.values.any())


@both
def test_an_example_belongs_to_its_number_whatever_else_is_in_the_batch(task):
    x1, template = taken(task, range(40))
    for number in (0, 7, 39):
        alone, its = taken(task, [number])
        assert alone.tolist() == x1[number : number + 1].tolist()
        assert its.roles.tolist() == template.roles[number : number + 1].tolist()


def test_every_number_of_subgoals_is_drawn_as_often():
    """2000 draws of 4 values: 500 each with a standard deviation of 19; five of them are allowed."""
    longest = FLEX.train.data.paths.lengths.argmax()
    _, template = FLEX.train.take(longest.repeat(2000), torch.arange(2000))
    counts = template.roles.count(template.roles.values == Role.FIXED).bincount()
    assert counts[:2].tolist() == [0, 0] and len(counts) == 6
    assert bool(((counts[2:] - 500).abs() < 97).all())


@both
def test_training_and_held_out_examples_share_no_pair(task):
    assert not ends(task.train.data.paths) & ends(task.validation.data.paths)
    assert len(task.train) == len(task.train.data.paths)


@both
def test_the_path_is_read_back_from_the_clean_sequence(task):
    x1, _ = taken(task, range(80))
    paths = task.train.data.paths[torch.arange(80)].tolist()
    assert [task.path(sequence) for sequence in x1.tolist()] == paths


def test_an_answer_of_mdm_without_sep_or_without_a_path_is_no_reason_to_fail():
    assert MDM.path([3, 4, MDM.pad]) == [3, 4]
    assert MDM.path([3, 4, MDM.separator]) == []


# The same to the network ---------------------------------------------------------------------------------------------


@both
@given(numbers=st.lists(st.integers(0, 10**9), min_size=1, max_size=4), seed=st.integers(0, 10))
@settings(max_examples=30, deadline=None)
def test_a_prompt_is_the_canvas_that_training_starts_from(task, numbers, seed):
    x1, template = taken(task, numbers)
    mask = task.vocab_size
    start = FlexMDMInterpolant().sample(x1, 0.0, template, seed, mask).canvas
    fixed = template.roles.values == Role.FIXED
    subgoals = [[t for t in row if t != task.separator] for row in x1.keep(fixed).tolist()]
    asked = Canvas.of_prompts([task.prompt(each) for each in subgoals], mask)
    assert asked.tokens.tolist() == start.tokens.tolist()
    assert asked.given.tolist() == start.given.tolist()
    assert asked.open_gaps.tolist() == start.open_gaps.tolist()


@both
def test_a_small_run_is_trained_loaded_and_asked(task, tmp_path):
    network = Network(hidden=16, layers=1, heads=2, condition=16)
    recipe = Recipe(steps=3, batch_size=8, warmup=1, eval_every=3, eval_size=8, save_every=3, log_every=1)
    trained = train(RunConfig(task.to_dict(), network, recipe), tmp_path / "run", device="cpu")
    again, model = load(tmp_path / "run")
    assert again == task
    assert model.config.insertions == (task.model == "flexmdm")
    problems = again.problems(3, 3)
    options = {"prompts": [again.prompt(p) for p in problems], "sampler": "adaptive", "steps": 4, "seed": 0}
    out = model.generate(**options, max_length=again.max_length)
    assert out.sequences == trained.generate(**options, max_length=again.max_length).sequences
    for problem, sequence in zip(problems, out.sequences, strict=True):
        assert is_subsequence(problem, sequence) and len(sequence) <= again.max_length
        if task.model == "mdm":
            assert sequence[:4] == [*problem, task.separator] and len(sequence) == 4 + task.longest_path
