import numpy as np
import pytest

from flexmdm.generation import Event
from flexmdm.reports import svg
from flexmdm.reports.demo import Contender, Rate, Story, page_of
from flexmdm.sweeps.maze import MazeScore, Plans
from flexmdm.tasks.maze import MazeTask

TASK = MazeTask(size=7, pairs=60, subgoals=(2, 3))
GOOD, THROUGH_A_WALL = [8, 15, 22, 23, 24], [8, 16, 24]


def plans(model, paths, problem, success):
    score = MazeScore(
        model, 7, len(problem), len(paths), "spaced", None, 1.0, 0, float(np.mean(success)), 0.0, 1.0, 0.5, 1.0, None,
        20.0, 0.1,
    )  # fmt: skip
    return Plans([problem] * len(paths), paths, np.array(success), score)


@pytest.fixture
def story():
    log = [
        {"step": 10, "seconds": 5.0, "loss": 30.0, "tokens_per_second": 100.0},
        {"step": 20, "seconds": 9.0, "loss": 20.0, "tokens_per_second": 100.0},
        {"step": 20, "seconds": 10.0, "eval_loss": 21.0},
    ]
    contenders = [
        Contender("flexmdm", "a <sampler>", 1000, 20, 10.0, log, [plans("flexmdm", [GOOD] * 3, [8, 24], [True] * 3)]),
        Contender(
            "mdm", "another", 1000, 20, 10.0, log,
            [plans("mdm", [GOOD, THROUGH_A_WALL, []], [8, 24], [True, False, False])],
        ),
    ]  # fmt: skip
    inserted = [Event(0, 0.3, "insert", place, entry=place + 1) for place in (1, 2, 3)]
    revealed = [Event(place, 0.9, "reveal", place, place + 1, GOOD[place]) for place in (1, 2, 3)]
    row = [Event(place, 0.5, "reveal", 3 + place, 3 + place, [*GOOD, 50][place]) for place in range(6)]
    growth = svg.grown(inserted + revealed, [8, 24])
    return Story(
        maze=TASK.maze,
        contenders=contenders,
        growths={"flexmdm": growth, "mdm": svg.filled(row, [8, 24], first=3, frames=growth.frames, pad=50)},
        held_out={4: 0.5, 5: 0.5},
        longest=6,
        training_paths=100,
        minutes=0.5,
        facts={"maze": "7 x 7 & small"},
        command="flexmdm demo maze --size 7",
    )


def test_the_page_is_whole_and_stands_alone(story, check_page):
    page = check_page(page_of(story))
    words = " ".join(page.words)
    for expected in ("100%", "33%", "7 x 7 & small", "a <sampler>", "✗ fails", "30 seconds", "5 cells on average"):
        assert expected.split()[0] in words, expected


def test_what_the_maze_does_not_allow_is_red():
    good = svg.maze_with(TASK.maze, GOOD, [8, 24], "good")
    bad = svg.maze_with(TASK.maze, THROUGH_A_WALL, [8, 22, 24], "bad")
    red = svg.WRONG
    assert red not in good and "cross" not in good
    assert bad.count(f'stroke="{red}"') == 2  # neither move is one
    assert bad.count('class="cross"') == 1  # in the wall
    assert bad.count(f'fill="{red}"') == 1  # the subgoal that it misses


def test_a_frame_shows_only_what_is_revealed_by_then(story):
    growth = story.growths["flexmdm"]
    cells = [svg.maze_at(TASK.maze, growth, frame, "").count("<rect") for frame in range(growth.frames)]
    boxes = [svg.sequence_at(growth, frame, frame - 1, "") for frame in range(growth.frames)]
    assert cells == [0, 0, 1, 2, 3]
    assert [box.count("<rect") for box in boxes] == [2, 5, 5, 5, 5]
    assert [box.count(svg.MASK) for box in boxes] == [0, 3, 2, 1, 0]


def test_an_illegal_move_shows_only_when_nothing_can_come_between():
    events = [Event(0, 0.2, "insert", 1, 2), Event(1, 0.5, "reveal", 1, 2, 24), Event(2, 0.9, "insert", 1, 3)]
    events.append(Event(3, 1.0, "reveal", 1, 3, 22))
    growth = svg.grown(events, [8, 38])
    assert [svg.WRONG in svg.maze_at(TASK.maze, growth, frame, "") for frame in range(growth.frames)] == [
        False, False, False, False, True,
    ]  # fmt: skip


def test_a_rate_has_its_interval():
    assert str(Rate(90, 100)) == "90.0% (82.6% - 94.5%)"
