"""The openai package against a running server of 4 running and 4 queued requests."""

import asyncio
import json
import threading

import openai

from common import API, KEEP_GOING, MODEL, PROMPT, WORKER, Full, case, chat, completion, metric, raises, refusals, run, wait_for

client = openai.OpenAI(base_url=API + "/v1", api_key="unused", max_retries=0, timeout=60)
USER = "What does the harbour office keep?"
MESSAGES = [{"role": "user", "content": USER}]


def ask(**fields):
    fields = {"messages": MESSAGES, "temperature": 0, "max_tokens": 16, "extra_body": KEEP_GOING, **fields}
    return client.chat.completions.create(model=MODEL, **fields)


def complete(**fields):
    fields = {"prompt": PROMPT, "temperature": 0, "max_tokens": 16, "extra_body": KEEP_GOING, **fields}
    return client.completions.create(model=MODEL, **fields)


@case
def answers_are_the_servers():
    whole = ask()
    assert whole.choices[0].message.content == chat(USER)["choices"][0]["message"]["content"]
    assert whole.usage.completion_tokens == 16 and whole.choices[0].finish_reason == "length"
    assert complete().choices[0].text == completion()["choices"][0]["text"]
    assert client.models.retrieve(MODEL).id == MODEL
    return f"chat and completion of {MODEL}, {whole.usage.total_tokens} tokens in usage"


@case
def streams():
    text, usage, chunks = "", None, 0
    for chunk in ask(stream=True, stream_options={"include_usage": True}):
        chunks += 1
        usage = chunk.usage or usage
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
    assert text == ask().choices[0].message.content
    assert usage.completion_tokens == 16
    return f"{chunks} chunks make the same text, usage in the last"


@case
def the_stream_helper():
    with client.chat.completions.stream(
        model=MODEL, messages=MESSAGES, temperature=0, max_tokens=16, extra_body=KEEP_GOING
    ) as stream:
        events = list(stream)
    text = "".join(event.delta for event in events if event.type == "content.delta")
    assert text == ask().choices[0].message.content
    kinds = sorted({event.type for event in events})
    assert "chunk" in kinds and "content.done" in kinds, kinds
    return f"the same text in events {', '.join(kinds)}"


@case
def many_at_once():
    async def together():
        many = openai.AsyncOpenAI(base_url=API + "/v1", api_key="unused", max_retries=10, timeout=60)
        calls = [
            many.completions.create(model=MODEL, prompt=PROMPT, temperature=0, max_tokens=16, extra_body=KEEP_GOING)
            for _ in range(16)
        ]
        answers = await asyncio.gather(*calls)
        await many.close()
        return [answer.choices[0].text for answer in answers]

    texts = asyncio.run(together())
    assert set(texts) == {complete().choices[0].text}
    return f"{len(texts)} together, each as alone"


@case
def choices_prompts_and_stops():
    many = complete(n=3, temperature=1.0, seed=1, max_tokens=8)
    assert sorted(choice.index for choice in many.choices) == [0, 1, 2]
    both = complete(prompt=["one", "two"], max_tokens=6)
    alone = [complete(prompt=prompt, max_tokens=6).choices[0].text for prompt in ("one", "two")]
    assert [choice.text for choice in sorted(both.choices, key=lambda c: c.index)] == alone
    whole = complete(max_tokens=48).choices[0].text
    stop = whole[9:13]
    cut = complete(max_tokens=48, stop=[stop]).choices[0]
    assert (cut.text, cut.finish_reason) == (whole[: whole.index(stop)], "stop")
    return "n=3, a list of prompts, a stop string"


@case
def log_probabilities():
    content = ask(logprobs=True, top_logprobs=4, max_tokens=5).choices[0].logprobs.content
    assert len(content) == 5 and all(len(token.top_logprobs) == 4 for token in content)
    assert all(token.logprob == token.top_logprobs[0].logprob <= 0 for token in content)
    return "five tokens with four alternatives each"


