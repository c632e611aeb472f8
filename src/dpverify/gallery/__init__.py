"""The gallery: published private mechanisms for dynamic data, each verified at its own claim.

Every mechanism is a short file of NumPy code that follows the description in its source. The command
`dpverify gallery` runs all of them. A verdict is about the mechanism as specified here, in this code.
"""
