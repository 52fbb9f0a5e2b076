"""What an assistant's memory store keeps of what it is told, and what it should not."""
