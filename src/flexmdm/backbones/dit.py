"""The paper's network: a bidirectional transformer (DiT) over packed sequences, conditioned on the clock alpha.

Every sequence gets one row in front of its entries, the start, so that there is one row for each of the len + 1 gaps of
a canvas: row 0 (the start) stands left of gap 0, and row i (entry i - 1) stands left of gap i.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from types import MethodType

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from flexmdm.backbones.attention import (
    Layout,
    attend,
    prefers_bins,
    prefers_varlen,
    rotary_frequencies,
    rotate,
)
from flexmdm.backbones.heads import Regions, Statistics, insertion_head
from flexmdm.schedules import Schedule

_CLOCK_SCALE = 1000.0  # sinusoids are made for thousands of positions, not for [0, 1]
_CLOCK_WAVES = 128
_CLOCK_EDGE = 1e-3  # where the logarithms of alpha and 1 - alpha level off
_OUTSIDE = -1  # the id of what stands beyond the ends of a sequence, for pairs of neighbours
_MIX = (2654435761, 2246822519, 3266489917)  # odd numbers, for hashes of pairs
_OCTAVES = (1.0, 2.0, 4.0, 8.0)  # half waves of a coordinate of the clock
_EMBEDDING_SCALE = 0.3  # with the usual 0.02 a maze model took about twice as long to start learning
_SIDES = (-1, 1)  # left and right
_SHARPNESS = 3.0  # a head with a neighbour bias gives the neighbour e^3 times the weight of the row next to it


class Clock(nn.Module):
    """The condition ``[B, width]`` that alpha ``[B]`` puts on every block: sinusoids, then an MLP.

    A network that was trained to read the time t has the ``schedule`` that turns alpha_t into t, and an MLP that ends
    with a linear layer.
    """

    def __init__(self, waves: int, inner: int, width: int, schedule: Schedule | None = None) -> None:
        super().__init__()
        self.waves, self.schedule = waves, schedule
        layers = [nn.Linear(2 * waves, inner), nn.SiLU(), nn.Linear(inner, width)]
        self.mlp = nn.Sequential(*layers, *([] if schedule else [nn.SiLU()]))

    def forward(self, alpha: Tensor) -> Tensor:
        clock = alpha if self.schedule is None else self.schedule.inverse(alpha)
        wave = torch.arange(self.waves, device=alpha.device, dtype=torch.float32) / self.waves
        angle = _CLOCK_SCALE * clock.float()[:, None] * torch.exp(-math.log(10_000.0) * wave)
        return self.mlp(torch.cat([angle.cos(), angle.sin()], 1).to(next(self.mlp.parameters()).dtype))


class LogClock(nn.Module):
    """The condition ``[B, width]`` that alpha ``[B]`` puts on every block: alpha and its logarithms, then an MLP.

    Clocks that are close have features that are close, near 0 and 1 in ratio: alpha, log(alpha), log(1 - alpha) and
    a few slow waves of each.
    """

    def __init__(self, inner: int, width: int) -> None:
        super().__init__()
        features = 3 * (1 + 2 * len(_OCTAVES))
        self.mlp = nn.Sequential(nn.Linear(features, inner), nn.SiLU(), nn.Linear(inner, width), nn.SiLU())

    def forward(self, alpha: Tensor) -> Tensor:
        alpha = alpha.float()
        edges = torch.stack([alpha, 1 - alpha]).add(_CLOCK_EDGE).log() / -math.log(_CLOCK_EDGE)
        coordinates = torch.stack([alpha, *edges], 1)  # [B, 3], each within an interval of length 1
        angle = math.pi * (coordinates[:, :, None] * torch.tensor(_OCTAVES, device=alpha.device)).flatten(1)
        features = torch.cat([coordinates, angle.cos(), angle.sin()], 1)
        return self.mlp(features.to(next(self.mlp.parameters()).dtype))


def _gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _squared_relu(x: Tensor) -> Tensor:
    return F.relu(x).square()


ACTIVATIONS = {"gelu": _gelu, "squared_relu": _squared_relu}  # the second by So et al., 2021 (arXiv 2109.08668)


class Block(nn.Module):
    """A transformer block whose two branches are shifted, scaled and gated by the clock (AdaLN-zero)."""

    def __init__(self, hidden: int, heads: int, condition: int, dropout: float, activation: str = "gelu") -> None:
        super().__init__()
        self.heads, self.activate = heads, ACTIVATIONS[activation]
        self.norm = nn.LayerNorm(hidden, elementwise_affine=False)
        self.modulation = nn.Linear(condition, 6 * hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.merge = nn.Linear(hidden, hidden, bias=False)
        self.widen = nn.Linear(hidden, 4 * hidden)
        self.narrow = nn.Linear(4 * hidden, hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, condition: Tensor, layout: Layout, rotation: tuple[Tensor, Tensor]) -> Tensor:
        modulation = self.modulation(condition).index_select(0, layout.sequence)  # [R, 6 D]
        shift1, scale1, gate1, *rest = modulation.unflatten(1, (6, -1)).unbind(1)
        mixed = attend(*self.project(x, shift1, scale1, rotation), layout)
        return self.feed(x, mixed, gate1, *rest)

    def project(
        self, x: Tensor, shift: Tensor, scale: Tensor, rotation: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, ``[R, H, E]`` each."""
        qkv = self.qkv(self.norm(x) * (1 + scale) + shift)
        q, k, v = qkv.unflatten(1, (3, self.heads, -1)).unbind(1)
        return rotate(q, rotation), rotate(k, rotation), v

    def feed(self, x: Tensor, mixed: Tensor, gate1: Tensor, shift: Tensor, scale: Tensor, gate2: Tensor) -> Tensor:
        """Add the output of attention, then the feed-forward branch."""
        x = x + gate1 * self.dropout(self.merge(mixed))
        y = self.norm(x) * (1 + scale) + shift
        return x + gate2 * self.dropout(self.narrow(self.activate(self.widen(y))))


