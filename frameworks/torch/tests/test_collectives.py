"""Every collective, on every type and operator, against what PyTorch computes from the inputs of all ranks, and against gloo where gloo
can. Every rank makes the inputs of all ranks, so that it knows the results."""
import torch
import torch.distributed as dist

import ranks

if ranks.VERSION >= (2, 1):  # before the ranks are forked: it takes seconds
    import torch.distributed._functional_collectives as f

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
COMPLEX = [torch.complex64, torch.complex128]
FLOAT8 = [t for t in (getattr(torch, name, None) for name in ("float8_e4m3fn", "float8_e5m2")) if t]
GLOO = {torch.float32, torch.float64, torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16}
OPS = ["SUM", "AVG", "PRODUCT", "MIN", "MAX"]


def make(rank, dtype, shape, low=-4, high=5):
    g = torch.Generator().manual_seed(1000 + rank)
    x = torch.randint(0 if dtype in (torch.uint8, torch.bool) else low, 2 if dtype == torch.bool else high, shape, generator=g)
    if dtype.is_complex:
        return torch.complex(x.double(), x.flip(0).double()).to(dtype)
    return (x.double() + (0.25 if dtype in FLOATS else 0)).to(dtype)


def reduced(op, dtype, inputs):
    if dtype == torch.bool:
        stack = torch.stack(inputs)
        return {"SUM": stack.any(0), "MAX": stack.any(0), "BOR": stack.any(0), "PRODUCT": stack.all(0), "MIN": stack.all(0), "BAND": stack.all(0),
                "BXOR": stack.sum(0) % 2 == 1}[op]
    wide = [x.to(torch.complex128 if dtype.is_complex else torch.int64 if dtype in INTEGERS else torch.float64) for x in inputs]
    total = wide[0].clone()
    for x in wide[1:]:
        total = {"SUM": total + x, "AVG": total + x, "PRODUCT": total * x, "MIN": torch.minimum(total, x) if op == "MIN" else None,
                 "MAX": torch.maximum(total, x) if op == "MAX" else None, "BAND": total & x if op == "BAND" else None,
                 "BOR": total | x if op == "BOR" else None, "BXOR": total ^ x if op == "BXOR" else None}[op]
    if op == "AVG":
        total = torch.div(total, len(inputs), rounding_mode="trunc") if dtype in INTEGERS else total / len(inputs)
    return total.to(dtype)


def same(got, wanted, what):
    assert got.dtype == wanted.dtype and got.shape == wanted.shape, f"{what}: {got.dtype} {got.shape}, wanted {wanted.dtype} {wanted.shape}"
    if got.dtype in FLOAT8:
        got, wanted = got.float(), wanted.float()
    tolerance = 1e-2 if got.dtype in (torch.float16, torch.bfloat16) else 1e-6
    if got.is_floating_point() or got.is_complex():
        assert torch.allclose(got, wanted, rtol=tolerance, atol=tolerance), f"{what}: {got} instead of {wanted}"
    else:
        assert torch.equal(got, wanted), f"{what}: {got} instead of {wanted}"


def combinations():
    for dtype in FLOATS + INTEGERS:
        for op in OPS:
            yield dtype, op
    for dtype in INTEGERS:
        for op in ("BAND", "BOR", "BXOR"):
            yield dtype, op
    for op in ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"):
        yield torch.bool, op
    for dtype in COMPLEX:
        for op in ("SUM", "AVG"):
            yield dtype, op
    for dtype in FLOAT8:
        for op in ("SUM", "MAX"):
            yield dtype, op


def operator(op):
    return getattr(dist.ReduceOp, op)


