"""Attacks on a reward: the known ways to win it without doing the task, executed (`docs/audit.md`)."""
