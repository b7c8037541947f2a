"""Exit with 1 unless two runs have the same beliefs and models, to the last bit."""

import sys
from pathlib import Path

import numpy as np

first, second = (np.load(Path(run) / "transcript.npz") for run in sys.argv[1:3])
for name in ("worlds", "log_odds", "sensitivities", "final_models"):
    same = np.array_equal(first[name], second[name])
    print(f"{name} {first[name].shape}: {'the same bits' if same else 'DIFFERENT'}")
    if not same:
        sys.exit(1)
