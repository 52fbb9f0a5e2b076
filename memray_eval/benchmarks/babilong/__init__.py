"""BABILong: questions on small facts scattered in a long text."""
