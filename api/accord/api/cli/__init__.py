"""Commands for operators: everything that the page shows and does, from a terminal or a script.

They speak HTTP to a running api and import neither a web framework nor NumPy.
"""
