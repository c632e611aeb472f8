"""Reproduction of the source paper, run from a clone: `make reproduced`, or `python -m reproduction --out FOLDER`.

`printed.toml` has what the paper prints, `plan.toml` what is measured: the readings of what the paper leaves open, and
the numbers of runs. Read the modules in this order:

    paper.py       the printed numbers, the readings, and the constants that follow from formulas
    experiment.py  sensors, datasets and mechanisms under a reading
    measure.py     what a worker process measures: rows of the paper, draws of sensors, pairs, our own test
    slides.py      what the figures on the first author's slides say
    fit.py         how well a reading predicts the printed numbers; the ranking on Q1, and the other rows as predictions
    claims.py      the rule by which the four claims are judged, and their comparisons
    tables.py, findings.py, figures.py     the parts of the page
    page.py        the order of the page, and its files
    __main__.py    the command: every measurement is stored, and an interrupted run resumes
"""
