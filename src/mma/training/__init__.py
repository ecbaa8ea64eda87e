"""Training: `train(run, oracle)` in loop.py is the method on one page."""
