"""Networks of texts from a local Hugging Face directory: classifiers, and decoders.

A classifier maps tokens to logits, a decoder a text to the loss of its next tokens.

transformers builds and reads them: from safetensors alone, without code of the directory's, and
without a download. Dropout is left out, which would draw random numbers.
"""

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.common.device import at_least_float32
from fedsim.learning.data import tokens
from fedsim.learning.training import pretrained, size_limit

ADAPTERS = "adapter_config.json"
"""A file that would have transformers take the network from where it says."""

VALUES = "model.safetensors"

NAME = "hugging-face"
"""What model.name calls them."""


class _OfTokens:
    """Maps token numbers [N, length] to logits [N, classes], padding left out of the attention."""

    config: Any

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits.

        x: float [N, length], as of `tokens.numbers`.
        """
        numbers = x.long()
        padding = (numbers == self.config.pad_token_id)[:, None, None, :]
        # Of four axes, since transformers looks into other masks, which no record's own gradient
        # (torch.func.vmap) allows.
        hidden = torch.zeros(padding.shape, device=x.device)
        hidden = hidden.masked_fill(padding, torch.finfo(hidden.dtype).min)
        found = super().forward(input_ids=numbers, attention_mask=hidden)  # type: ignore[misc]
        return found.logits


class _OfNextTokens:
    """Maps token numbers [N, length] to the loss and the score of the task "next-token", [N, 2]."""

    config: Any

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean loss of a text's next tokens, and the share that was the likeliest.

        x: float [N, length], as of `tokens.numbers`.
        """
        numbers = x.round().long().remainder(self.config.vocab_size)
        records, length = numbers.shape
        padding = numbers == self.config.pad_token_id
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        # Of four axes, as in `_OfTokens`.
        hidden = torch.zeros(records, 1, length, length, device=x.device)
        least = torch.finfo(hidden.dtype).min
        hidden = hidden.masked_fill(later | padding[:, None, None, :], least)
        places = torch.arange(length, device=x.device).expand(records, length)
        found = super().forward(  # type: ignore[misc]
            input_ids=numbers, attention_mask=hidden, position_ids=places, use_cache=False
        )
        # One of several trials, which share what comes before any parameter that is trained.
        logits = at_least_float32(found.logits[:, :-1])
        times = len(logits) // records
        targets, counted = numbers[:, 1:].repeat(times, 1), ~padding[:, 1:].repeat(times, 1)
        losses = functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
        right = logits.argmax(-1) == targets
        tokens = counted.sum(1).clamp(min=1)
        each = [(values * counted).sum(1) / tokens for values in (losses, right)]
        return torch.stack(each, dim=1)


def build(directory: str, length: int, classes: int, task: str = "classification") -> nn.Module:
    """Return a directory's network for a task; a head is drawn where it has none that fits.

    task: "classification" or "next-token".
    Raises InputError if there is none, of a kind without such a head, or damaged; or it takes
    fewer tokens.
    """
    if not directory:
        raise InputError(
            f"model.name is {NAME}, whose network lies in a directory: name it with model.weights"
        )
    settings, values = tokens.settings(directory), Path(directory) / VALUES
    if (Path(directory) / ADAPTERS).exists():
        raise InputError(f"'{directory}' has {ADAPTERS}, of another network: merge and save both")
    hugging_face = _library()
    try:
        # By name alone, so that code of the directory's own is not looked at.
        kind: Any = hugging_face.CONFIG_MAPPING[settings.get("model_type", "")]
        config = kind.from_dict(settings)
        if task == "classification":
            config.num_labels = classes
        most = getattr(config, "max_position_embeddings", length)
        if length > most:
            raise InputError(f"records have {length} tokens, but '{directory}' takes {most}")
        with size_limit.no_larger(pretrained.sizes(str(values)), str(values)):
            network: nn.Module = _taking_tokens(kind, task).from_pretrained(
                directory,
                config=config,
                dtype=torch.float32,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                ignore_mismatched_sizes=True,
                attn_implementation="eager",
            )
    except InputError:
        raise
    except (*reading.DAMAGE, ImportError) as error:
        reason = " ".join(str(error).split())[: reading.LONGEST_REASON]
        raise InputError(f"'{directory}' has no network of texts that fits: {reason}") from None
    for layer in network.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    return network


def files(network: nn.Module, directory: str) -> dict[str, bytes]:
    """Return what describes a network and its tokens, by file name; without its values.

    Raises OSError if the tokenizer cannot be read.
    """
    written: Any = network.config
    tokenizer = reading.content(Path(directory) / tokens.TOKENIZER, reading.MOST_JSON)
    return {tokens.CONFIG: written.to_json_string().encode(), tokens.TOKENIZER: tokenizer}


@cache
def _taking_tokens(kind: Any, task: str) -> Any:
    """Return the class of a kind of network for a task, which takes tokens alone."""
    from transformers.models.auto import modeling_auto  # noqa: PLC0415  (an extra)

    of: dict[str, tuple[Any, type, str]] = {
        "classification": (
            modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
            _OfTokens,
            "classifier of texts",
        ),
        "next-token": (modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING, _OfNextTokens, "decoder"),
    }
    kinds, head, what = of[task]
    if kind not in kinds:
        raise InputError(f"transformers has no {what} for a {kind.__name__}")
    return type(kinds[kind].__name__, (head, kinds[kind]), {})


@cache
def _library() -> Any:
    """Return transformers, which then says nothing of its own."""
    try:
        import transformers  # noqa: PLC0415  (an extra)
    except ImportError:
        needs = f"model.name is {NAME}, which needs transformers"
        raise InputError(f"{needs}: {tokens.EXTRA}") from None
    quiet: Any = transformers.logging
    quiet.set_verbosity_error()
    quiet.disable_progress_bar()
    return transformers
