"""An accelerator in host memory, for machines without a GPU.

PyTorch has a key for devices of other makers, PrivateUse1. This module claims it in Python: tensors
of the device `gpu` are real tensors with autograd, views and torch.func. Their memory is that of
the host, but to reach it from the host without a copy fails as on CUDA:

- `.numpy()` and an operand on the CPU raise an error;
- every operator runs as the CPU's own kernel, so that results are those of the CPU;
- a `Tally` counts kernels, their bytes, and where the host waits for a value;
- memory is added up in blocks of 512 bytes, as CUDA's caching allocator does.

`install` claims the key, once a process. `read_cuda_as` then sends a package's own branches for
CUDA here.
"""

import ctypes
import importlib.abc
import importlib.machinery
import sys
from collections import Counter
from dataclasses import dataclass, field
from importlib.machinery import PathFinder, SourceFileLoader
from weakref import ref

import torch
from torch import Tensor
from torch.utils import backend_registration
from torch.utils._pytree import tree_leaves, tree_map

NAME = "gpu"
BLOCK = 512
CAPACITY = 80 * 2**30

WITHOUT_KERNEL = {
    *("as_strided", "view", "_unsafe_view", "_reshape_alias", "unfold", "alias", "detach", "set_"),
    *("view_as_real", "view_dtype", "_conj", "lift_fresh", "empty", "empty_strided", "resize_"),
}
"""Operators that only make or look at memory."""

