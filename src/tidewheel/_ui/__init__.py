"""The web page: all jobs at a state URL, alive or not, as their commits and their history show them."""
