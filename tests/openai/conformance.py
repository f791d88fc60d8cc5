"""What people do with the official openai package, against a running server: BASE_URL as argument.

Each function named `case_*` is a case; it fails by raising. The server holds 4 running and 8 waiting.
"""

import asyncio
import sys
import threading
import traceback

import openai

BASE = sys.argv[1] + "/v1"
client = openai.OpenAI(base_url=BASE, api_key="unused", max_retries=0, timeout=60)
MODEL = client.models.list().data[0].id
PROMPT = "The harbour office keeps a ledger of"
CHAT = [{"role": "user", "content": "What does the harbour office keep?"}]
# The fixture's weights are random: without this it may stop after a token or two.
KEEP_GOING = {"ignore_eos": True}


def complete(**fields):
    fields = {"prompt": PROMPT, "temperature": 0, "max_tokens": 24, "extra_body": KEEP_GOING, **fields}
    return client.completions.create(model=MODEL, **fields)


def chat(**fields):
    fields = {"messages": CHAT, "temperature": 0, "max_tokens": 24, "extra_body": KEEP_GOING, **fields}
    return client.chat.completions.create(model=MODEL, **fields)


def raises(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def case_models():
    assert client.models.retrieve(MODEL).id == MODEL
    raises(openai.NotFoundError, lambda: client.models.retrieve("no-such-model"))


def case_completion_envelope_and_usage():
    answer = complete()
    assert answer.object == "text_completion" and answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 24
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 24


def case_greedy_is_repeatable_alone_and_in_a_batch():
    alone = complete().choices[0].text

    async def together():
        many = openai.AsyncOpenAI(base_url=BASE, api_key="unused", max_retries=5, timeout=60)
        calls = [
            many.completions.create(
                model=MODEL, prompt=PROMPT, temperature=0, max_tokens=24, extra_body=KEEP_GOING
            )
            for _ in range(8)
        ]
        texts = {answer.choices[0].text for answer in await asyncio.gather(*calls)}
        await many.close()
        return texts

    assert asyncio.run(together()) == {alone}


def case_stream_equals_whole_and_ends_with_usage():
    whole = chat()
    text, usage, reasons = "", None, []
    for chunk in chat(stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reasons += [choice.finish_reason] if choice.finish_reason else []
    assert text == whole.choices[0].message.content
    assert reasons == [whole.choices[0].finish_reason]
    assert usage.completion_tokens == whole.usage.completion_tokens


def case_seed_and_temperature():
    def sampled(seed):
        return complete(temperature=1.0, seed=seed).choices[0].text

    assert sampled(7) == sampled(7)
    assert len({sampled(seed) for seed in range(6)}) > 1


def case_stop_string_cuts_before_it():
    whole = complete(max_tokens=48).choices[0].text
    stop = whole[9:13]
    cut = complete(max_tokens=48, stop=stop)
    assert cut.choices[0].text == whole[: whole.index(stop)], (whole, stop, cut)
    assert cut.choices[0].finish_reason == "stop"
    assert cut.usage.completion_tokens < 48


def case_logprobs():
    content = chat(logprobs=True, top_logprobs=3, max_tokens=6).choices[0].logprobs.content
    assert len(content) == 6
    for token in content:
        assert token.logprob <= 0 and len(token.top_logprobs) == 3
        assert token.logprob == token.top_logprobs[0].logprob, "greedy takes the best"


def case_n_and_prompt_lists():
    many = complete(n=3, temperature=1.0, max_tokens=8)
    assert sorted(choice.index for choice in many.choices) == [0, 1, 2]
    prompts = ["one", "two"]
    both = complete(prompt=prompts, max_tokens=6)
    alone = [complete(prompt=prompt, max_tokens=6).choices[0].text for prompt in prompts]
    assert [choice.text for choice in sorted(both.choices, key=lambda c: c.index)] == alone


def case_errors_map_to_the_packages_types():
    error = raises(openai.NotFoundError, lambda: client.completions.create(model="x", prompt="a"))
    assert error.body["message"]
    raises(openai.BadRequestError, lambda: complete(max_tokens=-1))
    raises(openai.BadRequestError, lambda: complete(temperature=9))
    long = raises(openai.BadRequestError, lambda: complete(prompt="word " * 20_000))
    assert long.code == "context_length_exceeded", long.body
    assert "maximum context length is" in long.body["message"]


def case_a_full_queue_refuses_and_the_package_retries():
    statuses = []

    def occupy():
        impatient = openai.OpenAI(base_url=BASE, api_key="unused", max_retries=0, timeout=60)
        try:
            impatient.completions.create(
                model=MODEL, prompt=PROMPT, max_tokens=1500, temperature=0, extra_body=KEEP_GOING
            )
            statuses.append(200)
        except openai.RateLimitError as error:
            statuses.append(error.status_code)
            assert int(error.response.headers["retry-after"]) >= 1

    threads = [threading.Thread(target=occupy) for _ in range(24)]
    for thread in threads:
        thread.start()
    patient = openai.OpenAI(base_url=BASE, api_key="unused", max_retries=20, timeout=60)
    assert patient.completions.create(model=MODEL, prompt=PROMPT, max_tokens=2).choices
    for thread in threads:
        thread.join()
    assert set(statuses) == {200, 429}, statuses


def case_leaving_a_stream_frees_the_server():
    for _ in range(6):
        stream = complete(max_tokens=1500, stream=True)
        next(iter(stream))
        stream.close()
    assert complete(max_tokens=2).choices


failed = 0
cases = [(name, case) for name, case in globals().items() if name.startswith("case_")]
for name, case in cases:
    try:
        case()
        print(f"ok   {name}", flush=True)
    except Exception:
        failed += 1
        print(f"FAIL {name}\n{traceback.format_exc()}", flush=True)
print(f"{len(cases) - failed} passed, {failed} failed")
sys.exit(1 if failed else 0)
