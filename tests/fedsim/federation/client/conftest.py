"""Lets the tests import the hostile requests that lie beside them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
