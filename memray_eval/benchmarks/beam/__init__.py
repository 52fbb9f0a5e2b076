"""BEAM: ten abilities of memory, on chats of 100 thousand to 10 million tokens."""
