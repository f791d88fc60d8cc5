"""What the clients' checks share: cases, plain HTTP beside the client, the server's own counts."""

import json
import sys
import threading
import time
import traceback
import urllib.error
import urllib.request

API = sys.argv[1]
# Who generates: another process where a router is asked.
WORKER = sys.argv[2] if len(sys.argv) > 2 else API
PROMPT = "The harbour office keeps a ledger of"
# The fixture's weights are random: without this it may stop after a token or two.
KEEP_GOING = {"ignore_eos": True}
CASES = []


def case(function):
    """Registers a case; it returns what it checked, in words, and fails by raising."""
    CASES.append(function)
    return function


def run():
    failed = 0
    for function in CASES:
        try:
            print(f"ok   {function.__name__}: {function()}", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL {function.__name__}\n{traceback.format_exc()}", flush=True)
    print(f"{len(CASES) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


def post(path, body):
    """Status and JSON of a plain request."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(API + path, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def get(path, at=API):
    with urllib.request.urlopen(at + path, timeout=60) as answer:
        return answer.read().decode()


MODEL = json.loads(get("/v1/models"))["data"][0]["id"]


def completion(**fields):
    """The server's own answer to a completion, without the client."""
    body = {"model": MODEL, "prompt": PROMPT, "temperature": 0, "max_tokens": 16, **KEEP_GOING, **fields}
    status, answer = post("/v1/completions", body)
    assert status == 200, answer
    return answer


def chat(content, **fields):
    messages = [{"role": "user", "content": content}]
    body = {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 16, **KEEP_GOING, **fields}
    status, answer = post("/v1/chat/completions", body)
    assert status == 200, answer
    return answer


def metric(name, at=API, **labels):
    """The sum over all series of a metric that carry the labels."""
    total = 0.0
    for line in get("/metrics", at).splitlines():
        series, _, value = line.rpartition(" ")
        if series.split("{")[0] == name and all(f'{k}="{v}"' in series for k, v in labels.items()):
            total += float(value)
    return total


def wait_for(condition, what):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, f"not within 60 s: {what}"
        time.sleep(0.02)


def raises(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


class Full:
    """A server that holds as many long streams as it takes, and refuses all else, until left."""

    ROOM_MAX = 64

    def __init__(self):
        self.leave = threading.Event()
        self.threads = []

    def hold(self):
        body = {"model": MODEL, "prompt": PROMPT, "temperature": 0, "max_tokens": 3000, **KEEP_GOING}
        data = json.dumps({**body, "stream": True}).encode()
        while not self.leave.is_set():
            request = urllib.request.Request(
                API + "/v1/completions", data, {"content-type": "application/json"}
            )
            try:
                with urllib.request.urlopen(request, timeout=120) as answer:
                    while not self.leave.is_set() and answer.readline():
                        pass
            except urllib.error.HTTPError as error:
                assert error.code == 429, error.code
                return
            except TimeoutError:
                return

    def __enter__(self):
        before = refusals()
        # One by one: when one is refused, those before it are in.
        while refusals() == before:
            assert len(self.threads) < self.ROOM_MAX, "it refuses nobody"
            seen = admitted() + refusals()
            self.threads.append(threading.Thread(target=self.hold))
            self.threads[-1].start()
            wait_for(lambda: admitted() + refusals() > seen, "it is in, or refused")
        return self

    def __exit__(self, *_):
        self.leave.set()
        # A stream that waits in the queue reads nothing until it runs; those that run have left.
        for thread in self.threads:
            thread.join()


def admitted():
    return metric("sightline_requests_admitted_total", at=WORKER)


def refusals():
    return metric("sightline_requests_rejected_total")
