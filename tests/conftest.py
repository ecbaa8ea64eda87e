"""What many tests share: a tiny real data set, a tiny config, and a comparison of run folders."""

from __future__ import annotations

import os
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from mma.config import Config, change
from mma.data import DataSet, load_data
from mma.errors import UserError
from mma.presets import preset
from mma.run import Run
from tests import messages

TINY = [
    "net.filters=4",
    "optim.batch=8",
    "growth.start=10",
    "growth.add=5",
    "growth.budget=20",
    "growth.first=12",
    "growth.every=8",
    "growth.final=16",
    "growth.ramp_again=false",
    "growth.refresh_final=false",
    "growth.refresh_every=0",
    "growth.start_set=uniform",
    "log.every=4",
    "log.checkpoint=5",
]


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C reach the programs that tests start, and give data and Ray folders of their own.

    A shell starts what runs in its background with SIGINT ignored, and children inherit that. What the user's own data folder
    holds must not change what a test says; the processes of one run share a folder. Ray's sockets lie in its folder, and the
    path of a socket has at most 107 characters.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(RAY_kill_idle_workers_interval_ms="0")  # a task that is handed to a worker as it ends is lost
    if not hasattr(config, "workerinput"):
        data = tempfile.TemporaryDirectory(prefix="mma-data-", ignore_cleanup_errors=True)
        os.environ["MMA_DATA"] = data.name
        config.add_cleanup(data.cleanup)
    if len(tempfile.gettempdir()) > 40 and Path("/tmp").is_dir() and "RAY_TMPDIR" not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True)
        os.environ["RAY_TMPDIR"] = folder.name
        config.add_cleanup(folder.cleanup)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --messages and --slow, which write down what they see of the tests that are run."""
    parser.addoption(
        "--messages", action="store_true", help="write tests/messages.json anew for the tests that are run"
    )
    parser.addoption(
        "--slow", action="store_true", help=f"write tests/slow.txt anew: tests above {SLOW} s; run them all"
    )


SLOW, SLOW_TESTS = 0.7, Path(__file__).with_name("slow.txt")
MET: dict[str, list[str]] = {}  # the messages of each test; also of those that ran in another process
TOOK: Counter[str] = Counter()  # seconds, of all values of a test together


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect the messages that a test met, and its time: reports come here from every process."""
    TOOK[report.nodeid.partition("[")[0]] += report.duration
    said = [str(value) for name, value in report.user_properties if name == "refusal"]
    if said and report.when == "call" and report.passed:
        MET[report.nodeid] = said


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the messages and the slow tests, in the process that saw all of them."""
    if hasattr(session.config, "workerinput"):
        return
    if session.config.getoption("messages"):
        messages.write(MET)
    if session.config.getoption("slow"):
        SLOW_TESTS.write_text("".join(f"{test}\n" for test in sorted(TOOK) if TOOK[test] > SLOW), "utf-8")


@pytest.fixture
def refusal(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., AbstractContextManager[None]]:
    """Expect that mma refuses, with the message that messages.json has for this test."""
    expected = messages.read().get(request.node.nodeid, [])
    met: list[str] = []

    @contextmanager
    def refused(kind: type[ValueError] = UserError) -> Iterator[None]:
        with pytest.raises(kind) as caught:
            yield
        met.append(messages.normalise(str(caught.value), tmp_path))
        request.node.user_properties.append(("refusal", met[-1]))
        if not request.config.getoption("messages"):
            assert len(met) <= len(expected), f"not in messages.json yet (pytest --messages): {met[-1]}"
            said, listed = (messages.without_lists(text) for text in (met[-1], expected[len(met) - 1]))
            assert said == listed, "another message than in messages.json (pytest --messages)"

    return refused


NEEDS = {"chromium": "browser", "postgres_url": "postgres"}  # a fixture: the mark of tests that use it


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that start a browser or a database, by the fixture that does it, and those listed as slow."""
    slow = set(SLOW_TESTS.read_text("utf-8").split())
    for item in items:
        if item.nodeid.partition("[")[0] in slow:
            item.add_marker("slow")
        for fixture in NEEDS.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(NEEDS[fixture])


@pytest.hookimpl(wrapper=True, tryfirst=True)  # the outermost, so that its lines are the last ones
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> Iterator[None]:
    """End with the way to get the same order again, and with what was not run and why."""
    yield
    if config.pluginmanager.hasplugin("randomly"):
        seed = config.getoption("randomly_seed")
        terminalreporter.write_line(f"random order; the same order again:  pytest --randomly-seed={seed}")
    skipped = {report.nodeid: report.longrepr for report in terminalreporter.stats.get("skipped", [])}
    terminalreporter.write_line(not_run([str(reason) for _, _, reason in skipped.values()]))


def not_run(reasons: Sequence[str]) -> str:
    """Return one line: how many tests were skipped, and how many of them for which reason."""
    if not reasons:
        return "not run: no test was skipped"
    counts = Counter(reason.removeprefix("Skipped: ") for reason in reasons)
    listed = ", ".join(f"{reason}: {count}" for reason, count in sorted(counts.items()))
    return f"not run: {len(reasons)} test{'s' if len(reasons) > 1 else ''}: {listed}"


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def digits() -> DataSet:
    return load_data("digits")


@pytest.fixture(scope="session")
def tiny_settings() -> list[str]:
    return TINY


@pytest.fixture
def tiny() -> Callable[..., Config]:
    """A run on real digits that takes a fifth of a second; settings as for --set."""
    return lambda *settings: change(preset("digits"), [*TINY, *settings])


@pytest.fixture
def new_run(tmp_path: Path, tiny: Callable[..., Config]) -> Callable[..., Run]:
    return lambda name, *settings: Run.create(tmp_path / name, tiny(*settings).model_dump(mode="json"))


@pytest.fixture
def contents() -> Callable[[Run], dict[str, bytes]]:
    """All bytes of a run folder but for what may differ: clock values and the lock."""

    def read(run: Run) -> dict[str, bytes]:
        files = [path for path in run.folder.rglob("*") if path.is_file()]
        skipped = {"timings.jsonl", "lock"}
        return {str(f.relative_to(run.folder)): f.read_bytes() for f in files if f.name not in skipped}

    return read


@pytest.fixture(scope="module")
def own_nets() -> Iterator[None]:
    """Networks of user code, in the table while a test needs them."""
    from mma.extensions import VARIABLE, use
    from mma.nets import NETS

    before = dict(NETS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "")
        added = use(str(Path(__file__).parent / "training" / "own_nets.py")).OWN
        NETS.update(added)  # also when the file was imported before
        yield
    for name in set(NETS) - set(before):
        del NETS[name]
