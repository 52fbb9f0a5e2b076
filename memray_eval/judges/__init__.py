"""What speaks to the world outside: providers and embedding models. No Ray here."""
