"""Draw docs/cost-ratio.png, the paper's figure "Plot of c_ratio" with intervals:  python tools/cost_ratio.py"""

from __future__ import annotations

from pathlib import Path

from mma.cost import exchange, open_table
from mma.cost.plots import draw_ratios, new_figure, save

# Paper: for these two data sets. Targets spread over what at least two label counts reach.
PANELS = (
    ("CIFAR-10", "paper:cifar10", (80.0, 85.0, 88.0, 90.0, 91.69)),
    ("SVHN+Extra", "paper:svhn-extra", (92.0, 94.0, 95.5, 96.4, 97.0)),
)


def main(path: Path) -> None:
    """Draw c_ratio over labels at several targets."""
    figure = new_figure(len(PANELS))
    for axes, (title, source, targets) in zip(figure.axes, PANELS, strict=True):
        draw_ratios(axes, [exchange(open_table(source), target) for target in targets])
        axes.set_title(f"{title}: images that one more label saves", loc="left", fontsize=10.5)
    figure.suptitle("What is a label worth? (the paper's tables)", x=0.01, ha="left", fontweight="bold")
    save(figure, path)


if __name__ == "__main__":
    main(Path(__file__).parents[1] / "docs" / "cost-ratio.png")
