"""Blocks computed by a real Ray cluster on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from mma.features import StoredViews, features, parse_backbone
from tests.features.conftest import array_images

pytest.importorskip("ray", reason="Ray is not installed: pip install '.[ray]'")
pytestmark = pytest.mark.ray
ROOT = Path(__file__).parents[2]

SCRIPT = """
import os, sys
import numpy as np
import ray
from mma.features import ArrayImages, StoredViews, features, parse_backbone
from tests.features.conftest import array_images
import mma.features.extract as extract

class Deadly(ArrayImages):
    # The worker that gets the second block dies once.
    def __init__(self, pixels, keys, mark):
        super().__init__(pixels, keys)
        self.mark = mark
    def take(self, rows):
        part = super().take(rows)
        return Deadly(part.pixels, part.keys, self.mark if rows[0] == 64 else None)
    def decode(self, rows, side):
        if self.mark and not os.path.exists(self.mark) and len(self) == 64:
            open(self.mark, "w").close()
            os._exit(1)
        return super().decode(rows, side)

extract.BLOCK = 64
ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
images = array_images(200)
features(Deadly(images.pixels, images.keys, sys.argv[1]), parse_backbone("hog@32"), StoredViews(crops=1), engine="ray")
ray.shutdown()
"""


TWO_NODES = """
import os, sys, threading, time
import ray
from ray.cluster_utils import Cluster
from mma.features import ArrayImages, StoredViews, features, parse_backbone
from tests.features.conftest import array_images
import mma.features.extract as extract

class OnNode(ArrayImages):
    # Whoever decodes on the doomed node says so, and waits there for the end.
    def __init__(self, pixels, keys, doomed, mark):
        super().__init__(pixels, keys)
        self.doomed, self.mark = doomed, mark
    def take(self, rows):
        part = super().take(rows)
        return OnNode(part.pixels, part.keys, self.doomed, self.mark)
    def decode(self, rows, side):
        if ray.get_runtime_context().get_node_id() == self.doomed:
            open(self.mark, "w").close()
            time.sleep(300)
        return super().decode(rows, side)

def kill_when_busy(cluster, node, mark):
    while not os.path.exists(mark):
        time.sleep(0.05)
    cluster.remove_node(node, allow_graceful=False)

if __name__ == "__main__":
    extract.BLOCK = 32
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    threading.Thread(target=kill_when_busy, args=(cluster, second, sys.argv[1]), daemon=True).start()
    images = array_images(200)
    source = OnNode(images.pixels, images.keys, second.node_id, sys.argv[1])
    features(source, parse_backbone("hog@32"), StoredViews(crops=1), engine="ray")
    ray.shutdown()
    cluster.shutdown()
"""


@pytest.mark.parametrize("script", [SCRIPT, TWO_NODES], ids=["a worker", "a node of two"])
def test_a_cluster_that_loses_something_writes_the_same_file_byte_for_byte(tmp_path, script):
    path, far, near = tmp_path / "cluster.py", tmp_path / "far", tmp_path / "near"
    path.write_text(script)
    paths = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    environment = {**os.environ, "MMA_DATA": str(far), "PYTHONPATH": paths, "RAY_TMPDIR": "/tmp"}
    command = [sys.executable, str(path), str(tmp_path / "died")]
    # A process group of its own, so that whatever Ray leaves behind ends with the test.
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        _, talk = process.communicate(timeout=600)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, talk
    assert (tmp_path / "died").exists()
    features(array_images(200), parse_backbone("hog@32"), StoredViews(crops=1), root=near)
    for name in ("values.bin", "keys.bin"):
        (one,), (other,) = (list(folder.rglob(name)) for folder in (far, near))
        assert one.read_bytes() == other.read_bytes()
