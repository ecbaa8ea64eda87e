"""The whole description of a run, as one frozen value: JSON both ways, an unknown key is an error."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from mma.algorithms import ALGORITHMS, Algorithm
from mma.growth import Growth
from mma.query import Query


class Settings(BaseModel):
    """A group of settings: frozen, strict about types, closed to unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Data(Settings):
    """Which images, how many of them, and how they are augmented."""

    name: str  # a name from `mma data list`, or folder:NAME
    total: int | None = Field(default=None, gt=0)  # images in the pool, labeled or not; None = all
    validation: int = Field(default=0, ge=0)  # images held out of the pool and tested on instead of the test set
    shift: int = Field(ge=0)  # pixels a view may move
    mirror: bool  # a view may be its mirror image
    strong_labels: float = Field(default=0.0, ge=0.0, le=1.0)  # share of the labeled images that are shown distorted
    small_side: int | None = Field(default=None, ge=8)  # pixels to which images are averaged down in the first steps
    small_share: float = Field(default=0.0, ge=0.0, le=1.0)  # share of the run's steps that are made so small

    @model_validator(mode="after")
    def _small_means_both(self) -> Data:
        if (self.small_side is None) != (self.small_share == 0.0):
            raise ValueError(
                "data.small_side and data.small_share go together: how small, and for what share of the steps. "
                "Write both:  --set data.small_side=16 --set data.small_share=0.5"
            )
        return self


class Wrn(Settings):
    """The paper's wide residual network."""

    name: Literal["wrn"] = "wrn"
    # Below 8 torch 2.13 on a CPU corrupts memory in a strided 1x1 backward.
    filters: int = Field(default=32, ge=8)
    blocks: int = Field(default=4, gt=0)  # residual blocks per stage: 4 makes 28 layers
    stages: int | None = Field(default=None, gt=0)  # None = log2(side) - 2
    bn_decay: float = Field(default=0.999, ge=0.0, lt=1.0)  # of the running statistics, per step


class Small(Settings):
    """A small network for small images and short runs."""

    name: Literal["small"] = "small"
    filters: int = Field(default=32, gt=0)
    bn_decay: float = Field(default=0.95, ge=0.0, lt=1.0)  # short runs cannot wait for 0.999


class Fast(Settings):
    """A shallow, wide network that pools early: the most accuracy for an hour of a processor."""

    name: Literal["fast"] = "fast"
    filters: int = Field(default=32, ge=8)  # of a learned first layer; the last has eight times as many
    stem: Literal["learned", "cosines"] = "learned"  # cosines = a fixed first layer that decorrelates patches
    mirrored: bool = False  # evaluate and score the pool by an image and its mirror image: twice the work there
    bn_decay: float = Field(default=0.98, ge=0.0, lt=1.0)


class Own(Settings):
    """A network of the user's, passed to `train` in code. Nothing is imported from a config file."""

    name: Literal["own"] = "own"
    description: str = ""


class Optim(Settings):
    """The optimizer frame that every algorithm shares."""

    rule: Literal["adam", "muon"] = "adam"  # muon = for the kernels of convolutions; everything else moves by Adam
    lr: float = Field(default=0.002, gt=0.0)  # Paper: the learning rate is constant.
    kernel_lr: float = Field(default=0.03, gt=0.0)  # of Muon: the share of a freshly drawn kernel that one step changes
    weight_decay: float = Field(default=0.02, ge=0.0)  # of kernels, decoupled, times lr
    ema_decay: float = Field(default=0.999, ge=0.0, lt=1.0)  # of the teacher's weights, per step
    batch: int = Field(default=64, ge=2)  # labeled images per step; batch normalisation needs two
    unlabeled_ratio: int = Field(default=1, gt=0)  # unlabeled images per labeled one
    warmup: int = Field(default=0, ge=0)  # steps over which the rate rises to `lr`, again after a refresh
    decay: Literal["constant", "linear", "cosine"] = "constant"  # how the rate falls to zero over the whole run
    precision: Literal["float32", "bfloat16"] = "float32"  # bfloat16 = autocast, for GPUs


