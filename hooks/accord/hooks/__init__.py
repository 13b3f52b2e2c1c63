"""The engine's side of accord: accumulate, publish, pull, apply; never block, never raise into the decode loop.

Nothing here imports torch; an engine brings its own.
"""
