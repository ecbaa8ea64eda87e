"""The whole description of a run, as one frozen value: JSON both ways, an unknown key is an error."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError, field_validator, model_validator

from mma.algorithms import ALGORITHMS, Algorithm
from mma.errors import UserError
from mma.extensions import load_plugin
from mma.growth import POLICIES, Growth
from mma.nets import NETS, Net
from mma.query import Query
from mma.run import Run
from mma.settings import Settings, chosen_from, explain, no_entry
from mma.text import did_you_mean
from mma.views import VIEWS, ViewSettings


class Data(Settings):
    """Which images, and how many of them."""

    name: str  # a name from `mma data list`, or folder:NAME
    total: int | None = Field(default=None, gt=0)  # images in the pool, labeled or not; None = all
    validation: int = Field(default=0, ge=0)  # images held out of the pool and tested on instead of the test set


class Optim(Settings):
    """The optimizer settings that every algorithm shares."""

    rule: Literal["adam", "muon"] = "adam"  # muon = for the kernels of convolutions; everything else moves by Adam
    lr: float = Field(default=0.002, gt=0.0)  # Paper: the learning rate is constant.
    kernel_lr: float = Field(default=0.03, gt=0.0)  # of Muon: the share of a freshly drawn kernel that one step changes
    weight_decay: float = Field(default=0.02, ge=0.0)  # of kernels, decoupled, times lr
    ema_decay: float = Field(default=0.999, ge=0.0, lt=1.0)  # of the teacher's weights, per step
    batch: int = Field(default=64, ge=2)  # labeled images per step; batch normalisation needs two
    unlabeled_ratio: int = Field(default=1, gt=0)  # unlabeled images per labeled one
    warmup: int = Field(default=0, ge=0)  # steps over which the learning rate rises to `lr`, again after a refresh
    decay: Literal["constant", "linear"] = "constant"  # how the learning rate falls to zero over the whole run
    # Networks multiply in bfloat16, everything that is trained stays float32; auto = where the processor has bfloat16.
    precision: Literal["float32", "bfloat16", "auto"] = "float32"


class Log(Settings):
    """How often the run is evaluated and stored."""

    every: int = Field(default=1_024, gt=0)  # steps; and the last one. Paper: every 1,024 steps it is evaluated.
    checkpoint: int = Field(default=4_096, gt=0)  # steps between stored states (and every few minutes)
    last: int = Field(default=20, gt=0)  # evaluations that the paper's median is taken over

    def evaluations(self, end: int) -> int:
        """Return how often a run of `end` steps is evaluated."""
        return -(-end // self.every)


CHOICES: dict[str, Mapping[str, type[Settings]]] = {"views": VIEWS, "net": NETS, "algorithm": ALGORITHMS}
CHOICES |= {"growth.policy": POLICIES}
PLUGINS = {"net": "mma.nets", "algorithm": "mma.algorithms"}  # groups of entry points

if TYPE_CHECKING:
    AnyAlgorithm = Algorithm
    AnyNet = Net
    AnyViews = ViewSettings
else:  # an entry that is added to a table, also by user code, is a choice from then on
    AnyAlgorithm = Annotated[SerializeAsAny[Algorithm], BeforeValidator(chosen_from(ALGORITHMS, PLUGINS["algorithm"]))]
    AnyNet = Annotated[SerializeAsAny[Net], BeforeValidator(chosen_from(NETS, PLUGINS["net"]))]
    AnyViews = Annotated[SerializeAsAny[ViewSettings], BeforeValidator(chosen_from(VIEWS))]


class Config(Settings):
    """A run: everything that its numbers depend on, but for the machine. Frozen; `mma.change` returns another one.

    Parameters
    ----------
    preset : str
        The preset that it came from; for people only.
    seed : int
        All randomness of a run is a function of it. Default: 1.
    data, views, net, algorithm, optim, growth, log : settings
        The groups that `mma show PRESET` lists, each with its own fields.
    query : str
        What is asked about, for example "diff2.aug-direct" or "auto"; without effect where growth.policy=passive.

    Examples
    --------
    >>> config = mma.preset("digits")
    >>> config.algorithm.name, config.growth.budget
    ('mixmatch', 60)
    """

    preset: str
    seed: int = Field(default=1, ge=0)
    data: Data
    views: AnyViews
    net: AnyNet
    algorithm: AnyAlgorithm
    optim: Optim
    growth: Growth
    query: str
    log: Log = Log()

    @field_validator("query")
    @classmethod
    def _known_query(cls, name: str) -> str:
        if name == "passive":
            raise UserError("a passive run asks for nothing: write  --set growth.policy=passive  instead")
        return str(Query.parse(name))

    @model_validator(mode="after")
    def _groups_go_together(self) -> Config:
        total, query = self.data.total, Query.parse(self.query)
        asked = {"growth.budget": self.growth.budget, "growth.policy.initial_pool": self.growth.initial_pool or 0}
        for name, count in asked.items():
            if total is not None and count > total:
                raise UserError(f"{name} ({count}) is larger than data.total ({total})")
        if self.growth.start_set == "query" and not (self.views.kind == "features" and query.before_model):
            raise UserError(
                f"growth.start_set=query: the query {query} cannot choose before there is a model that shows images to it. It "
                "takes views=features and a query such as herding, typiclust or auto; or use growth.start_set=coverage"
            )
        if self.net.takes != self.views.kind:
            fitting = [name for name, net in NETS.items() if net.takes == self.views.kind]
            raise UserError(
                f"net={self.net.name} takes {self.net.takes}, but views={self.views.name} shows {self.views.kind}. Use  --set "
                f"net=NAME  with one of: {', '.join(fitting)}"
            )
        if getattr(self.net, "mirrored", False) and not self.views.mirror:
            raise UserError(
                "net.mirrored answers by mirror images too, but views.mirror=false trains on none. Write  "
                "--set net.mirrored=false  as well"
            )
        return self

    def digest(self) -> str:
        """Return a short name of this exact config."""
        return hashlib.blake2b(self.model_dump_json().encode(), digest_size=16).hexdigest()


def from_json(text: str | dict[str, Any]) -> Config:
    """Read a config; an unknown or wrong setting is an error that names it."""
    data = json.loads(text) if isinstance(text, str) else dict(text)
    data.pop("format", None)
    try:
        return Config.model_validate_json(json.dumps(data))
    except ValidationError as error:
        raise UserError(explain(error)) from None


def config_of(run: Run) -> Config:
    """Read the config of a run; one that is damaged is named by its file."""
    text = run.config()  # outside of the try: a process lost meanwhile is no damage of the file
    try:
        return from_json(text)
    except UserError as error:
        raise UserError(f"{run.folder}/config.json: {error}") from None


def change(config: Config, settings: Sequence[str] | str) -> Config:
    """Return a config with other settings.

    Parameters
    ----------
    config : Config
        Is not changed.
    settings : str or sequence of str
        Each `path=value`. A group that is chosen by name brings its own defaults and stands before its fields; an
        algorithm's ramp is cut to fit the run's length.

    Examples
    --------
    >>> vat = mma.change(mma.preset("digits"), ["growth.add=10", "algorithm=vat", "algorithm.weight=0.5"])
    >>> vat.algorithm.weight
    0.5
    """
    data = config.model_dump(mode="json")
    given = []
    for setting in [settings] if isinstance(settings, str) else settings:
        path, equals, text = (part.strip() for part in setting.partition("="))
        if not equals:
            raise UserError(f"--set {setting!r} has no '='. Write it as  --set path=value")
        path = path.removesuffix(".name") if path.removesuffix(".name") in CHOICES else path
        given.append((path, parse_value(text)))
    for path, value in sorted(given, key=lambda item: item[0] not in CHOICES):  # stable: otherwise in order
        put(data, path, value)
    new = from_json(data)
    if new.algorithm.name == config.algorithm.name or any(path == "algorithm.ramp" for path, _ in given):
        return new
    return new.model_copy(update={"algorithm": new.algorithm.for_length(new.growth.steps)})


def parse_value(text: str) -> Any:
    """Read a value the way JSON does; anything else is a word."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def put(data: dict[str, Any], path: str, value: Any) -> None:
    """Set one value in a nested dict. A group takes a name: `algorithm=vat` means VAT with its own defaults."""
    every = {*paths(data), *CHOICES}
    if path not in every:
        group, _, leaf = path.rpartition(".")
        same_leaf = [name for name in sorted(every) if name.rsplit(".", 1)[-1] == path]
        owners = [f"{group}={name}" for name, kind in CHOICES.get(group, {}).items() if leaf in kind.model_fields]
        hint = f" It belongs to {' or '.join(owners)}: set that first." if owners else did_you_mean(path, every)
        hint = f" Did you mean '{same_leaf[0]}'?" if same_leaf else hint
        raise UserError(f"no setting '{path}'.{hint}   mma show {data['preset']}  lists them all.")
    *parents, leaf = path.split(".")
    for parent in parents:
        data = data[parent]
    if path not in CHOICES:
        data[leaf] = value
        return
    table = CHOICES[path]
    if path in PLUGINS:
        load_plugin(PLUGINS[path], str(value), table)
    if not isinstance(value, str) or value not in table:
        raise UserError(f"{path}: {no_entry(value, table)}.")
    if value != data[leaf]["name"]:  # the one it is already keeps its settings
        data[leaf] = {"name": value, **table[value]().model_dump(mode="json")}


def paths(data: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Name every setting: growth.add, optim.lr, ..."""
    for key, value in data.items():
        if isinstance(value, dict):
            yield from paths(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"
