"""The dynamic programme over embeddings: all the ways x_t can lie in x1, at once.

An embedding s of a canvas in a clean sequence maps its entries to increasing positions of x1; a clean entry maps to its
own token, a mask to any, and a closed gap has nothing missing. All embeddings that map given tokens to given tokens are
equally likely, whatever the schedules, so everything the interpolant knows of (x_t, x1) is a ratio of counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from flexmdm.canvas import Canvas, Template, gaps_of
from flexmdm.precision import float64_device
from flexmdm.sequences import Ragged

_NEVER = float("-inf")
_LARGEST_SUM = 500  # positions up to which ways are counted in float64; beyond, in logarithms
_RESCALED = 16  # rows between two divisions: they grow by less than a factor of the positions each
_TINY, _SMALLEST_LOG = 1e-300, -1e300
_DOES_NOT_EMBED = "a canvas does not embed in its clean sequence: was it made from this x1 and this template?"


def embeddings(match: Tensor, closed: Tensor, entries: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Count the embeddings of P canvases in P sequences, and the share of them that puts entry i at position j.

    With A_i[j] the number of ways to place entries 0..i with entry i at j,
    A_i[j] = match_ij * sum_{j' < j} A_{i-1}[j'], or match_ij * A_{i-1}[j-1] if gap i is closed. The ways to place
    entries i..n-1 are the same numbers for the canvas and the sequence read backwards, and share_i[j] is proportional
    to the product of the two.

    Args:
        match: ``[P, n, m]`` bool, whether entry i may be at position j.
        closed: ``[P, n + 1]`` bool, whether gap i is closed.
        entries: ``[P]``, how many of the n entries are real.
        positions: ``[P]``, how many of the m positions are real.

    Returns:
        log_count: ``[P]`` float64, -inf where there is no embedding.
        share: ``[P, n, m]`` float64, P(s_i = j) under the uniform law of embeddings; 0 for what is not real.

    >>> match = torch.ones(1, 1, 3, dtype=torch.bool)  # one mask in three tokens
    >>> log_count, share = embeddings(match, torch.zeros(1, 2, dtype=torch.bool), torch.tensor([1]), torch.tensor([3]))
    >>> log_count.exp().round(), share
    (tensor([3.], dtype=torch.float64), tensor([[[0.3333, 0.3333, 0.3333]]], dtype=torch.float64))
    """
    count, n, m = match.shape
    device = match.device
    entry, position, gap, row = (torch.arange(size, device=device) for size in (n, m, n + 1, count))
    empty = torch.where(closed[:, 0] & (positions > 0), _NEVER, 0.0).double()  # of a canvas without entries
    if not n or not m:
        return torch.where(entries == 0, empty, _NEVER), match.double()
    match = match & (position < positions[:, None])[:, None]

    backwards = (entries[:, None] - 1 - entry) % n, (positions[:, None] - 1 - position) % m  # their own inverse

    def reverse(table: Tensor) -> Tensor:
        by_entry = table.gather(1, backwards[0][:, :, None].expand(-1, -1, m))
        return by_entry.gather(2, backwards[1][:, None].expand(-1, n, -1))

    reversed_gaps = closed.gather(1, (entries[:, None] - gap) % (n + 1))
    ways, log_scale = _ways(torch.cat([match, reverse(match)]), torch.cat([closed, reversed_gaps]))
    product = ways[:count] + reverse(ways[count:]) if m > _LARGEST_SUM else ways[:count] * reverse(ways[count:])
    if m > _LARGEST_SUM:
        product = (product - product.amax(2, keepdim=True).clamp(min=_SMALLEST_LOG)).exp()
    mass = product.sum(2, keepdim=True)
    real = (entry < entries[:, None])[:, :, None] & (mass > 0)
    share = torch.where(real, product / mass.clamp(min=_TINY), 0.0)

    last = (entries - 1).clamp(min=0)
    final = ways[row, last]  # [P, m]
    follows = closed.gather(1, entries[:, None]) & (
        position != positions[:, None] - 1
    )  # what a closed last gap forbids
    if m > _LARGEST_SUM:
        log_count = final.masked_fill(follows, _NEVER).logsumexp(1)
    else:
        log_count = final.masked_fill(follows, 0.0).sum(1).log() + log_scale[row, last]
    return torch.where(entries == 0, empty, log_count), share


