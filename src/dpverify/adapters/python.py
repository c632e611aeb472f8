"""Estimators and mechanisms of other Python packages, each imported when it is used."""
