"""Questions of one's own, with answers."""
