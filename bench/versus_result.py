"""What measured cells say: best peer, floor, ratios, means; and how two files differ."""

import math
import statistics

LARGE = 256 << 10  # beyond: memory, below: caches and the scheduler

LIBRARY, REGISTERED, MALLOC = "hocket", "hocket registered", "hocket malloc"


def row_name(cell):
    """The name under which cells of one kind stand together."""
    name = cell["collective"] if cell["type"] == "float32" else f"{cell['collective']} {cell['type']}"
    return name + (" rewritten" if cell["rewrite"] else "")


def of_role(data, cell, role):
    return {label: t for label, t in cell["times"].items() if data["roles"].get(label) == role and not t.get("wrong")}


def least(times):
    """(label, entry) with the smallest median, or (None, None)."""
    return min(times.items(), key=lambda item: item[1]["median"], default=(None, None))


def take_least(data):
    """Lets the least batch stand for every time."""
    data["least"] = True
    for cell in data["cells"]:
        for t in cell["times"].values():
            t["median"] = t["low"] = t["high"] = t["min"]


def best_peer(data, cell):
    return least(of_role(data, cell, "peer"))


def floor_of(data, cell):
    return least(of_role(data, cell, "floor"))


def ratio(data, cell, label):
    """How many times faster than the best peer; None when one of the two is missing."""
    ours, (_, peer) = cell["times"].get(label), best_peer(data, cell)
    if not ours or not peer or ours.get("wrong"):
        return None
    return peer["median"] / ours["median"]


def mean(values):
    values = [v for v in values if v]
    return math.exp(sum(math.log(v) for v in values) / len(values)) if values else None


def is_main(cell):
    """Counts for the means: float32, buffers as they are."""
    return cell["type"] == "float32" and not cell["rewrite"]


def slower(data):
    """Every cell where one of ours is slower than the best peer, worst first: (ratio, cell, label, clear)."""
    found = []
    for cell in data["cells"]:
        _, peer = best_peer(data, cell)
        for label in of_role(data, cell, "ours"):
            r = ratio(data, cell, label)
            if r is not None and r < 1:
                found.append((r, cell, label, cell["times"][label]["low"] > peer["high"]))
    return sorted(found, key=lambda item: item[0])


def bytes_between_hosts(cell, hosts):
    """Bytes that each host must send at least, to the host that gets most; None: says nothing about the network."""
    others = (hosts - 1) / hosts
    share = {
        "all_reduce": 2 * others,
        "all_reduce_in_place": 2 * others,
        "reduce_scatter": others,
        "all_gather": others,
        "broadcast": 1,
        "all_to_all": others * cell["ranks"] / hosts,
    }
    if cell["ranks"] == hosts:
        share.update(sendrecv=1, pingpong=1)
    return share[cell["collective"]] * cell["bytes"] if cell["collective"] in share else None


def network_rates(data, least_bytes):
    """Cells of at least so many bytes: (cell, bytes per second between hosts, of plain sockets, of what the link carries)."""
    network, rates = data["machine"]["network"], []
    for cell in data["cells"]:
        _, ours = least(of_role(data, cell, "ours"))
        _, floor = floor_of(data, cell)
        moved = bytes_between_hosts(cell, network["hosts"])
        if not ours or not moved or cell["bytes"] < least_bytes or not is_main(cell):
            continue
        rate = moved / ours["median"] * 1e6
        of_floor = floor["median"] / ours["median"] if floor else None
        rates.append((cell, rate, of_floor, rate / network["payload"] if network["payload"] else None))
    return rates


def element_rates(data):
    """16-bit all-reduces: (cell, label, elements per second relative to float32 of the same bytes)."""
    full = {(c["ranks"], c["bytes"]): c for c in data["cells"] if c["collective"] == "all_reduce" and is_main(c)}
    rates = []
    for cell in data["cells"]:
        base = full.get((cell["ranks"], cell["bytes"]))
        if cell["type"] == "float32" or not base or cell["rewrite"] or cell["collective"] != "all_reduce":
            continue
        if base["placement"] != cell["placement"]:
            continue
        for label in of_role(data, cell, "ours"):
            if label in base["times"]:
                rates.append((cell, label, 2 * base["times"][label]["median"] / cell["times"][label]["median"]))
    return rates


def key_of(cell):
    return cell["ranks"], cell["collective"], cell["type"], cell["bytes"], cell["rewrite"]


def in_placement(cell, placement):
    return cell["times"] if cell["placement"] == placement else cell.get("others", {}).get(placement, {})


def drift_group(cell):
    return cell["ranks"], cell["placement"], cell["bytes"] > LARGE


def drifts(before, new):
    """By how much the machine itself changed: the median change of the floors of like cells."""
    changes = {}
    for cell in new["cells"]:
        other = before.get(key_of(cell))
        now = floor_of(new, cell)[1]
        then = floor_of(new, dict(other, times=in_placement(other, cell["placement"])))[1] if other else None
        if now and then:
            changes.setdefault(drift_group(cell), []).append(now["median"] / then["median"])
    return {group: statistics.median(values) for group, values in changes.items()}


def compare(old, new):
    """Cells of both in the same placement: (factor, factor against the drift, cell, label, clear), slowest first."""
    before = {key_of(c): c for c in old["cells"]}
    drift = drifts(before, new)
    changes = []
    for cell in new["cells"]:
        other = before.get(key_of(cell))
        times = in_placement(other, cell["placement"]) if other else {}
        for label, b in of_role(new, cell, "ours").items():
            a = times.get(label)
            if not a:
                continue
            factor = b["median"] / a["median"]
            clear = b["low"] > a["high"] or b["high"] < a["low"]
            changes.append((factor, factor / drift.get(drift_group(cell), 1.0), cell, label, clear))
    return sorted(changes, key=lambda item: -item[1])
