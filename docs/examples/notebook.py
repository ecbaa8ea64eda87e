"""mma without the command line. The cells (# %%) open as a notebook in VS Code, PyCharm or Jupytext.

It takes about 15 seconds on two cores, because SHORT makes the runs too short to learn much. Leave SHORT away for the
preset's own length: half a minute per run.
"""

# %% A run is a config and a folder
from pathlib import Path

import matplotlib.pyplot as plt

import mma

HERE = Path("notebook-runs")
SHORT = ["growth.first=30", "growth.every=10", "growth.final=40", "growth.budget=40", "log.every=10", "log.last=2"]

config = mma.change(mma.preset("digits"), ["seed=1", *SHORT])
folder = HERE / "first"
run = mma.Run.open(folder) if folder.exists() else mma.new_run(config, folder)

# %% Train it. Called again after any interruption, this goes on where the folder says it is
mma.train(run)
print(run.status(), f"{run.accuracy():.1f} % with {len(run.answers())} labels")

# %% Test the model, per class
tested = mma.evaluate(run)
print(f"{tested['accuracy']:.1f} % on {tested['images']} test images", tested["per_class"])

# %% Which images would it like to have labeled next?
for image in mma.suggest(run, 5, "diff2.aug-kmeans"):
    print(image["index"], f"{image['score']:.3f}")

# %% Predict
digits = mma.load_data("digits").test
found = mma.load(run).predict(digits.pixels[:8])  # found.probs is (8, 10)
print("predicted", found.labels, "true", digits.labels[:8])

# %% Look at what it learned from
asked = [row["indices"] for row in run.read("queries")]
figure, places = plt.subplots(1, 10, figsize=(10, 1.5))
for place, index in zip(places, asked[-1], strict=False):
    place.imshow(mma.load_data("digits").train.pixels[index, :, :, 0], cmap="gray_r")
    place.axis("off")
figure.suptitle("the images of its last query")
figure.savefig(HERE / "asked.png")
plt.close(figure)

# %% Compare two methods over three seeds. Called again, it trains only what is missing
found = mma.grid(
    "digits",
    methods={"MixMatch": {"growth.policy": "passive"}, "asks": {"query": "diff2.aug-direct"}},
    seeds=3,
    settings=SHORT,
    out=HERE / "grid",
    workers=2,
    progress=False,
)
print(found.table())

# %% Is the difference shown? With three seeds the honest answer is nearly always no
for row in found.differences("MixMatch"):
    print(f"{row.method}: {row.mean:+.1f} points ({row.low:.1f} to {row.high:.1f}): {row.verdict}")

# %% Plot
picture = found.plot(HERE / "learning-curves.svg", "learning-curves")
print("plot:", picture)
