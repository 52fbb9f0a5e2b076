"""Chats of one's own."""
