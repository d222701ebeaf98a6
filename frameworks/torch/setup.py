"""hocket-torch: the hocket backend of torch.distributed, built against the PyTorch of the Python that runs this.

Hocket itself is found by, in this order: HOCKET_BUILD (a build folder of Hocket's source), HOCKET_HOME (where it was installed),
pkg-config, and a build folder beside this file's tree. The plugin remembers where the library was.
"""
import os
import pathlib
import shlex
import subprocess
import sys

from setuptools import setup

try:
    import torch
    from torch.utils.cpp_extension import BuildExtension, CppExtension
except ImportError as error:
    sys.exit(f"""hocket-torch needs PyTorch in the Python that builds it ({sys.executable}), and there is none: {error}
  PyPI:    {sys.executable} -m pip install torch, then pip install --no-build-isolation ./frameworks/torch
           (without --no-build-isolation pip builds in an empty environment, where torch is missing)
  Debian:  apt-get install python3-torch libtorch-dev python3-dev python3-setuptools pybind11-dev, then make PYTHON=/usr/bin/python3""")

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VERSION = tuple(int(n) for n in torch.__version__.split("+")[0].replace("a0", "").split(".")[:2])


def from_build(build):
    """(include folders, library folders, run-time folders) of a build folder, or None."""
    libs = build / ".libs"
    if not (libs / "libhocket.so").exists() or not (libs / "libhocket-train.so").exists():
        return None
    source = build.parent
    makefile = build / "Makefile"
    for line in makefile.read_text().splitlines() if makefile.exists() else []:
        if line.startswith("abs_top_srcdir ="):
            source = pathlib.Path(line.split("=", 1)[1].strip())
    return [source / "include"], [libs], [libs]


def from_pkg_config():
    """The same, from pkg-config."""
    try:
        flags = shlex.split(subprocess.run(["pkg-config", "--cflags", "--libs", "hocket"], check=True, capture_output=True, text=True).stdout)
        lib = subprocess.run(["pkg-config", "--variable=libdir", "hocket"], check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
    return [f[2:] for f in flags if f.startswith("-I")], [lib], [lib]


def find_hocket():
    """Where Hocket is; ends with what to do when it is nowhere."""
    if "HOCKET_BUILD" in os.environ:
        found = from_build(pathlib.Path(os.environ["HOCKET_BUILD"]).resolve())
    elif "HOCKET_HOME" in os.environ:
        home = pathlib.Path(os.environ["HOCKET_HOME"]).resolve()
        libs = [p for p in (home / "lib", home / "lib64") if (p / "libhocket.so").exists()]
        found = ([home / "include"], libs, libs) if libs else None
    else:
        found = from_pkg_config() or from_build(ROOT / "build") or from_build(ROOT)
    if not found:
        sys.exit("libhocket.so and libhocket-train.so were not found; build or install Hocket first (./configure && make), then set HOCKET_BUILD "
                 "to the build folder, HOCKET_HOME to where it is installed, or PKG_CONFIG_PATH")
    return [[str(p) for p in paths] for paths in found]


def built_for():
    """A file that is newer than a plugin that was built for another PyTorch or Hocket."""
    stamp = HERE / "build" / "built-for"
    text = f"PyTorch {torch.__version__}, Python {sys.version}, {libs}\n"
    if not stamp.exists() or stamp.read_text() != text:
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(text)
    return str(stamp.relative_to(HERE))


include, libs, run = find_hocket()
standard = [] if VERSION >= (2, 1) else ["-std=c++14"]
warnings = ["-Wall", "-Wextra", "-Wno-unknown-pragmas", "-Wno-overloaded-virtual", "-Wno-unused-parameter", "-Wno-missing-field-initializers"]
os.chdir(HERE)

setup(
    name="hocket-torch",
    version="0.1.0",
    description="torch.distributed backend on Hocket",
    packages=["hocket.torch"],
    ext_modules=[
        CppExtension(
            "hocket.torch._C",
            ["csrc/plugin.cpp"],
            depends=[built_for(), *sorted(str(p.relative_to(HERE)) for p in (HERE / "csrc").iterdir())],
            include_dirs=include,
            library_dirs=libs,
            runtime_library_dirs=run,
            libraries=["hocket-train", "hocket"],
            extra_compile_args={"cxx": ["-O2", "-g0", "-fvisibility=hidden", *standard, *warnings]},
        )
    ],
    cmdclass={"build_ext": BuildExtension.with_options(use_ninja=False)},
    # PyTorch 2.5 and later imports what stands here at `import torch`.
    entry_points={"torch.backends": ["hocket = hocket.torch:autoload"]},
    python_requires=">=3.8",
)
