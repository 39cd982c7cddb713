"""`python -m tidewheel` is the `tidewheel` command."""

from tidewheel._cli import main

main()
