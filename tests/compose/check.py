"""Checks of the composed stack, from outside. Each prints what it found and ends with 1 where something is not so."""

import hashlib
import json
import pathlib
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

# What a board may read that a stack in containers on a machine without GPUs does not have.
NOT_HERE = {
    "sightline_node_gpu_": "GPUs",
    "sightline_node_rdma_": "RDMA ports",
    "sightline_node_service_": "units and control groups of services",
    "sightline_node_hostcache_": "control groups of services",
    "node_role:sightline_maintenance_": "planned work",
    # How fast prefill is, is told where it was busy for a twentieth of five minutes; the tiny model hardly ever is.
    "instance:sightline_prefill_capacity_tokens": "a model that keeps prefill busy",
    "instance:sightline_queue_drain_seconds": "a model that keeps prefill busy",
}
WORKERS = {"prefill", "decode", "router"}


def fail(message):
    print(message)
    sys.exit(1)


def get(url, body=None, timeout=30):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        fail(f"{url}: {error.code} {error.read()[:300]!r}")
    except OSError as error:
        fail(f"{url}: {error}")


def api(prometheus, path, **parameters):
    answer = json.loads(get(f"{prometheus}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"))
    return answer["data"]


def docker(*arguments):
    return subprocess.run(["docker", *arguments], check=True, capture_output=True, text=True).stdout


def containers(project):
    label = f"label=com.docker.compose.project={project}"
    ids = docker("ps", "--all", "--quiet", "--filter", label).split()
    found = json.loads(docker("inspect", *ids)) if ids else []
    return {c["Config"]["Labels"]["com.docker.compose.service"]: c for c in found}


def healthy(project):
    found = containers(project)
    expected = WORKERS | {"exporter", "prometheus", "alertmanager", "grafana"}
    missing = (expected | {"load", "fetch-model", "prepare"}) - set(found)
    if missing:
        fail(f"no container of {sorted(missing)}")
    health = {name: found[name]["State"].get("Health", {}).get("Status") for name in expected}
    bad = {name: status for name, status in health.items() if status != "healthy"}
    if bad:
        fail(f"{bad}")
    for name in ("fetch-model", "prepare"):
        if found[name]["State"]["ExitCode"] != 0:
            fail(f"{name} ended with {found[name]['State']['ExitCode']}")
    restarted = {name: c["RestartCount"] for name, c in found.items() if c["RestartCount"]}
    if restarted:
        fail(f"restarted: {restarted}")
    print(f"{len(expected)} of them")


def chat(api_url):
    for stream in (False, True):
        body = {"model": "tiny", "max_tokens": 8, "stream": stream}
        body["messages"] = [{"role": "user", "content": "What does the harbour see?"}]
        answer = get(f"{api_url}/v1/chat/completions", body).decode()
        if stream:
            if not answer.rstrip().endswith("data: [DONE]"):
                fail(f"the stream does not end: {answer[-200:]!r}")
        elif json.loads(answer)["usage"]["completion_tokens"] < 1:
            fail(f"no tokens: {answer}")
    print(f"the API at {api_url} answers")


