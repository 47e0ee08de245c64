"""lmc-run --preflight: measured links beside those that the plan was compiled with."""

import json
import os
import subprocess
import tomllib

import pytest

from test_ranks import JOB, options

SLOW_LINK = 6


def test_a_preflight_shows_measured_beside_assumed(programs, compiled, tmp_path):
    plan = compiled(JOB, *options("hybrid_shard", 2, 2, 1))
    assumed = json.loads(programs.run("lmc", "explain", plan, "--json").ok().stdout)["comm"]
    # Two pairs of a kind are not enough to say which is slow, and the plan assumed 1 Gbit/s.
    done = programs.run("lmc-run", plan, "--nproc=4", "--preflight", "--json").ok()
    report = json.loads(done.stdout)
    assert (report["ranks"], report["nodes"], report["slow"]) == (4, 2, [])
    assert report["seconds"] < report["seconds_limit"] == 5 and done.stderr == ""
    assert [(link["name"], link["ranks"], link["count"]) for link in report["links"]] == [
        ("shard", 2, 2), ("replicate", 2, 2), ("device", 2, 2), ("node", 2, 2)]
    for link in report["links"]:
        assert link["measured"]["latency_seconds"] > 0 and link["measured"]["bandwidth"] > 0
    told = {speed["axis"]: speed for speed in assumed["axis_speeds"]}
    for link in report["links"][:2]:
        for key in ("latency_seconds", "bandwidth"):
            assert link["assumed"][key] == pytest.approx(told[link["name"]][key])
    for link, spec in zip(report["links"][2:], assumed["links"]):
        assert link["name"] == spec["kind"]
        assert link["assumed"]["latency_seconds"] == pytest.approx(
            spec["base_seconds"] + spec["latency_seconds"])
    # The link "between nodes" is that of one machine: the spec of 1 Gbit/s is far off.
    node = tomllib.loads(report["spec"])["link"]["node"]
    measured = report["links"][3]["measured"]
    assert node["bandwidth"] == pytest.approx(measured["bandwidth"], rel=1e-3)
    assert node["base"] + node["latency"] == pytest.approx(measured["latency_seconds"], rel=2e-2)

    table = programs.run("lmc-run", plan, "--nproc=4", "--preflight", f"--out={tmp_path}/run").ok()
    assert "preflight of 4 ranks on 2 nodes" in table.stdout and "axis shard" in table.stdout
    assert "[link.node]" in table.stdout and "--spec=COPY.toml" in table.stdout
    assert not (tmp_path / "run").exists()


def test_one_rank_has_no_links(programs, compiled):
    done = programs.run("lmc-run", compiled(JOB), "--preflight").ok()
    assert done.stdout == "preflight: the plan is for one rank: there is no link to measure\n"
    done = programs.run("lmc-run", compiled(JOB), "--preflight", "--bench=3")
    assert done.code == 2 and "--preflight only measures links" in done.stderr


class Hosts:
    """Network namespaces a, b, c with host names of their own, at one switch."""

    NAMES = "abc"

    def __init__(self) -> None:
        self.spaces = {name: f"lmc{os.getpid()}{name}" for name in self.NAMES + "s"}

    def __enter__(self) -> "Hosts":
        try:
            for space in self.spaces.values():
                self.call("ip", "netns", "add", space)
        except (subprocess.CalledProcessError, FileNotFoundError) as error:
            self.__exit__()
            reason = getattr(error, "stderr", None) or str(error)
            pytest.skip(f"no network namespaces (root is needed): {reason.strip()}")
        try:
            self.ip("s", "link", "add", "switch", "type", "bridge")
            self.ip("s", "link", "set", "switch", "up")
            for number, name in enumerate(self.NAMES, 1):
                self.ip(name, "link", "add", "e0", "type", "veth", "peer", "name", f"to-{name}",
                        "netns", self.spaces["s"])
                self.ip(name, "addr", "add", f"10.78.0.{number}/24", "dev", "e0")
                self.ip(name, "link", "set", "e0", "up")
                self.ip(name, "link", "set", "lo", "up")
                self.ip("s", "link", "set", f"to-{name}", "master", "switch")
                self.ip("s", "link", "set", f"to-{name}", "up")
        except subprocess.CalledProcessError as error:
            self.__exit__()
            raise AssertionError(f"{error.cmd}: {error.stderr}") from error
        return self

    def __exit__(self, *_: object) -> None:
        for space in self.spaces.values():
            subprocess.run(["ip", "netns", "del", space], stderr=subprocess.DEVNULL, check=False)

    @staticmethod
    def call(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, text=True)

    def ip(self, name: str, *command: str) -> None:
        self.call("ip", "-n", self.spaces[name], *command)

    def slow_down(self, host: str) -> None:
        """To 20 Mbit/s, to the host and from it."""
        for space, device in ((host, "e0"), ("s", f"to-{host}")):
            self.call("ip", "netns", "exec", self.spaces[space], "tc", "qdisc", "add", "dev", device,
                      "root", "tbf", "rate", "20mbit", "burst", "64kbit", "latency", "50ms")

    def run(self, hosts: str, command: list[str]) -> list[tuple[int, str, str]]:
        """Runs a rank on each host. Returns exit codes, outputs and errors."""
        ranks = []
        for rank, host in enumerate(hosts):
            number = 1 + self.NAMES.index(hosts[0])
            environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(len(hosts)),
                           "LOCAL_RANK": "0", "MASTER_ADDR": f"10.78.0.{number}",
                           "LMC_PORT": "29411", "OMP_NUM_THREADS": "1"}
            ranks.append(subprocess.Popen(
                ["ip", "netns", "exec", self.spaces[host], "unshare", "--uts", "sh", "-c",
                 f'hostname {host}; exec "$@"', "sh", *command],
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        ends = [rank.communicate(timeout=60) for rank in ranks]
        return [(rank.returncode, *end) for rank, end in zip(ranks, ends)]


def test_a_slow_host_and_a_slow_link_are_named(programs, compiled):
    three = programs.command("lmc-run", compiled(JOB, *options("zero2", 3, 1, 1)), "--preflight")
    two = programs.command("lmc-run", compiled(JOB, *options("zero2", 2, 1, 1)), "--preflight")
    with Hosts() as hosts:
        hosts.slow_down("b")
        ends = hosts.run("abc", three)
        assert [code for code, _, _ in ends] == [SLOW_LINK] * 3, ends
        warnings = [line for line in ends[0][2].splitlines() if line.startswith("warning: ")]
        assert len(warnings) == 1, warnings
        assert "slow links of rank 1 (host b) with ranks of other nodes" in warnings[0]
        assert all(errors == "" for _, _, errors in ends[1:])
        # The only link of two nodes is compared with what the plan assumed: 1 Gbit/s.
        ends = hosts.run("ab", two)
        assert [code for code, _, _ in ends] == [SLOW_LINK] * 2, ends
        assert "slow link between rank 0 (host a) and rank 1 (host b)" in ends[0][2]
        assert "and the plan assumed" in ends[0][2]
        (code, _, errors), _ = hosts.run("ac", two)
        assert (code, errors) == (0, "")
