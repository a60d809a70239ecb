"""Sequences from files: text, names, molecules, proteins."""
