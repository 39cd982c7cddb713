"""The web page: all jobs at a state URL, running or not, from their commits and their history."""
