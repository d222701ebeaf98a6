"""How a program comes to hocket: by name, through torchrun, by HOCKET_TORCH_TAKE, and the examples of the documentation."""
import os
import pathlib
import subprocess
import sys

import torch

import ranks

ROOT = pathlib.Path(__file__).resolve().parent.parent
PRINT = """import torch, torch.distributed as dist
{first}
{init}
x = torch.ones(3)
dist.all_reduce(x)
world = dist.distributed_c10d._get_default_group()
backend = world._get_backend(torch.device("cpu")) if hasattr(world, "_get_backend") else world
print("it is %s %d\\n" % (backend.name(), x[0]), end="")
dist.destroy_process_group()
"""


def torchrun(folder, *args, **env):
    """What two ranks of a script print. Debian 12's torchrun does not work with its Python 3.11: there each rank is started by hand."""
    port = str(20000 + (os.getpid() * 7) % 20000)
    env = dict(os.environ, PYTHONPATH=str(ROOT), MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **env)
    if ranks.VERSION < (2, 0):
        commands = [({"RANK": str(r), "WORLD_SIZE": "2"}, [sys.executable, *args]) for r in range(2)]
    else:
        for name in ("RANK", "WORLD_SIZE"):
            env.pop(name, None)
        commands = [({}, [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", port, *args])]
    started = [subprocess.Popen(c, env={**env, **more}, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for more, c in commands]
    texts = [p.communicate(timeout=ranks.SECONDS) for p in started]
    assert all(p.returncode == 0 for p in started), texts
    return "".join(out for out, _ in texts)


def script(folder, first, init):
    path = pathlib.Path(folder, "script.py")
    path.write_text(PRINT.format(first=first, init=init))
    return str(path)


@ranks.case(1, backend=None)
def by_name(rank, n):
    folder = os.environ["TMPDIR_OF_CASE"]
    out = torchrun(folder, script(folder, "import hocket.torch", "dist.init_process_group('hocket')"))
    assert out.count("it is hocket 2\n") == 2, out
    if ranks.VERSION >= (2, 0):
        out = torchrun(folder, script(folder, "import hocket.torch", "dist.init_process_group('cpu:hocket,cuda:hocket')"))
        assert out.count("it is hocket 2\n") == 2, out


@ranks.case(1, backend=None)
def by_another_name(rank, n):
    folder = os.environ["TMPDIR_OF_CASE"]
    for init in ("dist.init_process_group('gloo')", "dist.init_process_group(backend='gloo')", "dist.init_process_group()"):
        out = torchrun(folder, script(folder, "import hocket.torch", init), HOCKET_TORCH_TAKE="gloo")
        assert out.count("it is hocket 2\n") == 2, out


@ranks.case(1, backend=None)
def without_an_import(rank, n):
    if ranks.VERSION < (2, 5):
        raise ranks.Skip("PyTorch loads backends by itself since 2.5")
    folder = os.environ["TMPDIR_OF_CASE"]
    info = pathlib.Path(folder, "hocket_torch-0.1.0.dist-info")  # as pip leaves it
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hocket-torch\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\nhocket = hocket.torch:autoload\n")
    path = pathlib.Path(folder, "script.py")
    path.write_text(PRINT.format(first="", init="dist.init_process_group('hocket')"))
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT), folder]), RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1",
               MASTER_PORT=str(20000 + os.getpid() % 20000))
    done = subprocess.run([sys.executable, str(path)], env=env, capture_output=True, text=True, timeout=ranks.SECONDS)
    assert done.returncode == 0 and "it is hocket 1\n" in done.stdout, done.stdout + done.stderr


@ranks.case(1, backend=None)
def examples(rank, n):
    folder = os.environ["TMPDIR_OF_CASE"]
    out = torchrun(folder, str(ROOT / "examples" / "ddp.py"), "--steps", "4")
    assert "2 ranks on hocket: loss" in out, out
    out = torchrun(folder, str(ROOT / "examples" / "ddp.py"), "--steps", "4", "--hook", "int8")
    assert "2 ranks on hocket: loss" in out, out
    if ranks.VERSION >= (2, 7):
        out = torchrun(folder, str(ROOT / "examples" / "fsdp2.py"), "--steps", "2")
        assert "2 ranks on hocket: loss" in out, out
    if ranks.VERSION >= (2, 5):
        out = torchrun(folder, str(ROOT / "examples" / "pipeline.py"), "--steps", "2")
        assert "2 stages on hocket: loss" in out, out


@ranks.case(1, backend=None)
def a_device_that_we_do_not_have(rank, n):
    """Nothing here has a GPU; the sentence is asked for through a tensor that says it is elsewhere."""
    if ranks.VERSION < (2, 0):
        raise ranks.Skip("this PyTorch has no backends by device")
    import torch.distributed as dist
    dist.init_process_group("hocket", init_method=f"file://{os.environ['TMPDIR_OF_CASE']}/store", rank=0, world_size=1)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    try:
        backend.allreduce([torch.ones(3, device="meta")])
        raise AssertionError("nothing was raised")
    except RuntimeError as error:
        assert "handles CPU tensors only" in str(error), error


if __name__ == "__main__":
    ranks.main()
