"""A trained model in open files: its values in `model.safetensors`, the rest in `model.toml`."""

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
from fedsim.common.tables import TomlTable, explain
from fedsim.configuration.training import ModelConfig
from fedsim.learning.data import Dataset, arrays, own_records, tokens
from fedsim.learning.data import schema as schemas
from fedsim.learning.data.dataset import TargetRange, finite
from fedsim.learning.training import hugging_face, models, pretrained, size_limit, trainable
from fedsim.learning.training.predictions import PredictedValues
from fedsim.learning.training.tasks import task_of

VALUES, DESCRIPTION = "model.safetensors", "model.toml"

MOST_NUMBERS = 2**31
"""Largest number of numbers in a record; products of larger sizes overflow in PyTorch."""

AT_ONCE = 1024
"""Number of records that are predicted together."""

PUBLIC = "public"
"""Folder of a run with the files that may be shared: the model, its description and its card."""


class Network(TomlTable):
    """The keys of [model] that describe the network for `models.build`, with adapters merged in."""

    name: str
    hidden: Annotated[int, Field(ge=1)]
    batch_norm: str
    weights_sha256: str = ""
    trainable: str = ""
    lora_rank: int = 0
    task: str = "classification"


class Input(TomlTable):
    """The input and output of the network; one logit for two classes is the second's."""

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


class Description(TomlTable):
    """The content of `model.toml`, with the version of fedsim that wrote it."""

    format: Literal[1] = 1
    fedsim: str
    network: Network
    input: Input


def write_model(
    directory: Path,
    chosen: ModelConfig,
    public_schema: str,
    structure: nn.Module,
    dataset: Dataset,
    theta: Tensor,
) -> None:
    """Write a model's files, with its trained values theta, float32 [P]."""
    description = Description(
        fedsim=fedsim.__version__,
        network=Network(**{key: getattr(chosen, key) for key in Network.model_fields}),
        input=Input(
            shape=list(dataset.train.features.shape[1:]),
            classes=dataset.classes,
            features=list(dataset.attributes),
            data=dataset.name,
            target=[] if dataset.target is None else [dataset.target.least, dataset.target.largest],
            public_schema=public_schema,
        ),
    )
    # Put the trained values in, and merge adapters into their layers.
    model = copy.deepcopy(structure).cpu()
    trained = models.unflatten(theta.detach().cpu(), models.parameter_shapes(model))
    with torch.no_grad():
        for name, value in trained.items():
            model.get_parameter(name).copy_(value)
    values = trainable.merge(model).state_dict()
    contiguous = {name: value.contiguous().clone() for name, value in values.items()}
    place = directory / PUBLIC
    private_files.make_directory(place)
    if chosen.name == models.HUGGING_FACE:
        for name, content in hugging_face.files(structure, chosen.weights).items():
            private_files.write_private(place / name, content)
    private_files.write_private(place / VALUES, save(contiguous, {"format": "pt"}))
    text = tomli_w.dumps(description.model_dump(mode="json", by_alias=True))
    private_files.write_private(place / DESCRIPTION, text.encode())


def describe(directory: Path) -> Description:
    """Return the description in a directory's model.toml. Raises InputError if it is damaged."""
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
    """Return a trained model, of `own` code if named, that maps records to logits.

    Raises InputError if the directory is damaged, or needs code that is not named.
    """
    description, path = describe(directory), _place(directory) / VALUES
    network = description.network
    if own and not models.is_own_code(network.name):
        raise InputError(f"'{directory}' has the network {network.name}; leave model out")
    if own:
        network = network.model_copy(update={"name": own})
        description = description.model_copy(update={"network": network})
    if not path.exists():
        raise InputError(f"'{directory}' has no {VALUES}; restore it from a copy")
    shapes, where = pretrained.sizes(str(path)), str(path)
    with size_limit.no_larger(shapes, where):
        # First build it without memory for its values; the user's own code may not support that.
        if network.name != models.HUGGING_FACE and not models.is_own_code(network.name):
            with torch.device("meta"):
                size_limit.check_shapes(_built(description, path.parent), shapes, where)
        model = _built(description, path.parent)
    size_limit.check_shapes(model, shapes, where)
    model.load_state_dict(pretrained.values(where))
    return model.eval()


def _built(description: Description, place: Path) -> nn.Module:
    network, taken = description.network, description.input
    try:
        return models.build(
            network.name,
            tuple(taken.shape),
            taken.classes,
            network.hidden,
            batch_norm=network.batch_norm,
            # A network of texts is described by further files beside the values.
            weights=str(place) if network.name == models.HUGGING_FACE else "",
            task=network.task,
        )
    except (ValueError, TypeError, ArithmeticError, RuntimeError, MemoryError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"'{place / DESCRIPTION}' describes no network: {reading.reason(error)}; restore it "
            "from a copy"
        ) from None


def _place(directory: Path) -> Path:
    public = directory / PUBLIC
    return public if public.is_dir() else directory


def read_features(directory: Path, path: str) -> Tensor:
    """Return the features of records to predict, float32 [N, *shape].

    path: own records if the model has a schema, texts if it was trained on texts, else an .npz with
    `features` in the network's shape.
    Raises InputError for other records.
    """
    taken = describe(directory).input
    if taken.public_schema:
        schema, place = schemas.parse(taken.public_schema), str(_place(directory))
        return torch.tensor(own_records.records(path, schema, False, place).features)
    if taken.data == "texts" and Path(path).suffix != ".npz":
        return torch.tensor(tokens.read_texts(path, taken.shape[0], str(_place(directory))))
    try:
        features = arrays.arrays(Path(path)).get(arrays.FEATURES)
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror}") from None
    shape = tuple(taken.shape)
    if features is None or features.dtype.kind not in "buif" or features.shape[1:] != shape:
        raise InputError(
            f"'{path}' has no {arrays.FEATURES} of shape [N, {str(list(shape))[1:]}, which "
            f"this model takes; save them with numpy.savez(file, {arrays.FEATURES}=...)"
        )
    return torch.tensor(finite(features, Path(path)))


def class_names(taken: Input) -> list[str]:
    """Return the name of each class, or its number where a data set has no names."""
    if taken.public_schema:
        return list(schemas.parse(taken.public_schema).classes)
    return [str(number) for number in range(taken.classes)]


def predictions(directory: Path, features: Tensor, own: str = "") -> PredictedValues:
    """Return predictions of a directory's model, as `load`, for records of `read_features`.

    Raises InputError if the directory is damaged, or needs code that is not named.
    """
    taken = describe(directory).input
    shape = tuple(taken.shape)
    if features.shape[1:] != shape or not features.isfinite().all():
        raise InputError(
            f"records have shape {list(features.shape[1:])}, or numbers that are not finite; give "
            f"finite numbers of shape {list(shape)}, which this model takes"
        )
    model = load(directory, own)
    with torch.no_grad():
        outputs = torch.cat([model(each) for each in features.split(AT_ONCE)])
    meaning = TargetRange(*taken.target) if taken.target else class_names(taken)
    return task_of(model).predictions(model, outputs, features, meaning)
