"""A query and an algorithm for mma."""
