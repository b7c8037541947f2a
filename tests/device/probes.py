"""Tries out the accelerator, and parts of fedsim on it, and prints what happened as JSON.

python tests/device/probes.py
"""

import json
from functools import partial

import accelerator as device
import runs
import torch


def refusals():
    """Return what each mixture of CPU and device raises; "" if nothing."""
    here, there = torch.ones(2, 2), torch.ones(2, 2, device="gpu")
    mixtures = {
        "to NumPy": there.numpy,
        "sum": lambda: here + there,
        "product": lambda: there @ here,
        "joined": lambda: torch.cat([there, here]),
        "written in place": lambda: here.add_(there),
        "generator": lambda: torch.rand(2, generator=torch.Generator(), device="gpu"),
        "number": lambda: there + torch.tensor(2.0),
        "by way of a copy": lambda: here + there.cpu(),
    }
    return {name: _raised(run) for name, run in mixtures.items()}


def _raised(run):
    try:
        run()
    except (RuntimeError, TypeError) as error:
        return type(error).__name__
    return ""


def counts():
    """Return what a small computation costs: memory, kernels, waits and copies."""
    tally = device.start()
    begun = device.accelerator.memory_allocated()
    x = torch.ones(1000).to("gpu")  # 4,000 bytes in 4,096
    y = (x * 2).view(10, 100)
    del x
    found = bool((y > 1).all())
    held = device.accelerator.memory_allocated() - begun
    return {
        "value": found,
        "launches": tally.launches,
        "waits": [reason for reason, _ in tally.waits],
        "copied": dict(tally.copied),
        "held": held,
    }


def footprints():
    """Return measured over predicted bytes of a block of 200 trials and records of a network."""
    from fedsim.common.memory import peak_bytes  # noqa: PLC0415
    from fedsim.learning.training import clipped_block  # noqa: PLC0415
    from fedsim.learning.training.clipping import Clipper  # noqa: PLC0415
    from fedsim.learning.training.models import flatten  # noqa: PLC0415

    found = {}
    for features in (4, 64):
        model = torch.nn.Linear(features, 2).to("gpu")
        record, label = torch.ones(features).to("gpu"), torch.tensor(1).to("gpu")
        method = Clipper(model, 1.0)._method(record, label, "float32")
        block = partial(
            clipped_block.clipped_sum,
            method.gradients,
            1.0,
            flatten(model).expand(200, -1),
            record.expand(200, -1),
            label.expand(200),
        )
        measured = peak_bytes(block, record.device)
        found[str(features)] = measured / method.footprint.bytes(200, 200)
    return found


def first_models():
    """Return the kernels that each kind of agreed first model or target launches."""
    from fedsim.configuration import from_run_config  # noqa: PLC0415
    from fedsim.game import challenge, federation  # noqa: PLC0415

    small = {"data.records": 24, "data.held-out": 20, "data.pool": 30, "privacy.delta": 0.005}
    kinds = {
        "worst-case": {"challenge.kind": "clipbkd", "model.initialisation": "worst-case"},
        "clipbkd": {"challenge.kind": "clipbkd", "model.initialisation": "fixed"},
        "embedding": {"challenge.space": "embedding", "challenge.dissimilarity": "euclidean"},
    }
    found = {}
    for name, changes in kinds.items():
        tally = device.start()
        config = from_run_config(small | changes)
        known = federation.load(config)
        if name == "embedding":
            challenge.compared_features(config, known, known.split.pool_records.features)
        found[name] = [known.device.type, tally.launches]
    return found


def batches():
    """Return the trials of a batch of 10,000, of the size that memory allows, and of none."""
    from fedsim.configuration import from_run_config  # noqa: PLC0415
    from fedsim.federation.server import plan  # noqa: PLC0415

    found = {}
    for batch, memory in ((0, ""), (0, "256MiB"), (100, "")):
        changes = {"trials.count": 10_000, "trials.batch": batch, "run.max-memory": memory}
        fitted = plan.fit_batch(from_run_config({"privacy.delta": 0.001, **changes}))
        found[f"{batch} {memory}".strip()] = fitted.trials.batch
    return found


if __name__ == "__main__":
    runs.prepare()
    probes = (refusals, counts, footprints, first_models, batches)
    print(json.dumps({probe.__name__: probe() for probe in probes}))
