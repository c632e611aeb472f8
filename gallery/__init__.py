"""The gallery: published private mechanisms for dynamic data, each verified at its own claim (docs/gallery.md).

Every mechanism is a short file of NumPy code that follows the description in its source. Its docstring states the
title, the source, what the mechanism does, which datasets are neighbours, and why the claim holds or fails. `make
gallery` verifies all of them, and `python -m gallery binary` one of them.
"""
