"""Labels: events, what follows from them, and their copies. No torch."""
