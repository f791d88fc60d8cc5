"""What lm-eval reported, against what the server says when asked directly."""

import json
import math
import pathlib
import sys

from transformers import AutoTokenizer

from common import case, completion, run

OUT = pathlib.Path(sys.argv[2])
TOKENIZER = AutoTokenizer.from_pretrained(sys.argv[3])
CHOICES = [json.loads(line) for line in (pathlib.Path(__file__).parent / "tasks/questions.jsonl").open()]


def one(pattern):
    found = sorted(OUT.rglob(pattern))
    assert len(found) == 1, (pattern, found)
    return found[0].read_text()


RESULTS = json.loads(one("results_*.json"))["results"]


def samples(task):
    lines = [json.loads(line) for line in one(f"samples_{task}_*.jsonl").splitlines()]
    return sorted(lines, key=lambda line: line["doc_id"])


def direct(context, continuation):
    """Sum of the continuation's log-probabilities, read from an echoed prompt by hand."""
    ids, start = TOKENIZER.encode(context + continuation), len(TOKENIZER.encode(context))
    # Like lm-eval's own requests, which the end token may answer: it too has its entry.
    fields = {"echo": True, "logprobs": 1, "max_tokens": 1, "ignore_eos": False}
    choice = completion(prompt=ids, **fields)["choices"][0]
    values = choice["logprobs"]["token_logprobs"]
    assert len(values) == len(ids) + 1, "one for each token of the prompt and the generated one"
    return sum(values[start:-1])


@case
def log_likelihoods_are_the_servers():
    compared, largest = 0, 0.0
    for sample, doc in zip(samples("harbour_choice"), CHOICES):
        assert sample["doc"]["question"] == doc["question"]
        for choice, response in zip(doc["choices"], sample["filtered_resps"]):
            context = f"Question: {doc['question']}\nAnswer:"
            expected, reported = direct(context, f" {choice}"), float(response[0])
            assert math.isfinite(reported) and reported < 0
            largest = max(largest, abs(expected - reported))
            compared += 1
    assert compared == 18 and largest < 1e-4, (compared, largest)
    return f"{compared} log-likelihoods, largest difference {largest:.1e}"


@case
def accuracy_follows_from_them():
    right = 0
    for doc in CHOICES:
        context = f"Question: {doc['question']}\nAnswer:"
        sums = [direct(context, f" {choice}") for choice in doc["choices"]]
        right += sums.index(max(sums)) == doc["answer"]
    accuracy = RESULTS["harbour_choice"]["acc,none"]
    assert math.isclose(accuracy, right / len(CHOICES)), (accuracy, right)
    return f"acc {accuracy:.3f} is {right} of {len(CHOICES)}"


@case
def generations_are_the_servers():
    found = samples("harbour_generate")
    for sample, doc in zip(found, CHOICES):
        prompt = f"Question: {doc['question']}\nAnswer:"
        own = completion(prompt=prompt, max_tokens=12, stop=["\n", "e"], ignore_eos=False)["choices"][0]["text"]
        assert sample["resps"][0][0] == own, (sample["resps"], own)
    return f"{len(found)} texts, each cut at its stop string as by the server"


run()
