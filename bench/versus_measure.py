"""Measuring: programs that stand by, a probe of the processors' distance, and rounds over all contenders of a cell."""

import json
import os
import platform
import re
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import namedtuple

COLLECTIVES = [
    "all_reduce",
    "all_reduce_in_place",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "all_to_all",
    "sendrecv",
    "pingpong",
]
TYPES = ["float32", "float16", "bfloat16"]
MIB = 1 << 20
VISIT_TIMEOUT_S = 180
START_TIMEOUT_S = 90
HOPELESS = 2.5  # a peer this many times slower than the best peer in the first round is not measured again
LEFT_OUT = 2.0  # above LEFT_OUT_ABOVE: a peer this many times slower at the size before is not measured
LEFT_OUT_ABOVE = 16 * MIB
PLACEMENTS = [
    (30, "smt"),
    (130, "near"),
    (1500, "far"),
]  # one-way time of a cache line, ns; beyond: the processors were busy

Cell = namedtuple("Cell", "ranks collective type bytes rewrite")
Contender = namedtuple("Contender", "label role running kind")
Machine = namedtuple("Machine", "cpus cores memory folder priority network", defaults=[None])


def placement_of(ns):
    return next((name for limit, name in PLACEMENTS if ns < limit), None)


def processors():
    """The processors this process may use: one per core first, then the other threads of the cores."""
    allowed = sorted(os.sched_getaffinity(0))
    first, rest, seen = [], [], set()
    for cpu in allowed:
        try:
            with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", encoding="ascii") as f:
                core = f.read().strip()
        except OSError:
            core = str(cpu)
        (rest if core in seen else first).append(cpu)
        seen.add(core)
    return first, first + rest


def free_memory():
    with open("/proc/meminfo", encoding="ascii") as f:
        for line in f:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 4 << 30


def model_name():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        for line in f:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def describe(machine):
    return {
        "model": model_name(),
        "cpus": len(machine.cpus),
        "cores": machine.cores,
        "memory_gib": machine.memory / (1 << 30),
        "kernel": f"{platform.system()} {platform.release()}",
        "network": machine.network.describe() if machine.network else None,
    }


def meeting_place():
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()


def sweep():
    """Removes the folders of runs that were killed."""
    for name in os.listdir(meeting_place()):
        found = re.fullmatch(r"versus-(\d+)-\w+", name)
        if found and not os.path.exists("/proc/" + found.group(1)):
            shutil.rmtree(os.path.join(meeting_place(), name), ignore_errors=True)


