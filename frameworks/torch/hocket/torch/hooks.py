"""Hocket's codecs as communication hooks of DistributedDataParallel.

    state = hocket.torch.HookState()
    ddp.register_comm_hook(state, hocket.torch.int8_hook)

Gradients of type float32 are averaged through the codec, with the error feedback that it wants; others are averaged as they are. The
state has state_dict() and load_state_dict(), which a checkpoint of the rank has to hold.
"""
import torch
import torch.distributed as dist

from . import _C


class HookState:
    """What a hook keeps between steps: a compressor for each bucket, with its error feedback.

    group      the process group; None: the default one.
    codec      a codec of Hocket with its options, "qsgd:bits=4,block=512"; None: the hook's.
    seed       of codecs that round by chance; the same on every rank.
    start      steps in which gradients are averaged as they are, before the codec begins. Two at least: DDP makes its buckets anew after
               the first.
    """

    def __init__(self, group=None, codec=None, seed=0, start=2):
        self.group, self.codec, self.seed, self.start = group, codec, seed, max(start, 2)
        self.steps = 0
        self._numbers = {}      # of parameters, by identity: in the order in which they came first
        self._compressors = {}  # by bucket: compressor, layout
        self._loaded = {}       # by bucket: what was saved of those that have not come since
        self._held = []         # bucket, future: of this step, which do not lie as what was saved

    def _backend(self):
        group = self.group or dist.distributed_c10d._get_default_group()
        return group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group

    def _layout(self, bucket):
        """Number and elements of each parameter of the bucket, as they lie in it. Numbers are the same in each run of a model."""
        return [(self._numbers.setdefault(id(p), len(self._numbers)), p.numel()) for p in bucket.parameters()]

    def _compressor(self, index, layout, gradients):
        held = self._compressors.get(index)
        if held is None or held[1] != layout:
            count = sum(elements for _, elements in layout)
            shapes = _matrices(gradients) if self.codec.split(":")[0] == "powersgd" else []
            held = (_C.Compressor(self._backend(), self.codec, count, self.seed + index, -1, shapes), layout)
            self._compressors[index] = held
            saved = self._loaded.pop(index, None)
            if saved is not None:
                held[0].load(saved["state"])
        return held[0]

    def _average(self, bucket):
        """A future of the bucket's average through the codec."""
        index, layout = bucket.index(), self._layout(bucket)
        if not self._loaded or self._loaded.get(index, {}).get("layout") == layout:
            work = self._compressor(index, layout, bucket.gradients()).all_reduce(bucket.buffer(), True)
            future = work.get_future().then(lambda done: done.value()[0])
        else:
            future = torch.futures.Future()
            self._held.append((bucket, future))
        if bucket.is_last() and self._held:
            self._average_held()
        return future

    def _average_held(self):
        """In its first step DDP cuts its buckets in another way than later, and what was saved belongs to the later ones: for that step the
        gradients are brought there and back."""
        found = {number: gradient for bucket, _ in self._held for (number, _), gradient in zip(self._layout(bucket), bucket.gradients())}
        for index in sorted(self._loaded):
            layout = self._loaded[index]["layout"]
            if any(number not in found or found[number].numel() != elements for number, elements in layout):
                raise ValueError(f"HookState: the state that was loaded has a bucket {index} whose parameters this model does not have; "
                                 "a state belongs to one model, rank and number of ranks")
            gradients = [found.pop(number) for number, _ in layout]
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
            self._compressor(index, layout, gradients).all_reduce(flat, True).wait()
            for gradient, part in zip(gradients, flat.split([elements for _, elements in layout])):
                gradient.copy_(part.view_as(gradient))
        if found:
            raise ValueError(f"HookState: the state that was loaded lacks {len(found)} parameters of this model")
        held, self._held = self._held, []
        for bucket, future in held:
            future.set_result(bucket.buffer())

    def state_dict(self):
        """Of this rank; load it on the same rank of as many."""
        buckets = {index: {"layout": layout, "state": compressor.save()} for index, (compressor, layout) in self._compressors.items()}
        return {"codec": self.codec, "seed": self.seed, "start": self.start, "steps": self.steps, "buckets": {**self._loaded, **buckets}}

    def load_state_dict(self, state):
        """Takes effect bucket by bucket, as they come."""
        self.codec, self.seed, self.start, self.steps = state["codec"], state["seed"], state["start"], state["steps"]
        self._loaded = dict(state["buckets"])
        self._compressors = {}

    def stats(self):
        """For each bucket: calls, faults, ratio (fp32 bytes to bytes of code), code_s and wire_s (seconds in all), and, after 8 calls,
        plain_s and coded_s: what a call takes without and with the codec."""
        return {index: held[0].stats() for index, held in self._compressors.items()}

    def fault(self):
        """"element 17 of rank 2 is NaN", of a gradient of the last step; "" when all were finite."""
        return "; ".join(text for text in (held[0].fault() for held in self._compressors.values()) if text)


def _matrices(gradients):
    """Rows and columns of each, in their order; 0 columns: a vector."""
    shapes = []
    for gradient in gradients:
        rows = gradient.shape[0] if gradient.dim() else 1
        shapes.append((rows, gradient.numel() // rows) if gradient.dim() > 1 else (gradient.numel(), 0))
    return shapes


def _plain(state, bucket):
    group = state.group or dist.group.WORLD
    tensor = bucket.buffer()
    try:
        work = dist.all_reduce(tensor, op=dist.ReduceOp.AVG, group=group, async_op=True)
    except (RuntimeError, ValueError):  # a version, or a type, that has no average
        work = dist.all_reduce(tensor.div_(group.size()), group=group, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def codec_hook(state, bucket):
    """Through state.codec."""
    if state.codec is None:
        raise ValueError("codec_hook: HookState(codec=...) names no codec")
    step = state.steps
    if bucket.is_last():
        state.steps += 1
    if step < state.start or bucket.buffer().dtype != torch.float32:
        state._layout(bucket)  # numbers the parameters
        return _plain(state, bucket)
    return state._average(bucket)


def _named(state, bucket, codec):
    if state is None:
        raise ValueError("the hook needs a state: ddp.register_comm_hook(hocket.torch.HookState(), hook)")
    state.codec = state.codec or codec
    return codec_hook(state, bucket)


def int8_hook(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """8 bits an element and a scale a block: a quarter of the bytes, losses as without."""
    return _named(state, bucket, "int8")


def onebit_hook(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The sign of each element and two means a block, with error feedback: a 30th of the bytes (Seide et al. 2014)."""
    return _named(state, bucket, "onebit")


def powersgd_hook(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Factors of the gradients' matrices, with error feedback (Vogels et al. 2019). HookState(codec="powersgd:rank=4") sets the rank."""
    return _named(state, bucket, "powersgd")