def strided(x):
    """The same numbers, not contiguous."""
    wide = torch.zeros(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


@ranks.case(2, 4)
def reductions_of_every_type_and_operator(rank, n):
    for dtype, op in combinations():
        inputs = [make(r, dtype, (3, 8)) for r in range(n)]
        wanted = reduced(op, dtype, inputs)
        for layout in (lambda x: x.clone(), strided):
            x = layout(inputs[rank])
            dist.all_reduce(x, operator(op))
            same(x, wanted, f"all_reduce {dtype} {op}")
        x = inputs[rank].clone()
        dist.reduce(x, n - 1, operator(op))
        if rank == n - 1:
            same(x, wanted, f"reduce {dtype} {op}")
        blocks = [[make(10 * r + b, dtype, (5,)) for b in range(n)] for r in range(n)]
        wanted = reduced(op, dtype, [blocks[r][rank] for r in range(n)])
        out = torch.empty(5, dtype=dtype)
        dist.reduce_scatter(out, [b.clone() for b in blocks[rank]], operator(op))
        same(out, wanted, f"reduce_scatter {dtype} {op}")
        scatter = getattr(dist, "reduce_scatter_tensor", None) or dist._reduce_scatter_base
        out = torch.empty(5, dtype=dtype)
        scatter(out, torch.cat(blocks[rank]), operator(op))
        same(out, wanted, f"reduce_scatter_tensor {dtype} {op}")


@ranks.case(2, 4)
def reductions_agree_with_gloo(rank, n):
    for dtype, op in combinations():
        if dtype not in GLOO or op == "AVG" or (op[0] == "B" and dtype not in INTEGERS):
            continue
        for shape in ((7,), (1000,), (300, 333)):
            mine = make(rank, dtype, shape, 1, 3)
            theirs = mine.clone()
            dist.all_reduce(mine, operator(op))
            dist.all_reduce(theirs, operator(op), group=ranks.gloo())
            same(mine, theirs, f"all_reduce {dtype} {op} {shape}")


@ranks.case(2, 4)
def movements_of_every_type(rank, n):
    gather_single = getattr(dist, "all_gather_into_tensor", None) or dist._all_gather_base
    for dtype in FLOATS + INTEGERS + COMPLEX + FLOAT8 + [torch.bool]:
        for layout in (lambda x: x.clone(), strided):
            inputs = [make(r, dtype, (3, 8)) for r in range(n)]
            mine = layout(inputs[rank])
            for root in range(n):
                x = layout(inputs[rank])
                dist.broadcast(x, root)
                same(x, inputs[root], f"broadcast {dtype}")
                outs = [layout(torch.zeros(3, 8).to(dtype)) for _ in range(n)] if rank == root else None
                dist.gather(mine, outs, root)
                for r in range(n if rank == root else 0):
                    same(outs[r], inputs[r], f"gather {dtype}")
                out = layout(torch.zeros(3, 8).to(dtype))
                dist.scatter(out, [layout(make(100 + r, dtype, (3, 8))) for r in range(n)] if rank == root else None, root)
                same(out, make(100 + rank, dtype, (3, 8)), f"scatter {dtype}")
            outs = [layout(torch.zeros(3, 8).to(dtype)) for _ in range(n)]
            dist.all_gather(outs, mine)
            for r in range(n):
                same(outs[r], inputs[r], f"all_gather {dtype}")
            out = torch.zeros(3 * n, 8).to(dtype)
            gather_single(out, inputs[rank])
            same(out, torch.cat(inputs), f"all_gather_into_tensor {dtype}")
            pieces = list(torch.zeros(3 * n, 8).to(dtype).chunk(n))
            dist.all_gather(pieces, mine)
            same(torch.cat(pieces), torch.cat(inputs), f"all_gather into neighbours {dtype}")


@ranks.case(2, 4)
def all_to_all_in_all_forms(rank, n):
    for dtype in FLOATS + INTEGERS + COMPLEX + FLOAT8 + [torch.bool]:
        table = [[make(10 * r + t, dtype, (2, 3)) for t in range(n)] for r in range(n)]
        wanted = [table[r][rank] for r in range(n)]
        out = torch.zeros(2 * n, 3).to(dtype)
        dist.all_to_all_single(out, torch.cat(table[rank]))
        same(out, torch.cat(wanted), f"all_to_all_single {dtype}")
        outs = [torch.zeros(2, 3).to(dtype) for _ in range(n)]
        dist.all_to_all(outs, [strided(x) for x in table[rank]])
        for r in range(n):
            same(outs[r], wanted[r], f"all_to_all {dtype}")
        # rank r sends r + t rows to rank t; 0 to 0 nothing
        uneven = [[make(10 * r + t, dtype, (r + t, 3)) for t in range(n)] for r in range(n)]
        out = torch.zeros(sum(r + rank for r in range(n)), 3).to(dtype)
        dist.all_to_all_single(out, torch.cat(uneven[rank]), [r + rank for r in range(n)], [rank + t for t in range(n)])
        same(out, torch.cat([uneven[r][rank] for r in range(n)]), f"all_to_all_single with splits {dtype}")
        outs = [torch.zeros(r + rank, 3).to(dtype) for r in range(n)]
        dist.all_to_all(outs, uneven[rank])
        same(torch.cat(outs), torch.cat([uneven[r][rank] for r in range(n)]), f"all_to_all of different sizes {dtype}")


@ranks.case(2, 4)
def coalesced_forms(rank, n):
    shapes = [(3,), (2, 5), (1000,), (0,)]
    inputs = [[make(10 * r + k, torch.float32, s) for k, s in enumerate(shapes)] for r in range(n)]
    tensors = [x.clone() for x in inputs[rank]]
    dist.all_reduce_coalesced(tensors)
    for k in range(len(shapes)):
        same(tensors[k], reduced("SUM", torch.float32, [inputs[r][k] for r in range(n)]), f"all_reduce_coalesced {k}")
    outs = [[torch.zeros(s) for s in shapes] for _ in range(n)]
    dist.all_gather_coalesced(outs, inputs[rank])
    for r in range(n):
        for k in range(len(shapes)):
            same(outs[r][k], inputs[r][k], f"all_gather_coalesced {r} {k}")
    if ranks.VERSION < (2, 1):
        return
    manager = dist.distributed_c10d._coalescing_manager
    outs = [torch.zeros(n * s[0], *s[1:]) for s in shapes]
    with manager(async_ops=True) as work:
        for out, x in zip(outs, inputs[rank]):
            dist.all_gather_into_tensor(out, x)
    work.wait()
    for k in range(len(shapes)):
        same(outs[k], torch.cat([inputs[r][k] for r in range(n)]), f"all_gather_into_tensor_coalesced {k}")
    outs = [torch.zeros(s) for s in shapes]
    with manager():
        for out, x in zip(outs, inputs[rank]):
            dist.reduce_scatter_tensor(out, torch.cat([x] * n), dist.ReduceOp.AVG)
    for k in range(len(shapes)):
        same(outs[k], reduced("AVG", torch.float32, [inputs[r][k] for r in range(n)]), f"reduce_scatter_tensor_coalesced {k}")
    tensors = [x.clone() for x in inputs[rank]]
    with manager():
        for x in tensors:
            dist.all_reduce(x)
    for k in range(len(shapes)):
        same(tensors[k], reduced("SUM", torch.float32, [inputs[r][k] for r in range(n)]), f"coalesced all_reduce {k}")


@ranks.case(2, 4)
def empty_and_scalar_tensors(rank, n):
    x = torch.zeros(0)
    dist.all_reduce(x)
    dist.broadcast(x, 0)
    dist.all_gather([torch.zeros(0) for _ in range(n)], x)
    dist.all_to_all_single(torch.zeros(0), x)
    x = torch.tensor(float(rank))
    dist.all_reduce(x)
    assert x.item() == sum(range(n)) and x.dim() == 0
    x = torch.ones(3, requires_grad=True)
    dist.all_reduce(x)
    assert x.tolist() == [n] * 3


@ranks.case(2, 4)
def sparse_all_reduce_adds(rank, n):
    i = torch.tensor([[0, rank + 1, 0], [2, 0, 2]])
    x = torch.sparse_coo_tensor(i, torch.tensor([1.0, 2.0, 3.0]) * (rank + 1), (n + 2, 3))
    wanted = sum(torch.sparse_coo_tensor(torch.tensor([[0, r + 1, 0], [2, 0, 2]]), torch.tensor([1.0, 2.0, 3.0]) * (r + 1), (n + 2, 3)).to_dense()
                 for r in range(n))
    dist.all_reduce(x)
    same(x.to_dense(), wanted, "sparse all_reduce")


@ranks.case(2, 4)
def work_overlaps_and_comes_in_order(rank, n):
    tensors = [torch.full((1000,), float(k)) for k in range(50)]
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    last = torch.ones(1)
    dist.all_reduce(last)  # behind the 50
    assert all(w.is_completed() for w in works) and last.item() == n
    for k, (x, w) in enumerate(zip(tensors, works)):
        assert w.wait() and x[0] == n * k
    future = dist.all_reduce(torch.ones(4), async_op=True).get_future().then(lambda f: f.value()[0] * 2)
    assert future.wait().tolist() == [2.0 * n] * 4
    number = dist.distributed_c10d._get_default_group()._get_sequence_number_for_group()
    dist.barrier()
    assert dist.distributed_c10d._get_default_group()._get_sequence_number_for_group() == number + 1


@ranks.case(2, 4)
def premultiplied_sums(rank, n):
    make_op = getattr(dist, "_make_nccl_premul_sum", None)
    if make_op is None:
        raise ranks.Skip("this PyTorch has no premultiplied sum")
    x = torch.full((5,), float(rank + 1))
    dist.all_reduce(x, make_op(0.5))
    assert x[0] == 0.5 * sum(range(1, n + 1)), x


@ranks.case(2)
def memory_that_comes_again_is_shared_until_it_is_freed(rank, n):
    import hocket.torch
    x = torch.ones(1 << 18)
    before = hocket.torch._C.shared_count()
    for _ in range(5):
        x.fill_(1)
        address = x.data_ptr()
        dist.all_reduce(x)
        assert x.data_ptr() == address and bool((x == n).all())
    assert hocket.torch._C.shared_count() == before + 1
    storage = x.untyped_storage() if hasattr(x, "untyped_storage") else x.storage()
    storage.resize_(0)
    assert hocket.torch._C.shared_count() == before
    y = torch.arange(1 << 18, dtype=torch.float32)
    assert hocket.torch.share(y) and hocket.torch._C.shared_count() == before + 1
    assert torch.equal(y, torch.arange(1 << 18, dtype=torch.float32))
    del y
    assert hocket.torch._C.shared_count() == before
    for k in range(20):  # memory that is new each time is left alone
        dist.all_reduce(torch.ones(1 << 18))
    assert hocket.torch._C.shared_count() == before
    z = hocket.torch.empty(4, 5, dtype=torch.float64)
    z += rank
    dist.all_reduce(z)
    assert z.shape == (4, 5) and z[3][4] == 1


@ranks.case(2, 4)
def groups_within_groups(rank, n):
    halves = [dist.new_group(list(range(0, n, 2))), dist.new_group(list(range(1, n, 2)))]
    x = torch.tensor([float(rank)])
    dist.all_reduce(x, group=halves[rank % 2])
    assert x.item() == sum(range(rank % 2, n, 2))
    if ranks.VERSION >= (2, 8) and n == 4:
        part = dist.split_group(split_ranks=[[0, 1], [2, 3]])
        x = torch.tensor([float(rank)])
        dist.all_reduce(x, group=part)
        assert x.item() == (1 if rank < 2 else 5) and dist.get_backend(part) == "hocket"


@ranks.case(2, 4)
def functional_collectives(rank, n):
    if ranks.VERSION < (2, 1):
        raise ranks.Skip("this PyTorch has no functional collectives")
    group = dist.group.WORLD
    x = torch.full((2 * n,), float(rank + 1))
    total = float(sum(range(1, n + 1)))
    assert (f.all_reduce(x, "sum", group) + 0)[0] == total
    assert (f.all_reduce(x, "avg", group) + 0)[0] == total / n
    assert (f.all_gather_tensor(x, 0, group) + 0).shape == (2 * n * n,)
    assert (f.reduce_scatter_tensor(x, "sum", 0, group) + 0).tolist() == [total] * 2
    assert (f.reduce_scatter_tensor(x, "avg", 0, group) + 0).tolist() == [total / n] * 2
    assert (f.all_to_all_single(x, None, None, group) + 0).tolist() == [float(r + 1) for r in range(n) for _ in range(2)]
    assert (f.broadcast(x, 0, group) + 0)[0] == 1
    a, b = f.all_reduce_coalesced([x, x * 2], "sum", group)
    assert (a + 0)[0] == total and (b + 0)[0] == 2 * total


@ranks.case(4)
def objects(rank, n):
    out = [None] * n
    dist.all_gather_object(out, {"rank": rank, "text": "x" * rank})
    assert out == [{"rank": r, "text": "x" * r} for r in range(n)]
    things = [f"thing {rank}", rank] if rank == 1 else [None, None]
    dist.broadcast_object_list(things, 1)
    assert things == ["thing 1", 1]
    one = [None]
    dist.scatter_object_list(one, [f"for {r}" for r in range(n)] if rank == 0 else None, 0)
    assert one == [f"for {rank}"]


if __name__ == "__main__":
    ranks.main()