class Log(Settings):
    """How often the run is measured and stored."""

    every: int = Field(default=1_024, gt=0)  # steps; and the last one. Paper: every 1,024 steps it is evaluated.
    checkpoint: int = Field(default=4_096, gt=0)  # steps between stored states (and every few minutes)
    last: int = Field(default=20, gt=0)  # the result is the median of that many last evaluations

    def evaluations(self, end: int) -> int:
        """Return how often a run of `end` steps is measured."""
        return -(-end // self.every)


NETS: dict[str, type[Settings]] = {"wrn": Wrn, "small": Small, "fast": Fast, "own": Own}
# Settings that came after the first runs were stored, and what those runs did. At this value a digest does not see them,
# so that a run begun before they existed goes on.
ADDED: dict[str, dict[str, Any]] = {
    "data": {"strong_labels": 0.0, "small_side": None, "small_share": 0.0},
    "net": {"stem": "learned", "mirrored": False},
    "optim": {"unlabeled_ratio": 1, "warmup": 0, "decay": "constant", "rule": "adam", "kernel_lr": 0.03},
    "algorithm": {"align": "off", "align_decay": 0.99},
    "growth": {
        "policy": "count",
        "money": 0.0,
        "label_price": 1.0,
        "image_price": 0.05,
        "purchases": 8,
        "visible": None,
        "share": 1.0,
        "check": 0,
        "point": 0.0,
    },
}
CHOICES: dict[str, dict[str, Any]] = {"algorithm": ALGORITHMS, "net": NETS}  # settings that are a whole group

if TYPE_CHECKING:
    AnyAlgorithm = Algorithm
else:  # a new entry of the table is a new choice here by itself
    AnyAlgorithm = Annotated[reduce(or_, ALGORITHMS.values()), Field(discriminator="name")]


class Config(Settings):
    """A run: everything that its numbers depend on, but for the machine."""

    preset: str
    seed: int = Field(default=1, ge=0)
    data: Data
    net: Annotated[Wrn | Small | Fast | Own, Field(discriminator="name")]
    algorithm: AnyAlgorithm
    optim: Optim
    growth: Growth
    query: str  # "diff2.aug-direct", "random", ...; "passive" = the whole budget at the start
    log: Log = Log()

    @field_validator("query")
    @classmethod
    def _known_query(cls, name: str) -> str:
        return name if name == "passive" else str(Query.parse(name))

    @model_validator(mode="after")
    def _pool_holds_the_budget(self) -> Config:
        if self.data.total is not None and self.growth.budget > self.data.total:
            raise ValueError(f"growth.budget ({self.growth.budget}) is larger than data.total ({self.data.total})")
        return self

    @model_validator(mode="after")
    def _money_is_spent_over_time(self) -> Config:
        if self.passive and self.growth.for_money:
            raise ValueError(
                "query=passive draws everything at the start, so growth.policy has nothing to decide. Set a query, or "
                "growth.policy=count"
            )
        if self.data.total is not None and (self.growth.visible or 0) > self.data.total:
            raise ValueError(f"growth.visible ({self.growth.visible}) is larger than data.total ({self.data.total})")
        return self

    @model_validator(mode="after")
    def _mirror_images_are_trained_on(self) -> Config:
        if getattr(self.net, "mirrored", False) and not self.data.mirror:
            raise ValueError(
                "net.mirrored answers by mirror images too, but data.mirror=false trains on none. Write  "
                "--set net.mirrored=false  as well"
            )
        return self

    @property
    def passive(self) -> bool:
        """Whether the whole budget is drawn at the start."""
        return self.query == "passive"

    def digest(self) -> str:
        """Return a short name of this exact config."""
        unset = {
            group: {name for name, default in added.items() if getattr(getattr(self, group), name, default) == default}
            for group, added in ADDED.items()
        }
        return hashlib.blake2b(self.model_dump_json(exclude=unset).encode(), digest_size=16).hexdigest()


def from_json(text: str | dict[str, Any]) -> Config:
    """Read a config; an unknown or wrong setting is an error that names it."""
    data = json.loads(text) if isinstance(text, str) else dict(text)
    data.pop("format", None)
    try:
        return Config.model_validate_json(json.dumps(data))
    except ValidationError as error:
        raise ValueError(explain(error)) from None


def change(config: Config, settings: Sequence[str]) -> Config:
    """Apply `path=value` settings in order: change(config, ["growth.add=10", "algorithm=vat"])."""
    data = config.model_dump(mode="json")
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"--set {setting!r} has no '='. Write it as  --set path=value")
        put(data, path.strip(), parse_value(text.strip()))
    return from_json(data)


def parse_value(text: str) -> Any:
    """Read a value the way JSON does; anything else is a word."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def put(data: dict[str, Any], path: str, value: Any) -> None:
    """Set one value in a nested dict. A group takes a name: `algorithm=vat` means VAT with its own defaults."""
    known = set(paths(data))
    if path not in known | set(CHOICES):
        raise ValueError(unknown(path, known | set(CHOICES), data["preset"]))
    group = path.removesuffix(".name")
    if group in CHOICES:
        if not isinstance(value, str) or value not in CHOICES[group]:
            raise ValueError(f"{group}: there is no {value!r}. Choose one of: {', '.join(CHOICES[group])}.")
        data[group] = {"name": value, **CHOICES[group][value]().model_dump(mode="json")}
        return
    *parents, leaf = path.split(".")
    for parent in parents:
        data = data[parent]
    data[leaf] = value


def paths(data: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Name every setting: growth.add, optim.lr, ..."""
    for key, value in data.items():
        if isinstance(value, dict):
            yield from paths(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def unknown(path: str, known: set[str], preset: str) -> str:
    """Say that a setting does not exist, and which one was probably meant."""
    near = difflib.get_close_matches(path, known, n=1, cutoff=0.5)
    leaf = [name for name in sorted(known) if name.rsplit(".", 1)[-1] == path]
    meant = (leaf or near)[:1]
    hint = f" Did you mean '{meant[0]}'?" if meant else ""
    return f"no setting '{path}'.{hint}   mma show {preset}  lists them all."


def explain(error: ValidationError) -> str:
    """Name each wrong setting, what it holds and what it should hold."""
    lines = []
    for item in error.errors():
        where = ".".join(str(part) for part in item["loc"] if part not in ALGORITHMS and part not in NETS)
        message = item["msg"].removeprefix("Value error, ")
        given = f" (it is {json.dumps(item['input'])})" if where and not isinstance(item["input"], dict) else ""
        lines.append(f"{where}: {message}{given}" if where else message)
    return "; ".join(lines)
