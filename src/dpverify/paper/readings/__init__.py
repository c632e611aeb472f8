"""Readings of the paper's experiment: the choices that it does not print, measured and compared with its numbers."""
