"""Measurements, all as ratios taken in one run: `make bench` writes bench/RESULTS.md."""
