"""Instruction fine-tuning: prompts with their answers, the prompt fixed from the start."""
