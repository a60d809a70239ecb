"""Runs from configuration to trained weights."""
