"""Benchmarks of trained runs: every item generated, written down and scored."""
