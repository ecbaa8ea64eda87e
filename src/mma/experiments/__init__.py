"""Many runs: bring them to their end, compare them, show them."""
