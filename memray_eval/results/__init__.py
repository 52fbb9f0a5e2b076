"""What a run leaves behind: its folder, and the Arrow schema of its records."""
