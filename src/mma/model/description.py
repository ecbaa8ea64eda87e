"""model.json: everything about a model but its tensors. Nothing in it is believed before it is checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator

from mma.data.images import check_classes
from mma.errors import UserError
from mma.nets import NETS, Net
from mma.settings import Settings, chosen_from
from mma.shares import AuditRecord, Promise
from mma.text import update_hint

FORMAT = 1
DESCRIPTION, TENSORS = "model.json", "model.safetensors"
SIDE = Field(ge=1, le=1024)
WIDTH = 10_000_000  # numbers of a vector: more than any backbone has
LONGEST = 64 << 20  # bytes of model.json; a million names of classes are shorter

if TYPE_CHECKING:
    AnyNet = Net
else:
    AnyNet = Annotated[SerializeAsAny[Net], BeforeValidator(chosen_from(NETS, "mma.nets"))]


class PixelInput(Settings):
    """A network that sees pixels: images are squashed to its size, then scaled to -1..1."""

    kind: Literal["pixels"] = "pixels"
    height: int = SIDE
    width: int = SIDE
    channels: Literal[1, 3]
    resize: Literal["lanczos"] = "lanczos"  # antialiased, in whole numbers, as Pillow does it
    average_to: int | None = Field(default=None, ge=1)  # side to which the network's input is averaged down

    @property
    def shape(self) -> tuple[int, ...]:
        """What the network is built for."""
        return self.height, self.width, self.channels


class FeaturePart(Settings):
    """One frozen backbone, as `parse_backbone` reads it, and the digest that its weights and settings must have."""

    backbone: str
    digest: str = Field(pattern="^[0-9a-f]{64}$")
    side: int = SIDE  # images are squashed to this square
    width: int = Field(ge=1, le=WIDTH)  # numbers it returns
    kept: int | None = Field(default=None, ge=1, le=WIDTH)  # numbers left after a projection; None = there is none
    resize: Literal["bicubic"] = "bicubic"  # antialiased, in whole numbers, as torch does it


class FeatureInput(Settings):
    """A head that sees the vectors of one or several backbones.

    Each is rounded to float16, centred, scaled to length 1, and perhaps projected on a few directions.
    """

    kind: Literal["features"] = "features"
    parts: tuple[FeaturePart, ...] = Field(min_length=1)
    rounded: bool = False  # the result is rounded to float16 once more

    @property
    def shape(self) -> tuple[int, ...]:
        """What the network is built for."""
        return tuple(part.kept or part.width for part in self.parts)


class ModelAccuracy(Settings):
    """The share of right answers in percent, its 95 % interval, and what it was measured on."""

    percent: float = Field(ge=0, le=100)
    low: float = Field(ge=0, le=100)
    high: float = Field(ge=0, le=100)
    images: int = Field(ge=1)
    measured_on: str  # "90 test images of folder:mine", "64 audit labels, drawn at random and never trained on"
    crossed: bool = False  # by cross-validation on the labels it learned from: an estimate, no verdict


class About(Settings):
    """Where a model comes from: what its card says. All of it may be left out."""

    source: str = ""  # the run or the project it was made by
    step: int | None = None
    labels: dict[str, int] = Field(default={})  # class -> labels that it was trained with
    by: dict[str, int] = Field(default={})  # who gave them -> how many
    images: int | None = None  # in the pool, labeled or not
    data: str | None = None  # digest of the pool
    accuracy: ModelAccuracy | None = None
    per_class: dict[str, ModelAccuracy] = Field(default={})  # share of the images of a class that are recognised
    audit: AuditRecord | None = None
    promises: tuple[Promise, ...] = ()
    notes: tuple[str, ...] = ()


class ModelFile(Settings):
    """What model.json holds."""

    format: Literal[1] = 1
    classes: tuple[str, ...] = Field(min_length=1)
    input: PixelInput | FeatureInput = Field(discriminator="kind")
    net: AnyNet
    temperature: float = Field(default=1.0, gt=0.0, allow_inf_nan=False)  # logits are divided by it
    strange: float | None = None  # distance from all classes above which an image is unlike anything labeled
    about: About = About()
    sha256: str = Field(default="", pattern="^([0-9a-f]{64})?$")  # of model.safetensors

    @field_validator("classes")
    @classmethod
    def _names(cls, classes: tuple[str, ...]) -> tuple[str, ...]:
        check_classes(classes)
        return classes


class ServingFile(Settings):
    """models/serving.json of a project: which model it hands out, why, and how good that one is."""

    number: int
    use: Literal["live", "deep"] = "live"
    why: str = ""
    accuracy: ModelAccuracy | None = None
    per_class: dict[str, ModelAccuracy] = Field(default={})
    audit: AuditRecord | None = None
    promises: tuple[Promise, ...] = ()


class OnnxFile(Settings):
    """What an exported .onnx file says of itself."""

    format: Literal[1] = 1
    classes: tuple[str, ...] = Field(min_length=1)
    enough: int = Field(ge=1)  # pixels per side that a large JPEG is decoded with
    strange: float | None = None  # where there is one, the file has an output more: unlike anything labeled
    about: About = About()


def check_format(found: dict[str, Any], where: Path) -> None:
    """Refuse a model of a newer mma."""
    number = found.get("format")
    if isinstance(number, int) and not isinstance(number, bool) and number > FORMAT:
        raise UserError(
            f"{where} is a model of format {number}, and this mma reads format {FORMAT}. Get a newer mma:  {update_hint()}"
        )
