"""A real Ray cluster of two nodes on this machine; one of them is killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'mma[ray]'")

SCRIPT = """
import sys, time
from pathlib import Path
from ray.cluster_utils import Cluster
from mma.experiments import grid as grids
from mma.experiments.engine import Options, engine, finish_all
from mma.experiments.plan import plan
from mma.run import Run

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    grid = grids.read(folder)
    jobs = [entry.job for entry in plan(grid, folder, grid.cells()).todo]
    failed, killed = [], []

    def tick(running):
        begun = [Run(job.folder) for job in jobs if (job.folder / "metrics.jsonl").exists()]
        if sum(run.status() != "done" for run in begun) == 2 and not killed:  # one on each node, of one CPU each
            killed.append(second)
            cluster.remove_node(second, allow_graceful=False)

    on = engine("ray", Options(address=cluster.address))
    finish_all(jobs, on, tick, lambda place, why: failed.append((place, why)) if why else None)
    cluster.shutdown()
    print("killed", len(killed), "failed", failed)
"""


@pytest.mark.slow
def test_a_node_killed_in_the_middle_changes_no_byte(small, tmp_path, train_here, bytes_of):
    from mma.experiments import grid as grids

    longer = ["growth.first=120", "growth.final=300", "log.checkpoint=20", "log.every=20"]
    grid = small("query=passive,random", "growth.budget=15,20", "seed=1..2", settings=longer)
    train_here(grid, tmp_path / "here")
    grids.adopt(tmp_path / "ray", grid)
    script = tmp_path / "cluster.py"
    script.write_text(textwrap.dedent(SCRIPT))
    # A process group of its own, so that whatever Ray leaves behind ends with the test.
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "ray")], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        told, _ = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert "killed 1 failed []" in told
    assert bytes_of(tmp_path / "ray") == bytes_of(tmp_path / "here")
