"""Networks of texts from a local Hugging Face directory: classifiers, and decoders."""

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
"""A file that would make transformers load another network."""

VALUES = "model.safetensors"


class _OfTokens:
    """Maps token numbers [N, length] to logits [N, classes], with padding masked in attention."""

    config: Any

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of `tokens.numbers`, float [N, length]."""
        numbers = x.long()
        padding = (numbers == self.config.pad_token_id)[:, None, None, :]
        # A mask with four axes: transformers inspects masks with fewer, which torch.func.vmap
        # forbids.
        hidden = torch.zeros(padding.shape, device=x.device)
        hidden = hidden.masked_fill(padding, torch.finfo(hidden.dtype).min)
        output = super().forward(input_ids=numbers, attention_mask=hidden)  # type: ignore[misc]
        return output.logits


class _OfNextTokens:
    """Maps token numbers [N, length] to the loss and the score of the task "next-token", [N, 2]."""

    config: Any

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean loss of a text's next tokens, and the share of right ones."""
        numbers = x.round().long().remainder(self.config.vocab_size)
        records, length = numbers.shape
        padding = numbers == self.config.pad_token_id
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        # A mask with four axes, for the reason in `_OfTokens`.
        hidden = torch.zeros(records, 1, length, length, device=x.device)
        least = torch.finfo(hidden.dtype).min
        hidden = hidden.masked_fill(later | padding[:, None, None, :], least)
        places = torch.arange(length, device=x.device).expand(records, length)
        output = super().forward(  # type: ignore[misc]
            input_ids=numbers, attention_mask=hidden, position_ids=places, use_cache=False
        )
        # The logits may be of several trials, which share the layers before any trained parameter.
        logits = at_least_float32(output.logits[:, :-1])
        times = len(logits) // records
        targets, counted = numbers[:, 1:].repeat(times, 1), ~padding[:, 1:].repeat(times, 1)
        losses = functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
        right = logits.argmax(-1) == targets
        tokens = counted.sum(1).clamp(min=1)
        each = [(values * counted).sum(1) / tokens for values in (losses, right)]
        return torch.stack(each, dim=1)


def build(directory: str, length: int, classes: int, task: str = "classification") -> nn.Module:
    """Return a directory's network for a task; a head that does not fit is drawn anew.

    task: "classification" or "next-token".
    Raises InputError if the directory has no such network, or a damaged one, or if the network
    takes fewer tokens.
    """
    if not directory:
        raise InputError(
            "model.name is hugging-face, which reads a network from a directory; set "
            "model.weights to it"
        )
    settings, values = tokens.settings(directory), Path(directory) / VALUES
    if (Path(directory) / ADAPTERS).exists():
        raise InputError(
            f"'{directory}' has {ADAPTERS}, whose adapters belong to another network; merge them "
            "into that network, and save the result"
        )
    hugging_face = _library()
    try:
        # Look the class up by name, so that code in the directory is ignored.
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
        raise InputError(f"'{directory}' has no usable network for texts: {reason}") from None
    for layer in network.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    return network


def files(network: nn.Module, directory: str) -> dict[str, bytes]:
    """Return the files that describe a network and its tokens, by name, without its values."""
    config: Any = network.config
    tokenizer = reading.content(Path(directory) / tokens.TOKENIZER, reading.MOST_JSON)
    return {tokens.CONFIG: config.to_json_string().encode(), tokens.TOKENIZER: tokenizer}


@cache
def _taking_tokens(kind: Any, task: str) -> Any:
    """Return the class of a kind of network for a task, which takes tokens only."""
    from transformers.models.auto import modeling_auto  # noqa: PLC0415  (an extra)

    of: dict[str, tuple[Any, type, str]] = {
        "classification": (
            modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
            _OfTokens,
            "classifier of texts",
        ),
        "next-token": (modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING, _OfNextTokens, "decoder"),
    }
    kinds, head, title = of[task]
    if kind not in kinds:
        raise InputError(f"transformers has no {title} for a {kind.__name__}")
    return type(kinds[kind].__name__, (head, kinds[kind]), {})


@cache
def _library() -> Any:
    try:
        import transformers  # noqa: PLC0415  (an extra)
    except ImportError:
        needs = "model.name is hugging-face, which needs transformers"
        raise InputError(f"{needs}: {tokens.EXTRA}") from None
    quiet: Any = transformers.logging
    quiet.set_verbosity_error()
    quiet.disable_progress_bar()
    return transformers
