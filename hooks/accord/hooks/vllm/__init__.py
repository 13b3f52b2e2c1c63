"""accord inside vLLM: the acceptance estimator and what feeds it.

Import the modules, not this package: it stays empty, so that looking for the plugin loads neither torch nor Triton.
"""
