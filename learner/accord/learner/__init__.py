"""The mathematics of acceptance, the store, and the learner process.

The numeric core (basis, pair, workload, coefficients, summary, accumulator, information, hierarchy, calibration) needs
NumPy only, so that an inference engine can import it cheaply.
"""
