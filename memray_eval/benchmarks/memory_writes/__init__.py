"""Scores what an assistant's memory store keeps of a conversation, and what it should not."""
