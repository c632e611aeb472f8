"""Reproduction of the source paper (`dpverify reproduce`).

The package runs the paper's experiments again, compares every printed number with the measured one, and answers the
paper's four claims. `reproduce.py` is the driver, `plan.py` and `printed.py` read the two TOML files, `experiment.py`
builds the mechanisms and data sets, and `output.py` writes the tables, figures and the page.
"""
