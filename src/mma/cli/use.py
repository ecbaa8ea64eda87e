"""Use a trained model and hand it on (predict, export); look at presets and runs (show, flop, eval, query, runs)."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from mma.cli.terminal import print_table, talk
from mma.cli.train import Json, Settings
from mma.errors import UserError
from mma.shares import describe_accuracy
from mma.text import plural, printable

if TYPE_CHECKING:
    from mma.config import Config
    from mma.files import Row


def predict(
    model: Annotated[Path, Argument(help="A run, a project, a model folder or an .onnx file.")],
    images: Annotated[Path, Argument(metavar="FOLDER", help="A folder of images, or one image.")],
    out: Annotated[Path, Option("--out", "-o", help="Where to write: NAME.csv, NAME.jsonl or NAME.parquet.")],
    top: Annotated[int, Option(min=1, help="How many classes to write for each image.")] = 1,
    sort_into: Annotated[Path | None, Option(metavar="DIR", help="New folder: a sub-folder of links per class")] = None,
    copy: Annotated[bool, Option("--copy", help="With --sort-into: copies instead of links.")] = False,
    sheet: Annotated[Path | None, Option(metavar="HTML", help="A page with the photos that are least sure.")] = None,
    max_error: Annotated[float | None, Option(metavar="SHARE", help="Answer while at most this share is wrong")] = None,
    boxes: Annotated[Path | None, Option(metavar="JSON", help="Of a folder of --crops: boxes with classes.")] = None,
    as_json: Json = False,
) -> None:
    """Classify every image of a folder with calibrated confidence. The same command goes on where it stopped."""
    from mma.cli.terminal import Progress
    from mma.data.boxes import MANIFEST, write_answers
    from mma.files import read_lines
    from mma.model import load
    from mma.model.predictions import check_input, check_output, check_sheet, check_sorted, predict_folder
    from mma.project.quality.promises import check_max_error, promise_of

    check_output(out)  # before a model is loaded
    check_input(images)
    if sort_into is not None:
        check_sorted(images, sort_into)
    if sheet is not None:
        check_sheet(sheet)
    if max_error is not None:
        check_max_error(max_error)
    if boxes is not None and (not (images / MANIFEST).is_file() or out.suffix.lower() != ".jsonl"):
        raise UserError(f"--boxes takes a folder that --crops made (it holds {MANIFEST}), and -o NAME.jsonl.")
    loaded = load(model)
    promise = None if max_error is None else promise_of(loaded.about.audit, max_error)
    options: dict[str, Any] = {"top": top, "sort_into": sort_into, "copy": copy, "sheet": sheet, "promise": promise}
    with Progress() as bar:

        def advance(done: int, of: int) -> None:
            bar.update(done, of, lambda: f"{done:,} of {of:,} images")

        found = predict_folder(loaded, images, out, progress=advance, **options)
    if promise is not None and not as_json:
        mine = found.files - found.bad - found.asked
        talk(
            f"{mine:,} answered alone: at most {100 * promise.max_error:g} % of those are wrong (95 % sure, for photos like "
            f"those of the project); {found.asked:,} are yours, see the column promise."
        )
    if boxes is not None:
        write_answers(images, read_lines(out), boxes)
    if as_json:
        print(json.dumps(asdict(found), default=str))
        return
    before = f" ({found.resumed:,} of them before)" if found.resumed else ""
    unlike = f"; {found.unlike:,} unlike anything labeled, see the column unlike" if found.unlike else ""
    bad = ", ".join(f"{each.file} ({each.reason})" for each in found.first_bad)
    more = f" and {found.bad - len(found.first_bad):,} more" if found.bad > len(found.first_bad) else ""
    bad = f"; {plural(found.bad, 'file')} could not be read, see the column problem: {bad}{more}" if found.bad else "."
    print(printable(f"{out}: {plural(found.files - found.bad, 'image')} classified{before}{unlike}{bad}"))


def classify(
    folder: Annotated[Path, Argument(help="A folder of photos.")],
    classes: Annotated[str, Option(metavar="NAMES", help="For example forest,street,sea/ocean.")],
    out: Annotated[Path | None, Option("--out", "-o", help="Write a table: NAME.csv.")] = None,
) -> None:
    """Guess the class of each photo from the names of the classes alone: no project, no label. English names work best."""
    from mma.cli.terminal import Progress
    from mma.data.tables import render_csv
    from mma.features.names import guess_folder
    from mma.files import write_atomically
    from mma.project.project import check_class_names
    from mma.text import quote_path

    names = check_class_names(classes.split(","))
    if len(names) < 2:
        raise UserError("--classes needs two names or more, with commas between them:  --classes forest,street")
    if out is not None and (out.suffix.lower() != ".csv" or out.exists()):
        raise UserError(f"-o {printable(str(out))}: give a CSV file that is not there yet:  -o guesses.csv")
    with Progress() as bar:
        files, probs = guess_folder(
            folder, names, lambda done, of: bar.update(done, of, lambda: f"{done:,} of {of:,} files")
        )
    best = probs.argmax(1)
    rows = [
        (name, str((best == k).sum()), files[int(probs[:, k].argmax())], f"{probs[:, k].max():.0%}")
        for k, name in enumerate(names)
    ]
    if out is not None:
        lines = [(file, names[k], round(float(own[k]), 4)) for file, k, own in zip(files, best, probs, strict=True)]
        write_atomically(out, render_csv([("file", "label", "confidence"), *lines]))
    print_table(("class", "photos", "surest photo", "sure"), rows, right={"photos", "sure"})
    again = f"mma start {quote_path(folder)} --classes {quote_path(classes)}"
    talk(
        f"Guesses from the names alone; they are {probs.max(1).mean():.0%} sure of themselves on average, and no label has "
        "confirmed it. On photos of everyday things names were right in 60 to 90 %, on traffic signs and digits no better than "
        f"chance. Twenty labels would show what they are worth here, and correct them:  {again}"
    )


def export(
    source: Annotated[Path, Argument(help="A project, a run or a model folder. Default: the one here.")] = Path("."),
    to: Annotated[str | None, Option(help="Some of onnx,safetensors,labels. Default: all that there is.")] = None,
    out: Annotated[
        Path | None,
        Option("--out", "-o", help="A new folder. Default: in the project, or SOURCE-export in this folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a model for others: ONNX compared with the model, safetensors, labels, a model card, checksums."""
    from mma.model.exporter import export as write

    kinds = None if to is None else [kind.strip() for kind in to.split(",") if kind.strip()]
    found = write(source, out, kinds)
    text = f"{found.folder}: exported {', '.join(found.files)}."
    if same := found.agreement:
        on = f"{same.images} real images of {same.sizes} sizes"
        text += f" model.onnx agrees with the model to {same.largest:.0e} on {on}."
    print(json.dumps(asdict(found), default=str) if as_json else printable(text))


