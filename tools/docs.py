"""Write the generated pages: docs/differences.md from the tags in the source, docs/cli.md from the commands themselves.

    python tools/docs.py            write them
    python tools/docs.py --check    exit 1 if they are not up to date
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import typer

ROOT = Path(__file__).parents[1]
TAG = re.compile(r"#\s*(?:.*?\s)?(Paper|Original|Differs): (.*)$")
TITLES = {
    "Differs": "What we do otherwise, and why",
    "Original": "What the released code does",
    "Paper": "Where a number comes from",
}


def comments(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield (line, tag, sentence) for every tagged comment; a comment goes on over the lines below that begin with #."""
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
    """Return the page of tagged comments, grouped by tag."""
    found = [(path, *rest) for path in sorted((ROOT / "src").rglob("*.py")) for rest in comments(path)]
    page = ["# Paper, released code, and mma", "", (ROOT / "docs" / "differences.intro.md").read_text("utf-8").strip()]
    for tag, title in TITLES.items():
        page += ["", f"## {title}", ""]
        page += [f"- {said} (`{path.relative_to(ROOT / 'src')}`)" for path, _, kind, said in found if kind == tag]
    return "\n".join(page) + "\n"


def commands(command: click.Command, name: str) -> Iterator[str]:
    """Yield the reference of a command and of those below it."""
    context = click.Context(command, info_name=name)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            yield from commands(command.commands[below], f"{name} {below}")
        return
    yield f"\n## {name}\n"
    yield (command.help or "").strip() + "\n"
    for parameter in command.params:
        if parameter.name == "help":
            continue
        label = ", ".join(parameter.opts) if parameter.param_type_name == "option" else (parameter.metavar or parameter.name or "").upper()
        yield f"- `{label}` {getattr(parameter, 'help', '') or ''}".rstrip()


def reference() -> str:
    """Return the page of all commands."""
    from mma.cli import registered

    app = typer.main.get_command(registered())
    return "\n".join(["# Commands", "", "Generated from the commands themselves; `mma COMMAND --help` says the same.", *commands(app, "mma")]) + "\n"


def main() -> None:
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
