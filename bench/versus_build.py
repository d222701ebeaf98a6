"""The libraries that bench/versus measures: where they come from, how their measuring program is built and started."""

import os
import shutil
import subprocess
import sys
from collections import namedtuple

import versus_network as network

HERE = os.path.dirname(os.path.realpath(__file__))
SOURCES = [os.path.join(HERE, f) for f in ("harness.c", "cell.c", "network.c")]
HEADERS = [os.path.join(HERE, f) for f in ("harness.h", "network.h", "floor_kernels.h", "priority.h")]
WARNINGS = ["-Wall", "-Wextra"]
C_FLAGS = ["-D_GNU_SOURCE", "-O3", "-march=native", "-std=gnu11", "-pthread"] + WARNINGS
CXX_FLAGS = ["-D_GNU_SOURCE", "-O3", "-march=native", "-std=gnu++17", "-pthread"] + WARNINGS
PACKAGES = ["libopenmpi-dev", "openmpi-bin", "libucx-dev", "libmpich-dev", "mpich", "libgloo-dev", "g++"]

# A measuring program: the kinds are those of its backend, in the same order: (label, role); role: ours, peer, floor.
# launcher(ranks, shared, network) gives the command that starts all ranks; None: the program starts them itself.
# environment: more of it, "NAME=VALUE".
Program = namedtuple("Program", "name binary kinds launcher package one_memory environment", defaults=[()])


def run(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)


def install():
    """Installs the peers on Debian and Ubuntu; elsewhere says what is wanted."""
    if not shutil.which("apt-get"):
        sys.exit("versus: --install knows Debian and Ubuntu only; the peers are Open MPI, MPICH and Gloo with headers")
    prefix = [] if os.geteuid() == 0 else ["sudo"]
    if prefix and not shutil.which("sudo"):
        sys.exit("versus: --install needs root; as root: apt-get install " + " ".join(PACKAGES))
    subprocess.run(prefix + ["apt-get", "update"], check=False)
    done = subprocess.run(prefix + ["apt-get", "install", "-y", "--no-install-recommends"] + PACKAGES, check=False)
    if done.returncode:
        sys.exit("versus: apt-get could not install the peers")


def mpirun(*mca):
    def launcher(ranks, shared, _network):
        command = ["mpirun.openmpi", "--allow-run-as-root", "-n", str(ranks), "--bind-to", "none"]
        command += ["--oversubscribe"] if shared else []
        for i in range(0, len(mca), 2):
            command += ["--mca", mca[i], mca[i + 1]]
        return command

    return launcher


def mpiexec(ranks, _shared, _network):
    return ["mpiexec.mpich", "-n", str(ranks), "-bind-to", "none"]


UCX = ("pml", "ucx", "opal_common_ucx_tls", "any", "opal_common_ucx_devices", "any")
PROGRAMS = [
    Program(
        "hocket",
        "hocket",
        [("hocket", "ours"), ("hocket registered", "ours"), ("hocket malloc", "ours")],
        None,
        None,
        False,
    ),
    Program("openmpi", "openmpi", [("Open MPI", "peer")], mpirun(), "openmpi-bin", True),
    Program("openmpi-ucx", "openmpi", [("Open MPI ucx", "peer")], mpirun(*UCX), "openmpi-bin", True),
    Program(
        "openmpi-nocma",
        "openmpi",
        [("Open MPI no CMA", "peer")],
        mpirun("btl_vader_single_copy_mechanism", "none"),
        "openmpi-bin",
        True,
    ),
    Program(
        "openmpi-han", "openmpi", [("Open MPI han", "peer")], mpirun("coll_han_priority", "100"), "openmpi-bin", True
    ),
    Program("mpich", "mpich", [("MPICH", "peer")], mpiexec, "mpich", True),
    Program("gloo", "gloo", [("Gloo ring", "peer"), ("Gloo hd", "peer")], None, "libgloo-dev", True),
    Program(
        "floor",
        "floor",
        [
            ("floor slot", "floor"),
            ("floor pull", "floor"),
            ("floor push", "floor"),
            ("floor nt", "floor"),
            ("floor movs", "floor"),
        ],
        None,
        None,
        True,
    ),
]
HOCKET, GLOO = PROGRAMS[0], PROGRAMS[-2]
NETWORK_PROGRAMS = [
    HOCKET,
    Program("openmpi", "openmpi", [("Open MPI", "peer")], network.mpirun(), "openmpi-bin", True),
    Program(
        "openmpi-links", "openmpi", [("Open MPI 4 links", "peer")], network.mpirun("btl_tcp_links", "4"), "openmpi-bin", True
    ),
    Program("openmpi-ucx", "openmpi", [("Open MPI ucx", "peer")], network.mpirun(*UCX), "openmpi-bin", True),
    Program(
        "openmpi-han", "openmpi", [("Open MPI han", "peer")], network.mpirun("coll_han_priority", "100"), "openmpi-bin", True
    ),
    Program("mpich", "mpich", [("MPICH", "peer")], network.mpiexec, "mpich", True),
    GLOO,
    Program("socket", "socket", [("floor tcp", "floor"), ("floor tcp4", "floor")], None, None, True),
]


