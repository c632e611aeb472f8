import sys

from fuzz import main

sys.exit(main(*map(int, sys.argv[1:])))
