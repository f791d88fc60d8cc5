"""What aiperf reported of its load, against the server's own counts."""

import json
import pathlib
import sys

from common import case, metric, run

OUT = pathlib.Path(sys.argv[2])
REPORT = json.loads((OUT / "profile_export_aiperf.json").read_text())
REQUESTS = 24
TOKENS = 8


@case
def every_request_ended_well():
    assert REPORT["request_count"]["avg"] == REQUESTS, REPORT["request_count"]
    assert not REPORT["error_summary"] and not REPORT["was_cancelled"], REPORT["error_summary"]
    assert metric("sightline_requests_finished_total", outcome="length") == REQUESTS
    assert metric("sightline_requests_admitted_total") == REQUESTS
    return f"{REQUESTS} requests here and at the server, no errors"


@case
def lengths_are_the_servers():
    usage = REPORT["usage_completion_tokens"]
    assert usage["min"] == usage["max"] == TOKENS, usage
    total = REPORT["total_usage_completion_tokens"]["avg"]
    assert total == REQUESTS * TOKENS == metric("sightline_generation_tokens_total"), total
    prompts = REPORT["total_usage_prompt_tokens"]["avg"]
    assert prompts == metric("sightline_prompt_tokens_total"), prompts
    return f"{total:.0f} tokens out, {prompts:.0f} in, as the server counts them"


@case
def latencies_hold_together():
    first, whole = REPORT["time_to_first_token"], REPORT["request_latency"]
    between = REPORT["inter_token_latency"]
    assert first["count"] == whole["count"] == REQUESTS
    assert 0 < first["min"] <= first["p50"] <= first["p99"] <= first["max"] <= whole["max"]
    assert between["avg"] > 0
    # The server sees each token no later than the client.
    count = metric("sightline_time_to_first_token_seconds_count")
    mean = 1000 * metric("sightline_time_to_first_token_seconds_sum") / count
    assert count == REQUESTS and mean <= first["avg"], (count, mean, first)
    return f"mean time to first token {first['avg']:.0f} ms, at the server {mean:.0f} ms"


@case
def it_finds_the_servers_metrics():
    exported = json.loads((OUT / "server_metrics_export.json").read_text())["metrics"]
    series = exported["sightline_generation_tokens"]["series"]
    assert sum(one["stats"]["total"] for one in series) == REQUESTS * TOKENS
    own = sorted(name for name in exported if name.startswith("sightline_"))
    assert len(own) > 20, own
    return f"{len(own)} metrics of the server in its export, tokens counted exactly"


run()
