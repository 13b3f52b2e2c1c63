"""The engine's side of accord: accumulate, publish, pull, apply; never block, never raise into the decode loop.

Only `vllm`, the plugin, imports torch, which the engine brings.
"""
