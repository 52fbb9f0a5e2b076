"""BABILong: questions on small facts that stand scattered in a long text."""
