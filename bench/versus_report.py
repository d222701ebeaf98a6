"""Tables: for people (text), for the README (Markdown)."""

from versus_result import (
    LIBRARY,
    MALLOC,
    REGISTERED,
    best_peer,
    element_rates,
    floor_of,
    is_main,
    mean,
    network_rates,
    of_role,
    ratio,
    row_name,
    slower,
)

OURS = [(LIBRARY, "library"), (REGISTERED, "registered"), (MALLOC, "malloc")]
SHOWN_VERSIONS = ("hocket", "openmpi", "mpich", "gloo")
SHORT = {
    "Open MPI": "ompi",
    "Open MPI ucx": "ompi-ucx",
    "Open MPI no CMA": "ompi-nocma",
    "Open MPI han": "ompi-han",
    "Open MPI 4 links": "ompi-4",
    "MPICH": "mpich",
    "Gloo ring": "gloo-ring",
    "Gloo hd": "gloo-hd",
}


def size_name(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def time_name(us):
    """Three figures."""
    if us is None:
        return "-"
    return f"{us:.2f}" if us < 10 else f"{us:.1f}" if us < 100 else f"{us:.0f}"


def times_name(r):
    return "-" if r is None else f"{r:.2f}x" if r < 10 else f"{r:.0f}x"


def groups(cells):
    """Cells by row name, in order of appearance."""
    found = {}
    for cell in cells:
        found.setdefault(row_name(cell), []).append(cell)
    return found


def median_of(cell, label):
    entry = cell["times"].get(label)
    return None if not entry else entry["median"]


def cell_name(cell):
    return f"{row_name(cell)}, {size_name(cell['bytes'])}, {cell['ranks']} ranks"


def place_name(cell):
    return cell["placement"] if cell["placement"] == "pooled" else f"{cell['placement']} {cell['line_ns']:.0f} ns"


def pinning(data, ranks):
    network = data["machine"].get("network")
    if network:
        return f"{ranks // network['hosts']} on each of {network['hosts']} hosts, {data['machine']['cpus']} processors"
    return "pinned, one per core" if ranks <= data["machine"]["cores"] else f"on {data['machine']['cpus']} processors"


def all_ranks(data):
    return sorted({c["ranks"] for c in data["cells"]})


def means(data, cells):
    """[(kind of memory, geometric mean of best peer / ours)]"""
    return [(name, mean([ratio(data, c, label) for c in cells])) for label, name in OURS]


# ---- text ----


def table_line(data, cell):
    name, peer = best_peer(data, cell)
    floor_name, floor = floor_of(data, cell)
    ours = of_role(data, cell, "ours")
    fastest = min((t["median"] for t in ours.values()), default=None)
    line = f"  {size_name(cell['bytes']):>8}"
    for label, _ in OURS:
        wrong = "!" if cell["times"].get(label, {}).get("wrong") else ""
        line += f" {time_name(median_of(cell, label)) + wrong:>10}"
    line += f" | {time_name(peer['median'] if peer else None):>8} {SHORT.get(name, name or ''):<11}"
    for label, _ in OURS:
        line += f" {times_name(ratio(data, cell, label)):>7}"
    line += f" | {time_name(floor['median'] if floor else None):>8} {floor_name.split()[1] if floor_name else '':<5}"
    line += f" {times_name(fastest / floor['median'] if floor and fastest else None):>7} | {place_name(cell)}"
    line += f" ({cell['moved']} moved)" if cell["moved"] else ""
    return line + (" (one visit)" if any(t["visits"] < 2 for t in ours.values()) else "")


def text_table(data, ranks):
    cells = [c for c in data["cells"] if c["ranks"] == ranks]
    lines = [
        f"{ranks} ranks, {pinning(data, ranks)}; microseconds an operation "
        + ("(least batch)" if data.get("least") else "(median)"),
        "lib x, reg x, mal x: best peer / ours, more is better; last x: ours / floor, 1 is perfect",
        "",
    ]
    head = f"  {'size':>8}" + "".join(f" {name:>10}" for _, name in OURS) + f" | {'best peer':<20}"
    head += "".join(f" {name[:3] + ' x':>7}" for _, name in OURS) + f" | {'floor':>8} {'':<5} {'x':>7} | processors"
    for name, members in groups(cells).items():
        lines += [name, head] + [table_line(data, c) for c in members]
        found = means(data, members)
        if any(m for _, m in found):
            lines.append(f"{'mean':>65}" + "".join(f" {times_name(m):>7}" for _, m in found))
        lines.append("")
    return "\n".join(lines)


def means_lines(data):
    main = [c for c in data["cells"] if is_main(c)]
    lines = ["Geometric means of best peer / ours (float32, buffers not rewritten):"]
    for ranks in all_ranks(data) + [None]:
        found = means(data, [c for c in main if ranks in (None, c["ranks"])])
        name = "all" if ranks is None else f"{ranks} ranks"
        lines.append(f"  {name:>8}: " + ", ".join(f"{kind} {times_name(m)}" for kind, m in found))
    return lines


def lost_lines(data):
    lost = slower(data)
    compared = sum(1 for c in data["cells"] for label, _ in OURS if ratio(data, c, label))
    lines = [f"Slower than the best peer: {len(lost)} of {compared}" + (":" if lost else ".")]
    for r, cell, label, clear in lost:
        name, peer = best_peer(data, cell)
        lines.append(
            f"  {r:.2f}x  {cell_name(cell)}, {cell['placement']}, {label}: {time_name(median_of(cell, label))} against "
            f"{time_name(peer['median'])} us ({name})" + ("" if clear else ", within the spread")
        )
    return lines


def forced_lines(data):
    """Algorithms that were forced, beside the choice."""
    lines = []
    for cell in data["cells"]:
        found, ours = of_role(data, cell, "forced"), median_of(cell, LIBRARY)
        names = [f"{label.split()[1]} {time_name(t['median'])}" for label, t in found.items()]
        if names:
            lines.append(f"  {cell_name(cell)}: chosen {time_name(ours)}, " + ", ".join(names))
    return ["Microseconds with an algorithm forced:"] + lines if lines else []


def network_lines(data):
    """How much of the network large operations use."""
    if not data["machine"].get("network"):
        return []
    lines = ["From host to host, each way:"]
    for cell, rate, of_floor, of_link in network_rates(data, 1 << 20):
        text = f"  {cell_name(cell)}: {rate / 1e9:.3f} GB/s"
        text += f", {of_floor:.0%} of plain sockets" if of_floor else ""
        lines.append(text + (f", {of_link:.1%} of what TCP carries on the link" if of_link else ""))
    return lines


def summary(data):
    """Means, 16-bit rates, the cells that lose, wrong results."""
    lines = means_lines(data)
    rates = element_rates(data)
    lines += ["Element rate of 16-bit all-reduces against float32 of as many bytes:"] if rates else []
    lines += [f"  {cell_name(c)}, {label}: {rate:.2f}x" for c, label, rate in rates]
    lines += forced_lines(data) + network_lines(data) + lost_lines(data)
    for cell in data["cells"]:
        lines += [f"WRONG RESULT: {label}, {cell_name(cell)}" for label, t in cell["times"].items() if t.get("wrong")]
    lines.append(f"{len(data['cells'])} cells in {data.get('seconds', 0):.0f} s.")
    return "\n".join(lines)


def about(data):
    m = data["machine"]
    versions = [data["versions"][v] for v in SHOWN_VERSIONS if v in data["versions"]]
    n = m.get("network")
    network = f"{n['hosts']} hosts (network namespaces), links {'of ' + n['rate'] if n['rate'] else 'not held back'}; " if n else ""
    return (
        f"{m['model']}, {m['cpus']} processors ({m['cores']} cores), {m['memory_gib']:.0f} GiB, {m['kernel']}; {network}"
        f"{data['date']}; " + ", ".join(versions)
    )


# ---- Markdown ----


def markdown_row(data, name, cells, sizes):
    by_size = {c["bytes"]: c for c in cells}
    fields = []
    for size in sizes:
        cell = by_size.get(size)
        fields.append(
            f"{time_name(median_of(cell, LIBRARY))} ({times_name(ratio(data, cell, LIBRARY))})" if cell else ""
        )
    fields.append(times_name(mean([ratio(data, c, LIBRARY) for c in cells])))
    return f"| {name} | " + " | ".join(fields) + " |"


def markdown(data):
    """For the README: a table a rank count; a field is our time with library memory and how much faster that is."""
    main = [c for c in data["cells"] if is_main(c)]
    lines = [
        "Microseconds an operation with library memory and, in brackets, how many times faster that is than the best "
        f"of {len(data['peers'])} configurations of Open MPI, MPICH and Gloo in the same interleaved run.",
        about(data) + ".",
        "",
    ]
    for ranks in all_ranks(data):
        cells = [c for c in main if c["ranks"] == ranks]
        sizes = sorted({c["bytes"] for c in cells})
        lines.append(f"| {ranks} ranks | " + " | ".join(map(size_name, sizes)) + " | mean |")
        lines.append("|---|" + "---:|" * (len(sizes) + 1))
        lines += [markdown_row(data, name, members, sizes) for name, members in groups(cells).items()]
        lines.append("")
    found = ", ".join(f"{times_name(m)} with {kind} memory" for kind, m in means(data, main) if m)
    lines.append(f"Geometric mean in all: {found}.")
    return "\n".join(lines) + "\n"


# ---- comparison ----


def comparison(changes, names, tolerance):
    """Text for --compare, and how many cells became clearly slower."""
    worse = [c for c in changes if c[1] > 1 + tolerance and c[4]]
    better = [c for c in changes if c[1] < 1 / (1 + tolerance) and c[4]]
    in_time, against_floor = (mean([c[i] for c in changes]) or 1 for i in (0, 1))
    lines = [
        f"{names[1]} against {names[0]}: {len(changes)} times in the same placement; {len(worse)} clearly slower, "
        f"{len(better)} clearly faster (beyond {tolerance:.0%} and the spread, the floors' change divided out).",
        f"Geometric mean of new / old: {in_time:.3f}, with the floors' change divided out {against_floor:.3f}.",
    ]
    for title, chosen in (("Slower:", worse), ("Faster:", better[::-1])):
        lines += [title] if chosen else []
        lines += [
            f"  {against:5.2f} ({factor:.2f} in time)  {cell_name(cell)}, {cell['placement']}, {label}: "
            f"now {time_name(median_of(cell, label))} us"
            for factor, against, cell, label, _ in chosen
        ]
    return "\n".join(lines), len(worse)
