"""Measure everything and write bench/RESULTS.md:  python -m bench [SECTION ...]  (see SECTIONS)."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from mma.cli import quiet_threads

quiet_threads()  # before torch is loaded, as the `mma` command does

from bench import features, heads, live, machine, neighbour, page, pool, predict, project, queries, serve, share, steps  # noqa: E402

RESULTS = Path(__file__).with_name("RESULTS.md")
SECTIONS: dict[str, Callable[[int], str]] = {
    "steps": steps.section,
    "share": share.section,
    "queries": queries.section,
    "pool": pool.section,
    "features": features.section,
    "heads": heads.section,
    "neighbour": neighbour.section,
    "project": project.section,
    "live": live.section,
    "page": page.section,
    "predict": predict.section,
    "serve": serve.section,
    "compile": steps.compiled,
}
ALONE = ("compile",)  # measured when it is asked for: it compiles for minutes, and is off by default


def main() -> None:
    """Run the sections asked for; only a run of all of them replaces the page."""
    everything = [name for name in SECTIONS if name not in ALONE]
    wanted = sys.argv[1:] or everything
    if unknown := set(wanted) - set(SECTIONS):
        sys.exit(f"bench: no section {', '.join(sorted(unknown))}. There are: {', '.join(SECTIONS)}.")
    threads, begin = os.cpu_count() or 1, time.perf_counter()
    parts = [machine.section("make bench")]
    for name in wanted:
        started = time.perf_counter()
        print(f"==> {name}", flush=True)
        parts.append(SECTIONS[name](threads))
        print(f"==> {name}: {time.perf_counter() - started:.0f} s", flush=True)
    parts.append(f"Everything above took {(time.perf_counter() - begin) / 60:.0f} minutes.")
    text = "\n\n".join(parts) + "\n"
    if wanted == everything:
        RESULTS.write_text(text, "utf-8")
        print(f"wrote {RESULTS}")
    else:
        print(text)


if __name__ == "__main__":
    main()
