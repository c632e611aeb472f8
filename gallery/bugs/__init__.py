"""Bugs of private releases, as small mechanisms: wrong and repaired, with their claim and their exact privacy."""
