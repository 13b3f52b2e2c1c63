"""`accord doctor`: would accord work in this environment, and if not, what to do about it."""
