"""LongMemEval: 500 questions on a user's earlier chats with an assistant."""
