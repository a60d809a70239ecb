"""Measure how good samples are: distances to the truth, sources with a known truth, trials of samplers."""

from flexmdm.evaluation.distances import (
    bigram_law,
    kolmogorov_smirnov,
    length_law,
    nats_per_token,
    total_variation,
    total_variation_floor,
    wasserstein,
    wasserstein_floor,
    word_law,
)
from flexmdm.evaluation.sources import nine_words, phased_chain

__all__ = [
    "bigram_law",
    "kolmogorov_smirnov",
    "length_law",
    "nats_per_token",
    "nine_words",
    "phased_chain",
    "total_variation",
    "total_variation_floor",
    "wasserstein",
    "wasserstein_floor",
    "word_law",
]
