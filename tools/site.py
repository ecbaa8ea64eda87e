"""Write the documentation as a site that can be searched without a network: python tools/site.py [FOLDER], default site/.

The pages keep their places (README.md, docs/, results/), so that their links hold on GitHub and here.
The API pages come from docstrings.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from mma import PUBLIC

ROOT = Path(__file__).parents[1]
GROUPS = {
    "Label photos": "install label status models security team",
    "Research": "methods features data experiments cost scale differences",
    "Build on it": "classifier extend architecture cli",
}
RESULTS = {
    "All results": "README",
    "Does asking pay?": "asking",
    "The paper's claims": "paper-claims",
    "What compute buys": "compute",
    "What did not work": "negative",
}


def title(page: Path) -> str:
    """Return the heading of a page."""
    return page.read_text("utf-8").splitlines()[0].lstrip("# ").split(":")[0]


def api_pages(folder: Path) -> dict[str, str]:
    """Write one page for each module that offers public names; return title -> path."""
    modules: dict[str, list[str]] = {}
    for name, module in PUBLIC.items():
        modules.setdefault(module.split(".")[1], []).append(name)
    modules["query"] += ["Labeled", "Strategy"]
    folder.mkdir()
    pages = {}
    for module, names in sorted(modules.items()):
        blocks = [f"::: {PUBLIC.get(name, 'mma.query')}.{name}" for name in names]
        (folder / f"{module}.md").write_text(f"# mma: {module}\n\n" + "\n\n".join(blocks) + "\n", "utf-8")
        pages[module] = f"api/{module}.md"
    return pages


def collect(place: Path) -> list[dict[str, object]]:
    """Copy what the site shows to one folder, and return its navigation."""
    shutil.copytree(ROOT / "docs", place / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    for page in ROOT.glob("*.md"):
        shutil.copy(page, place)
    for path in (ROOT / "results").rglob("*"):
        if path.suffix in (".md", ".png", ".svg"):
            target = place / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    for page in place.rglob("*.md"):
        # A link to a folder or to source leads nowhere on the site: its words stay.
        text = page.read_text("utf-8")
        page.write_text(
            re.sub(r"\[([^\]]+)\]\((?!http|#)[^)]*(?:/|\.py|\.csv|\.json|LICENSE|\.cff)\)", r"\1", text), "utf-8"
        )
    groups = {
        group: [
            {title(page): f"docs/{page.name}"}
            for name in names.split()
            if (page := place / "docs" / f"{name}.md").exists()
        ]
        for group, names in GROUPS.items()
    }
    results = [{name: f"results/{page}.md"} for name, page in RESULTS.items()]
    api = [{name: page} for name, page in api_pages(place / "api").items()]
    return [
        {"Start": "README.md"},
        *({group: pages} for group, pages in groups.items()),
        {"API": api},
        {"Results": results},
    ]


def settings(place: Path, out: Path) -> dict[str, object]:
    """Return what mkdocs is told: no fonts, scripts or pictures from elsewhere."""
    palette = [
        {
            "media": "(prefers-color-scheme: light)",
            "scheme": "default",
            "primary": "indigo",
            "accent": "indigo",
            "toggle": {"icon": "material/weather-night", "name": "Dark"},
        },
        {
            "media": "(prefers-color-scheme: dark)",
            "scheme": "slate",
            "primary": "indigo",
            "accent": "indigo",
            "toggle": {"icon": "material/weather-sunny", "name": "Light"},
        },
    ]
    features = [
        "navigation.tabs",
        "navigation.top",
        "navigation.indexes",
        "search.suggest",
        "search.highlight",
        "content.code.copy",
    ]
    options = {
        "show_source": False,
        "show_root_heading": True,
        "docstring_style": "numpy",
        "heading_level": 2,
        "separate_signature": True,
        "show_signature_annotations": True,
    }
    return {
        "site_name": "mma",
        "site_description": "A good image classifier from few labels",
        "docs_dir": str(place),
        "use_directory_urls": False,
        "site_dir": str(out),
        "theme": {
            "name": "material",
            "font": False,
            "palette": palette,
            "features": features,
            "icon": {"logo": "material/image-check-outline"},
        },
        "plugins": [
            "search",
            {"mkdocstrings": {"handlers": {"python": {"paths": [str(ROOT / "src")], "options": options}}}},
        ],
        "markdown_extensions": [
            "tables",
            "admonition",
            "attr_list",
            "md_in_html",
            "pymdownx.superfences",
            "pymdownx.highlight",
            {"toc": {"permalink": True}},
        ],
        "validation": {
            "links": {"not_found": "warn", "unrecognized_links": "ignore", "anchors": "ignore"},
            "nav": {"omitted_files": "ignore"},
        },
        "nav": collect(place),
    }


def main() -> None:
    """Build the site, strictly: a link that leads nowhere is an error."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "site").resolve()
    with tempfile.TemporaryDirectory() as place:
        config = Path(place) / "mkdocs.yml"
        pages = Path(place) / "pages"
        pages.mkdir()
        config.write_text(yaml.safe_dump(settings(pages, out), sort_keys=False), "utf-8")
        quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
        subprocess.run(
            [sys.executable, "-m", "mkdocs", "--quiet", "build", "--strict", "--clean", "--config-file", config],
            check=True,
            env=quiet,
        )
    outside = sorted(
        {
            link
            for page in out.rglob("*.html")
            for link in re.findall(
                r'(?:<script[^>]+src|<link[^>]+stylesheet[^>]+href|<img[^>]+src)="(https?://[^"]+)"',
                page.read_text("utf-8"),
            )
        }
    )
    if outside:
        raise SystemExit(f"the site would ask other servers: {outside[:5]}")
    print(f"{out / 'index.html'}: {sum(1 for _ in out.rglob('*.html'))} pages. To read and search it:")
    print(f"python -m http.server --bind 127.0.0.1 --directory {out}")


if __name__ == "__main__":
    main()
