"""The results of a run: its folder, and the Arrow schema of its records."""
