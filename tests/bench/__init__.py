"""Benchmarks: each runs both sides in one process or one run, and prints a ratio or a breakdown."""