def _ways(match: Tensor, closed: Tensor) -> tuple[Tensor, Tensor]:
    """Return A ``[P, n, m]`` and the logarithms ``[P, n]`` of what each of its rows was divided by.

    Rows are divided by their largest number now and then, so that for up to 500 tokens neither they nor
    their products underflow. Longer ones are counted in logarithms, which is slower; A is then log A.
    """
    in_logs = match.shape[2] > _LARGEST_SUM
    some_closed = bool(closed.any())
    allowed = match.transpose(0, 1).double().contiguous()  # [n, P, m]
    closed = closed.T[:, :, None]
    if in_logs:
        allowed.log_()
    rows, log_scale = torch.empty_like(allowed), allowed.new_zeros(allowed.shape[:2])
    nothing, anything = (_NEVER, 0.0) if in_logs else (0.0, 1.0)
    reach = torch.full_like(allowed[0], anything)
    if some_closed:
        reach[:, 1:].masked_fill_(closed[0], nothing)
    for i in range(len(rows)):
        row = torch.add(reach, allowed[i], out=rows[i]) if in_logs else torch.mul(reach, allowed[i], out=rows[i])
        if not in_logs and i % _RESCALED == _RESCALED - 1:
            largest = row.amax(1).clamp(min=_TINY)
            row /= largest[:, None]
            log_scale[i] = largest.log()
        until = row[:, :-1].logcumsumexp(1) if in_logs else row[:, :-1].cumsum(1)
        reach = torch.nn.functional.pad(until, (1, 0), value=nothing)
        if some_closed:
            reach = torch.where(closed[i + 1], torch.nn.functional.pad(row[:, :-1], (1, 0), value=nothing), reach)
    return rows.transpose(0, 1), log_scale.cumsum(0).T


@dataclass(frozen=True, eq=False)
class Alignment:
    """Hold what x1 and its template say about a canvas when it is not known which embedding made it.

    Attributes:
        weights: ``[M, W]``, for each mask of the batch the probabilities of the clean tokens that may be behind it.
        candidates: ``[M, W]``, those clean tokens (anything where the weight is 0; a token may stand there repeatedly).
        gaps: G_i = E[gap_i | x_t, x1] for each of the len + 1 gaps.
        log_count: ``[B]``, log of the number of embeddings.
    """

    weights: Tensor
    candidates: Tensor
    gaps: Ragged
    log_count: Tensor

    def token_posterior(self, vocab_size: int) -> Tensor:
        """Return Q_i(v) = P(x1[s[i]] = v | x_t, x1), ``[M, V]``."""
        table = self.weights.new_zeros(self.weights.shape[0], vocab_size)
        return table.scatter_add(1, self.candidates, self.weights)

    def to(self, device: torch.device | str) -> Alignment:
        """Move the candidates to ``device``, all that is float64 to its `float64_device`."""
        home = float64_device(device)
        return Alignment(self.weights.to(home), self.candidates.to(device), self.gaps.to(home), self.log_count.to(home))


def align(canvas: Canvas, x1: Ragged, template: Template | None = None) -> Alignment:
    """Marginalise over the embeddings of ``canvas`` in ``x1`` that map given tokens to given tokens in order.

    The given tokens cut the problem into independent segments, one for each of the template's gaps; only segments in
    which something is missing and something is there need the dynamic programme. MDM needs none.

    >>> canvas = Canvas(Ragged.from_lists([[1, 9]]), mask_id=9)
    >>> alignment = align(canvas, Ragged.from_lists([[1, 1, 2]]))  # 1 may be the first 1 or the second
    >>> alignment.token_posterior(3)
    tensor([[0.0000, 0.3333, 0.6667]], dtype=torch.float64)
    >>> alignment.gaps.tolist()[0], round(float(alignment.log_count.exp()))
    ([0.333..., 0.333..., 0.333...], 3)
    """
    template = Template.free(x1) if template is None else template
    if len(canvas) != len(x1) or not torch.equal(template.roles.lengths, x1.lengths):
        raise ValueError(f"{len(canvas)} canvases, {len(x1)} clean sequences and a template that do not fit together")
    if not torch.equal(canvas.tokens.count(canvas.given.values), template.roles.count(template.given)):
        raise ValueError(_DOES_NOT_EMBED)
    segments = template.open_gaps  # one segment per gap of the template
    entries = _cut(canvas.tokens, canvas.given.values, segments)
    positions = _cut(x1, template.given, segments)
    _check_certain(canvas, x1, template, entries, positions)
    trivial = (entries.lengths == 0) | (entries.lengths == positions.lengths)
    chosen = (~trivial).nonzero().squeeze(1)

    kept, log_count, weights, candidates = _align_segments(entries[chosen], positions[chosen], canvas.mask_id)

    # E[s_i] within its segment: known where nothing is missing, from the dynamic programme elsewhere.
    expected = entries.columns.double()
    expected[(~trivial)[entries.rows]] = kept
    gaps = _expected_gaps(canvas, entries, expected, positions.lengths, template)
    per_sequence = torch.zeros(len(segments.lengths), dtype=torch.float64, device=x1.device)
    per_sequence.index_add_(0, segments.rows[chosen], log_count)

    # One row for every mask: given masks and those of complete segments are certain.
    mask = canvas.is_mask
    width = max(weights.shape[1], 1)
    all_weights = torch.zeros(mask.shape[0], width, dtype=torch.float64, device=x1.device)
    all_candidates = torch.zeros(mask.shape[0], width, dtype=torch.int64, device=x1.device)
    free = ~canvas.given.values
    all_weights[:, 0] = 1.0
    all_candidates[canvas.given.values, 0] = x1.values[template.given]
    complete = trivial[entries.rows]
    source = positions.offsets[entries.rows] + entries.columns
    free_index = free.nonzero().squeeze(1)
    all_candidates[free_index[complete], 0] = positions.values[source[complete]]
    if weights.shape[0]:
        all_weights[free_index[~complete]] = weights
        all_candidates[free_index[~complete]] = candidates
    return Alignment(all_weights[mask], all_candidates[mask], gaps, per_sequence)


