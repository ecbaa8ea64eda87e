"""Measurements, all as ratios taken in one run: `make bench` writes bench/RESULTS.md."""

import os

# As the `mma` command does, before torch is loaded. Threads that spin would also count as work in processor seconds.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
