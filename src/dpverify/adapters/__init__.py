"""Other people's estimators: programs in any language, and Python packages that are imported when they are used."""

from dpverify.adapters.program import program as program
