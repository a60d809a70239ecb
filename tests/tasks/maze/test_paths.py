import numpy as np
import pytest
import torch

from flexmdm.canvas import Canvas, Prompt, Role, Template
from flexmdm.sequences import Ragged
from flexmdm.tasks.maze.grid import Maze
from flexmdm.tasks.maze.paths import PathData, choose_subgoals, make_paths, through_template

MAZE = Maze.division(21)


def chosen(lengths, counts, seed=0, numbers=None):
    paths = Ragged(torch.arange(int(torch.tensor(lengths).sum())), torch.tensor(lengths))
    numbers = torch.arange(len(lengths)) if numbers is None else numbers
    return paths, choose_subgoals(paths, torch.tensor(counts), seed, numbers)


@pytest.fixture(scope="module", params=[(7, 0.5), (21, 0.5), (21, 0.0), (41, 0.5)], ids=str)
def made(request) -> tuple[Maze, PathData]:
    size, extra_doors = request.param
    maze = Maze.division(size, extra_doors=extra_doors)
    return maze, make_paths(maze, pairs=400, per_pair=10, seed=1)


def test_paths_walk_over_open_cells_and_never_twice_over_one(made):
    maze, data = made
    for path in data.paths.tolist():
        assert len(set(path)) == len(path)
        cells = maze.open_index[path]
        assert all(end in maze.links[start] for start, end in zip(cells, cells[1:], strict=False))
    assert maze.passable.reshape(-1)[data.paths.values].all()


def test_the_first_path_of_a_pair_is_shortest_and_the_others_keep_to_the_limit(made):
    maze, data = made
    paths, pair, shortest = data.paths.tolist(), data.pair.tolist(), data.shortest.tolist()
    assert pair == sorted(pair) and set(pair) == set(range(len(shortest)))
    for number, path in enumerate(paths):
        start, goal = maze.open_index[path[0]], maze.open_index[path[-1]]
        steps = int(maze.distances[start, goal])
        assert shortest[pair[number]] == steps + 1
        assert len(path) - 1 <= max(1.25 * steps, steps + 4)
        if number == 0 or pair[number - 1] != pair[number]:
            assert len(path) - 1 == steps


def test_a_pair_has_up_to_ten_different_paths_between_the_same_ends(made):
    _, data = made
    for pair in range(len(data.shortest)):
        paths = [tuple(path) for path in data.paths[data.pair == pair].tolist()]
        assert len(set(paths)) == len(paths) <= 10
        assert len({(path[0], path[-1]) for path in paths}) == 1


def test_a_maze_with_loops_has_detours_and_one_without_has_none():
    with_loops = make_paths(MAZE, pairs=400)
    assert (with_loops.pair.bincount() == 10).double().mean() > 0.75
    assert (with_loops.paths.lengths > with_loops.shortest[with_loops.pair]).double().mean() > 0.4
    tree = make_paths(Maze.division(21, extra_doors=0), pairs=400)
    assert len(tree.paths) == 400


def ends_of(data):
    return [(path[0], path[-1]) for path in data.paths.tolist()]


def test_pairs_are_distinct_and_a_small_maze_gives_all_it_has():
    data = make_paths(MAZE, pairs=2000, per_pair=1)
    assert len(data.paths) == len(set(ends_of(data))) == 2000
    tokens = Maze.division(7).tokens.tolist()
    everything = make_paths(Maze.division(7), pairs=15000, per_pair=1)
    assert sorted(ends_of(everything)) == [(a, b) for a in tokens for b in tokens if a != b]


def test_shortest_paths_are_random_among_the_shortest():
    maze = Maze(np.pad(np.ones((4, 4), dtype=bool), 1))
    seen = set()
    for seed in range(200):  # one corner to the other: 20 shortest paths, the rarest of probability 1/32
        data = make_paths.__wrapped__(maze, pairs=240, per_pair=1, seed=seed)
        corner = [number for number, ends in enumerate(ends_of(data)) if ends == (7, 28)]
        seen.add(tuple(data.paths[corner[0]].values.tolist()))
    assert len(seen) == 20  # all of them; one is missed with probability < 20 (31/32)^200 = 0.035