class Probe:
    """The cache line's one-way time between the first two processors, now."""

    def __init__(self, binary, machine):
        self.process, cpus = None, machine.cpus
        if len(cpus) > 1 and not machine.network:
            self.process = subprocess.Popen(
                [binary, str(cpus[0]), str(cpus[1]), str(int(machine.priority))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
                start_new_session=True,
            )

    def ns(self):
        if not self.process:
            return 0.0
        self.process.stdin.write("\n")
        return float(self.process.stdout.readline())

    def stop(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait(5)


class Running:
    """All ranks of one program, started and standing by."""

    def __init__(self, program, binary, machine, ranks):
        self.program, self.ranks, self.dead, self.version = program, ranks, None, ""
        self.folder = tempfile.mkdtemp(prefix=f"versus-{os.getpid()}-", dir=meeting_place())
        self.log = open(
            os.path.join(machine.folder, f"{program.name}-{ranks}.log"), "w+", encoding="utf-8", errors="replace"
        )
        for name in ("orders", "answers"):
            os.mkfifo(os.path.join(self.folder, name), 0o600)
        self.orders = os.open(os.path.join(self.folder, "orders"), os.O_RDWR)
        self.answers = os.open(os.path.join(self.folder, "answers"), os.O_RDWR | os.O_NONBLOCK)
        self.rest = b""
        shared, network = ranks > len(machine.cpus), machine.network
        pins = ",".join(map(str, machine.cpus[:ranks])) if ranks <= machine.cores else "-"
        pins = network.pins(ranks, machine.cpus) if network else pins
        arguments = [os.path.abspath(binary), self.folder, str(ranks), pins, str(int(shared)), str(int(machine.priority))]
        self.process = self._spawn(arguments, shared, network)

    def _spawn(self, arguments, shared, network):
        command = arguments + ([network.argument()] if network else [])
        if self.program.launcher:
            command = self.program.launcher(self.ranks, shared, network) + command
            command = network.inside(command) if network else command
        environment = network.environment(shared, self.folder) if network else dict(os.environ)
        environment.update(text.split("=", 1) for text in self.program.environment)
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
            env=environment,
        )

    def _line(self, timeout):
        end = time.monotonic() + timeout
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.answers], [], [], 0.5)
            if ready:
                self.rest += os.read(self.answers, 65536)
            elif self.process.poll() is not None:
                raise RuntimeError(f"{self.program.name} has ended: {self.last_words()}")
            elif time.monotonic() > end:
                raise RuntimeError(f"{self.program.name} does not answer: {self.last_words()}")
        line, self.rest = self.rest.split(b"\n", 1)
        return json.loads(line)

    def last_words(self):
        self.log.flush()
        self.log.seek(0)
        lines = [line.strip() for line in self.log.read().splitlines() if line.strip(" -")]
        return " / ".join(lines[:4]) or "(it said nothing)"

    def wait_ready(self):
        try:
            self.version = self._line(START_TIMEOUT_S)["version"]
        except RuntimeError as e:
            self.fail(str(e))
        return not self.dead

    def ask(self, order):
        """The answer to an order, or None when the program has died over it."""
        if self.dead:
            return None
        try:
            os.write(self.orders, (order + "\n").encode())
            return self._line(VISIT_TIMEOUT_S)
        except (RuntimeError, OSError) as e:
            self.fail(str(e))
            return None

    def fail(self, why):
        self.dead = why
        print(f"versus: {why}", file=sys.stderr)
        self.stop()

    def stop(self):
        if not self.process:
            return
        try:
            os.write(self.orders, b"quit\n")
        except OSError:
            pass
        for action, patience in ((None, 0.2 if self.dead else 5), ("terminate", 2), ("kill", 2)):
            if action:
                getattr(self.process, action)()
            try:
                self.process.wait(patience)
                break
            except subprocess.TimeoutExpired:
                pass
        self.process = None
        os.close(self.orders)
        os.close(self.answers)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Samples:
    """What one contender gave in one cell: visits by placement."""

    def __init__(self):
        self.visits = {}  # placement -> list of lists of microseconds
        self.answer = None  # the last one
        self.wrong = self.moved = 0

    def add(self, placement, answer):
        self.answer = answer
        self.wrong += answer["wrong"]
        if placement:
            self.visits.setdefault(placement, []).append(answer["us"])
        else:
            self.moved += 1

    def count(self, placement):
        return len(self.visits.get(placement, []))

    def summary(self, placement):
        visits = self.visits.get(placement)
        if not visits:
            return None
        medians = sorted(statistics.median(v) for v in visits)
        result = {
            "median": statistics.median(medians),
            "min": min(min(v) for v in visits),
            "low": medians[len(medians) // 4],
            "high": medians[-1 - len(medians) // 4],
            "visits": len(visits),
        }
        for key in ("repeat", "faults", "switches"):
            result[key] = self.answer[key]
        if self.wrong:
            result["wrong"] = self.wrong
        return result


def rounds_for(size, quick):
    rounds = 5 if size <= MIB else 4 if size <= 16 * MIB else 3 if size <= 64 * MIB else 2
    return max(2, rounds - 2) if quick else rounds


def floor_fits(label, cell):
    """Floors worth measuring: small ones are posted, large ones stream."""
    if cell.type != "float32":
        return False
    kind = label.split()[1]
    if kind.startswith("tcp"):
        return kind == "tcp" or cell.bytes >= MIB
    if kind == "slot":
        return cell.bytes <= 65536
    return cell.bytes >= (MIB if kind in ("nt", "movs") else 256)


class Measurer:
    """One rank count: all programs standing by, cells measured in rounds."""

    def __init__(self, machine, probe, ranks, contenders, quick):
        self.machine, self.probe, self.ranks, self.contenders, self.quick = machine, probe, ranks, contenders, quick
        self.shared = ranks > len(machine.cpus)
        self.pooled = ranks > 2 or self.shared or machine.network is not None
        # (collective, type, rewrite, label) -> how many times slower than the best peer at the size before
        self.behind = {}
        self.holding = False

    def order(self, contender, cell, repeat):
        batches, batch_us = (3, 20000) if self.shared else (5, 2000)
        limit_us = 400000 if cell.bytes >= 64 * MIB else 3 * batches * batch_us
        return (
            f"run {COLLECTIVES.index(cell.collective)} {TYPES.index(cell.type)} {contender.kind} {int(cell.rewrite)} "
            f"{cell.bytes} {repeat} {batches} {batch_us} {limit_us}"
        )

    def candidates(self, cell):
        key = (cell.collective, cell.type, cell.rewrite)
        chosen = []
        for c in self.contenders:
            if c.running.dead or (c.role == "floor" and not floor_fits(c.label, cell)):
                continue
            if c.role == "peer" and cell.bytes > LEFT_OUT_ABOVE and self.behind.get(key + (c.label,), 0) > LEFT_OUT:
                continue
            chosen.append(c)
        return chosen

    @staticmethod
    def same_buffers(a, b):
        return a.running is b.running and (a.running.program.one_memory or a.kind == b.kind)

    @staticmethod
    def memory(cell, contenders):
        groups = {(c.running.program.name, 0 if c.running.program.one_memory else c.kind) for c in contenders}
        return 2 * cell.bytes * cell.ranks * len(groups)

    def release(self, contenders):
        for running in {id(c.running): c.running for c in contenders}.values():
            running.ask("release")

    def visit(self, contender, cell, samples, before):
        repeat = samples.answer["repeat"] if samples.answer else 0
        answer = contender.running.ask(self.order(contender, cell, repeat))
        after = self.probe.ns()
        if answer and not answer["unsupported"]:
            here, there = placement_of(before), placement_of(after)
            samples.add("pooled" if self.pooled else here if here == there else None, answer)
        return after, bool(answer) and not answer["unsupported"]

    @staticmethod
    def hopeless(contenders, samples, placement):
        """Peers, and floors, that cannot be the best of this cell any more."""
        out = set()
        for role in ("peer", "floor"):
            found = {c.label: samples[c.label].summary(placement) for c in contenders if c.role == role}
            found = {label: t for label, t in found.items() if t and "wrong" not in t}
            best = min((t["median"] for t in found.values()), default=0)
            out |= {label for label, t in found.items() if t["min"] > HOPELESS * best}
        return out

    def measure(self, cell, seconds):
        """Rounds over the contenders until all have enough visits in one placement, or time is up. None: no memory."""
        start = time.monotonic()
        left = self.candidates(cell)
        samples = {c.label: Samples() for c in left}
        enough, lines = rounds_for(cell.bytes, self.quick), []
        tight = self.memory(cell, left) > self.machine.memory / 2
        if 2 * cell.bytes * cell.ranks > self.machine.memory * 0.7:
            return None
        if tight and self.holding:
            self.release(self.contenders)
        before = self.probe.ns()
        for number in range(2 * enough + 2):
            for c, following in zip(list(left), left[1:] + [None]):
                lines.append(before)
                before, supported = self.visit(c, cell, samples[c.label], before)
                if tight and not (following and self.same_buffers(c, following)):
                    c.running.ask("release")
                if not supported:
                    left.remove(c)
            placement = self.common_placement(left, samples, enough, before)
            if number == 0 and left:
                out = self.hopeless(left, samples, placement)
                left = [c for c in left if c.label not in out]
            if all(samples[c.label].count(placement) >= enough for c in left):
                break
            if time.monotonic() - start > (seconds if number else 2 * seconds):
                break
        self.holding = not tight
        return self.conclude(cell, samples, self.common_placement(left, samples, 1, before), lines)

    def common_placement(self, contenders, samples, enough, now_ns):
        """The placement in which the contender with the fewest visits has the most (at most `enough` count)."""
        if self.pooled:
            return "pooled"
        names = [name for _, name in PLACEMENTS]
        worth = {p: min((min(enough, samples[c.label].count(p)) for c in contenders), default=0) for p in names}
        return max(names, key=lambda p: (worth[p], p == placement_of(now_ns)))

    def conclude(self, cell, samples, placement, lines):
        times = {label: s.summary(placement) for label, s in samples.items()}
        times = {label: t for label, t in times.items() if t}
        peers = {c.label for c in self.contenders if c.role == "peer"} & {
            k for k, t in times.items() if "wrong" not in t
        }
        best = min((times[label]["median"] for label in peers), default=0)
        for label in peers:
            self.behind[(cell.collective, cell.type, cell.rewrite, label)] = times[label]["median"] / best
        names = {name for s in samples.values() for name in s.visits}
        others = {p: {label: s.summary(p) for label, s in samples.items() if s.summary(p)} for p in names - {placement}}
        same = [ns for ns in lines if placement in ("pooled", placement_of(ns))]
        return dict(
            cell._asdict(),
            placement=placement,
            line_ns=statistics.median(same or lines),
            times=times,
            others=others,
            moved=sum(s.moved for s in samples.values()),
        )
