"""What people do with the official openai package, against a running server: BASE_URL as argument.

Each function named `case_*` is a case; it fails by raising. The server holds 4 running and 8 waiting.
"""

import asyncio
import json
import sys
import threading
import traceback
import typing
import urllib.error
import urllib.request

import openai
import pydantic

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


def send(path, body, headers=None):
    """Status and JSON of a plain POST."""
    headers = {"Content-Type": "application/json", **(headers or {})}
    request = urllib.request.Request(sys.argv[1] + path, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def post(path, fields):
    status, answer = send(path, json.dumps({"model": MODEL, **fields}).encode())
    assert status == 200, answer
    return answer


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


def case_echo_gives_back_the_prompt_and_its_logprobs():
    ids = post("/tokenize", {"prompt": PROMPT})["tokens"]
    for prompt, length in ((PROMPT, 1), (ids, 1), (ids, 0)):
        choice = complete(prompt=prompt, echo=True, logprobs=1, max_tokens=length).choices[0]
        logprobs = choice.logprobs
        assert choice.text.startswith(PROMPT) and (length or choice.text == PROMPT)
        assert "".join(logprobs.tokens) == choice.text
        assert logprobs.token_logprobs[0] is None and logprobs.top_logprobs[0] is None
        assert len(logprobs.token_logprobs) == len(logprobs.text_offset) == len(ids) + length
        for own, top in zip(logprobs.token_logprobs[1:], logprobs.top_logprobs[1:]):
            # What evaluation tools take for greedy is equality of these two numbers.
            assert own <= max(top.values()) and own in top.values()
    # The tokens of an answer are as likely when they are read as when they were generated.
    answer = complete(logprobs=0, max_tokens=8).choices[0]
    whole = ids + post("/tokenize", {"prompt": answer.text, "add_special_tokens": False})["tokens"]
    if len(whole) == len(ids) + 8:
        read = complete(prompt=whole, echo=True, logprobs=0, max_tokens=0).choices[0]
        pairs = zip(answer.logprobs.token_logprobs, read.logprobs.token_logprobs[len(ids) :])
        assert all(abs(a - b) < 1e-4 for a, b in pairs)
    stream = complete(echo=True, logprobs=1, max_tokens=4, stream=True)
    tokens = [token for part in stream for c in part.choices if c.logprobs for token in c.logprobs.tokens]
    assert tokens == complete(echo=True, logprobs=1, max_tokens=4).choices[0].logprobs.tokens
    raises(openai.BadRequestError, lambda: complete(max_tokens=0))


def case_penalties_and_biases_change_the_answer():
    def extra(**fields):
        return {**KEEP_GOING, **fields}

    plain = complete().choices[0].text
    first = post("/tokenize", {"prompt": plain[:1], "add_special_tokens": False})["tokens"][0]
    assert complete(logit_bias={str(first): 100}, max_tokens=4).choices[0].text != plain[:4]
    forced = complete(logit_bias={str(first): 100}, max_tokens=6, logprobs=0).choices[0]
    assert len(set(forced.logprobs.tokens)) == 1
    for penalty in ("presence_penalty", "frequency_penalty"):
        spread = complete(logit_bias={str(first): 30}, max_tokens=24, logprobs=0, **{penalty: 2.0})
        kept = complete(logit_bias={str(first): 30}, max_tokens=24, logprobs=0)
        assert len(set(spread.choices[0].logprobs.tokens)) >= len(set(kept.choices[0].logprobs.tokens))
    assert complete(extra_body=extra(repetition_penalty=5.0)).choices[0].text != plain
    assert complete(temperature=1.5, extra_body=extra(min_p=1.0)).choices[0].text == plain
    assert complete(temperature=1.5, extra_body=extra(top_k=1)).choices[0].text == plain
    error = raises(openai.BadRequestError, lambda: complete(logit_bias={"99999999": 1}))
    assert "99999999" in error.body["message"] and "vocabulary" in error.body["message"]


def case_least_length_and_stop_tokens():
    ids = complete(max_tokens=1, logprobs=1).choices[0].logprobs.tokens
    stop = complete(max_tokens=8).choices[0].text[:2]
    assert complete(max_tokens=8, stop=stop).usage.completion_tokens < 8
    late = complete(max_tokens=8, stop=stop, extra_body={**KEEP_GOING, "min_tokens": 8})
    assert late.usage.completion_tokens == 8 and ids
    first = post("/tokenize", {"prompt": ids[0], "add_special_tokens": False})["tokens"]
    if len(first) == 1:
        fields = {"stop_token_ids": first, "min_tokens": 0}
        cut = complete(max_tokens=8, extra_body=fields)
        assert (cut.choices[0].finish_reason, cut.choices[0].text) == ("stop", "")
        full = complete(max_tokens=8, extra_body={**fields, "min_tokens": 8, **KEEP_GOING})
        assert full.usage.completion_tokens == 8 and full.choices[0].text[:1] != ids[0][:1]


def case_usage_tells_what_was_cached():
    for answer in (complete(), chat()):
        assert answer.usage.prompt_tokens_details.cached_tokens >= 0
    last = None
    for chunk in complete(stream=True, stream_options={"include_usage": True}):
        assert last is None or last.usage is None
        last = chunk
    assert last.choices == [] and last.usage.prompt_tokens_details.cached_tokens >= 0


def case_fields_about_the_request_itself():
    extra = {**KEEP_GOING, "priority": 5, "cache_salt": "a", "min_tokens": 2, "nobody_knows": [1]}
    assert complete(user="somebody", best_of=1, extra_body=extra).usage.completion_tokens == 24
    assert chat(max_completion_tokens=3, max_tokens=openai.omit).usage.completion_tokens == 3
    for field, value in (("priority", 101), ("cache_salt", 5), ("min_p", 2), ("suffix", "x"), ("best_of", 2)):
        error = raises(openai.BadRequestError, lambda: complete(extra_body={field: value}))
        assert error.param == field and field in error.body["message"], error.body
    seeds = complete(n=2, temperature=1.5, seed=5, max_tokens=16)
    second = complete(temperature=1.5, seed=6, max_tokens=16)
    assert seeds.choices[1].text == second.choices[0].text, "each answer has a seed of its own"


def case_what_is_not_here_says_so():
    error = raises(openai.NotFoundError, lambda: client.embeddings.create(model=MODEL, input="a"))
    assert "this server has no embedding model" in error.body["message"]
    error = raises(openai.NotFoundError, lambda: client.responses.create(model=MODEL, input="a"))
    assert "/v1/chat/completions" in error.body["message"]


def case_bodies_that_make_careless_servers_fail():
    head = '{"model": "%s", ' % MODEL
    bodies = (
        (head + '"prompt": "\\ud83d", "max_tokens": 1}', {}, "/v1/completions"),
        (head + '"prompt": "a", "max_tokens": ' + "9" * 400 + "}", {}, "/v1/completions"),
        (head + '"prompt": "a", "seed": -' + "9" * 400 + "}", {}, "/v1/completions"),
        (head + '"prompt": ["a", "b"]}', {}, "/tokenize"),
        (head + '"tokens": "a"}', {}, "/detokenize"),
        (head + '"prompt": "a", "max_tokens": 1}', {"Content-Encoding": "gzip"}, "/v1/completions"),
    )
    for body, headers, path in bodies:
        status, answer = send(path, body.encode(), headers)
        assert status in (400, 415), (status, path, answer)
        assert answer["error"]["message"] and answer["error"]["type"], answer


class Entry(pydantic.BaseModel):
    """A line of the ledger."""

    ship: str = pydantic.Field(max_length=6)
    tons: int = pydantic.Field(ge=0, le=99)
    kind: typing.Literal["grain", "salt"]
    late: bool | None


def case_structured_output_is_parsed():
    for seed in range(3):
        answer = client.chat.completions.parse(
            model=MODEL, messages=CHAT, response_format=Entry, temperature=1.0, seed=seed, max_tokens=300
        )
        assert isinstance(answer.choices[0].message.parsed, Entry), answer
    with client.chat.completions.stream(
        model=MODEL, messages=CHAT, response_format=Entry, temperature=1.0, seed=1, max_tokens=300
    ) as stream:
        final = stream.get_final_completion()
    assert isinstance(final.choices[0].message.parsed, Entry), final
    unsupported = {"name": "x", "schema": {"type": "object", "properties": {"a": {"not": {}}}}}
    error = raises(
        openai.BadRequestError,
        lambda: chat(response_format={"type": "json_schema", "json_schema": unsupported}),
    )
    assert error.param == "response_format.json_schema.schema.properties.a.not", error.body


def case_a_forced_tool_is_called():
    tool = openai.pydantic_function_tool(Entry, name="write_entry")
    forced = {"type": "function", "function": {"name": "write_entry"}}
    fields = {"tools": [tool], "tool_choice": forced, "temperature": 1.0, "seed": 2, "max_tokens": 400}
    answer = client.chat.completions.parse(model=MODEL, messages=CHAT, **fields)
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls" and message.content is None
    (call,) = message.tool_calls
    assert isinstance(call.function.parsed_arguments, Entry), call
    streamed = {}
    for chunk in client.chat.completions.create(model=MODEL, messages=CHAT, stream=True, **fields):
        for delta in chunk.choices[0].delta.tool_calls or []:
            name, arguments = streamed.get(delta.index, ("", ""))
            streamed[delta.index] = (
                name + (delta.function.name or ""),
                arguments + (delta.function.arguments or ""),
            )
    assert streamed == {0: ("write_entry", call.function.arguments)}, streamed
    said = {"role": "assistant", "tool_calls": [
        {"id": call.id, "type": "function", "function": {
            "name": call.function.name, "arguments": call.function.arguments}}]}
    result = {"role": "tool", "tool_call_id": call.id, "content": "written"}
    assert chat(messages=[*CHAT, said, result], max_tokens=4).usage.completion_tokens == 4


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
        impatient = openai.OpenAI(base_url=BASE, api_key="unused", max_retries=0, timeout=180)
        try:
            impatient.completions.create(
                model=MODEL, prompt=PROMPT, max_tokens=800, temperature=0, extra_body=KEEP_GOING
            )
            statuses.append(200)
        except openai.RateLimitError as error:
            statuses.append(error.status_code)
            assert int(error.response.headers["retry-after"]) >= 1

    threads = [threading.Thread(target=occupy) for _ in range(24)]
    for thread in threads:
        thread.start()
    patient = openai.OpenAI(base_url=BASE, api_key="unused", max_retries=20, timeout=180)
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