def neighbour_biases(heads: int, width: int) -> Tensor:
    """Return biases ``[3 H E]`` of queries, keys and values: one head attends to the left neighbour, one to the right.

    A masked token is best predicted from its neighbours. A network that has to find that out first stays at the
    frequencies of the tokens for hundreds of steps. A query that is a key turned by one step agrees best with the key
    of its neighbour, whatever the tokens are. Only rotations that tell neighbours apart are used; heads of 8 and less
    have too few of them to tell neighbours from rows 6 steps further.
    """
    frequency = rotary_frequencies(width)
    key = (frequency > 0.09).float()
    strength = (_SHARPNESS * width**0.5 / (key * (1 - frequency.cos())).sum()).sqrt()
    bias = torch.zeros(3, heads, 2, width // 2)
    for head, side in zip(range(heads), _SIDES, strict=False):
        angle = side * frequency
        bias[0, head] = strength * torch.stack([key * angle.cos(), key * angle.sin()])
        bias[1, head, 0] = strength * key
    return bias.flatten()


class DiT(nn.Module):
    """The network of the paper.

    Args:
        vocab_size: clean tokens V. Masks enter as token V (whatever the canvas calls them).
        hidden, layers, heads, condition, dropout: its size.
        insertions: whether it has an insertion head; an MDM has none.
        expected_gap: g of every gap before training, for a head that looks at each gap on its own.
        regions: statistics of the free tokens of a region in the data, for a head that counts (`CountHead`).
        clock: features of alpha, ``logarithms`` or ``waves``.
        activation: ``gelu``, or ``squared_relu``, which is cheaper on a CPU.
        pairs: rows of a table of embeddings for the two entries left and the two right of each entry (`hashed_pairs`),
            0 for none. On text a small network then need not learn pairs of tokens in its blocks.
        neighbours: whether two heads of the first block start with `neighbour_biases`, left and right.

    >>> network = DiT(vocab_size=5, hidden=32, layers=1, heads=2, condition=16)
    >>> tokens, lengths = torch.tensor([5, 2, 5]), torch.tensor([2, 1])
    >>> flags = {"given": torch.zeros(3, dtype=torch.bool), "open_gaps": torch.ones(5, dtype=torch.bool)}
    >>> logits, insertions = network(tokens, lengths, **flags, alpha=torch.tensor([0.1, 0.5]))
    >>> logits.shape, insertions.shape  # one row for each mask, one number for each gap
    (torch.Size([2, 5]), torch.Size([5]))
    """

    def __init__(
        self,
        vocab_size: int,
        hidden: int = 256,
        layers: int = 8,
        heads: int = 8,
        condition: int = 128,
        dropout: float = 0.1,
        insertions: bool = True,
        expected_gap: float = 1.0,
        neighbours: bool = False,
        regions: Statistics | None = None,
        clock: str = "waves",
        activation: str = "gelu",
        pairs: int = 0,
    ) -> None:
        super().__init__()
        self.vocab_size, self.heads, self.head_width, self.neighbours = vocab_size, heads, hidden // heads, neighbours
        self.embedding = nn.Embedding(vocab_size + 2, hidden)  # clean tokens, the mask, the start
        self.given = nn.Embedding(2, hidden)
        self.open = nn.Embedding(2, hidden)
        self.pairs = nn.Embedding(pairs, hidden) if pairs else None
        self.clock = (
            LogClock(condition, condition) if clock == "logarithms" else Clock(_CLOCK_WAVES, condition, condition)
        )
        self.blocks = nn.ModuleList(Block(hidden, heads, condition, dropout, activation) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden, elementwise_affine=False)
        self.modulation = nn.Linear(condition, 2 * hidden)
        self.token_head = nn.Linear(hidden, vocab_size)
        self.insertion_head = insertion_head(2 * hidden, hidden, expected_gap, regions) if insertions else None
        self.gradient_checkpointing = False
        self._compiled: Callable[..., Tensor] | None = None
        self.apply(self.initialise)

    def initialise(self, layer: nn.Module) -> None:
        """Give one of its layers the weights it has before training."""
        if not isinstance(layer, nn.Linear | nn.Embedding):
            return
        if layer in self._zero_layers():
            nn.init.zeros_(layer.weight)
        elif isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
        else:
            nn.init.normal_(layer.weight, std=_EMBEDDING_SCALE)
        if isinstance(layer, nn.Linear) and layer.bias is not None:
            nn.init.zeros_(layer.bias)
        if self.neighbours and layer is self.blocks[0].get_submodule("qkv"):
            with torch.no_grad():
                self.blocks[0].get_parameter("qkv.bias").copy_(neighbour_biases(self.heads, self.head_width))

    def _zero_layers(self) -> list[nn.Module]:
        """Return the layers that start at zero: flags, modulations and gates (AdaLN-zero), ends of both heads."""
        insertions = [] if self.insertion_head is None else self.insertion_head.last_layers
        modulations = [self.modulation, *(block.get_submodule("modulation") for block in self.blocks)]
        pairs = [] if self.pairs is None else [self.pairs]
        return [self.given, self.open, *pairs, self.token_head, *insertions, *modulations]

    def compile_blocks(self) -> None:
        """Compile blocks: whole ones on bins, elsewhere all but attention, which depends on how a batch is cut."""
        self._compiled = torch.compile(Block.forward, dynamic=True)
        for name in ("project", "feed"):
            compiled = torch.compile(getattr(Block, name), dynamic=True)
            for block in self.blocks:  # as a method, so that a copy of the block computes with its own weights
                setattr(block, name, MethodType(compiled, block))

    def forward(
        self, tokens: Tensor, lengths: Tensor, given: Tensor, open_gaps: Tensor, alpha: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Predict tokens and insertions for a packed batch of N entries in B sequences.

        Args:
            tokens: ``[N]``, masks as ``vocab_size``.
            lengths: ``[B]``.
            given: ``[N]`` bool.
            open_gaps: ``[N + B]`` bool.
            alpha: ``[B]``.

        Returns:
            logits ``[M, V]`` at the masks, in order, and the expected insertions ``[N + B]``, 0 in closed gaps.
        """
        layout = Layout.of(lengths + 1, prefers_varlen(tokens.device, self.embedding.weight.dtype))
        inside = layout.position > 0
        ids = torch.full_like(layout.sequence, self.vocab_size + 1).masked_scatter(inside, tokens)
        flags = torch.zeros_like(layout.sequence).masked_scatter(inside, given.long())
        x = self.embedding(ids) + self.given(flags) + self.open(open_gaps.long())
        if self.pairs is not None:
            for pair in hashed_pairs(ids, layout, self.pairs.num_embeddings):
                x = x + self.pairs(pair)
        condition = self.clock(alpha)
        x = self._through_blocks(x, condition, layout)
        shift, scale = self.modulation(condition).index_select(0, layout.sequence).unflatten(1, (2, -1)).unbind(1)
        x = self.norm(x) * (1 + scale) + shift
        logits = self.token_head(x[ids == self.vocab_size])
        if self.insertion_head is None:
            return logits, x.new_zeros(x.shape[0])
        regions = Regions.of(lengths, given, tokens != self.vocab_size)
        return logits, self.insertion_head(gap_features(x, layout), alpha, regions) * open_gaps

    def _through_blocks(self, x: Tensor, condition: Tensor, layout: Layout) -> Tensor:
        bins = self.training and prefers_bins(x.device, self._compiled is not None)
        if bins:
            layout = layout.in_bins()
            x = x.index_select(0, layout.slots)
        rotation = layout.rotation(self.head_width, x.dtype)
        for block in self.blocks:
            call = block if self._compiled is None or not bins else partial(self._compiled, block)
            if self.gradient_checkpointing and self.training:
                x = checkpoint(call, x, condition, layout, rotation, use_reentrant=False)
            else:
                x = call(x, condition, layout, rotation)
        return x.index_select(0, layout.back) if bins else x


def hashed_pairs(ids: Tensor, layout: Layout, rows: int) -> list[Tensor]:
    """Return a number below ``rows`` for the two entries left and for the two right of each row, ``[R]`` each.

    Equal pairs have equal numbers, different ones seldom. Beyond the ends of a sequence stands one and the same id.
    """
    size = layout.offsets.diff()[layout.sequence]

    def beside(step: int) -> Tensor:
        place = layout.position + step
        return torch.where((place >= 0) & (place < size), ids.roll(-step), _OUTSIDE)

    pairs = (beside(-1), beside(-2), 0), (beside(1), beside(2), 1)
    return [((near * _MIX[0] + far * _MIX[1] + side * _MIX[2]) >> 15).remainder(rows) for near, far, side in pairs]


def gap_features(x: Tensor, layout: Layout) -> Tensor:
    """Join the rows left and right of each gap: ``[R, D]`` -> ``[R, 2 D]``, with zeros behind the end of a sequence."""
    return torch.cat([x, torch.where(layout.is_last[:, None], 0.0, torch.roll(x, -1, 0))], 1)
