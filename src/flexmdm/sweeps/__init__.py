"""Measure trained models: several runs at several numbers of steps."""
