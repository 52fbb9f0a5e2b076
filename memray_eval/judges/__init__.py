"""What speaks to the world outside: providers, embedding models, the embedded model. No Ray
here."""
