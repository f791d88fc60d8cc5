#!/usr/bin/env python3
"""What generating dashboards costs: bench_dashboards.py PROGRAM SIXTY.

PROGRAM is `sightline-dashboards`, SIXTY the example `sixty_panels`, both built for release.

1. Processor time of `generate` and `lint` over everything: every dashboard, rule and file.
2. A dashboard of 60 time series with two queries each, as a whole process, beside grafanalib and
   grafana-foundation-sdk, in turns; ratios of medians.

Processor time is user time of the process and all that it starts. Wall-clock time depends on the machine
and on what else it does; ratios of one run travel.
"""

import hashlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROUNDS = 15
BAR_SECONDS = 0.050
# An unpinned grafana-foundation-sdk installs a build for Grafana 10.1: its version has an epoch, which sorts above.
PACKAGES = ["attrs==25.3.0", "grafana-foundation-sdk==0.0.21", "grafanalib==0.7.1"]

GRAFANALIB = """
from grafanalib.core import Dashboard, GridPos, Target, Threshold, TimeSeries
from grafanalib._gen import DashboardEncoder
import json

panels = []
for index in range(60):
    where = GridPos(h=8, w=12, x=12 * (index % 2), y=8 * (index // 2))
    if index % 2 == 0:
        unit = "reqps"
        queries = [("admitted", "sum by (instance) (rate(sightline_requests_admitted_total{SCOPE}[$__rate_interval]))"),
                   ("refused", "sum by (instance) (rate(sightline_requests_rejected_total{SCOPE}[$__rate_interval]))")]
    else:
        unit = "s"
        quantile = ("histogram_quantile(%s, sum by (instance, le) "
                    "(rate(sightline_time_to_first_token_seconds_bucket{SCOPE}[$__rate_interval])))")
        queries = [("p50", quantile % 0.5), ("p95", quantile % 0.95)]
    targets = [Target(expr=expr.replace("SCOPE", SCOPE), legendFormat=name + " {{instance}}", refId="AB"[n],
                      datasource="${datasource}") for n, (name, expr) in enumerate(queries)]
    panels.append(TimeSeries(title=f"Panel {index}", description="Read it.", dataSource="${datasource}", unit=unit,
                             targets=targets, gridPos=where))
board = Dashboard(title="Sixty", uid="sixty", panels=panels).auto_panel_ids()
print(json.dumps(board.to_json_data(), sort_keys=True, indent=2, cls=DashboardEncoder))
"""

FOUNDATION = """
from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.timeseries import Panel
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import DataSourceRef

source = DataSourceRef(type_val="prometheus", uid="${datasource}")
board = Dashboard("Sixty").uid("sixty")
for index in range(60):
    if index % 2 == 0:
        unit = "reqps"
        queries = [("admitted", "sum by (instance) (rate(sightline_requests_admitted_total{SCOPE}[$__rate_interval]))"),
                   ("refused", "sum by (instance) (rate(sightline_requests_rejected_total{SCOPE}[$__rate_interval]))")]
    else:
        unit = "s"
        quantile = ("histogram_quantile(%s, sum by (instance, le) "
                    "(rate(sightline_time_to_first_token_seconds_bucket{SCOPE}[$__rate_interval])))")
        queries = [("p50", quantile % 0.5), ("p95", quantile % 0.95)]
    panel = Panel().title(f"Panel {index}").description("Read it.").unit(unit).datasource(source).span(12).height(8)
    for n, (name, expr) in enumerate(queries):
        query = Dataquery().expr(expr.replace("SCOPE", SCOPE)).legend_format(name + " {{instance}}").ref_id("AB"[n])
        panel = panel.with_target(query.datasource(source))
    board = board.with_panel(panel)
print(JSONEncoder(sort_keys=True, indent=2).encode(board.build()))
"""

SCOPE = ",".join(
    f'{label}=~"${label}"' for label in ("cluster", "job", "engine_role", "model_name", "instance"))


def measure(command):
    """User seconds, wall seconds and bytes written of one process."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    written = len(process.stdout.read())
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"exit code {process.returncode}: {' '.join(map(str, command))[:200]}")
    return usage.ru_utime, wall, written


def in_turns(commands):
    """Medians of each command, each round all of them one after the other."""
    samples = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            samples[name].append(measure(command))
    return {name: [statistics.median(column) for column in zip(*rows)] for name, rows in samples.items()}


def peers():
    """A Python that has both packages, or none and why."""
    key = hashlib.sha256("\n".join([sys.version, *PACKAGES]).encode()).hexdigest()[:12]
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    folder = cache / "sightline" / f"bench-dashboards-{key}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        except subprocess.CalledProcessError as error:
            return None, str(error)
        (folder / "complete").touch()
    return python, ""


def ours(program):
    with tempfile.TemporaryDirectory() as folder:
        commands = {
            "generate": [program, "generate", "--out", folder],
            "lint": [program, "lint"],
            "check": [program, "check"],
        }
        medians = in_turns(commands)
        files = sum(1 for path in pathlib.Path(folder).rglob("*") if path.is_file())
    print(f"everything ({files} files), median of {ROUNDS}")
    print(f"{'command':28} {'user ms':>8} {'wall ms':>8}")
    for name, (user, wall, _) in medians.items():
        print(f"{name:28} {user * 1e3:8.1f} {wall * 1e3:8.1f}")
    both = medians["generate"][0] + medians["lint"][0]
    verdict = "within" if both <= BAR_SECONDS else "MORE THAN"
    print(f"{'generate + lint':28} {both * 1e3:8.1f}   {verdict} {BAR_SECONDS * 1e3:.0f} ms")


def beside(sixty):
    commands = {"ours": [sixty], "ours, linted": [sixty, "--lint"]}
    python, why = peers()
    if python:
        scope = f"SCOPE = {SCOPE!r}\n"
        commands["grafanalib 0.7.1"] = [python, "-c", scope + GRAFANALIB]
        commands["foundation-sdk 0.0.21"] = [python, "-c", scope + FOUNDATION]
        commands["python alone"] = [python, "-c", "pass"]
    else:
        print(f"SKIP grafanalib and foundation-sdk cannot be installed: {why}")
    medians = in_turns(commands)
    base = medians["ours, linted"]
    print(f"\n60 panels of two queries, whole process, median of {ROUNDS}; ratios to ours, linted")
    print(f"{'generator':28} {'user ms':>8} {'wall ms':>8} {'KB':>6} {'user':>7} {'wall':>7}")
    for name, (user, wall, size) in medians.items():
        ratios = f"{user / base[0]:7.1f} {wall / base[1]:7.1f}" if base[0] else ""
        print(f"{name:28} {user * 1e3:8.1f} {wall * 1e3:8.1f} {size / 1e3:6.0f} {ratios}")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    program, sixty = (pathlib.Path(word).resolve() for word in sys.argv[1:])
    ours(program)
    beside(sixty)


main()
