"""Oncurve trains vision-language models with GRPO on rewards that a program can verify."""

__version__ = "0.1.0"
