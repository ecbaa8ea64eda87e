"""`mma data`: list the data sets, get one, look at one, store its features."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from mma.errors import UserError
from mma.text import Progress, printable

if TYPE_CHECKING:
    from mma.data import DataSet
    from mma.features import FeatureProgress

app = typer.Typer(help="Get image data, and see what is there.", no_args_is_help=True)

SHOWN = 20  # lines of the quarantine list on the screen; --json has all of them

Json = Annotated[bool, Option("--json", help="Print JSON for programs.")]


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List every data set, and whether it is ready or how to get it."""
    from mma.cli.terminal import align
    from mma.data import catalogue

    known = catalogue()
    if as_json:
        print(json.dumps([asdict(info) for info in known], indent=1))
        return
    rows = [("name", "pool", "test", "classes", "size", "")]
    for one in known:
        state = "ready" if one.ready else ("cannot be used, make it again:  " if one.problem else "") + one.command
        size = " x ".join(map(str, one.shape)) if all(one.shape) else "?"
        rows.append((one.name, f"{one.pool:,}", f"{one.test:,}", str(one.classes), size, state))
    table = align(rows, [heading in ("pool", "test", "classes", "size") for heading in rows[0]])
    print("\n".join([*table, "", "your own images:  mma data get folder --from DIR"]))


@app.command("get")
def get_(
    name: Annotated[str, Argument(help="A name that  mma data list  shows, or: folder")],
    directory: Annotated[Path | None, Option("--from", metavar="DIR", help="Where the files or images lie.")] = None,
    accept_hash_mismatch: Annotated[
        bool, Option("--accept-hash-mismatch", help="Use original files that are not the official ones.")
    ] = False,
    own_name: Annotated[str | None, Option("--name", metavar="NAME", help="folder: name it folder:NAME.")] = None,
    side: Annotated[int, Option(metavar="PIXELS", help="folder: squash images to PIXELS x PIXELS.")] = 32,
    labels: Annotated[Path | None, Option(metavar="CSV", help="folder: file_name,label (else its labels.csv).")] = None,
    test: Annotated[Path | None, Option(metavar="DIR", help="folder: test images, in the same classes.")] = None,
    holdout: Annotated[float | None, Option(metavar="FRACTION", help="folder: labeled part to test on (0.2).")] = None,
    mirror: Annotated[bool, Option("--mirror", help="folder: a mirror image means the same.")] = False,
    grey: Annotated[bool, Option("--grey", help="folder: store one channel instead of three.")] = False,
    classes: Annotated[
        str | None, Option(metavar="NAMES", help="folder: all classes: cat,dog (else by labels)")
    ] = None,
) -> None:
    """Make a data set ready: from its official download, from files you have, or from a folder of images."""
    from mma.data import FolderOptions, get, get_folder

    declared = tuple(part.strip() for part in classes.split(",")) if classes is not None else ()
    options = FolderOptions(own_name, side, labels, test, holdout, mirror, grey, declared)
    if name != "folder":
        if options != FolderOptions():
            raise UserError(
                f"--name, --side and the other folder options do not go with {printable(name)}. Leave them out."
            )
        data = get(name, directory=directory, accept_hash_mismatch=accept_hash_mismatch)
    elif directory is None:
        raise UserError("a folder of images needs its place:  mma data get folder --from DIR")
    else:
        data = get_folder(directory, options)
    print("\n".join([*_summary(data), *remarks(data)]))


@app.command("info")
def info(name: Annotated[str, Argument(help="A name that  mma data list  shows.")], as_json: Json = False) -> None:
    """Show one data set, after reading every byte of it and comparing it with its digest."""
    from mma.data import verify
    from mma.data.cache import command_in_words

    data = verify(name)
    if as_json:
        details: dict[str, Any] = {
            **{key: getattr(data, key) for key in ("name", "source", "verified", "mirror")},
            "shape": data.train.shape,
        }
        for split, images in {"pool": data.train, "test": data.test}.items():
            details[split] = {"images": len(images), "digest": images.digest(), "classes": images.class_counts()}
        details |= {"notes": data.notes, "quarantine": [asdict(file) for file in data.quarantine]}
        print(json.dumps(details, indent=1))
        return
    again = f"make it again:  {command_in_words(data.name, data.options)}"
    digests = [f"digest, every byte checked: pool {data.train.digest()}", f"{'test':>32} {data.test.digest()}"]
    tests = data.test.class_counts()
    width = max((len(printable(name)) for name in tests), default=0)
    counts = [f"  {printable(c):{width}} {n:>8,} {tests[c]:>8,}" for c, n in data.train.class_counts().items()]
    unlabeled = f"without a label: {int((data.train.labels < 0).sum()):,}"
    lines = [*_summary(data), again, *digests, "images per class: pool, test", *counts, unlabeled, *remarks(data)]
    print("\n".join(lines))


@app.command("features")
def features_(
    name: Annotated[str, Argument(help="A name that  mma data list  shows.")],
    backbone: Annotated[str, Option(metavar="NAME", help="Which backbone, or several: lite0+hog.")] = "lite0",
    crops: Annotated[int, Option(metavar="N", help="Crops of each pool image that are stored as well.")] = 2,
    mirror: Annotated[bool, Option("--mirror", help="Store the mirror image as well.")] = False,
    engine: Annotated[str, Option(help="local (here) or ray (a cluster; needs mma-learn[ray]).")] = "local",
) -> None:
    """Compute and store the features of a data set, for training that then starts at once. Run it again to resume."""
    from mma.data import load_data
    from mma.features import StoredViews, features, image_source, parse_backbone
    from mma.features.inputs import make_again

    data, parts = load_data(name), parse_backbone(backbone).parts
    pool_views = StoredViews(mirror=mirror, crops=crops)
    for part in parts:
        for split, images, views in (("pool", data.train, pool_views), ("test", data.test, StoredViews())):
            source, note = image_source(images, make_again(data))
            if note:
                print(f"note: {note}", file=sys.stderr)
            with Progress() as bar:

                def show(now: FeatureProgress, bar: Progress = bar, title: str = f"{part.label()}, {split}") -> None:
                    bar.update(now.done, now.total, lambda: f"{title}: {now.done:,} of {now.total:,} images")

                found = features(source, part, views, engine=engine, progress=show)
            print(f"{part.label()}, {split}: {len(found):,} images, {found.views} views, {found.width} numbers each")


def _summary(data: DataSet) -> list[str]:
    height, width, channels = data.train.shape
    return [
        f"{data.name}: {len(data.train):,} images in the pool, {len(data.test):,} to test on, "
        f"{len(data.train.classes)} classes, {height} x {width} x {channels}",
        f"made from {printable(data.source)}" + ("" if data.verified else " (not the official files)"),
    ]


def remarks(data: DataSet) -> list[str]:
    """Write what a person should know about a data set that was just made: notes, and the files that were left out."""
    from mma.data.cache import command, place
    from mma.data.hard import split_hard

    notes = [f"note: {printable(note)}" for note in data.notes]
    if not data.verified:
        notes.append(
            f"to have the official files instead, delete {printable(str(place(split_hard(data.name)[1])))} and run  "
            f"{command(data.name)}"
        )
    if not data.quarantine:
        return notes
    bad = [f"  {printable(file.file)}: {printable(file.reason)}" for file in data.quarantine[:SHOWN]]
    more = len(data.quarantine) - SHOWN
    rest = [f"  and {more:,} more:  mma data info {data.name} --json  lists them all"] if more > 0 else []
    return [*notes, f"left out {len(data.quarantine):,} files:", *bad, *rest]
