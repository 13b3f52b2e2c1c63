"""`accord audit`: does speculation pay at an engine that knows nothing of accord? Read from its own metrics page."""
