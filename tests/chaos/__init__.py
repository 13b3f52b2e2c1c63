"""The fault campaign: a real fleet, everything that can be taken away taken away, and every label accounted for."""
