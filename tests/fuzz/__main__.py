import sys

from fuzz import main

numbers, names = sys.argv[1:3], sys.argv[3:]
sys.exit(main(*map(int, numbers), names=names))