def serve(
    model: Annotated[Path, Argument(help="A run, a project, a model folder or an .onnx file.")],
    port: Annotated[int | None, Option(min=0, max=65_535, help="Default: the first free one from 8642 on.")] = None,
    host: Annotated[str, Option(help="Address to serve at; a remote one needs --allow-remote.")] = "127.0.0.1",
    allow_remote: Annotated[bool, Option("--allow-remote", help="Let other machines send requests.")] = False,
    allow_host: Annotated[list[str] | None, Option(metavar="NAME", help="A name that clients call it by.")] = None,
    token_file: Annotated[Path | None, Option(metavar="FILE", help="The key of clients; made if missing.")] = None,
) -> None:
    """Answer HTTP requests with a model: POST an image to /predict. The page at / explains it."""
    from mma.model import load
    from mma.web.predict_server import serve_model
    from mma.web.server import check_address

    check_address(host, allow_remote)  # before a model is loaded
    names = allow_host or []
    serve_model(load(model), host, port, allow_remote=allow_remote, names=names, token_file=token_file, say=talk)


RunFolder = Annotated[Path, Argument(help="A run folder.")]


def show(
    name: Annotated[str, Argument(metavar="PRESET", help="A preset, a run folder, or plugins.")],
    settings: Settings = None,
) -> None:
    """Print a preset's (or a run's) whole config as JSON; `mma show plugins`: what installed packages add."""
    if name == "plugins":
        from mma.extensions import GROUPS, plugins

        found = plugins()
        for plugin in found:
            print(f"{plugin.group:15} {plugin.name:20} {plugin.package:30} {plugin.module}")
        if not found:
            print(f"no installed package has entry points in {', '.join(GROUPS)}", file=sys.stderr)
        return
    print(config_of(name, settings or []).model_dump_json(indent=2))


