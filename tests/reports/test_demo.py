import numpy as np
import pytest

from flexmdm.generation import Event
from flexmdm.reports.demo import Contender, growing, grown, page_of
from flexmdm.reports.maze import WRONG, planned
from flexmdm.sweeps.maze import MazeScore, Plans
from flexmdm.tasks.maze.task import MazeTask

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
    growth = grown(inserted + revealed, [8, 24])
    return {
        "maze": TASK.maze,
        "contenders": contenders,
        "growths": {"flexmdm": growth, "mdm": grown(row, [8, 24], masks=6, frames=growth.frames, pad=50)},
        "held_out": {4: 0.5, 5: 0.5},
        "longest": 6,
        "training_paths": 100,
        "minutes": 0.5,
        "facts": {"maze": "7 x 7 & small"},
        "command": "flexmdm demo maze --size 7",
    }


def test_the_page_is_whole_and_stands_alone(story, check_page):
    page = check_page(page_of(**story))
    words = " ".join(page.words)
    for expected in ("100%", "33%", "7 x 7 & small", "a <sampler>", "✗ fails", "30 seconds", "5 cells on average"):
        assert expected.split()[0] in words, expected


def test_what_the_maze_does_not_allow_is_red(story):
    good, bad = planned(TASK.maze, GOOD, [8, 24]), planned(TASK.maze, THROUGH_A_WALL, [8, 22, 24])
    assert not any(move.wrong for move in good.moves) and not good.blocked
    assert WRONG not in [colour for _, colour in good.rings]
    assert [move.wrong for move in bad.moves] == [True, True]  # neither move is one
    assert len(bad.blocked) == 1  # in the wall
    assert [colour == WRONG for _, colour in bad.rings] == [False, True, False]  # the subgoal that it misses
    html = page_of(**story)
    assert html.count('class="cross"') == 1 and f'class="move wrong" stroke="{WRONG}"' in html


def test_a_frame_shows_only_what_is_revealed_by_then(story):
    growth = story["growths"]["flexmdm"]
    assert [len(growing(TASK.maze, growth, frame).cells) for frame in range(growth.frames)] == [0, 0, 1, 2, 3]
    boxes = [growth.at(frame, frame - 1) for frame in range(growth.frames)]
    assert [len(row) for row in boxes] == [2, 5, 5, 5, 5]
    assert [sum(not shown for _, shown, _ in row) for row in boxes] == [0, 3, 2, 1, 0]
    assert [sum(new for _, _, new in row) for row in boxes] == [0, 3, 1, 1, 1]


def test_every_part_of_the_film_has_the_frame_that_shows_it(story):
    growth = story["growths"]["flexmdm"]
    film = growing(TASK.maze, growth)
    for frame in range(growth.frames):
        shown = growing(TASK.maze, growth, frame)
        assert len(shown.moves) == sum(move.frame <= frame for move in film.moves)
        assert len(shown.cells) == sum(when <= frame for _, _, when in film.cells)
    assert page_of(**story).count("data-shown=") >= len(film.moves) + len(film.cells) + len(growth.boxes)


def test_an_illegal_move_shows_only_when_nothing_can_come_between():
    events = [Event(0, 0.2, "insert", 1, 2), Event(1, 0.5, "reveal", 1, 2, 24), Event(2, 0.9, "insert", 1, 3)]
    events.append(Event(3, 1.0, "reveal", 1, 3, 22))
    growth = grown(events, [8, 38])
    drawn = [growing(TASK.maze, growth, frame).moves for frame in range(growth.frames)]
    assert [any(move.wrong for move in moves) for moves in drawn] == [False, False, False, False, True]


def test_a_rate_has_its_interval(story):
    assert story["contenders"][1].rates["2 subgoals"].percent(each=True) == "33.3% (6.1% - 79.2%)"
    assert story["contenders"][1].num == 3
