#!/usr/bin/env python3
"""What recording metrics costs: bench_metrics.py MODEL.

1. Instructions per generated token with metrics on and off, counted by callgrind (repeatable): two lengths of answer each,
   so that start-up cancels out.
2. Wall-clock time per token, pairs of fresh processes in turns, with a 95 % confidence interval of the difference.
3. Processor time of one scrape.
"""

import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCKS = 12
PAIRS = 3
TOKENS = 96
SCRAPES = 400


class Server:
    def __init__(self, model, metrics, under=()):
        program = ROOT / "target/release/sightline-server"
        command = [*under, str(program), "serve", "--model", model, "--metrics", metrics, "--port", "0"]
        command += ["--probe-port", "0", "--threads", "1", "--log-level", "warn", "--kv-pool-bytes", "128MiB"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        assert line, f"the server did not start: {' '.join(command)}"
        self.api = json.loads(line)["api"]
        self.model = json.load(urllib.request.urlopen(self.api + "/v1/models"))["data"][0]["id"]

    def generate(self, tokens):
        body = {"model": self.model, "prompt": "The tide", "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        request = urllib.request.Request(
            self.api + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        return json.load(urllib.request.urlopen(request))

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.terminate()
        self.process.wait()


def instructions(model, metrics, tokens):
    out = ROOT / "target/callgrind.out"
    under = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
    server = Server(model, metrics, under)
    server.generate(tokens)
    server.stop()
    return int(re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.M)[1])


def per_token(model, metrics):
    """The difference of two lengths: start-up, the first token and shutdown cancel out."""
    short, long = 8, 40
    return (instructions(model, metrics, long) - instructions(model, metrics, short)) / (long - short)


def callgrind(model):
    if not shutil.which("valgrind"):
        print("SKIP instructions per token: valgrind is not installed (apt-get install valgrind)")
        return
    on, off = per_token(model, "on"), per_token(model, "off")
    print(f"instructions per token: on {on:,.0f}, off {off:,.0f}, {100 * (on / off - 1):+.3f} %")


def block(model, first):
    """Log of the time ratio on/off between two fresh processes; `first` says which of them starts first."""
    second = "off" if first == "on" else "on"
    servers = {metrics: Server(model, metrics) for metrics in (first, second)}
    for server in servers.values():
        server.generate(TOKENS)
    ratios = []
    for pair in range(PAIRS):
        times = {}
        for metrics in ("on", "off") if pair % 2 else ("off", "on"):
            started = time.monotonic()
            servers[metrics].generate(TOKENS)
            times[metrics] = time.monotonic() - started
        ratios.append(math.log(times["on"] / times["off"]))
    for server in servers.values():
        server.stop()
    return statistics.median(ratios)


def paired(model):
    """Processes differ among themselves by more than the effect (memory placement), so each block starts new ones."""
    ratios = [block(model, "on" if number % 2 else "off") for number in range(BLOCKS)]
    mean = statistics.fmean(ratios)
    margin = 2.201 * statistics.stdev(ratios) / math.sqrt(BLOCKS)  # t of 11 degrees of freedom, 95 %
    low, high = (100 * (math.exp(mean + side * margin) - 1) for side in (-1, 1))
    print(f"wall-clock, {BLOCKS} pairs of processes: {100 * (math.exp(mean) - 1):+.2f} % (95 % from {low:+.2f} to {high:+.2f} %)")


def scrapes(model):
    on = Server(model, "on")
    before = on.cpu_seconds()
    for _ in range(SCRAPES):
        page = urllib.request.urlopen(on.api + "/metrics").read()
    cost = (on.cpu_seconds() - before) / SCRAPES
    series = sum(1 for line in page.splitlines() if line and not line.startswith(b"#"))
    print(f"one scrape: {1000 * cost:.2f} ms of processor time, {series} series, {len(page)} bytes, HTTP included")
    on.stop()


def main():
    subprocess.run(["cargo", "build", "--release", "--quiet", "--package", "server"], check=True, cwd=ROOT)
    paired(sys.argv[1])
    scrapes(sys.argv[1])
    callgrind(sys.argv[1])


main()
