"""Helpers of the tests that need a real vLLM."""
