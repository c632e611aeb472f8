"""The output of the reproduction: tables, figures, sentences and the page."""