def forced(algorithm):
    """Hocket with one algorithm for everything."""
    kinds = [(f"hocket {algorithm}", "forced")]
    return Program("hocket-" + algorithm, "hocket", kinds, None, None, False, (f"HKT_ALGORITHM={algorithm}",))


def find_hocket(build):
    """(compile flags, link flags) for the library: a build tree, else what pkg-config finds; None if there is none."""
    include = os.path.join(os.path.dirname(HERE), "include")
    root = os.path.dirname(HERE)
    for tree in [build] if build else [os.getcwd(), os.path.join(root, "build"), root]:
        libs = os.path.join(tree, ".libs")
        if os.path.exists(os.path.join(libs, "libhocket.so")):
            return ["-I" + include], ["-L" + libs, "-lhocket", "-Wl,-rpath," + os.path.realpath(libs)]
    if not build and shutil.which("pkg-config") and run(["pkg-config", "--exists", "hocket"]).returncode == 0:
        return (
            run(["pkg-config", "--cflags", "hocket"]).stdout.split(),
            run(["pkg-config", "--libs", "hocket"]).stdout.split(),
        )
    return None


def stale(target, sources):
    if not os.path.exists(target):
        return True
    made = os.path.getmtime(target)
    return any(os.path.getmtime(s) > made for s in sources)


def compile_c(compiler, target, backend, flags=(), libs=()):
    """Builds a measuring program in C. Returns None, or why not."""
    backend = os.path.join(HERE, backend)
    if not stale(target, SOURCES + HEADERS + [backend]) and not libs:
        return None
    if not shutil.which(compiler):
        return compiler + " is not installed"
    done = run([compiler] + C_FLAGS + list(flags) + ["-o", target] + SOURCES + [backend] + list(libs))
    return None if done.returncode == 0 else "it does not compile:\n" + done.stdout


def compile_gloo(target):
    backend = os.path.join(HERE, "backend_gloo.cc")
    if not stale(target, SOURCES + HEADERS + [backend]):
        return None
    if not shutil.which("g++"):
        return "g++ is not installed"
    if run(["g++", "-E", "-x", "c++", "-"], input="#include <gloo/context.h>\n").returncode:
        return "libgloo-dev is not installed"
    objects = []
    for source in SOURCES:
        objects.append(target + "-" + os.path.basename(source)[:-2] + ".o")
        done = run(["gcc"] + C_FLAGS + ["-c", "-o", objects[-1], source])
        if done.returncode:
            return "it does not compile:\n" + done.stdout
    done = run(["g++"] + CXX_FLAGS + ["-o", target, backend] + objects + ["-lgloo"])
    return None if done.returncode == 0 else "it does not compile:\n" + done.stdout


def build_all(folder, hocket, wanted):
    """Builds what is wanted. Returns {binary name: path} and {binary name: why it is missing}."""
    os.makedirs(folder, exist_ok=True)
    compiler = os.environ.get("CC", "gcc")
    makers = {
        "openmpi": lambda t: compile_c("mpicc.openmpi", t, "backend_mpi.c"),
        "mpich": lambda t: compile_c("mpicc.mpich", t, "backend_mpi.c"),
        "gloo": compile_gloo,
        "floor": lambda t: compile_c(compiler, t, "backend_floor.c"),
        "socket": lambda t: compile_c(compiler, t, "backend_socket.c"),
        "hocket": lambda t: (
            compile_c(compiler, t, "backend_hocket.c", *hocket)
            if hocket
            else "libhocket.so is not here; build it first (./configure && make) or say where with --build"
        ),
    }
    made, missing = {}, {}
    for name in wanted:
        target = os.path.join(folder, "versus-" + name)
        why = makers[name](target)
        if why:
            missing[name] = why
        else:
            made[name] = target
    return made, missing


def build_probe(folder):
    target = os.path.join(folder, "versus-probe")
    source = os.path.join(HERE, "probe.c")
    if stale(target, [source] + HEADERS):
        done = run([os.environ.get("CC", "gcc")] + C_FLAGS + ["-o", target, source])
        if done.returncode:
            sys.exit("versus: the placement probe does not compile:\n" + done.stdout)
    return target


def package_version(package):
    if not package or not shutil.which("dpkg-query"):
        return ""
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", package],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    return done.stdout.strip() if done.returncode == 0 else ""