WAITING = {
    *("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "bincount"),
    *("histc", "_unique2", "unique_dim", "unique_consecutive"),
}
"""Operators whose result, or its shape, the host must know before it goes on."""

INDEXING = {"index", "index_put_", "_index_put_impl_"}
"""Operators that take positions on the CPU, which CUDA copies first."""

RANDOM = ("rand", "normal", "uniform", "bernoulli", "multinomial", "exponential", "random_")


@dataclass
class Tally:
    """What the device did.

    Attributes:
        launches: kernels.
        bytes: that the kernels read and wrote.
        waits: how often the host waited for the device, by reason and line.
        mixes: operators that met a tensor on the CPU, by name and line.
        draws: operators that drew random numbers on the device, by name and line.
        copied: bytes, "to device" and "to host".
        peak: most bytes of memory at once.
    """

    launches: int = 0
    bytes: int = 0
    waits: Counter[tuple[str, str]] = field(default_factory=Counter)
    mixes: Counter[tuple[str, str]] = field(default_factory=Counter)
    draws: Counter[tuple[str, str]] = field(default_factory=Counter)
    copied: Counter[str] = field(default_factory=Counter)
    peak: int = 0


class _Accelerator(backend_registration._DummyBackendModule):
    """What `torch.gpu` is: memory, and the tally of the work so far."""

    def __init__(self):
        self.tally, self.watched = Tally(), ("fedsim", "adversaries")
        self.present = True
        self._alive: dict[int, object] = {}
        self._bytes = self._peak = 0

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(torch.cuda, name)  # types of errors

    def is_available(self):
        return self.present

    def memory_allocated(self, device=None):
        return self._bytes

    def max_memory_allocated(self, device=None):
        return self._peak

    def reset_peak_memory_stats(self, device=None):
        self._peak = self._bytes

    def mem_get_info(self, device=None):
        return CAPACITY - self._bytes, CAPACITY

    def synchronize(self, device=None):
        self.waited("synchronize")

    def empty_cache(self):
        pass

    def get_device_name(self, device=None):
        return "accelerator in host memory"

    def get_rng_state(self, device=None):
        return torch.get_rng_state()

    def set_rng_state(self, state, device=None):
        pass

    def get_amp_supported_dtype(self):
        return [torch.bfloat16]

    def waited(self, reason):
        """Count a wait of the host."""
        self.tally.waits[reason, self.line()] += 1

    def line(self):
        """Return the innermost line of the watched packages; "elsewhere" without one."""
        frame = sys._getframe()
        while frame is not None:
            name = frame.f_globals.get("__name__", "")
            if name.partition(".")[0] in self.watched:
                return f"{name}:{frame.f_lineno}"
            frame = frame.f_back
        return "elsewhere"

    def launched(self, name, read, written):
        """Count a kernel."""
        tensors = [x for x in (*read, *tree_leaves(written)) if isinstance(x, Tensor) and x.numel()]
        self.tally.launches += 1
        # What is expanded is read once.
        self.tally.bytes += sum(min(x.nbytes, x.untyped_storage().nbytes()) for x in tensors)
        if name.startswith(RANDOM):
            self.tally.draws[name, self.line()] += 1

    def allocated(self, tensor):
        """Count the memory of a fresh tensor for as long as it lives."""
        storage = tensor.untyped_storage()
        number, size = storage._cdata, -(-storage.nbytes() // BLOCK) * BLOCK
        if number in self._alive or not size:
            return

        def gone(_):
            self._bytes -= size
            del self._alive[number]

        self._alive[number] = ref(storage, gone)
        self._bytes += size
        self._peak = max(self._peak, self._bytes)
        self.tally.peak = max(self.tally.peak, self._bytes)


accelerator = _Accelerator()


def start():
    """Begin a new tally and return it."""
    accelerator.tally = Tally(peak=accelerator.memory_allocated())
    return accelerator.tally


# A tensor's other side: the same memory, with the other device in its DLPack capsule.

_CPU, _OTHER = 1, 12  # kDLCPU, kDLExtDev
_address = ctypes.pythonapi.PyCapsule_GetPointer
_address.restype, _address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _relabelled(tensor, kind):
    capsule = torch._C._to_dlpack(tensor)
    # After the pointer to the data come the device's kind and number, 32 bits each.
    device = (ctypes.c_int32 * 2).from_address(_address(capsule, b"dltensor") + 8)
    device[:] = kind, 0
    return torch._C._from_dlpack(capsule)


def _here(x):
    return isinstance(x, Tensor) and x.device.type == NAME


def _on_host(x):
    # An empty tensor has no memory to share, and may be about to be resized.
    return _relabelled(x, _CPU) if x.numel() else torch.empty(x.shape, dtype=x.dtype)


def _on_device(x):
    return _relabelled(x, _OTHER)


# Operators.


def _check(name, leaves):
    """Raise an error, as CUDA does, if what is on the CPU meets what is on the device."""
    if not any(map(_here, leaves)):
        return
    for x in leaves:
        if isinstance(x, Tensor) and not _here(x) and x.dim():
            if name in INDEXING and not x.is_floating_point() and x is not leaves[0]:
                accelerator.waited("positions copied from the host")
                continue
            accelerator.tally.mixes[name, accelerator.line()] += 1
            message = (
                "Expected all tensors to be on the same device, but found at least two devices"
            )
            raise RuntimeError(f"{message}, {NAME}:0 and cpu! ({name})")
        if isinstance(x, torch.Generator) and x.device.type != NAME:
            accelerator.tally.mixes[name, accelerator.line()] += 1
            raise RuntimeError(f"Expected a '{NAME}' device type for generator, found {x.device}")


def _shares(x, other):
    """Whether a tensor lies in another's memory."""
    mine, theirs = x.untyped_storage(), other.untyped_storage()
    return 0 <= mine.data_ptr() - theirs.data_ptr() < max(1, theirs.nbytes())


def _masks(positions):
    return any(x is not None and x.dtype == torch.bool for x in positions)


def _run(operator, *args, **kwargs):
    """Run any operator as the CPU's kernel: what PyTorch calls for all that is not below."""
    name = operator._schema.name.partition("::")[2]
    leaves = tree_leaves((args, kwargs))
    _check(name, leaves)
    if name in WAITING:
        accelerator.waited(name)
    if name.endswith(("index_put_", "index_put_impl_")) and args[2].numel() > 1 and _masks(args[1]):
        accelerator.waited("ones of a mask")
    views = {id(x): _on_host(x) for x in leaves if _here(x)}
    originals = {id(views[id(x)]): x for x in leaves if _here(x)}
    shapes = {number: view.shape for number, view in views.items()}

    def lowered(x):
        if isinstance(x, torch.device) and x.type == NAME:
            return torch.device("cpu")
        return views.get(id(x), x)

    # A number in a tensor's place arrives as a number.
    args = tuple(
        torch.tensor(x, dtype=torch.float64 if isinstance(x, float) else None)
        if isinstance(x, bool | int | float) and str(wanted.type) == "Tensor"
        else x
        for x, wanted in zip(args, operator._schema.arguments, strict=False)
    )
    result = operator(*tree_map(lowered, args), **tree_map(lowered, kwargs))
    if name not in WITHOUT_KERNEL:
        accelerator.launched(name, list(map(lowered, leaves)), result)
    for x in leaves:
        if _here(x) and views[id(x)].shape != shapes[id(x)]:  # an `out` that was resized
            accelerator.allocated(views[id(x)])
            x.data = _on_device(views[id(x)])

    def raised(x):
        if not isinstance(x, Tensor):
            return x
        if id(x) in originals:  # written in place
            return originals[id(x)]
        if not any(_shares(x, view) for view in views.values()):
            accelerator.allocated(x)
        return _on_device(x)

    return tree_map(raised, result)


def _copy(source, target, non_blocking=False):
    """Copy within the device, or from or to the host."""
    sides = [_on_host(x) if _here(x) else x for x in (source, target)]
    if _here(source) and _here(target):
        accelerator.launched("copy_", sides, ())
    else:
        way = "to host" if _here(source) else "to device"
        accelerator.tally.copied[way] += source.nbytes
        if not non_blocking or way == "to host":
            accelerator.waited(f"copy {way}")
    sides[1].copy_(sides[0])
    return target


def _copy_and_resize(source, target):
    return _copy(source, target.resize_(source.shape))


def _resize(x, size, memory_format=None):
    if list(x.shape) != list(size):
        x.data = torch.empty(size, dtype=x.dtype, device=x.device)
    return x


def _convolution(x, weight, bias, *settings):
    _check("convolution", [x, weight, bias])
    read = [each if each is None else _on_host(each) for each in (x, weight, bias)]
    result = torch.ops.aten.convolution(*read, *settings)
    accelerator.launched("convolution", read, result)
    accelerator.allocated(result)
    return _on_device(result)


def _convolution_backward(error, x, weight, *settings):
    _check("convolution_backward", [error, x, weight])
    read = [_on_host(each) for each in (error, x, weight)]
    *settings, mask = settings
    bias = [weight.shape[0]] if mask[2] else None
    gradients = torch.ops.aten.convolution_backward(*read, bias, *settings, mask)
    accelerator.launched("convolution_backward", read, gradients)
    for each in gradients:
        if each is not None:
            accelerator.allocated(each)
    return tuple(None if each is None else _on_device(each) for each in gradients)


HALVED = ("linear", "matmul", "mm", "addmm", "bmm", "baddbmm", "conv1d", "conv2d", "conv3d")
"""Operators that autocast computes in bfloat16, as on CUDA."""


def _halved(operator):
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)

    def cast(x):
        return x.to(torch.bfloat16) if _here(x) and x.dtype == torch.float32 else x

    def run(*args, **kwargs):
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return operator(*tree_map(cast, args), **tree_map(cast, kwargs))

    return run


_registered = []


def _register(key, fallback, operators):
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(fallback, key)
    own = torch.library.Library("aten", "IMPL", key)
    for name, run in operators.items():
        own.impl(name, run)
    _registered.extend([everything, own])


def install():
    """Make the device known to PyTorch and return it."""
    if not _registered:
        backend_registration._setup_privateuseone_for_python_backend(NAME, accelerator)
        own = {
            "_copy_from": _copy,
            "_copy_from_and_resize": _copy_and_resize,
            "resize_": _resize,
            "convolution_overrideable": _convolution,
            "convolution_backward_overrideable": _convolution_backward,
        }
        _register("PrivateUse1", _run, own)
        # So that tied parameters stay tied when a module moves, as they do on CUDA.
        torch.__future__.set_swap_module_params_on_conversion(True)
        halved = {name: _halved(getattr(torch.ops.aten, name).default) for name in HALVED}
        _register("AutocastPrivateUse1", torch.library.fallthrough_kernel, halved)
    return torch.device(NAME)


class _Loader(SourceFileLoader):
    """Compiles a module with this device's name in the place of CUDA's."""

    def get_code(self, fullname):
        path = self.get_filename(fullname)
        source = self.get_data(path).decode()
        renamed = source.replace('"cuda"', f'"{NAME}"').replace("torch.cuda.", f"torch.{NAME}.")
        if renamed == source:
            return super().get_code(fullname)
        return compile(renamed, path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of one package, each with a `_Loader`."""

    def __init__(self, package):
        self.package = package

    def find_spec(self, fullname, path, target=None):
        if fullname.partition(".")[0] != self.package:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def read_cuda_as(package):
    """Import a package from now on with "cuda" read as this device's name.

    Raises RuntimeError if a part of it is imported already.
    """
    if package in sys.modules:
        raise RuntimeError(f"{package} was imported before its branches for CUDA could be renamed")
    sys.meta_path.insert(0, _Finder(package))
