"""prototype"""
from __future__ import annotations
from dataclasses import dataclass
import torch
from torch import Tensor
from flexmdm.canvas import Canvas
from flexmdm.generation.decoding import Decoding
from flexmdm.generation.policies import policy_named
from flexmdm.generation.samplers import Grid, reveal
from flexmdm.sequences import Ragged
import os

def spaced_subset(priority, position, distance):
    """greedy maximal subset, [B,n] priority (-inf: no candidate), position increasing; 1-D distance."""
    chosen = torch.zeros_like(priority, dtype=torch.bool)
    alive = priority > -float('inf')
    d = (position[:, :, None] - position[:, None]).abs() < distance
    while bool(alive.any()):
        p = torch.where(alive, priority, -float('inf'))
        best = torch.where(d, p[:, None], -float('inf')).amax(2)
        new = alive & (p >= best)
        chosen |= new
        alive = alive & ~new & ~((d & new[:, None]).any(2))
    return chosen

@dataclass(frozen=True)
class SpacedSampler:
    grid: Grid
    decoding: Decoding = Decoding()
    confidence: str = "random"
    spacing: float = 6.0
    barrier: float = 3.0
    allowance: float = 0.15
    radius: float = 3.0
    mode: str = "schedule"
    gw: float = 1.0
    rw: float = 0.0   # weight of reveal events in insertion conflicts
    def step(self, canvas, prediction, alpha, rng):
        leap = self.grid.leap(alpha)
        B = len(canvas); lengths = canvas.lengths; dev = canvas.device
        tokens = canvas.tokens.to_padded(-5); n = tokens.shape[1]
        is_mask = tokens == canvas.mask_id
        g = torch.where(canvas.open_gaps.values, prediction.insertions.values.double(), 0.0)
        gp = canvas.open_gaps.with_values(g).to_padded(0.0)  # [B,n+1]
        cost = torch.where(is_mask, 1.0, 1.0 + self.barrier).double()
        # coordinate of entry i centre, and gap centre
        before = torch.nn.functional.pad(cost.cumsum(1), (1, 0))  # cost of entries < i
        gb = gp.cumsum(1)
        pos_entry = before[:, :n] + gb[:, :n] + cost / 2
        pos_gap = before + gb - gp / 2
        no_open = canvas.num_open == 0
        final = (alpha >= 1) | no_open
        # insertion events
        gaps = canvas.open_gaps
        share = torch.where(final, 0.0, leap.insertions)
        counts = rng.poisson("insertion", g * share[gaps.rows], gaps.rows, gaps.columns)
        place = torch.arange(len(counts)).repeat_interleave(counts)
        er = gaps.rows[place]; ec = gaps.columns[place]
        within = torch.arange(len(place)) - (counts.cumsum(0) - counts)[place]
        et = rng.uniform("time", er, ec * 100003 + within)
        # reveals
        masks = canvas.masks; mr = canvas.tokens.rows[masks]; mc = canvas.tokens.columns[masks]
        u = rng.uniform("reveal", mr, mc)
        r = torch.where(final, 1.0, leap.reveals)[mr]
        if self.mode == "schedule": rt = u / r.clamp(min=1e-12)
        elif self.mode == "eager": rt = torch.where(final[mr], 0.0, u * 0.0)
        elif self.mode == "late": rt = torch.where(final[mr], 0.0, 2.0)
        # conflicts
        tau = torch.ones(B, dtype=torch.float64)
        ins = Ragged(torch.arange(len(place)), torch.bincount(er, minlength=B))
        if len(place):
            tp = ins.with_values(et).to_padded(2.0); xp = ins.with_values(pos_gap[er, ec]).to_padded(1e9); gpn=ins.with_values(gp[er,ec]).to_padded(0.)
            near = (xp[:, :, None] - xp[:, None]).abs() < (self.radius + gpn[:, :, None])  # neighbours within own gap
            earlier = tp[:, None] < tp[:, :, None]
            k = (near & earlier).sum(2).double()
            # neighbourhood g
            gnear = (torch.where((pos_gap[:, None] - xp[:, :, None]).abs() < (self.radius + gpn[:, :, None]), gp[:, None], 0.0)).sum(2)
            bad = (k > self.allowance * gnear) & (tp <= 1)
            tau = torch.where(bad, tp, 1.0).amin(1)
        counts2 = torch.zeros_like(counts).index_add(0, place, (et <= tau[er]).long())
        cand = rt <= tau[mr]
        pr = policy_named(self.confidence)(prediction.log_probs, canvas, rng).double()
        priority = torch.full((B, n), -float('inf'), dtype=torch.float64)
        priority[mr[cand], mc[cand]] = pr[cand]
        sel = spaced_subset(priority, before[:, :n] + self.gw * gb[:, :n] + cost / 2, self.spacing) if n else torch.zeros(B, 0, dtype=torch.bool)
        chosen = sel[mr, mc]
        canvas = reveal(canvas, prediction, chosen, self.decoding, rng)
        canvas = canvas.insert_masks(canvas.within_limit(counts2, rng))
        new = torch.where(tau >= 1, leap.alpha, alpha + tau * (leap.alpha - alpha))
        return canvas, torch.where(no_open, 1.0, torch.where(final, alpha, new))
