"""How good samples are: distances to the truth, sources whose truth is known, and trials of samplers on them."""

from flexmdm.evaluation.distances import (
    Estimate,
    bigram_law,
    kolmogorov_smirnov,
    length_law,
    nats_per_token,
    off_support_share,
    total_variation,
    total_variation_floor,
    wasserstein,
    wasserstein_floor,
    word_law,
)
from flexmdm.evaluation.sources import (
    bigram_distribution,
    length_distribution,
    nine_words,
    phased_chain,
)
from flexmdm.evaluation.trials import (
    ChainTruth,
    Outcome,
    Quality,
    Subject,
    Trial,
    Truth,
    WordsTruth,
    run_trial,
    run_trials,
)

__all__ = [
    "ChainTruth",
    "Estimate",
    "Outcome",
    "Quality",
    "Subject",
    "Trial",
    "Truth",
    "WordsTruth",
    "bigram_distribution",
    "bigram_law",
    "kolmogorov_smirnov",
    "length_distribution",
    "length_law",
    "nats_per_token",
    "nine_words",
    "off_support_share",
    "phased_chain",
    "run_trial",
    "run_trials",
    "total_variation",
    "total_variation_floor",
    "wasserstein",
    "wasserstein_floor",
    "word_law",
]