@case
def prompt_log_probabilities():
    echoed = complete(echo=True, logprobs=1, max_tokens=1).choices[0]
    logprobs = echoed.logprobs
    assert echoed.text.startswith(PROMPT) and "".join(logprobs.tokens).endswith(echoed.text[-1])
    # Nothing comes before the first token; every other token has a number.
    known = [value for value in logprobs.token_logprobs if value is not None]
    assert len(known) == len(logprobs.tokens) - 1 and all(value <= 0 for value in known)
    return f"echo gives {len(known)} numbers for {len(logprobs.tokens)} tokens"


@case
def structured_output():
    schema = {
        "type": "object",
        "properties": {"open": {"type": "boolean"}, "kind": {"enum": ["ship", "boat"]}},
        "required": ["open", "kind"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "harbour", "schema": schema, "strict": True}}
    answer = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, temperature=0, max_tokens=200, response_format=form
    ).choices[0]
    found = json.loads(answer.message.content)
    assert set(found) == {"open", "kind"} and found["kind"] in ("ship", "boat"), found
    assert isinstance(found["open"], bool)
    return f"random weights still answer {found}"


@case
def tools_are_taken():
    tool = {
        "type": "function",
        "function": {
            "name": "tide",
            "description": "The tide at a place",
            "parameters": {"type": "object", "properties": {"place": {"enum": ["quay", "roads"]}}, "required": ["place"]},
        },
    }
    refused = raises(openai.BadRequestError, lambda: ask(tools=[tool], tool_choice="auto"))
    assert "chat template" in refused.body["message"], "this fixture's template has no place for tools"
    forced = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, temperature=0, max_tokens=300, tools=[tool], tool_choice="required"
    ).choices[0]
    call = forced.message.tool_calls[0].function
    assert call.name == "tide" and json.loads(call.arguments)["place"] in ("quay", "roads"), call
    return f"a forced call of {call.name}, finish_reason {forced.finish_reason}"


@case
def errors_have_the_packages_types():
    long = raises(openai.BadRequestError, lambda: complete(prompt="word " * 20_000))
    assert long.code == "context_length_exceeded" and "maximum context length is 4096" in long.body["message"]
    raises(openai.NotFoundError, lambda: client.completions.create(model="x", prompt="a"))
    raises(openai.BadRequestError, lambda: complete(temperature=9))
    raises(openai.NotFoundError, lambda: client.embeddings.create(model=MODEL, input="a"))
    raises(openai.BadRequestError, lambda: complete(best_of=2))
    return "too long, unknown model, bad value, embeddings, best_of"


@case
def a_full_server_refuses_and_the_package_retries():
    answers = []
    patient = openai.OpenAI(base_url=API + "/v1", api_key="unused", timeout=120)

    def ask_patiently():
        answers.append(patient.completions.create(model=MODEL, prompt=PROMPT, max_tokens=2))

    with Full():
        refused = raises(openai.RateLimitError, lambda: complete(max_tokens=2))
        after = int(refused.response.headers["retry-after"])
        assert after >= 1
        before = refusals()
        thread = threading.Thread(target=ask_patiently)
        thread.start()
        wait_for(lambda: refusals() == before + 1, "the refusal of the patient client")
    thread.join()
    assert answers and answers[0].choices
    return f"429 with Retry-After {after}; with its default of two retries the package got through"


@case
def leaving_a_stream_ends_it_at_the_server():
    before = metric("sightline_requests_aborted_total")
    for _ in range(5):
        stream = complete(max_tokens=3000, stream=True)
        next(iter(stream))
        stream.close()
    wait_for(lambda: metric("sightline_requests_aborted_total") == before + 5, "five aborts counted")
    wait_for(lambda: metric("sightline_running_requests", at=WORKER) == 0, "nothing runs")
    return "five streams left, five aborts counted, nothing runs"


run()
