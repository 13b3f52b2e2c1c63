"""Offline evaluation: replay a recorded acceptance trace and judge every predictor on labels it has not seen yet."""