def _check_certain(canvas: Canvas, x1: Ragged, template: Template, entries: Ragged, positions: Ragged) -> None:
    """Raise if a given token, or an entry of a segment in which nothing is missing, differs from its clean token."""
    given, clean = canvas.tokens.values[canvas.given.values], x1.values[template.given]
    complete = (entries.lengths == positions.lengths)[entries.rows]
    behind = positions.values[(positions.offsets[entries.rows] + entries.columns)[complete]]
    shown = torch.cat([given, entries.values[complete]])
    if bool(((shown != torch.cat([clean, behind])) & (shown != canvas.mask_id)).any()):
        raise ValueError(_DOES_NOT_EMBED)


def _cut(sequences: Ragged, given: Tensor, segments: Ragged) -> Ragged:
    """Return the free tokens only, one sequence for each segment between given tokens."""
    segment = given.long().cumsum(0) - given.long() + sequences.rows
    free = ~given
    lengths = torch.zeros(segments.values.shape[0], dtype=torch.int64, device=sequences.device)
    lengths.index_add_(0, segment[free], torch.ones_like(segment[free]))
    return Ragged(sequences.values[free], lengths)


def _align_segments(entries: Ragged, positions: Ragged, mask_id: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return E[s] of each entry, log counts, and weights and candidates of each entry over its segment."""
    if not len(entries):
        nothing = torch.zeros(0, dtype=torch.float64, device=entries.device)
        return nothing, nothing, nothing[:, None], torch.zeros(0, 1, dtype=torch.int64, device=entries.device)
    canvas, clean = entries.to_padded(mask_id), positions.to_padded(0)
    match = (canvas[:, :, None] == mask_id) | (canvas[:, :, None] == clean[:, None])
    closed = torch.zeros(len(entries), canvas.shape[1] + 1, dtype=torch.bool, device=entries.device)
    log_count, share = embeddings(match, closed, entries.lengths, positions.lengths)
    if bool((log_count == _NEVER).any()):
        raise ValueError(_DOES_NOT_EMBED)
    share = share[entries.rows, entries.columns]  # [N, m]
    position = torch.arange(clean.shape[1], dtype=torch.float64, device=entries.device)
    return share @ position, log_count, share, clean[entries.rows]


def _expected_gaps(canvas: Canvas, entries: Ragged, expected: Tensor, sizes: Tensor, template: Template) -> Ragged:
    """Return G_i = E[s_i] - E[s_{i-1}] - 1, where a given token stands at -1 and at the size of its segments."""
    gaps, given = canvas.open_gaps, canvas.given.values
    free = ~given
    first, last = gaps.columns == 0, gaps.columns == canvas.lengths[gaps.rows]
    right = torch.empty(len(gaps.values), dtype=torch.float64, device=canvas.device)
    left = torch.full_like(right, -1.0)
    segment = given.long().cumsum(0) - given.long() + canvas.tokens.rows  # the segment each entry is in, or ends
    at = torch.empty(len(given), dtype=torch.float64, device=canvas.device)
    at[free] = expected
    at[given] = sizes[segment[given]].double()
    right[~last] = at
    right[last] = sizes[template.open_gaps.offsets[1:] - 1].double()
    at[given] = -1.0
    left[~first] = at
    missing = right - left - 1
    return gaps_of(canvas.tokens, torch.where(missing < 1e-9, 0.0, missing))  # what should cancel, cancels
