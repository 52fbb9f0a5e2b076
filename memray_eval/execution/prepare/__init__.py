"""The steps of runs.py before a session: resolve, check, scan, estimate, find a site."""
