"""The house rules, read off the source: imports point down, nothing is executed from data, pages are up to date."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from tests import messages
from tests.each import each

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "mma"
FILES = sorted(SOURCE.rglob("*.py"))
BY_NAME = {str(path.relative_to(SOURCE)): path for path in FILES}

# Lower rooms first; a room may import those before it and itself.
ORDER = [
    {"errors"},
    {"rng", "shares", "text", "children", "files"},
    {"extensions", "soft_targets"},
    {"settings", "paper"},
    {"growth"},
    {"run"},
    {"data"},
    {"query", "cost"},
    {"features"},
    {"nets", "views"},
    {"algorithms"},
    {"config"},
    {"presets"},
    {"training"},
    {"classifier", "experiments", "model"},
    {"project"},
    {"web"},
    {"cli"},
]
WITHOUT_TORCH = {
    *(
        "errors",
        "rng",
        "shares",
        "soft_targets",
        "text",
        "machine",
        "children",
        "files",
        "settings",
        "growth",
        "paper",
        "extensions",
        "run",
        "data",
        "query",
    ),
    *("cost", "web"),
}


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Every module a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def rooms_imported(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imported(path) if name.startswith("mma.")}


@each(path=BY_NAME)
def test_imports_point_down(path):
    if room(path) in ("__init__", "__main__"):
        return
    level = {name: number for number, names in enumerate(ORDER) for name in names}
    assert room(path) in level, f"{room(path)} is a new room: give it a place in ORDER and in docs/architecture.md"
    known = {name for name in rooms_imported(path) if name in level}
    wrong = {
        name
        for name in known
        if level[name] > level[room(path)] or (level[name] == level[room(path)] and name != room(path))
    }
    assert not wrong or (room(path), wrong) in [("cost", {"paper"})], f"{path.name} imports {wrong}"


@each(path={name: path for name, path in BY_NAME.items() if room(path) in WITHOUT_TORCH})
def test_rooms_without_torch_never_import_it(path):
    assert not {name for name in imported(path) if name.split(".")[0] == "torch"}


def test_importing_the_rooms_without_torch_does_not_load_it():
    code = "import sys, mma.data, mma.query, mma.cost, mma.run; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_help_does_not_load_torch():
    code = "import sys; sys.argv = ['mma', '--help']\nimport mma.cli\ntry: mma.cli.main()\nexcept SystemExit: pass\nsys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


@each(path=BY_NAME)
def test_d1_nothing_is_executed_from_data(path):
    text = path.read_text("utf-8")
    if path == SOURCE / "features" / "pretrained.py":  # after a pinned sha256 was compared, and with weights_only
        text = text.replace('torch.load(path, map_location="cpu", weights_only=True)', "", 1)
    forbidden = (
        r"\b(import|from) (pickle|joblib|dill|cloudpickle)|torch\.load|allow_pickle=True|trust_remote_code=True|yaml\.load"
        r"|(?<![.\w])(eval|exec)\(|extractall"
    )
    assert not re.search(forbidden, text)


def test_algorithms_import_neither_each_other_nor_the_rooms_above():
    shared = {"algorithm", "ops"}
    for path in (SOURCE / "algorithms").glob("*.py"):
        if path.stem == "__init__":
            continue
        below = {name.split(".")[2] for name in imported(path) if name.startswith("mma.algorithms.")}
        assert below <= shared, f"{path.name} imports {below - shared}"


def test_generated_pages_are_up_to_date():
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "docs.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_architecture_page_names_every_room():
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    rooms = {room(path) for path in FILES} - {"__init__", "__main__"}
    missing = {name for name in rooms if f"`{name}/`" not in page and f"`{name}.py`" not in page}
    assert not missing


def test_no_path_of_one_machine_and_no_registry_is_written_down():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    for name in listed:
        path = ROOT / name
        if path.suffix in (".py", ".md", ".toml", ".txt") and path.exists():
            assert not re.search(r"/wo[r]k/|/ho[m]e/\w+/|pypi\.o[r]g", path.read_text("utf-8")), name


def test_no_class_name_stands_for_two_things():
    names = [
        node.name
        for path in FILES
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef)
    ]
    assert not {name for name in names if names.count(name) > 1}


def test_only_one_place_writes_files_with_care():
    """fsync and locks are in files.py alone."""
    pattern = re.compile(r"\bfsync\(|\bfcntl\b|\bflock\b")
    found = {str(path.relative_to(SOURCE)) for path in FILES if pattern.search(path.read_text("utf-8"))}
    assert found == {"files.py"}


def test_messages_belong_to_tests():
    assert not [test for test in messages.read() if not messages.is_there(test)], "pytest --messages writes them anew"


def test_torch_is_behind_the_wall_of_the_worker():
    """Of a project, only what trains or asks networks loads torch: the page and `mma status` never do."""
    behind = ("worker/deep", "worker/features", "worker/live_model", "worker/picks", "worker/round")
    allowed = {f"project/{name}.py" for name in (*behind, "worker/worker", "heat", "review", "simulate")}
    names = [name for name in BY_NAME if name.startswith("project/") and name not in allowed]
    modules = ", ".join(f"mma.{name.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}" for name in names)
    code = f"import sys, mma.web, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
