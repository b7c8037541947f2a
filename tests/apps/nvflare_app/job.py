"""NVFlare's hello-world in its simulator, with another privacy filter at every site, recorded.

    python job.py OUT          # OUT/site-1.fedt to OUT/site-5.fedt, for fedsim audit transcript

Five rounds of averaging; each filter clips and adds noise to what its own site sends.
"""

import sys
from pathlib import Path

import numpy as np
from filters import ClippedGaussian, GaussianPrivacy
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
from nvflare.app_common.filters.svt_privacy import SVTPrivacy
from nvflare.app_common.np.recipes.fedavg import NumpyFedAvgRecipe
from nvflare.recipe import SimEnv, set_per_site_config

from fedsim.recording import NVFlareFilter

ROUNDS = 5

NORM, STD = 0.5, 1.0
"""Five rounds at a noise multiplier of 2: epsilon 4.96 at delta 1e-5."""


def main(out: Path) -> None:
    """Run the job. out: folder for the transcripts and the simulator's workspace."""
    out.mkdir(parents=True, exist_ok=True)
    declared = {"clipping_norm": NORM, "noise_std": STD}
    path = str(out.absolute() / "{site}.fedt")
    recorded = {
        "site-1": NVFlareFilter(SVTPrivacy(epsilon=0.1), path),
        "site-2": NVFlareFilter(PercentilePrivacy(), path),
        "site-3": NVFlareFilter(GaussianPrivacy(), path),
        "site-4": NVFlareFilter(ClippedGaussian(NORM, STD), path, **declared),
        # Declares as much as the one before, and adds half of it.
        "site-5": NVFlareFilter(ClippedGaussian(NORM, STD / 2), path, **declared),
    }
    recipe = NumpyFedAvgRecipe(
        name="hello",
        model=np.zeros((65, 10)).tolist(),
        min_clients=len(recorded),
        num_rounds=ROUNDS,
        train_script=str(Path(__file__).with_name("client.py")),
        params_transfer_type="DIFF",
    )
    set_per_site_config(recipe, {site: {} for site in recorded})
    for site, privacy in recorded.items():
        recipe.add_client_output_filter(privacy, tasks=["train"], clients=[site])
    recipe.execute(SimEnv(clients=list(recorded), workspace_root=str(out / "workspace")))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
