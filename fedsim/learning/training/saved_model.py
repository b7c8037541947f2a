"""A trained model in open files: `model.safetensors` with its values, `model.toml` with the rest.

`model.toml` says which network it is and what its records look like; with both files anybody can
build it in plain PyTorch, and `load` does.
"""

import copy
import math
from pathlib import Path
from typing import Annotated, Literal, Self

import tomli_w
import torch
from pydantic import Field, ValidationError, model_validator
from safetensors.torch import save
from torch import Tensor, nn

import fedsim
from adversaries.errors import InputError
from fedsim.common import private_files, reading
from fedsim.common.tables import Table, explain
from fedsim.config.training import ModelConfig
from fedsim.learning.data import Dataset, own_records, texts
from fedsim.learning.data import schema as schemas
from fedsim.learning.data.loaders import npz
from fedsim.learning.data.loaders.dataset import finite
from fedsim.learning.data.loaders.targets import Target
from fedsim.learning.training import hugging_face, low_rank, models, pretrained, size_limit
from fedsim.learning.training.predictions import (
    Likelihoods,
    Meaning,
    Numbers,
    Predictions,
    likeliest,
)
from fedsim.learning.training.tasks import task_of

VALUES, DESCRIPTION = "model.safetensors", "model.toml"

MOST_NUMBERS = 2**31
"""Of one record; products of larger sizes wrap around in PyTorch."""

AT_ONCE = 1024
"""Records that are predicted together."""

PUBLIC = "public"
"""What of a run's directory may be handed on: the model, what describes it, and its card."""


class Network(Table):
    """The keys of [model] that say what the network is, as `models.build` takes them.

    Attributes:
        name: one of the models, a torchvision:NAME, or "package.module:name".
        hidden: width of the hidden layer.
        task: what it is for.
        batch_norm: what took the place of layers that mix records.
        frozen: what was not trained.
        weights_sha256: of the file that it started from, "" for none.
        trainable: what alone was trained, "" for all or for adapters alone.
        lora_rank: of the adapters that were trained, 0 for none; the values have them merged in.
    """

    name: str
    hidden: Annotated[int, Field(ge=1)]
    batch_norm: str
    frozen: str
    weights_sha256: str = ""
    trainable: str = ""
    lora_rank: int = 0
    task: str = "classification"


class Input(Table):
    """What the network takes.

    Attributes:
        shape: of one record.
        classes: how many there are, in the order of the logits; of two, one logit is the second's.
            1 of texts without labels.
        features: the name of each, empty for images.
        data: the name of the data set.
        target: least and largest value of the number that a regression predicts; none for others.
        public_schema: how clients' own records became features, as TOML; "" of a data set.
    """

    shape: list[Annotated[int, Field(ge=1)]]
    classes: Annotated[int, Field(ge=1)]
    features: list[str]
    data: str
    target: Annotated[list[float], Field(max_length=2)] = Field(default_factory=list)
    public_schema: str = ""

    @model_validator(mode="after")
    def _is_of_a_size(self) -> Self:
        if math.prod(self.shape) > MOST_NUMBERS:
            raise ValueError(f"a record of shape {self.shape} has more than {MOST_NUMBERS} numbers")
        return self


class Description(Table):
    """What `model.toml` holds.

    Attributes:
        format: of this file.
        fedsim: the version that wrote it.
        network: which one.
        input: what it takes.
    """

    format: Literal[1] = 1
    fedsim: str
    network: Network
    input: Input


def write(
    directory: Path,
    chosen: ModelConfig,
    public_schema: str,
    structure: nn.Module,
    dataset: Dataset,
    theta: Tensor,
) -> None:
    """Write a model's files.

    theta: float32 [P], the trained values.
    """
    description = Description(
        fedsim=fedsim.__version__,
        network=Network(
            name=chosen.name,
            hidden=chosen.hidden,
            batch_norm=chosen.batch_norm,
            frozen=chosen.frozen,
            weights_sha256=chosen.weights_sha256,
            trainable=chosen.trainable,
            lora_rank=chosen.lora_rank,
            task=chosen.task,
        ),
        input=Input(
            shape=list(dataset.train.features.shape[1:]),
            classes=dataset.classes,
            features=list(dataset.attributes),
            data=dataset.name,
            target=[] if dataset.target is None else [dataset.target.least, dataset.target.largest],
            public_schema=public_schema,
        ),
    )
    # The trained network, with its adapters merged into the layers that they are of.
    model = copy.deepcopy(structure).cpu()
    trained = models.unflatten(theta.detach().cpu(), models.parameter_shapes(model))
    with torch.no_grad():
        for name, value in trained.items():
            model.get_parameter(name).copy_(value)
    values = low_rank.merge(model).state_dict()
    contiguous = {name: value.contiguous().clone() for name, value in values.items()}
    place = directory / PUBLIC
    private_files.make_directory(place)
    if chosen.name == hugging_face.NAME:
        for name, content in hugging_face.files(structure, chosen.weights).items():
            private_files.write(place / name, content)
    private_files.write(place / VALUES, save(contiguous, {"format": "pt"}))
    text = tomli_w.dumps(description.model_dump(mode="json", by_alias=True))
    private_files.write(place / DESCRIPTION, text.encode())


