#!/usr/bin/env python3
"""How soon a board of the console stands, in a real browser.

Starts `sightline up` with a model and the demo load, opens the overview (14 and more panels in the
window) in a new browser profile again and again, and tells, for each load: when the last panel in
the window was drawn, what the server and the main thread of the page spent on it, and how long a
fixed loop takes in that browser, against which other machines and busy moments can be read.

usage: bench_console.py SIGHTLINE MODEL [RUNS]
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

WIDTH, HEIGHT = 1440, 1120
LIMIT = 1.5
TICKS = os.sysconf("SC_CLK_TCK")
LOOP = "const t = performance.now(); let x = 0; for (let i = 0; i < 3e7; i += 1) x = (x * 31 + i) | 0;" \
    " return performance.now() - t + 0 * x;"
MARKS = "return Object.fromEntries(performance.getEntriesByType('mark').map(" \
    "m => [m.name, [m.startTime, m.detail]]))"
SIZES = "const all = performance.getEntriesByType('resource');" \
    " return [all.length, all.reduce((sum, one) => sum + one.transferSize, 0)]"


def call(method, url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        sys.exit(f"{url}: {error.read().decode()[:300]}")


def cpu(pid):
    """Seconds of processor time of a process and of the children that it has waited for."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Browser:
    """One window with an empty cache."""

    def __init__(self):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        port = next(m[1] for line in self.driver.stdout
                    if (m := re.search(r"started successfully on port (\d+)", line)))
        base = f"http://127.0.0.1:{port}/session"
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        args = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                f"--user-data-dir={self.profile.name}", f"--window-size={WIDTH},{HEIGHT}"]
        opened = call("POST", base, {"capabilities": {"alwaysMatch": {"goog:chromeOptions": {"args": args}}}})
        self.base = f"{base}/{opened['sessionId']}"
        call("POST", f"{self.base}/timeouts", {"script": 60000, "pageLoad": 60000})

    def cdp(self, command, **params):
        return call("POST", f"{self.base}/goog/cdp/execute", {"cmd": command, "params": params})

    def run(self, script):
        return call("POST", f"{self.base}/execute/sync", {"script": script, "args": []})

    def thread(self):
        """Seconds that the main thread of the page has worked."""
        metrics = self.cdp("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in metrics if one["name"] == "TaskDuration")

    def load(self, url):
        call("POST", f"{self.base}/url", {"url": url})
        wait = "const done = arguments[0]; const look = () => performance.getEntriesByName(" \
            "'panels-drawn').length ? done(true) : setTimeout(look, 20); look();"
        call("POST", f"{self.base}/execute/async", {"script": wait, "args": []})

    def close(self):
        call("DELETE", self.base)
        self.driver.terminate()
        self.driver.wait()
        self.profile.cleanup()


def measure(console, server):
    browser = Browser()
    try:
        browser.load("data:text/html,<script>performance.mark('panels-drawn')</script>")
        loop = min(browser.run(LOOP) for _ in range(3))
        browser.cdp("Performance.enable", timeDomain="threadTicks")
        before, spent = browser.thread(), cpu(server)
        browser.load(f"{console}/d/sightline-overview?from=now-30m&refresh=off")
        # A new page counts from nothing where it got a process of its own.
        worked = browser.thread()
        worked -= before if worked > before else 0
        marks, (requests, size) = browser.run(MARKS), browser.run(SIZES)
        drawn, panels = marks["panels-drawn"]
        return {
            "drawn": drawn / 1000, "asked": marks["panels-asked"][0] / 1000,
            "answered": marks["panels-answered"][0] / 1000, "page": worked,
            "server": cpu(server) - spent, "loop": loop / 1000, "panels": panels,
            "requests": requests, "kB": size / 1000,
        }
    finally:
        browser.close()


def main():
    program, model, runs = *sys.argv[1:3], int(sys.argv[3]) if len(sys.argv) > 3 else 7
    up = subprocess.Popen([program, "up", "--model", model, "--port", "0", "--console-port", "0"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    console = None
    for line in up.stdout:
        words = line.split()
        if words[:1] == ["console"]:
            console = words[1].rstrip("/")
        if "Ctrl-C drains" in line:
            break
    else:
        sys.exit("sightline up did not start")
    try:
        found = [measure(console, up.pid) for _ in range(runs + 1)][1:]
    finally:
        up.terminate()
        up.wait()
    print(f"{runs} loads of {found[0]['panels']} panels, a new profile each; load {os.getloadavg()[0]:.1f}")
    for name, unit in [("drawn", "s"), ("asked", "s"), ("answered", "s"), ("page", "s of its main thread"),
                       ("server", "s of the console's process"), ("loop", "s for the fixed loop"),
                       ("requests", ""), ("kB", "over the wire")]:
        values = sorted(one[name] for one in found)
        print(f"  {name:9} median {statistics.median(values):8.3f}  least {values[0]:8.3f}"
              f"  most {values[-1]:8.3f} {unit}")
    ratio = statistics.median(one["drawn"] / one["loop"] for one in found)
    best = min(one["drawn"] for one in found)
    print(f"  drawn over loop: {ratio:.1f}; least drawn {best:.2f} s, limit {LIMIT} s")
    return 0 if best <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
