"""The configuration of one training on real people, of which every kit's server gets a copy."""

from pathlib import Path

NAME = "deployment.toml"

PACKED = f"fedsim/deployment/{NAME}"
"""Where a wheel has it; pyproject.toml says the same to the builder of wheels."""


def content() -> bytes:
    """Return the file: from where it was installed to or, in a checkout, from configs/."""
    installed = Path(__file__).with_name(NAME)
    source = Path(__file__).parents[2] / "configs" / NAME
    return (installed if installed.exists() else source).read_bytes()