def describe(directory: Path) -> Description:
    """Return what a directory's model.toml says.

    directory: of a run that trained a model, or what was handed on of it.
    Raises InputError if it is missing or damaged.
    """
    path = _place(directory) / DESCRIPTION
    try:
        return Description.model_validate(reading.toml(path))
    except FileNotFoundError:
        raise InputError(
            f"'{directory}' has no {DESCRIPTION}: name the directory of a finished fedsim train"
        ) from None
    except ValidationError as error:
        raise InputError(f"'{path}' is damaged: {explain(error)}; restore it from a copy") from None


def load(directory: Path, own: str = "") -> nn.Module:
    """Return a trained model, which maps records [N, *shape] to logits and is ready to predict.

    directory: of a run that trained it, or what was handed on of it.
    own: the name of code that builds the network, in place of the code that model.toml names.
    Raises InputError if its files are missing or damaged, or name code that nobody allowed here.
    """
    found, path = describe(directory), _place(directory) / VALUES
    if own and not models.is_own_code(found.network.name):
        raise InputError(f"'{directory}' has the network {found.network.name}; leave model out")
    if own:
        found = found.model_copy(update={"network": found.network.model_copy(update={"name": own})})
    if not path.exists():
        raise InputError(f"'{directory}' has no {VALUES}; restore it from a copy")
    shapes, where = pretrained.sizes(str(path)), str(path)
    with size_limit.no_larger(shapes, where):
        # First without memory for its values: code that was allowed here may not be made for that.
        if found.network.name != hugging_face.NAME and not models.is_own_code(found.network.name):
            with torch.device("meta"):
                size_limit.check(_built(found, path.parent), shapes, where)
        model = _built(found, path.parent)
    size_limit.check(model, shapes, where)
    model.load_state_dict(pretrained.values(where))
    return model.eval()


def _built(found: Description, place: Path) -> nn.Module:
    """Return the network that files in a directory describe, without its values. InputError."""
    network, taken = found.network, found.input
    try:
        return models.build(
            network.name,
            tuple(taken.shape),
            taken.classes,
            network.hidden,
            network.batch_norm,
            "" if network.lora_rank else network.frozen,  # which may name adapters
            # The network of texts is described by files of its own beside the values.
            models.Tuning(str(place) if network.name == hugging_face.NAME else ""),
            network.task,
        )
    except (ValueError, TypeError, ArithmeticError, RuntimeError, MemoryError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"'{place / DESCRIPTION}' describes no network: {reading.reason(error)}; restore it "
            "from a copy"
        ) from None


def _place(directory: Path) -> Path:
    """Return where the files lie, of a run's directory or of what was handed on of it."""
    public = directory / PUBLIC
    return public if public.is_dir() else directory


def read(directory: Path, path: str) -> Tensor:
    """Return the features of records that are to be predicted, float32 [N, *shape].

    directory: of the model, as of `load`.
    path: of the records; as of `own_records` where the model has a schema, else an .npz with
    `features` as the network takes them, or texts where it was trained on a file of them.
    Raises InputError if they are others.
    """
    taken = describe(directory).input
    if taken.public_schema:
        schema, place = schemas.parse(taken.public_schema), str(_place(directory))
        return torch.tensor(own_records.records(path, schema, False, place).features)
    if taken.data == "texts" and Path(path).suffix != ".npz":
        return torch.tensor(texts.read(path, taken.shape[0], str(_place(directory))))
    try:
        found = npz.arrays(Path(path)).get(own_records.FEATURES)
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror}") from None
    shape = tuple(taken.shape)
    if found is None or found.dtype.kind not in "buif" or found.shape[1:] != shape:
        raise InputError(
            f"'{path}' has no {own_records.FEATURES} of shape [N, {str(list(shape))[1:]}, which "
            f"this model takes; save them with numpy.savez(file, {own_records.FEATURES}=...)"
        )
    return torch.tensor(finite(found, Path(path)))


def class_names(taken: Input) -> list[str]:
    """Return the name of each class; its number where a data set has no names."""
    if taken.public_schema:
        return list(schemas.parse(taken.public_schema).classes)
    return [str(number) for number in range(taken.classes)]


def _meaning(taken: Input) -> Meaning:
    return Meaning(tuple(class_names(taken)), Target(*taken.target) if taken.target else None)


def predict(model: nn.Module, features: Tensor) -> tuple[Tensor, Tensor]:
    """Return the most likely class of each record, and how likely each class is.

    features: float32 [N, *shape].
    Returns: int64 [N], and probabilities float64 [N, classes].
    """
    with torch.no_grad():
        return likeliest(model(features))


def predictions(
    directory: Path, features: Tensor, own: str = ""
) -> Predictions | Likelihoods | Numbers:
    """Return what the model of a directory says of records.

    directory, own: as `load` takes them.
    features: float32 [N, *shape], as of `read`.
    Raises InputError as `load` does, and for records of another shape or not finite.
    """
    taken = describe(directory).input
    shape = tuple(taken.shape)
    if features.shape[1:] != shape or not features.isfinite().all():
        raise InputError(
            f"records have shape {list(features.shape[1:])}, or numbers that are not finite; this "
            f"model takes finite ones of shape {list(shape)}"
        )
    model = load(directory, own)
    with torch.no_grad():
        outputs = torch.cat([model(each) for each in features.split(AT_ONCE)])
    return task_of(model).predictions(model, outputs, features, _meaning(taken))
