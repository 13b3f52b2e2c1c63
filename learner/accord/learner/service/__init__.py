"""The learner process: leases, the loop over ticks, and its settings."""
