"""mma: the best image classifier out of the fewest labels."""
