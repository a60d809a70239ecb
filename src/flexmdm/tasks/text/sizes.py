"""Networks and recipes for sequences from files, by name."""

from __future__ import annotations

from flexmdm.training.recipe import Network, Recipe

# name: (network, recipe). `base` is the paper's model of OpenWebText, for GPUs. The paper counts 175M parameters; these
# are 171M with the 50,257 tokens of GPT-2, and 106M with 8,192 tokens.
SIZES = {
    "tiny": (
        Network(hidden=128, layers=3, heads=4, condition=128, dropout=0.0),
        Recipe(
            steps=1000, batch_size=128, optimizer="muon", learning_rate=5e-3, warmup=50, ema=0.995,
            schedule="trapezoid", eval_every=250, eval_size=512, save_every=250, log_every=10,
        ),
    ),
    "small": (
        Network(hidden=256, layers=6, heads=8, condition=128, dropout=0.0),
        Recipe(
            steps=20_000, batch_size=64, optimizer="muon", learning_rate=3e-3, warmup=200, ema=0.999,
            schedule="trapezoid", eval_every=500, eval_size=256, save_every=250,
        ),
    ),
    "base": (
        Network(hidden=768, layers=12, heads=12, condition=128, dropout=0.05),
        Recipe(
            steps=500_000, batch_size=64, accumulation=16, learning_rate=3e-4, weight_decay=0.03, warmup=2000,
            ema=0.9999, eval_every=5000, save_every=2500, dtype="bfloat16",
        ),
    ),
}  # fmt: skip
