"""How the worst pair of data sets is found: the value of a pair, rounds over a list, and searches in a box."""
