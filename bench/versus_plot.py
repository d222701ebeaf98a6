"""Plots as SVG, drawn by hand: time over size and ratio over size, one panel a collective, one file a rank count."""

import html
import math
import os

from versus_report import about, groups, median_of, pinning, size_name
from versus_result import LIBRARY, MALLOC, REGISTERED, best_peer, floor_of, is_main, mean, ratio

COLUMNS, PANEL_W, PANEL_H = 4, 284, 236
LEFT, RIGHT, TOP, BOTTOM = 50, 12, 30, 30  # inside a panel, around its axes
MARGIN, HEAD, FOOT = 18, 86, 34
INK, SOFT, GRID = "#1f2328", "#6e7781", "#e7eaee"
STYLES = {  # stroke, width, dashes
    LIBRARY: ("#0b62d6", 2.4, ""),
    REGISTERED: ("#1b9e9e", 1.6, "5 2.5"),
    MALLOC: ("#e06c00", 2.0, ""),
    "best": ("#4d545c", 1.6, ""),
    "peer": ("#c3c9d0", 1.0, ""),
    "floor": ("#9aa2ab", 1.3, "2 2.5"),
}
NAMES = {
    LIBRARY: "Hocket, library memory",
    REGISTERED: "Hocket, registered",
    MALLOC: "Hocket, malloc",
    "best": "best peer",
    "peer": "every peer",
    "floor": "floor of this machine",
}


class Axis:
    """A logarithmic scale from [low, high] to [start, end]."""

    def __init__(self, low, high, start, end):
        self.low, self.span, self.start, self.length = (
            math.log(low),
            math.log(high) - math.log(low) or 1.0,
            start,
            end - start,
        )

    def at(self, value):
        return self.start + (math.log(value) - self.low) / self.span * self.length


def text(x, y, words, size=11, anchor="start", colour=INK, weight="normal"):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}" '
        f'font-weight="{weight}">{html.escape(words)}</text>'
    )


def line(x1, y1, x2, y2, colour=GRID, width=1.0):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def curve(points, style, dots=True):
    if not points:
        return ""
    colour, width, dashes = STYLES[style]
    path = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    drawn = f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round"{dash}/>'
    if dots:
        drawn += "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{width:.1f}" fill="{colour}"/>' for x, y in points)
    return drawn


def frame(title, note, sizes, panel):
    """What both kinds of panel have: title, sizes along the bottom. Returns the drawing and the horizontal axis."""
    x0, y0 = panel
    across = Axis(min(sizes), max(sizes), x0 + LEFT + 6, x0 + PANEL_W - RIGHT - 6)
    bottom = y0 + PANEL_H - BOTTOM
    drawn = [
        text(x0 + LEFT, y0 + 19, title, 13, weight="600"),
        text(x0 + PANEL_W - RIGHT, y0 + 19, note, 11, "end", SOFT),
    ]
    last = -100.0
    for size in sizes:
        x = across.at(size)
        drawn.append(line(x, y0 + TOP, x, bottom))
        if x - last > 44:
            drawn.append(text(x, bottom + 15, size_name(size).replace(" ", "\u2009"), 10, "middle", SOFT))
            last = x
    return drawn, across


def time_panel(data, title, cells, panel):
    x0, y0 = panel
    sizes = [c["bytes"] for c in cells]
    floors = [(c["bytes"], floor_of(data, c)[1]) for c in cells]
    shown = [median_of(c, label) for c in cells for label in STYLES] + [f["median"] for _, f in floors if f]
    shown = [v for v in shown + [(best_peer(data, c)[1] or {}).get("median") for c in cells] if v]
    if not shown:
        return []
    low = 10 ** math.floor(math.log10(min(shown)))
    high = 10 ** math.ceil(math.log10(max(shown) * 1.5))  # slower peers leave at the top
    top, bottom = y0 + TOP, y0 + PANEL_H - BOTTOM
    drawn, across = frame(title, "", sizes, panel)
    up = Axis(low, high, bottom, top)
    decade = low
    while decade <= high * 1.001:
        name = (
            f"{decade:g} \u00b5s"
            if decade < 1000
            else f"{decade / 1000:g} ms" if decade < 1e6 else f"{decade / 1e6:g} s"
        )
        drawn += [
            line(x0 + LEFT, up.at(decade), x0 + PANEL_W - RIGHT, up.at(decade)),
            text(x0 + LEFT - 5, up.at(decade) + 3.5, name, 10, "end", SOFT),
        ]
        decade *= 10

    def points(pick):
        found = [(c["bytes"], pick(c)) for c in cells]
        return [(across.at(b), up.at(v)) for b, v in found if v]

    under = [(across.at(b), up.at(f["median"])) for b, f in floors if f]
    if len(under) > 1:
        corner = f" L{under[-1][0]:.1f} {bottom:.1f} L{under[0][0]:.1f} {bottom:.1f} Z"
        drawn.append('<path d="M' + " L".join(f"{x:.1f} {y:.1f}" for x, y in under) + corner + '" fill="#eff2f5"/>')
    name = f"p{x0:.0f}-{y0:.0f}"
    drawn.append(
        f'<clipPath id="{name}"><rect x="{x0 + LEFT}" y="{top}" width="{PANEL_W - LEFT - RIGHT}" '
        f'height="{bottom - top}"/></clipPath><g clip-path="url(#{name})">'
    )
    for label in data["peers"]:
        drawn.append(curve(points(lambda c, name=label: median_of(c, name)), "peer", dots=False))
    drawn.append("</g>")
    drawn.append(curve(under, "floor", dots=False))
    drawn.append(curve(points(lambda c: (best_peer(data, c)[1] or {}).get("median")), "best"))
    for label in (MALLOC, REGISTERED, LIBRARY):
        drawn.append(curve(points(lambda c, name=label: median_of(c, name)), label, dots=label != REGISTERED))
    return drawn


