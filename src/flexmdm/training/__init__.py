"""The engine: batches, the trainer, its averages and its checkpoints."""
