"""Finds a user's emotion, from speech and text, and their Big Five traits. No Ray."""
