"""Lets the tests import the recording federation that lies beside them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
