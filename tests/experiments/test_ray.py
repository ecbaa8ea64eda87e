"""Real Ray clusters on this machine: a node is killed in the middle, a grid is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install '.[ray]'")
pytestmark = pytest.mark.ray

SCRIPT = """
import sys, time
from pathlib import Path
from ray.cluster_utils import Cluster
from mma.experiments import grids
from mma.experiments.engines import EngineOptions, ENGINES, train_all
from mma.experiments.plan import plan
from mma.run import Run

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    grid = grids.read(folder)
    jobs = [run.task for run in plan(grid, folder).todo]
    failed, killed = [], []

    def tick(running):
        begun = [Run(job.folder) for job in jobs if (job.folder / "metrics.jsonl").exists()]
        if sum(run.status() != "done" for run in begun) == 2 and not killed:  # one on each node, of one CPU each
            killed.append(second)
            cluster.remove_node(second, allow_graceful=False)

    on = ENGINES["ray"](EngineOptions(address=cluster.address))
    train_all(jobs, on, tick, lambda place, why: failed.append((place, why)) if why else None)
    cluster.shutdown()
    print("killed", len(killed), "failed", failed)
"""


STOPPED = """
import sys
from pathlib import Path
from mma.experiments import grids
from mma.experiments.engines import EngineOptions, ENGINES, train_all
from mma.experiments.plan import plan
from mma.run import Run

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    grid = grids.read(folder)
    jobs = [run.task for run in plan(grid, folder).todo]

    def tick(running):
        if any(Run(job.folder).path("metrics").exists() for job in jobs):
            raise KeyboardInterrupt

    try:
        train_all(jobs, ENGINES["ray"](EngineOptions(workers=1)), tick)
    except KeyboardInterrupt:
        print("stopped")
"""


def script(code: str, folder: Path) -> str:
    """Run a script on a grid's folder and return what it printed."""
    path = folder.with_name("cluster.py")
    path.write_text(textwrap.dedent(code))
    # A process group of its own, so that whatever Ray leaves behind ends with the test.
    process = subprocess.Popen(
        [sys.executable, str(path), str(folder)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        printed, _ = process.communicate(timeout=600)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return printed


@pytest.mark.slow
def test_a_node_killed_in_the_middle_changes_no_byte(small, tmp_path, train_here, bytes_of):
    from mma.experiments import grids

    longer = ["growth.first=60", "growth.final=200", "log.checkpoint=20", "log.every=20"]
    grid = small("MixMatch,random", "growth.budget=15,20", "seed=1", settings=longer)
    train_here(grid, tmp_path / "here")
    grids.create_or_extend(tmp_path / "ray", grid)
    printed = script(SCRIPT, tmp_path / "ray")
    assert "killed 1 failed []" in printed
    assert bytes_of(tmp_path / "ray") == bytes_of(tmp_path / "here")


@pytest.mark.slow
def test_stopping_stores_the_run_that_is_trained_and_leaves_the_one_that_waits(small, tmp_path):
    from mma.experiments import grids
    from mma.run import Run

    endless = ["growth.final=100000", "log.checkpoint=99999"]  # no state is stored but by stopping
    grid = grids.create_or_extend(tmp_path / "ray", small("MixMatch", "seed=1..2", settings=endless))
    assert "stopped" in script(STOPPED, tmp_path / "ray")
    first, second = (Run(tmp_path / "ray" / cell.place) for cell in grid.cells())
    assert first.checkpoint_steps()[-1] >= first.read("metrics")[-1]["step"]
    assert not first.busy()
    assert not second.folder.exists()
