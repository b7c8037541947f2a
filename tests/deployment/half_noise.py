"""What a client may do to its own machine: messages get half of the noise.

As sitecustomize.py on the PYTHONPATH of its node, where Python imports it before all else.
"""

import importlib.util
import sys
from importlib.abc import MetaPathFinder

NODE = "fedsim.federation.client.training_node"


class _Halving(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != NODE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def and_halve(module):
            execute(module)
            really = module._noise
            module._noise = lambda *given: really(*given) / 2

        spec.loader.exec_module = and_halve
        return spec


sys.meta_path.insert(0, _Halving())
