"""Hosts for bench/versus --network: network namespaces that a cable, or a switch for more than two, joins; how ranks of
each library start there. Named after this process, so that the next run finds what a killed one has left."""

import os
import re
import shlex
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
SHELL = os.path.join(HERE, "versus-shell")  # what launchers take for ssh
SUBNET = "10.41.0"
PORT = "net0"  # the interface of every host
NAMES = "/run/netns"
MTU, FRAME, HEADERS = 1500, 14, 52  # of a packet: bytes, Ethernet's in front, those of IP and TCP with timestamps
UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def ip(*words):
    done = subprocess.run(["ip", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stdout.strip()}")
    return done.stdout


def bits(rate):
    """Bits per second of a rate as tc(8) takes it."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)", rate.lower())
    if not found:
        sys.exit(f"versus: --rate {rate}: a rate is a number with kbit, mbit or gbit")
    return float(found.group(1)) * UNITS[found.group(2)]


def payload(rate):
    """Bytes per second that TCP can carry at a rate."""
    return bits(rate) / 8 * (MTU - HEADERS) / (MTU + FRAME)


def sweep():
    """Removes the namespaces of runs that were killed."""
    for name in os.listdir(NAMES) if os.path.isdir(NAMES) else []:
        found = re.fullmatch(r"versus-(\d+)-\w+", name)
        if found and not os.path.exists("/proc/" + found.group(1)):
            subprocess.run(["ip", "netns", "delete", name], check=False)


class Network:
    """`hosts` hosts, each with its own processors as far as there are enough."""

    def __init__(self, hosts, rate):
        self.hosts, self.rate, self.made = hosts, rate, []
        self.prefix = f"versus-{os.getpid()}-"
        try:
            self._make()
        except (OSError, KeyboardInterrupt) as e:
            self.stop()
            sys.exit(f"versus: --network needs root and ip(8): {e}")

    def name(self, host):
        return f"{self.prefix}{host}"

    @staticmethod
    def address(host):
        return f"{SUBNET}.{host + 1}"

    def argument(self):
        """For the harness: see bench/network.h."""
        return f"{self.prefix}:{self.hosts}:{SUBNET}"

    def _namespace(self, name):
        ip("netns", "add", name)
        self.made.append(name)
        ip("-n", name, "link", "set", "lo", "up")

    def _make(self):
        for h in range(self.hosts):
            self._namespace(self.name(h))
        if self.hosts == 2:
            ip("-n", self.name(0), "link", "add", PORT, "type", "veth", "peer", "name", PORT, "netns", self.name(1))
        else:
            self._switch()
        for h in range(self.hosts):
            ip("-n", self.name(h), "address", "add", self.address(h) + "/24", "dev", PORT)
            ip("-n", self.name(h), "link", "set", PORT, "up")
            self._shape(self.name(h), PORT)
        for h in range(self.hosts):
            self._await_running(self.name(h))

    @staticmethod
    def _await_running(name):
        """The kernel says so up to a second later, and UCX leaves out what is not running."""
        end = time.monotonic() + 5
        while "state UP" not in ip("-n", name, "-o", "link", "show", PORT):
            if time.monotonic() > end:
                raise OSError(f"{name}: {PORT} does not come up")
            time.sleep(0.05)

    def _switch(self):
        switch = self.name("switch")
        self._namespace(switch)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for h in range(self.hosts):
            ip("-n", switch, "link", "add", f"port{h}", "type", "veth", "peer", "name", PORT, "netns", self.name(h))
            ip("-n", switch, "link", "set", f"port{h}", "master", "bridge", "up")
            self._shape(switch, f"port{h}")  # what comes to a host

    def _shape(self, name, port):
        if not self.rate:
            return
        bits(self.rate)
        command = ["tc", "-n", name, "qdisc", "add", "dev", port, "root", "tbf", "rate", self.rate]
        command += ["burst", "128kb", "latency", "20ms"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            raise OSError(f"this kernel cannot hold a link to a rate (tc, tbf): {done.stdout.strip()}")

    def stop(self):
        for name in self.made:
            subprocess.run(["ip", "netns", "delete", name], check=False)
        self.made = []

    def inside(self, command):
        """The command, on the first host."""
        return [SHELL, self.address(0), shlex.join(command)]

    def environment(self, shared, folder):
        """UCX is told to take TCP alone: it would find shared memory between namespaces. Who shares a processor yields,
        as `mpi_yield_when_idle` has it for Open MPI. Each mpirun has a folder of its own: they start at the same time."""
        more = {"VERSUS_HOSTS": self.argument(), "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": PORT, "TMPDIR": folder}
        more.update({"MPIR_CVAR_POLLS_BEFORE_YIELD": "1"} if shared else {})
        return dict(os.environ, **more)

    def describe(self):
        """For the results."""
        return {"hosts": self.hosts, "rate": self.rate, "payload": payload(self.rate) if self.rate else None}

    def pins(self, ranks, cpus):
        """The processor of each rank: hosts have none in common if that can be."""
        if len(cpus) < self.hosts:
            return "-"
        own = [cpus[h :: self.hosts] for h in range(self.hosts)]
        each = ranks // self.hosts
        return ",".join(str(own[r // each][r % each % len(own[r // each])]) for r in range(ranks))


def mpirun(*mca):
    def launcher(ranks, shared, network):
        each = ranks // network.hosts
        command = ["mpirun.openmpi", "--allow-run-as-root", "-n", str(ranks), "--bind-to", "none"]
        command += ["--host", ",".join(f"{network.address(h)}:{each}" for h in range(network.hosts))]
        settings = ["plm_rsh_agent", SHELL, "oob_tcp_if_include", PORT, "btl_tcp_if_include", PORT]
        settings += ["mpi_yield_when_idle", "1"] if shared else []
        settings += mca
        for i in range(0, len(settings), 2):
            command += ["--mca", settings[i], settings[i + 1]]
        return command

    return launcher


def mpiexec(ranks, _shared, network):
    each = ranks // network.hosts
    command = ["mpiexec.mpich", "-n", str(ranks), "-ppn", str(each), "-bind-to", "none"]
    command += ["-launcher", "ssh", "-launcher-exec", SHELL, "-iface", PORT]
    return command + ["-hosts", ",".join(f"{network.address(h)}:{each}" for h in range(network.hosts))]
