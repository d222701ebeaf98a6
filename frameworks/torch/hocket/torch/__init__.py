"""The hocket backend of torch.distributed.

    torch.distributed.init_process_group(backend="hocket")         or "cpu:hocket,cuda:nccl"

PyTorch 2.5 and later loads this by itself at `import torch`; before, a program says `import hocket.torch`.

Environment:
    HOCKET_TORCH_TAKE=gloo    a program that names gloo for CPU tensors, or no backend, gets hocket
    HOCKET_TORCH_REGISTER=0   memory that is used again and again is not made shared
    HKT_*                     what Hocket itself listens to (hkt-info lists it)

See docs/pytorch.md.
"""
import functools
import os

try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    raise ImportError(f"hocket.torch needs PyTorch, which cannot be imported here: {error}; "
                      "PyPI: pip install torch; Debian: apt-get install python3-torch") from error

_VERSION = tuple(int(n) for n in torch.__version__.split("+")[0].replace("a0", "").split(".")[:2])
_BUILD = "build it for this Python with: pip install --no-build-isolation ./frameworks/torch, or make -C frameworks/torch"

try:
    from . import _C
except ImportError as error:
    raise ImportError(f"hocket.torch: the plugin cannot be loaded: {error}; {_BUILD}") from error

if ".".join(_C.torch_version.split(".")[:2]) != ".".join(map(str, _VERSION)):
    raise ImportError(f"hocket.torch was built for PyTorch {_C.torch_version}, and this is {torch.__version__}; {_BUILD}")

__all__ = ["report", "share", "empty", "take", "int8_hook", "onebit_hook", "powersgd_hook", "codec_hook", "HookState"]


def _create(options, _backend_options=None):
    return _C.create(options.store, options.group_rank, options.group_size, options.timeout, f"group {options.group_id or 'default'}")


def _register():
    if hasattr(dist.Backend, "HOCKET"):
        return
    if _VERSION >= (2, 0):
        # cuda, too, so that "cuda:hocket" is answered by our sentence about CPU tensors; without a GPU not, for PyTorch then makes tensors of its
        # own there (ShardedTensor). Gloo and NCCL stay the defaults.
        devices = ["cpu", "cuda"] if torch.cuda.device_count() else ["cpu"]
        dist.Backend.register_backend("hocket", _create, extended_api=True, devices=devices)
    else:
        dist.Backend.register_backend("hocket", _create, extended_api=True)


def _renamed(backend, old):
    """"cpu:gloo,cuda:nccl" with gloo for the CPU, or for all, replaced."""
    if not isinstance(backend, str):
        return backend
    parts = []
    for part in backend.lower().split(","):
        device, colon, name = part.rpartition(":")
        parts.append(device + colon + ("hocket" if name == old and device in ("", "cpu") else name))
    return ",".join(parts)


def _renaming(function, position, old, nothing):
    @functools.wraps(function)
    def call(*args, **kwargs):
        args = list(args)
        if len(args) > position:
            args[position] = _renamed(args[position], old)
        elif kwargs.get("backend") is not None:
            kwargs["backend"] = _renamed(kwargs["backend"], old)
        elif nothing:
            kwargs["backend"] = nothing
        return function(*args, **kwargs)

    return call


def take(old="gloo"):
    """From now on `old` means hocket for CPU tensors in init_process_group() and new_group(); so does naming nothing.

    A renaming: groups are hocket's and say so; nothing pretends to be `old`. Call it before the first group is made."""
    c10d = dist.distributed_c10d
    devices = getattr(dist.Backend, "default_device_backend_map", None)
    nothing = None
    if devices is not None:
        if devices.get("cpu") == old:
            devices["cpu"] = "hocket"
    elif old == "gloo":
        nothing = "hocket"
    for name, position in (("init_process_group", 0), ("new_group", 2)):
        function = _renaming(getattr(c10d, name), position, old, nothing if position == 0 else None)
        for module in (c10d, dist):
            setattr(module, name, function)


def _backend(group):
    group = group or dist.distributed_c10d._get_default_group()
    return group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group


def report(group=None):
    """Who is where: a line for each rank of `group` with host, pid, number and name of its last collective, and which are missing."""
    return _C.report(_backend(group))


def share(tensor):
    """Makes the memory of a contiguous CPU tensor such that the other ranks read and write it in place: same address, same contents,
    until it is freed. False when it cannot be shared (memory that is mapped from a file, say). Nobody may write to it meanwhile.

    What is large and is given to collectives again and again is shared without being asked for."""
    return _C.share(tensor)


def empty(*sizes, dtype=None):
    """A tensor of zeros in memory that the other ranks read and write in place, from its first use on."""
    sizes = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    return _C.make_shared(list(sizes), dtype or torch.get_default_dtype())


def autoload():
    """PyTorch calls it at `import torch` (entry point torch.backends); what there is to do was done by the import."""


if dist.is_available():
    _register()
    if os.environ.get("HOCKET_TORCH_TAKE"):
        take(os.environ["HOCKET_TORCH_TAKE"].lower())

from .hooks import HookState, codec_hook, int8_hook, onebit_hook, powersgd_hook  # noqa: E402  (needs the plugin)