def config_of(name: str, settings: list[str]) -> Config:
    """Return the config of a preset or a run, with some settings changed."""
    from mma.cli.train import existing_run
    from mma.config import change
    from mma.config import config_of as read
    from mma.presets import preset

    run = existing_run(name, changed=False)
    return change(read(run) if run else preset(name), settings)


def flop(
    name: Annotated[str, Argument(metavar="PRESET", help="A preset or a run folder.")],
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Count the floating-point operations of a preset or a run: one image, one step, the whole."""
    from mma.experiments.estimate import flop as count

    found = count(config_of(name, settings or []))
    if as_json:
        print(json.dumps({**asdict(found), "total": found.total}))
        return
    lines = {
        "forward of one image": found.image,
        "training step": found.step,
        "all training steps": found.training,
        "evaluations": found.evaluating,
        "queries": found.asking,
        "the whole run": found.total,
    }
    for what, count_ in lines.items():
        print(f"{count_:9.2e} FLOP  {what}")


def evaluate(folder: RunFolder, as_json: Json = False) -> None:
    """Test a run's latest model: accuracy in all and per class."""
    from mma.training.job import evaluate as test

    found = test(folder)
    if as_json:
        print(json.dumps(found))
        return
    at = f"step {found['step']:,}, {found['images']:,} test images"
    print(printable(f"{folder}: {describe_accuracy(found['accuracy'], found['images'])} ({at})"))
    for name, value in found["per_class"].items():
        print(f"  {value:6.2f} %  {printable(name)}")


def query(
    folder: RunFolder,
    n: Annotated[int, Option(min=1, help="How many images.")] = 10,
    strategy: Annotated[str | None, Option(help="Default: the run's own.")] = None,
    as_json: Json = False,
) -> None:
    """Print which unlabeled images the run's latest model would ask about, their scores, and why it is these."""
    from mma.run import Run
    from mma.training.ask import suggest_with_reason

    run = Run.open(folder)
    picks, why = suggest_with_reason(run, n, strategy)
    if as_json:
        about = {"run": str(folder), "step": run.checkpoint_steps()[-1], "strategy": strategy or run.config()["query"]}
        print(json.dumps({**about, "why": why, "picks": picks}))
        return
    if why:
        talk(why)
    named = "name" in picks[0]
    print("index\tscore" + ("\tname" if named else ""))
    for pick in picks:
        print(f"{pick['index']}\t{pick['score']:.6g}" + (f"\t{printable(pick['name'])}" if named else ""))


def runs(
    folder: Annotated[Path, Argument(metavar="DIR", help="Where to look for runs.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List the runs below a folder, with their status."""
    places = [path.parent for path in sorted(folder.rglob("config.json")) if may_be_a_run(path)]
    if not places:
        raise UserError(f"no runs below {folder}. Start one with  mma train digits")
    rows = [summary_of(place) for place in places]
    if as_json:
        columns = dict.fromkeys(key for row in rows for key in row)
        print(json.dumps([{**dict.fromkeys(columns), **row} for row in rows]))
        return
    right = ("seed", "labels", "step", "last model, %", "median, %")
    print_table(("run", "algorithm", "query", *right[:3], "status", *right[3:]), [*map(cells, rows)], right=right)


def may_be_a_run(path: Path) -> bool:
    """Tell whether a config.json could be a run's, as a damaged one could: other programs have files of that name too."""
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return path.is_file()
    return isinstance(config, dict) and isinstance(config.get("format"), int)


def summary_of(place: Path) -> Row:
    """Return what the table shows of one run; of one that cannot be read, that it is there, and say why on stderr."""
    from mma.run import Run

    try:
        return Run.open(place).summary()
    except Exception as error:  # whatever is wrong with one run, the others are listed
        why = str(error) if isinstance(error, UserError | OSError) else f"{type(error).__name__}: {error}"
        talk(f"unreadable: {place}: {' '.join(why.split())}")
        return {"run": str(place), "status": "unreadable", "busy": False}


def cells(row: Row) -> list[str]:
    """Return one line of the table of runs."""
    known = [str(row.get(key, "-")) for key in ("algorithm", "query", "seed", "labels")]
    far = f"{row['step']:,}/{row['steps']:,}" if "step" in row else "-"
    last, median = ("-" if row.get(key) is None else f"{row[key]:.2f}" for key in ("accuracy", "median_accuracy"))
    count = f" (of {row['median_of']})" if row.get("median_of") else ""
    return [row["run"], *known, far, row["status"], last, median + count]
