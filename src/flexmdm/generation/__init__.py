"""From prompts to sequences: reveal policies, samplers, the loop and its trace."""

from flexmdm.generation.decoding import Decoding
from flexmdm.generation.defaults import QUALITIES
from flexmdm.generation.generate import Generation, generate, sampler_named, stream
from flexmdm.generation.likeliest import LikeliestSampler, number_law
from flexmdm.generation.loop import Progress, Sample
from flexmdm.generation.policies import POLICIES, Policy
from flexmdm.generation.published import DilatedSampler, EntropyBoundedSampler
from flexmdm.generation.samplers import AdaptiveSampler, Grid, Leap, LowConfidenceSampler, Sampler, TauSampler
from flexmdm.generation.spaced import SpacedSampler
from flexmdm.generation.trace import Event
from flexmdm.generation.turns import TurnsSampler

__all__ = [
    "POLICIES",
    "QUALITIES",
    "AdaptiveSampler",
    "Decoding",
    "DilatedSampler",
    "EntropyBoundedSampler",
    "Event",
    "Generation",
    "Grid",
    "Leap",
    "LikeliestSampler",
    "LowConfidenceSampler",
    "Policy",
    "Progress",
    "Sample",
    "Sampler",
    "SpacedSampler",
    "TauSampler",
    "TurnsSampler",
    "generate",
    "number_law",
    "sampler_named",
    "stream",
]
