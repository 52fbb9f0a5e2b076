"""What a user feels and who they are: emotion from speech and from text, fused, and Big Five
traits. No Ray, no judge calls."""
