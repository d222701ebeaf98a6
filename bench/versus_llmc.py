"""llm.c's train_gpt2.c for bench/versus-train: built from a folder with its source by its own Makefile's flags, fed with weights and
tokens that this makes in the formats that it reads, with another number of steps written into a copy of it."""

import array
import os
import random
import re
import subprocess
import sys

CONTEXT, WORDS, PADDED, HEADS, WIDTH = 1024, 50257, 50304, 12, 768
BLOCK = 1 << 20  # random numbers that are written again and again
TOKEN_COUNT = 1 << 15


def flags(folder):
    """As the Makefile says: CFLAGS, -march=native where the compiler has it, OpenMP."""
    with open(os.path.join(folder, "Makefile"), encoding="utf-8") as f:
        text = f.read()
    first = re.search(r"^CFLAGS = (.*)$", text, re.M)
    more = re.search(r"^CFLAGS_COND = (.*)$", text, re.M)
    return (first.group(1) + " " + (more.group(1) if more else "")).split() + ["-fopenmp", "-DOMP"]


def write_model(path, layers):
    size, inner = WIDTH, 4 * WIDTH
    count = PADDED * size + CONTEXT * size + 2 * size
    count += layers * (4 * size + 3 * size * size + 3 * size + size * size + size + 2 * inner * size + inner + size)
    random.seed(1)
    block = array.array("f", (random.gauss(0, 0.02) for _ in range(BLOCK)))
    with open(path, "wb") as f:
        f.write(array.array("i", [20240326, 3, CONTEXT, WORDS, layers, HEADS, size, PADDED] + [0] * 248).tobytes())
        for _ in range(count // BLOCK):
            f.write(block.tobytes())
        f.write(block[: count % BLOCK].tobytes())


def write_tokens(path):
    with open(path, "wb") as f:
        f.write(array.array("i", [20240520, 1, TOKEN_COUNT] + [0] * 253).tobytes())
        f.write(array.array("H", (random.randrange(WORDS) for _ in range(TOKEN_COUNT))).tobytes())


def build(folder, scratch, layers, steps):
    """Returns the program, which ends after so many steps, and with what flags it was built."""
    source = os.path.join(folder, "train_gpt2.c")
    if not os.path.exists(source):
        sys.exit(f"versus-train: --llmc {folder}: there is no train_gpt2.c")
    with open(source, encoding="utf-8") as f:
        text = f.read()
    if "step <= 40" not in text:
        sys.exit(f"versus-train: --llmc {folder}: train_gpt2.c does not do 40 steps; it is another version than this script knows")
    with open(os.path.join(scratch, "train_gpt2.c"), "w", encoding="utf-8") as f:
        f.write(text.replace("step <= 40", f"step < {steps}"))
    binary = os.path.join(scratch, "train_gpt2")
    command = [os.environ.get("CC", "gcc")] + flags(folder) + ["-I", os.path.realpath(folder), "-o", binary, f.name, "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit("versus-train: llm.c does not compile:\n" + done.stderr)
    data = os.path.join(scratch, "dev/data/tinyshakespeare")
    os.makedirs(data)
    write_model(os.path.join(scratch, "gpt2_124M.bin"), layers)
    for name in ("train", "val"):
        write_tokens(os.path.join(data, f"tiny_shakespeare_{name}.bin"))
    return binary, " ".join(flags(folder))


def seconds(said):
    """Of the steps in what the program has printed."""
    return [float(ms) / 1e3 for ms in re.findall(r"^step \d+: .*took ([\d.]+) ms", said, re.M)]
