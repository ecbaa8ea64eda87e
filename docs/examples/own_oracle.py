"""People who answer late and in part: questions go to one file, answers come from another.

python docs/examples/own_oracle.py
"""

import csv
from collections.abc import Sequence
from pathlib import Path

import mma


class Files:
    """An oracle is any object with ask(). It may answer some now and the rest when it is asked again."""

    def __init__(self, images: mma.Images, questions: Path, answers: Path) -> None:
        self.images, self.questions, self.answers = images, questions, answers

    def ask(self, indices: Sequence[int], round: int) -> dict[int, int]:
        """Write down what is asked; return index -> class number for what is answered. -1 = cannot tell."""
        with self.questions.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([index, self.images.key(index)] for index in indices)
        if not self.answers.exists():
            return {}
        with self.answers.open(newline="", encoding="utf-8") as file:
            given = {key: self.images.classes.index(name) for key, name in csv.reader(file)}
        return {index: given[key] for index in indices if (key := self.images.key(index)) in given}


def main(folder: Path = Path("runs/people")) -> str:
    """Train as far as the answers reach. Call it again when there are more."""
    config = mma.change(mma.preset("digits"), ["growth.start=10", "growth.add=5", "growth.budget=15"])
    run = mma.Run.open(folder) if folder.exists() else mma.new_run(config, folder)
    questions, answers = folder.with_suffix(".questions.csv"), folder.with_suffix(".answers.csv")
    mma.train(run, Files(mma.load_data("digits").train, questions, answers))
    return run.status()


if __name__ == "__main__":
    print(main())  # "waiting": write lines of  KEY,CLASS  into runs/people.answers.csv and run it again