def prometheus(url):
    active = api(url, "targets", state="active")["activeTargets"]
    jobs = {target["labels"]["job"]: target["health"] for target in active}
    expected = {f"sightline-{role}" for role in WORKERS | {"node"}}
    if set(jobs) != expected or set(jobs.values()) != {"up"}:
        fail(f"targets: {jobs}, {[t['lastError'] for t in active]}")
    groups = api(url, "rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    bad = [rule["name"] for rule in rules if rule["health"] != "ok"]
    if len(rules) < 50 or bad:
        fail(f"{len(rules)} rules, not evaluated: {bad}")
    managers = api(url, "alertmanagers")["activeAlertmanagers"]
    if len(managers) != 1:
        fail(f"alertmanagers: {managers}")
    print(f"{len(active)} targets, {len(rules)} rules")


def grafana(url):
    mounted = {}
    for line in get(f"{url}/mounted").decode().splitlines():
        digest, path = line.split(maxsplit=1)
        mounted[path] = digest
    here = {
        "/etc/sightline/dashboards": "dashboards/generated",
        "/etc/grafana/provisioning/datasources": "dashboards/provisioning/datasources",
        "/etc/grafana/provisioning/dashboards": "dashboards/provisioning/dashboards",
    }
    count = 0
    for folder, source in here.items():
        for file in pathlib.Path(source).glob("*.*"):
            path = f"{folder}/{file.name}"
            if mounted.get(path) != hashlib.sha256(file.read_bytes()).hexdigest():
                fail(f"{file} is not mounted at {path}")
            count += 1
    if any("/sglang/" in path or "/vllm/" in path for path in mounted):
        fail("dashboards over other engines are there, too")
    if "/usr/share/grafana/public/sightline/runbook.md" not in mounted:
        fail("the runbook is not mounted")
    print(f"{count} files are mounted for Grafana, byte for byte")


def boards(url):
    """Every metric that a board reads is there, but what this stack cannot have; that is named."""
    names = set(api(url, "label/__name__/values"))
    stems = {n.removesuffix(s) for n in names for s in ("_bucket", "_sum", "_count", "")}
    manifest = json.loads(pathlib.Path("dashboards/manifest.json").read_text())
    ours = [board for board in manifest["dashboards"] if board["uid"].startswith("sightline-")]
    missing, without = [], {}
    for board in ours:
        for metric in board["metrics"]:
            if metric in stems:
                continue
            why = next((why for prefix, why in NOT_HERE.items() if metric.startswith(prefix)), None)
            if why:
                without[why] = without.get(why, 0) + 1
            else:
                missing.append(f"{board['uid']}: {metric}")
    if missing or len(ours) < 6:
        fail(f"of {len(ours)} boards: {missing}")
    print(f"{len(ours)} boards, without {without}")


def hardened(project):
    """No root but where it is said, nothing writable, no capability, only loopback."""
    for name, container in containers(project).items():
        host = container["HostConfig"]
        if not host["ReadonlyRootfs"] or host["CapDrop"] != ["ALL"] or not host["Memory"] and name not in ("fetch-model",):
            fail(f"{name}: {host['ReadonlyRootfs']} {host['CapDrop']} {host['Memory']}")
        if container["Config"]["User"].startswith("0") != (name == "fetch-model"):
            fail(f"{name} runs as {container['Config']['User']!r}")
        policy = host["RestartPolicy"]
        if policy["Name"] not in ("no", "on-failure") or policy["Name"] == "on-failure" and not policy["MaximumRetryCount"]:
            fail(f"{name} is restarted without bound: {policy}")
        for ports in (host["PortBindings"] or {}).values():
            if any(port["HostIp"] != "127.0.0.1" for port in ports):
                fail(f"{name} listens beyond this machine: {ports}")
    print("read-only roots, no capabilities, other users than root, loopback alone")


def alert(name, prometheus_url, manager):
    firing = [a for a in api(prometheus_url, "alerts")["alerts"] if a["labels"]["alertname"] == name]
    if not any(a["state"] == "firing" for a in firing):
        fail(f"{name} is {[a['state'] for a in firing] or 'silent'}")
    known = json.loads(get(f"{manager}/api/v2/alerts"))
    of_it = [a for a in known if a["labels"]["alertname"] == name]
    if not of_it:
        fail(f"Alertmanager knows {sorted({a['labels']['alertname'] for a in known})}")
    print(f"{of_it[0]['labels'].get('instance')} to {[r['name'] for r in of_it[0]['receivers']]}")


def refused(*arguments):
    """`up` fails, some container or `up` itself says so, and no worker was started."""
    split = arguments.index("--")
    expected, command = arguments[:split], arguments[split + 1 :]
    run = subprocess.run(command, capture_output=True, text=True, timeout=180)
    told = run.stdout + run.stderr
    logs = subprocess.run(["docker-compose", "logs", "--no-color"], capture_output=True, text=True)
    if run.returncode == 0:
        fail(f"{command} went well: {told[-500:]}")
    text = told + logs.stdout
    missing = [words for words in expected if words not in text]
    if missing:
        fail(f"{command} does not say {missing}: {text[-3000:]}")
    line = next(line for line in text.splitlines() if expected[0] in line)
    print(f"{line.strip()[:160]}")
    subprocess.run(["docker-compose", "down", "--volumes", "--timeout", "5"], capture_output=True)


def ended(project):
    codes = {name: c["State"]["ExitCode"] for name, c in containers(project).items() if name in WORKERS | {"exporter"}}
    if set(codes.values()) != {0}:
        fail(f"SIGTERM did not end them cleanly: {codes}")
    print("SIGTERM ended all of them with 0")


def nothing(project):
    label = f"label=com.docker.compose.project={project}"
    left = {
        "containers": docker("ps", "--all", "--quiet", "--filter", label).split(),
        "networks": docker("network", "ls", "--quiet", "--filter", label).split(),
        "volumes": docker("volume", "ls", "--quiet", "--filter", label).split(),
    }
    if any(left.values()):
        fail(f"left over: {left}")
    print("nothing is left")


CHECKS = {
    "healthy": healthy, "chat": chat, "prometheus": prometheus, "grafana": grafana, "boards": boards,
    "hardened": hardened, "alert": alert, "refused": refused, "ended": ended, "nothing": nothing,
}

if __name__ == "__main__":
    CHECKS[sys.argv[1]](*sys.argv[2:])
