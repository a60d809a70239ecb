"""Paths through a maze: shortest paths with controlled detours, their split, and the subgoals on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, islice

import numpy as np
import torch
from torch import Tensor

from flexmdm.canvas import Template, rank_within
from flexmdm.randomness import hash_rows, stream, uniform
from flexmdm.sequences import Ragged
from flexmdm.tasks.maze.grid import Maze

_PAIR, _PATH = stream("held-out pair"), stream("held-out path")
_ROUNDS = 8  # of looking for detours; a pair that is short of paths after that has hardly any more
# [set of sides as bits, draw]: one of the sides; each as often, as 12 is divisible by 1, 2, 3 and 4.
_SIDES = [[side for side in range(4) if bits >> side & 1] or [0] for bits in range(16)]
_FAIR_SIDE = np.array([[sides[draw % len(sides)] for draw in range(12)] for sides in _SIDES])


@dataclass(frozen=True, eq=False)
class PathData:
    """Paths between start-goal pairs, those of a pair one after the other and its shortest first.

    >>> data = make_paths(Maze.division(7), pairs=100, per_pair=3)
    >>> data.paths[data.pair == 0].tolist(), data.shortest[0]
    ([[15, 22, 23, 24], [15, 8, 9, 10, 17, 24], [15, 22, 29, 36, 37, 38, 31, 24]], tensor(4))
    >>> train, held_out = data.split(held_out=0.1)
    >>> len(train.shortest), len(held_out.shortest)
    (90, 10)
    """

    paths: Ragged  # the tokens of each path, both ends included; no cell twice
    pair: Tensor  # [num_paths] int64, which pair each path belongs to
    shortest: Tensor  # [num_pairs] int64, how many cells a shortest path of each pair has

    def split(self, held_out: float = 0.05, seed: int = 0) -> tuple[PathData, PathData]:
        """Split into training and held-out paths; all paths of a pair are on the same side."""
        count = len(self.shortest)
        if not 0 < held_out < 1 or count < 2:
            raise ValueError(
                f"cannot hold out a share of {held_out} of {count} pairs: give a share in (0, 1), of 2 or more"
            )
        away = min(max(round(held_out * count), 1), count - 1)
        held = torch.zeros(count, dtype=torch.bool)
        held[torch.from_numpy(np.random.default_rng(seed).permutation(count)[:away])] = True
        return self._of_pairs(~held), self._of_pairs(held)

    def _of_pairs(self, kept: Tensor) -> PathData:
        """Return the paths of the pairs where ``kept`` ``[num_pairs]`` is true; the pairs are numbered anew."""
        number = kept.long().cumsum(0) - 1
        mine = kept[self.pair]
        return PathData(self.paths[mine], number[self.pair[mine]], self.shortest[kept])


@lru_cache(maxsize=4)
def make_paths(maze: Maze, pairs: int = 15000, per_pair: int = 10, seed: int = 0) -> PathData:
    """Make a shortest path and detours, up to ``per_pair`` distinct paths, for ``pairs`` random start-goal pairs.

    The pairs are distinct and ordered; a maze with fewer than ``pairs`` gives all it has. A detour is a shortest path
    to a random cell and from there a shortest path to the goal, without any cell twice, and at most a quarter
    of the shortest path or 4 steps longer than it, whichever is more.
    """
    if pairs < 1 or per_pair < 1:
        raise ValueError(f"pairs and per_pair must be at least 1, got {pairs} and {per_pair}")
    rng = np.random.default_rng(seed)
    possible = np.flatnonzero(maze.distances > 0)
    chosen = rng.choice(possible, min(pairs, len(possible)), replace=False)
    ends = np.stack(np.divmod(chosen, len(maze.tokens)), axis=1)  # [num_pairs, 2] indices of open cells
    steps = maze.distances[ends[:, 0], ends[:, 1]].astype(np.int64)
    waypoints = _waypoints(maze, ends, steps + np.maximum(steps // 4, 4))
    walks = _walk(maze, ends, rng)
    found, pair, hashes = [walks], torch.arange(len(ends)), _hashes(walks)
    kept = pair
    for _ in range(_ROUNDS):
        short = (pair[kept].bincount() < per_pair) & (waypoints.lengths > 0)
        if not short.any():
            break
        tried = short.nonzero().squeeze(1).repeat_interleave(per_pair)
        draws = torch.from_numpy(rng.random(len(tried)))
        through = waypoints.values[waypoints.offsets[tried] + (draws * waypoints.lengths[tried]).long()]
        stops = np.insert(ends[tried], 1, through, axis=1)  # [tries, 3]
        detours = _walk(maze, stops, rng)
        simple = ~_meets_itself(maze, detours, stops)
        detours = detours[simple]
        found, pair, hashes = [*found, detours], torch.cat([pair, tried[simple]]), torch.cat([hashes, _hashes(detours)])
        kept = _first_distinct(hashes, pair, per_pair)
    walks = Ragged.cat(found)[kept]
    tokens = torch.from_numpy(maze.tokens)[walks.values]
    return PathData(walks.with_values(tokens), pair[kept], torch.from_numpy(steps + 1))


def _waypoints(maze: Maze, ends: np.ndarray, longest: np.ndarray) -> Ragged:
    """Return the cells on ways of at most ``longest`` ``[P]`` steps between each pair of ``ends`` ``[P, 2]``."""
    rows = np.arange(len(ends))
    through = maze.distances[ends[:, 0]] + maze.distances[ends[:, 1]]  # [P, n_open]
    near = (maze.distances[ends[:, 0]] >= 0) & (through <= longest[:, None])
    near[rows, ends[:, 0]] = near[rows, ends[:, 1]] = False
    return Ragged(torch.from_numpy(near.nonzero()[1]), torch.from_numpy(near.sum(1)))


def _walk(maze: Maze, stops: np.ndarray, rng: np.random.Generator) -> Ragged:
    """Walk from stop to stop (``[P, S]`` indices of open cells), each time on a random shortest path; all at once."""
    # [n_open, n_open] uint8 with bit k set if side k of a cell (second index) is nearer to the goal
    nearer = (maze.links >= 0) & (maze.distances[:, maze.links] == maze.distances[:, :, None] - 1)
    closer = np.packbits(nearer, axis=2, bitorder="little")[:, :, 0]
    arrivals = maze.distances[stops[:, :-1], stops[:, 1:]].cumsum(1, dtype=np.int64)  # [P, S - 1]
    lengths = arrivals[:, -1] + 1
    starts = lengths.cumsum() - lengths
    values = np.empty(lengths.sum(), dtype=np.int64)
    here = stops[:, 0]
    going = np.arange(len(stops))
    values[starts] = here
    for step in range(1, lengths.max()):
        on = lengths[going] > step
        going, here = going[on], here[on]
        goal = stops[going, 1 + (arrivals[going] < step).sum(1)]
        side = _FAIR_SIDE[closer[goal, here], rng.integers(12, size=len(going), dtype=np.uint8)]
        here = maze.links[here, side]
        values[starts[going] + step] = here
    return Ragged(torch.from_numpy(values), torch.from_numpy(lengths))


def _meets_itself(maze: Maze, walks: Ragged, stops: np.ndarray) -> Tensor:
    """Return ``[P]``, which walks from the first of ``stops`` ``[P, 3]`` by the second to the third have a cell twice.

    The way to the second stop is a shortest path: the only cell on it at distance d from the start is its d-th. So a
    later cell is on it if and only if it is the one at its own distance.
    """
    away = maze.distances[stops[:, 0][walks.rows], walks.values]  # [N] from the start
    turn = maze.distances[stops[:, 0], stops[:, 1]][walks.rows]
    back = (walks.columns.numpy() > turn) & (away <= turn)
    earlier = walks.values[walks.offsets[walks.rows[back]] + torch.from_numpy(away[back])]
    met = walks.rows[back][earlier == walks.values[back]]
    return torch.zeros(len(walks), dtype=torch.bool).index_fill(0, met, True)


def _hashes(walks: Ragged) -> Tensor:
    """Return ``[P]``, numbers that are equal for equal walks and, but for a chance of 2^-64, different for others."""
    return walks.sum(hash_rows(torch.stack([walks.values, walks.columns], dim=1)))


def _first_distinct(hashes: Tensor, pair: Tensor, per_pair: int) -> Tensor:
    """Return the indices of the first ``per_pair`` different walks of each pair, one pair after the other."""
    first = np.sort(np.unique(hashes.numpy(), return_index=True)[1])
    order = torch.from_numpy(first[np.argsort(pair.numpy()[first], kind="stable")])
    rank = torch.arange(len(order)) - torch.searchsorted(pair[order], pair[order])
    return order[rank < per_pair]


def choose_subgoals(paths: Ragged, counts: Tensor, seed: int, numbers: Tensor) -> Tensor:
    """Draw the entries ``[N]`` of the paths that are subgoals: both ends and ``counts - 2`` others.

    ``counts`` ``[B]`` are at least 2; a shorter path has all its cells marked. ``numbers`` ``[B]``, the identity of
    each path, decide the choice with the seed, whatever else is in the batch.

    >>> paths = Ragged.from_lists([[3, 4, 5, 6, 7], [8, 9]])
    >>> choose_subgoals(paths, counts=torch.tensor([3, 3]), seed=0, numbers=torch.tensor([0, 1]))
    tensor([ True,  True, False, False,  True,  True,  True])
    """
    position = paths.columns
    end = (position == 0) | (position == paths.lengths[paths.rows] - 1)
    draws = uniform(seed, stream("subgoals"), numbers[paths.rows], position, device=paths.device)
    return rank_within(paths.rows, draws.masked_fill(end, -1.0)) < counts[paths.rows]


def distinct_problems(data: PathData, count: int, subgoals: int, seed: int) -> list[list[int]]:
    """Draw ``count`` problems, the subgoals of some path each; none comes twice as long as there are others.

    In every turn each pair with a path of enough cells gives one problem, the pairs in random order, and in the next
    turn from another of its paths. Between two cells there is but one problem with two subgoals, however many paths.

    >>> data = make_paths(Maze.division(7), pairs=3, per_pair=2)
    >>> distinct_problems(data, 4, subgoals=2, seed=0)
    [[37, 32], [24, 32], [29, 17], [37, 32]]
    """
    order = torch.argsort(uniform(seed, _PATH, torch.arange(len(data.paths))))
    order = order[data.paths.lengths[order] >= subgoals]
    pairs = data.pair[order].unique()
    paths_of: dict[int, list[int]] = {pair: [] for pair in pairs[torch.argsort(uniform(seed, _PAIR, pairs))].tolist()}
    for path, pair in zip(order.tolist(), data.pair[order].tolist(), strict=True):
        paths_of[pair].append(path)
    problems: list[list[int]] = []
    used: set[tuple[int, ...]] = set()
    turn = 0
    while paths_of and len(problems) < count:
        paths = data.paths[torch.tensor([mine[turn % len(mine)] for mine in paths_of.values()])]
        numbers = turn * len(paths) + torch.arange(len(paths))
        drawn = paths.keep(choose_subgoals(paths, torch.full_like(numbers, subgoals), seed, numbers)).tolist()
        fresh = [problem for problem in drawn if tuple(problem) not in used]
        fresh = fresh or list(islice(_unused(data.paths[order], subgoals, used), count - len(problems)))
        if not fresh:  # all had their turn
            used.clear()
        used.update(map(tuple, fresh))
        problems += fresh
        turn += 1
    return problems[:count]


def _unused(paths: Ragged, subgoals: int, used: set[tuple[int, ...]]) -> Iterator[list[int]]:
    """Yield each choice of subgoals that is not among the used ones once, for when drawing finds no more."""
    found = set(used)
    for path in paths.tolist():
        for inner in combinations(path[1:-1], subgoals - 2):
            problem = (path[0], *inner, path[-1])
            if problem not in found:
                found.add(problem)
                yield list(problem)


def through_template(paths: Ragged, subgoals: Tensor) -> Template:
    """Return the template of `Prompt.through`: subgoals (``[N]`` bool) are fixed, the gaps between them open.

    Also a gap between subgoals that are neighbours is open: at generation nobody knows that nothing is missing there.

    >>> paths = Ragged.from_lists([[3, 4, 5, 6]])
    >>> template = through_template(paths, torch.tensor([True, False, True, True]))
    >>> template.roles.tolist(), template.open_gaps.tolist()
    ([[2, 0, 2, 2]], [[False, True, True, False]])
    """
    counts = paths.count(subgoals)
    gaps = Ragged(torch.empty(int(counts.sum()) + len(counts), device=paths.device), counts + 1)
    open_gaps = (gaps.columns > 0) & (gaps.columns < counts[gaps.rows])
    return Template.fixed(paths, subgoals, gaps.with_values(open_gaps))
