"""Storage: local and cloud paths, and leases that keep other processes out."""
