"""Send and receive: by tag, from a named rank and from any, beside collectives, in both directions at once, large and small."""
import torch
import torch.distributed as dist

import ranks

SIZES = [0, 1, 3, 10, 1000, 100000, 3000000]


@ranks.case(2, 4)
def ring_of_every_size(rank, n):
    for size in SIZES:
        out = torch.full((size,), float(rank))
        into = torch.full((size,), -1.0)
        sent = dist.isend(out, (rank + 1) % n)
        dist.recv(into, (rank - 1) % n)
        sent.wait()
        assert torch.equal(into, torch.full((size,), float((rank - 1) % n)))


@ranks.case(2)
def tags_in_any_order(rank, n):
    if rank == 0:
        works = [dist.isend(torch.full((5000,), float(tag)), 1, tag=tag) for tag in range(6)]
        for w in works:
            w.wait()
    else:
        for tag in (5, 0, 3, 4, 1, 2):
            x = torch.zeros(5000)
            dist.recv(x, 0, tag=tag)
            assert bool((x == tag).all())


@ranks.case(2)
def messages_of_a_tag_stay_in_order(rank, n):
    if rank == 0:
        for w in [dist.isend(torch.tensor([k]), 1) for k in range(200)]:
            w.wait()
    else:
        places = [torch.zeros(1, dtype=torch.int64) for _ in range(200)]
        for w in [dist.irecv(x, 0) for x in places]:
            w.wait()
        assert [x.item() for x in places] == list(range(200))


@ranks.case(4)
def from_any_rank(rank, n):
    if rank:
        dist.send(torch.full((3,), float(rank)), 0)
        dist.send(torch.full((3,), 10.0 * rank), 0, tag=7)
    else:
        seen = []
        for _ in range(n - 1):
            x = torch.zeros(3)
            source = dist.recv(x)
            assert x[0] == source
            seen.append(source)
        assert sorted(seen) == [1, 2, 3]
        for _ in range(n - 1):
            x = torch.zeros(3)
            source = dist.recv(x, tag=7)
            assert x[0] == 10 * source
    dist.barrier()


@ranks.case(2, 4)
def batches_in_both_directions(rank, n):
    for size in (10, 1000000):
        outs = [torch.full((size,), float(10 * rank + r)) for r in range(n)]
        ins = [torch.zeros(size) for _ in range(n)]
        ops = [dist.P2POp(dist.isend, outs[r], r) for r in range(n) if r != rank]
        ops += [dist.P2POp(dist.irecv, ins[r], r) for r in range(n) if r != rank]
        for w in dist.batch_isend_irecv(ops):
            w.wait()
        for r in range(n):
            assert r == rank or bool((ins[r] == 10 * r + rank).all())


@ranks.case(2)
def beside_collectives(rank, n):
    """A send whose receive comes after the next collective does not hold it up."""
    if rank == 0:
        w = dist.isend(torch.ones(1000000), 1)
        dist.barrier()
        w.wait()
    else:
        dist.barrier()
        x = torch.zeros(1000000)
        dist.recv(x, 0)
        assert bool((x == 1).all())


@ranks.case(2)
def not_contiguous(rank, n):
    if rank == 0:
        dist.send(torch.arange(20.0).view(4, 5).t(), 1)
    else:
        x = torch.zeros(4, 5).t()
        dist.recv(x, 0)
        assert torch.equal(x, torch.arange(20.0).view(4, 5).t())


@ranks.case(2)
def sizes_that_differ_are_told(rank, n):
    if rank == 0:
        dist.send(torch.ones(3), 1)
        dist.send(torch.ones(4), 1)
    else:
        try:
            dist.recv(torch.zeros(4), 0)
            raise AssertionError("a message of another size was taken")
        except RuntimeError as error:
            assert "12 bytes" in str(error) and "16 bytes" in str(error), error
        x = torch.zeros(4)
        dist.recv(x, 0)
        assert x[3] == 1


@ranks.case(2)
def objects(rank, n):
    if ranks.VERSION < (2, 4):
        raise ranks.Skip("this PyTorch sends no objects")
    things = [{"a": 1}, "b"] if rank == 0 else [None, None]
    if rank == 0:
        dist.send_object_list(things, 1)
    else:
        dist.recv_object_list(things, 0)
    assert things == [{"a": 1}, "b"]


if __name__ == "__main__":
    ranks.main()
