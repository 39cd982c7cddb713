"""Lets `python -m tidewheel.cli` stand in for the command."""

from tidewheel.cli import main

main()
