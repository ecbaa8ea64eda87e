"""Write the generated pages: docs/differences.md from the tags in the source, docs/cli.md from the commands themselves.

python tools/docs.py            write them
python tools/docs.py --check    exit 1 if they are not up to date
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

ROOT = Path(__file__).parents[1]
TAG = re.compile(r"#\s*(?:.*?\s)??(Paper|Original|Differs): (.*)$")
TITLES = {
    "Differs": "What we do otherwise, and why",
    "Original": "What the released code does",
    "Paper": "Where a number comes from",
}


def comments(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield (line, tag, sentence) for every tagged comment; a comment may continue on the lines below that begin with #."""
    lines = path.read_text("utf-8").splitlines()
    for number, line in enumerate(lines):
        if not (match := TAG.search(line)):
            continue
        text = match[2]
        whole_line = line.lstrip().startswith("#")
        for below in lines[number + 1 :] if whole_line else []:
            if not below.lstrip().startswith("# ") or TAG.search(below):
                break
            text += " " + below.lstrip()[2:]
        # One comment may hold two tags: "Original: ... Differs: ..."
        parts = re.split(r"\b(Paper|Original|Differs): ", f"{match[1]}: {text}")[1:]
        yield from ((number + 1, tag, said.strip()) for tag, said in zip(parts[::2], parts[1::2], strict=True))


def differences() -> str:
    """Return the page of tagged comments, grouped by tag; a difference stands with what it differs from."""
    sources = sorted(path for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".toml"))
    found = [(path, *rest) for path in sources for rest in comments(path)]
    lines: dict[str, list[str]] = {tag: [] for tag in TITLES}
    for at, (path, number, tag, said) in enumerate(found):
        where = f" (`{path.relative_to(ROOT / 'src')}`)"
        if tag == "Differs":
            before = found[at - 1]
            near = before[0] == path and before[2] != tag and number - before[1] <= 4
            against = f"{before[2]}: {before[3]} " if near else ""
            if near:
                lines[before[2]].pop()
            lines[tag].append(f"- {against}**Ours:** {said}{where}")
        else:
            lines[tag].append(f"- {said[0].upper()}{said[1:]}{where}")
    page = ["# Paper, released code, and mma", "", (ROOT / "tools" / "differences.intro.md").read_text("utf-8").strip()]
    for tag, title in TITLES.items():
        page += ["", f"## {title}", "", *lines[tag]]
    return "\n".join(page) + "\n"


def sections(command: Any, name: str) -> Iterator[str]:
    """Yield the reference of a command and of those below it."""
    for below, inner in getattr(command, "commands", {}).items():
        yield from sections(inner, f"{name} {below}")
    if hasattr(command, "commands"):
        return
    yield f"\n## {name}\n"
    yield (command.help or "").strip() + "\n"
    yield from parameters(command)


def parameters(command: Any) -> Iterator[str]:
    """Yield one line per argument and option."""
    for parameter in command.params:
        named = parameter.param_type_name == "option"
        label = ", ".join(parameter.opts) if named else (parameter.metavar or parameter.name).upper()
        if parameter.name != "help":
            yield f"- `{label}` {parameter.help or ''}".rstrip()


def reference() -> str:
    """Return the page of all commands."""
    from mma.cli import EXIT_CODES, commands

    app = typer.main.get_command(commands())
    lines = [
        "# Commands",
        "",
        "Generated from the commands themselves; `mma COMMAND --help` says the same.",
        "",
        "Results go to stdout, everything else to stderr. Into a file or a pipe nothing is wrapped, coloured or cut,",
        "and progress is a plain line after 5 seconds and then every 30.",
        "",
        "## Before any command",
        "",
        *parameters(app),
        "",
        "| exit code | meaning |",
        "|---|---|",
        *(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()),
        *sections(app, "mma"),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the pages, or check them."""
    stale = []
    for name, text in {"differences.md": differences(), "cli.md": reference()}.items():
        path = ROOT / "docs" / name
        if not path.exists() or path.read_text("utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text, "utf-8")
    if stale and "--check" in sys.argv:
        sys.exit(f"not up to date: {', '.join(stale)}. Run  make docs")


if __name__ == "__main__":
    main()
