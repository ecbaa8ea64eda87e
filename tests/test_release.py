"""What leaves the checkout: container, wheel, site and notebook. `make dist` also installs the wheel into a fresh environment."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

ROOT = Path(__file__).parents[1]


def docker_command() -> list[str]:
    """The command that the container runs."""
    text = (ROOT / "Dockerfile").read_text("utf-8")
    return json.loads(re.search(r"^CMD (\[.*\])$", text, re.M)[1])


def test_the_dockerfile_passes_its_linter() -> None:
    linter = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if linter is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([linter, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_everything_the_dockerfile_copies_is_there_and_reaches_the_build() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    ignored = (ROOT / ".dockerignore").read_text("utf-8").split()
    for line in re.findall(r"^COPY (.+)$", text, re.M):
        for name in line.split()[:-1]:
            assert (ROOT / name).exists(), name
            assert name not in ignored
    assert "USER 1000:1000" in text


def test_container_and_compose_call_mma_start_with_options_it_has() -> None:
    from mma.cli import commands

    words = CliRunner().invoke(commands(), ["start", "--help"], env={"COLUMNS": "200"}).output
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
    page = compose["services"]["page"]
    for command in (docker_command(), page["command"]):
        assert command[0] == "start"
        for option in (word for word in command if word.startswith("--")):
            assert option in words, option
    assert all(port.startswith("127.0.0.1:") for port in page["ports"])
    assert "./photos:/photos:ro" in page["volumes"]
    assert set(compose["volumes"]) == {"database", "project"}


@pytest.mark.slow
def test_the_containers_command_serves_a_folder(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for shade in range(6):
        Image.fromarray(np.full((16, 16, 3), shade * 40, np.uint8)).save(photos / f"{shade}.png")
    # The paths and the address of a container; a free port, because others may use 8642 here.
    places = {
        "/photos": str(photos),
        "/project/photos.mma": str(tmp_path / "photos.mma"),
        "0.0.0.0": "127.0.0.1",
        "8642": "0",
    }
    words = [sys.executable, "-m", "mma", *(places.get(word, word) for word in docker_command())]
    page = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        assert any("open.html" in line for line in page.stderr), "the page did not come up"
    finally:
        page.send_signal(signal.SIGINT)
        page.communicate(timeout=60)
    assert page.returncode == 0
    assert (tmp_path / "photos.mma" / "mma.toml").is_file()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("build") is None, reason="the package build is not installed")
def test_wheel_and_sdist_hold_the_package_and_both_commands() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/dist.py", "--no-try"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the package alone" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed")
def test_the_site_builds_without_a_dead_link_and_asks_no_other_server(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/site.py", tmp_path / "site"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    index = json.loads((tmp_path / "site/search/search_index.json").read_text("utf-8"))
    assert any("mma.query.Query" in page["title"] or "Query" in page["text"] for page in index["docs"])


def test_the_notebook_is_the_script() -> None:
    jupytext = pytest.importorskip("jupytext")
    notebook = jupytext.read(ROOT / "docs/examples/notebook.ipynb")
    script = jupytext.read(ROOT / "docs/examples/notebook.py")
    assert [(cell.cell_type, cell.source) for cell in notebook.cells] == [
        (cell.cell_type, cell.source) for cell in script.cells
    ]


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path) -> None:
    jupytext, nbclient = pytest.importorskip("jupytext"), pytest.importorskip("nbclient")
    notebook = jupytext.read(ROOT / "docs/examples/notebook.ipynb")
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()
    said = json.dumps(notebook)
    assert "predicted" in said
    assert (tmp_path / "notebook-runs" / "learning-curves.svg").is_file()
