"""Counts the memory instructions in the kernels of a cubin, from the ELF file itself: nothing of the toolkit is needed but its compiler.

Instructions are 16 bytes since sm_70: the opcode is the low 12 bits, the width of an access stands in bits 73 to 75.

  kernel_code.py CUBIN LOG     checks the library's kernels: no local memory, accesses of 16 bytes, registers (from ptxas -v in LOG)
  kernel_code.py CUBIN         prints the counts
"""
import collections
import re
import struct
import sys

WIDTH = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 8, 6: 16}
NAMES = {0x381: "load", 0x981: "load", 0x980: "load", 0x386: "store", 0x986: "store", 0x385: "store", 0x985: "store",
         0x983: "local", 0x387: "local", 0x987: "local"}
REGISTERS = 128  # 65536 of a multiprocessor for 512 threads


def sections(data):
    table, = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
    for h in headers:
        name = data[headers[names][4] + h[0]:].split(b"\0", 1)[0].decode()
        yield name, data[h[4]:h[4] + h[5]]


def census(path):
    """{kernel: {(what, bytes): count}}"""
    kernels = {}
    with open(path, "rb") as file:
        data = file.read()
    for name, code in sections(data):
        if not name.startswith(".text."):
            continue
        counts = collections.Counter()
        for at in range(0, len(code), 16):
            low, high = struct.unpack_from("<QQ", code, at)
            what = NAMES.get(low & 0xFFF)
            if what:
                counts[what, WIDTH.get(high >> 9 & 7, 0)] += 1
        counts["instructions", 0] = len(code) // 16
        kernels[name[len(".text."):]] = counts
    return kernels


def compiled(path):
    """{kernel: (bytes of stack, registers)}"""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    found = re.findall(r"entry function '(\w+)'.*?(\d+) bytes stack frame.*?Used (\d+) registers", text, re.S)
    return {name: (int(stack), int(registers)) for name, stack, registers in found}


def troubles(kernels, log):
    for name, counts in sorted(kernels.items()):
        stack, registers = log.get(name, (None, None))
        wide_loads, wide_stores = counts["load", 16], counts["store", 16]
        if stack is None:
            yield f"{name}: not in the compiler's log"
        elif stack or registers > REGISTERS:
            yield f"{name}: {stack} bytes of stack, {registers} registers of {REGISTERS}"
        if any(what == "local" for what, _ in counts):
            yield f"{name}: local memory"
        if name.startswith("hkt_move_") and "average" not in name and (wide_loads < 8 or not wide_stores):
            yield f"{name}: {wide_loads} loads and {wide_stores} stores of 16 bytes; 8 sources are loaded side by side"
        if name.startswith(("hkt_encode_", "hkt_copy")) and "onebit" not in name and not wide_loads:
            yield f"{name}: nothing is loaded in 16 bytes"
        if name.startswith("hkt_low_") and not (wide_loads and wide_stores):
            yield f"{name}: lines are not loaded or stored at once"


def main():
    kernels = census(sys.argv[1])
    if len(sys.argv) == 2:
        for name, counts in sorted(kernels.items()):
            print(name, " ".join(f"{what}{width or ''}:{n}" for (what, width), n in sorted(counts.items())))
        return 0
    log = compiled(sys.argv[2])
    bad = list(troubles(kernels, log))
    print("\n".join(bad) if bad else
          f"{len(kernels)} kernels, no local memory, at most {max(r for _, r in log.values())} registers, "
          f"{sum(c['instructions', 0] for c in kernels.values())} instructions")
    return bool(bad) or not kernels


if __name__ == "__main__":
    sys.exit(main())
