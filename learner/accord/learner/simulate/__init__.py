"""Closed-loop simulation of adaptive verification: what better probabilities are worth in tokens per unit cost.

Each decode step has the requests and drafts that a trace recorded; a policy scores the drafts, a budget is chosen, the
best drafts are verified, and the policy learns from what it chose to verify and nothing else. One simplification: the
trace's next row of a request is its next row whatever was emitted before, since a recording cannot say what another
number of tokens would have led to.
"""
