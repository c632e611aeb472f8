"""`python -m dpverify` is the command `dpverify`."""

from dpverify.cli import entry

if __name__ == "__main__":
    entry()
