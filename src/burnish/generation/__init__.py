"""Generating in evaluation: prompts out of training rows, text ids back."""
