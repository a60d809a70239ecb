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
_DOES_NOT_EMBED = "a canvas does not embed in its clean sequence: was it made from this x1 and this template?"


def embeddings(match: Tensor, closed: Tensor, entries: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Count the embeddings of P canvases in P sequences, and the share of them that puts entry i at position j.

    With A_i[j] the number of ways to place entries 0..i with entry i at j (and B_i[j] likewise from the right),
    A_i[j] = match_ij * sum_{j' < j} A_{i-1}[j'], or match_ij * A_{i-1}[j-1] if gap i is closed; logarithms throughout,
    so that sequences of thousands of tokens neither overflow nor underflow.

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
    column = torch.arange(m, device=device)
    match = match & (column < positions[:, None])[:, None]
    allowed = torch.where(match, 0.0, _NEVER).double()  # [P, n, m]
    closed = closed[:, :, None]

    forward = torch.empty(n, count, m, dtype=torch.float64, device=device)
    reach = first = torch.where(closed[:, 0] & (column > 0), _NEVER, 0.0).double()  # ways to arrive at j with entry 0
    for i in range(n):
        forward[i] = reach + allowed[:, i]
        reach = torch.where(closed[:, i + 1], _right(forward[i]), _right(forward[i].logcumsumexp(1)))

    backward = torch.empty_like(forward)
    last = entries - 1
    ahead = forward.new_full((count, m), _NEVER)
    for i in reversed(range(n)):
        # An entry that is the last one must be followed by the end: at once if the gap behind it is closed.
        adjacent = column == positions[:, None] - 1
        ending = torch.where(closed[:, i + 1] & ~adjacent, _NEVER, 0.0).double()
        leave = torch.where(closed[:, i + 1], _left(ahead), _left(ahead.flip(1).logcumsumexp(1).flip(1)))
        backward[i] = torch.where((last == i)[:, None], ending, leave)
        ahead = backward[i] + allowed[:, i]

    empty = torch.where(closed[:, 0, 0] & (positions > 0), _NEVER, 0.0).double()
    log_count = torch.logsumexp(ahead + first, dim=1) if m else torch.full_like(empty, _NEVER)
    log_count = torch.where(entries == 0, empty, log_count)
    log_share = (forward + backward).transpose(0, 1) - log_count[:, None, None]
    real = (torch.arange(n, device=device) < entries[:, None])[:, :, None] & (log_count > _NEVER)[:, None, None]
    return log_count, torch.where(real, log_share, _NEVER).exp()


def _right(x: Tensor) -> Tensor:
    return torch.nn.functional.pad(x, (1, 0), value=_NEVER)[:, :-1]


def _left(x: Tensor) -> Tensor:
    return torch.nn.functional.pad(x, (0, 1), value=_NEVER)[:, 1:]


@dataclass(frozen=True, eq=False)
class Alignment:
    """What x1 and its template say about a canvas when it is not known which embedding made it.

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