def ratio_panel(data, title, cells, panel):
    x0, y0 = panel
    sizes = [c["bytes"] for c in cells]
    labels = [label for label in (MALLOC, REGISTERED, LIBRARY) if any(ratio(data, c, label) for c in cells)]
    values = [ratio(data, c, label) for c in cells for label in labels]
    values = [v for v in values if v]
    if not values:
        return []
    low, high = min(0.5, *values), max(4.0, *values)
    low, high = 2.0 ** math.floor(math.log2(low)), 2.0 ** math.ceil(math.log2(high))
    top, bottom = y0 + TOP, y0 + PANEL_H - BOTTOM
    average = mean([ratio(data, c, LIBRARY) for c in cells])
    drawn, across = frame(title, f"mean {average:.1f}\u00d7" if average else "", sizes, panel)
    up = Axis(low, high, bottom, top)
    drawn.insert(
        0,
        f'<rect x="{x0 + LEFT}" y="{up.at(1):.1f}" width="{PANEL_W - LEFT - RIGHT}" '
        f'height="{bottom - up.at(1):.1f}" fill="#fdeeee"/>',
    )
    step, last = low, bottom + 100
    while step <= high * 1.001:
        y = up.at(step)
        drawn.append(
            line(x0 + LEFT, y, x0 + PANEL_W - RIGHT, y, SOFT if step == 1 else GRID, 1.2 if step == 1 else 1.0)
        )
        if last - y > 13 or step == 1:
            drawn.append(text(x0 + LEFT - 5, y + 3.5, f"{step:g}\u00d7", 10, "end", INK if step == 1 else SOFT))
            last = y
        step *= 2
    for label in labels:
        points = [(across.at(c["bytes"]), up.at(ratio(data, c, label))) for c in cells if ratio(data, c, label)]
        drawn.append(curve(points, label, dots=label != REGISTERED))
    return drawn


def legend(y, labels):
    drawn, x = [], MARGIN + 2
    for label in labels:
        drawn.append(curve([(x, y), (x + 26, y)], label, dots=False))
        drawn.append(text(x + 32, y + 4, NAMES[label], 12, colour=INK))
        x += 48 + 6.6 * len(NAMES[label])
    return drawn


def sheet(title, caption, labels, rows, make, path):
    """Draws the panels in a grid and writes the file."""
    columns = min(COLUMNS, len(rows))
    width = 2 * MARGIN + max(columns, 3) * PANEL_W
    height = HEAD + math.ceil(len(rows) / columns) * PANEL_H + FOOT
    drawn = [text(MARGIN, 30, title, 18, weight="600")] + legend(56, labels)
    for i, (name, cells) in enumerate(rows.items()):
        drawn += make(name, cells, (MARGIN + i % columns * PANEL_W, HEAD + i // columns * PANEL_H))
    drawn.append(text(MARGIN, height - 12, caption, 10, colour=SOFT))
    return write(path, width, height, drawn)


def write(path, width, height, drawn):
    with open(path, "w", encoding="utf-8") as f:
        f.write(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f"font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif\">\n"
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n'
            + "\n".join(d for d in drawn if d)
            + "\n</svg>\n"
        )
    return path


def draw(data, folder):
    os.makedirs(folder, exist_ok=True)
    paths = []
    ours = [label for label in (LIBRARY, REGISTERED, MALLOC) if data["roles"].get(label)]
    for ranks in sorted({c["ranks"] for c in data["cells"]}):
        rows = groups(c for c in data["cells"] if c["ranks"] == ranks and is_main(c))
        rows = {name: sorted(cells, key=lambda c: c["bytes"]) for name, cells in rows.items()}
        where = pinning(data, ranks)
        paths.append(
            sheet(
                f"Time of an operation, {ranks} ranks, {where}",
                about(data),
                ours + ["best", "peer", "floor"],
                rows,
                lambda *a: time_panel(data, *a),
                os.path.join(folder, f"time-{ranks}.svg"),
            )
        )
        if ours and data["peers"]:
            paths.append(
                sheet(
                    f"How many times faster than the best peer, {ranks} ranks, {where}",
                    about(data),
                    ours,
                    rows,
                    lambda *a: ratio_panel(data, *a),
                    os.path.join(folder, f"ratio-{ranks}.svg"),
                )
            )
    return paths