def test_the_seed_decides_the_paths():
    first, again, other = (make_paths.__wrapped__(MAZE, pairs=50, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.paths.values, again.paths.values) and torch.equal(first.pair, again.pair)
    assert not set(ends_of(first)) == set(ends_of(other))
    assert make_paths(MAZE, pairs=50) is make_paths(MAZE, pairs=50)


def test_both_sides_of_a_split_share_no_pair_and_lose_no_path():
    data = make_paths(MAZE, pairs=400)
    train, held_out = data.split(held_out=0.05, seed=2)
    assert len(train.shortest) == 380 and len(held_out.shortest) == 20
    assert not set(ends_of(train)) & set(ends_of(held_out))
    together = train.paths.tolist() + held_out.paths.tolist()
    assert sorted(together) == sorted(data.paths.tolist())
    for side in (train, held_out):
        firsts = side.paths.lengths[torch.searchsorted(side.pair, torch.arange(len(side.shortest)))]
        assert torch.equal(firsts, side.shortest)
    assert ends_of(data.split(seed=2)[1]) == ends_of(held_out) != ends_of(data.split(seed=3)[1])


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda: make_paths(MAZE, pairs=0), "at least 1, got 0 and 10"),
        (lambda: make_paths(MAZE, pairs=20).split(1.0), r"a share of 1.0 of 20 pairs: give a share in \(0, 1\)"),
    ],
)
def test_errors_say_what_is_wrong(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


# Subgoals -------------------------------------------------------------------------------------------------------------


def test_a_path_gets_its_ends_and_as_many_others_as_asked_or_as_it_has():
    lengths, counts = [9, 9, 9, 2, 3, 1], [2, 3, 7, 5, 3, 2]
    paths, subgoals = chosen(lengths, counts)
    assert paths.count(subgoals).tolist() == [2, 3, 7, 2, 3, 1]
    assert all(bool(marks[0]) and bool(marks[-1]) for marks in paths.with_values(subgoals).split())


def test_every_set_of_inner_positions_is_chosen_equally_often():
    number = 30_000
    paths, subgoals = chosen([6] * number, [4] * number)
    inner = subgoals.reshape(number, 6)[:, 1:-1].long() @ torch.tensor([1, 2, 4, 8])
    counts = inner.bincount(minlength=16).double()
    pairs = torch.tensor([3, 5, 9, 6, 10, 12])  # the 6 ways to choose 2 of 4
    assert counts.sum() == counts[pairs].sum()
    noise = (number * 1 / 6 * 5 / 6) ** 0.5  # 64.5 of 5000; 4 of them for 6 counts: wrong alarm with probability 4e-4
    assert (counts[pairs] - number / 6).abs().max() < 4 * noise


def test_a_path_gets_the_same_subgoals_in_any_batch():
    lengths, counts, numbers = [5, 12, 30, 12], [3, 4, 9, 4], torch.tensor([40, 41, 42, 43])
    paths, together = chosen(lengths, counts, numbers=numbers)
    for row in range(4):
        _, alone = chosen([lengths[row]], [counts[row]], numbers=numbers[row : row + 1])
        assert torch.equal(alone, together[paths.rows == row])
    _, other_seed = chosen(lengths, counts, seed=1, numbers=numbers)
    _, other_numbers = chosen(lengths, counts, numbers=numbers + 1)
    assert not torch.equal(together, other_seed) and not torch.equal(together, other_numbers)


def test_the_template_is_what_the_prompt_through_the_subgoals_gives():
    paths = make_paths(MAZE, pairs=60).paths
    counts = 2 + torch.arange(len(paths)) % 9
    subgoals = choose_subgoals(paths, counts, 0, torch.arange(len(paths)))
    template = through_template(paths, subgoals)
    prompts = [Prompt.through(goals) for goals in paths.keep(subgoals).tolist()]
    canvas = Canvas.of_prompts(prompts, mask_id=MAZE.size**2)
    assert isinstance(template, Template) and torch.equal(template.given, subgoals)
    assert set(template.roles.values.tolist()) == {Role.FREE, Role.FIXED}
    assert torch.equal(paths.values[template.given], canvas.tokens.values)
    assert template.open_gaps.tolist() == canvas.open_gaps.tolist()
    adjacent = subgoals[:-1] & subgoals[1:] & (paths.rows[:-1] == paths.rows[1:])
    assert adjacent.any()  # gaps that are open although nothing is in them
