"""`python -m mma` is `mma`."""

from mma.cli import main

main()
