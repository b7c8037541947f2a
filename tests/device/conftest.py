"""Lets the tests import the cases that lie beside them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
