"""litellm against a running server of 4 running and 4 queued requests."""

import asyncio

import litellm

from common import API, KEEP_GOING, MODEL, PROMPT, Full, case, chat, completion, metric, raises, run, wait_for

USER = "What does the harbour office keep?"
WHERE = {"api_base": API + "/v1", "api_key": "unused", "num_retries": 0, "timeout": 60}
litellm.suppress_debug_info = True


def ask(content=USER, **fields):
    messages = [{"role": "user", "content": content}]
    fields = {"temperature": 0, "max_tokens": 16, "extra_body": KEEP_GOING, **WHERE, **fields}
    return litellm.completion(model=f"openai/{MODEL}", messages=messages, **fields)


def content(answer):
    return answer.choices[0].message.content


@case
def answers_are_the_servers():
    answer = ask()
    own = chat(USER)
    assert content(answer) == own["choices"][0]["message"]["content"]
    assert answer.usage.total_tokens == own["usage"]["total_tokens"]
    return f"the same text, {answer.usage.total_tokens} tokens in usage"


@case
def text_completion():
    answer = litellm.text_completion(
        model=f"text-completion-openai/{MODEL}", prompt=PROMPT, temperature=0, max_tokens=16,
        extra_body=KEEP_GOING, **WHERE,
    )
    assert answer.choices[0].text == completion()["choices"][0]["text"]
    return "the same text"


@case
def streams():
    chunks = list(ask(stream=True, stream_options={"include_usage": True}))
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == content(ask())
    built = litellm.stream_chunk_builder(chunks)
    assert built.usage.completion_tokens == 16
    return f"{len(chunks)} chunks make the same text, usage of 16 tokens"


@case
def many_at_once():
    async def together():
        messages = [{"role": "user", "content": USER}]
        calls = [
            litellm.acompletion(
                model=f"openai/{MODEL}", messages=messages, temperature=0, max_tokens=16,
                extra_body=KEEP_GOING, **{**WHERE, "num_retries": 0, "max_retries": 10},
            )
            for _ in range(8)
        ]
        return [content(answer) for answer in await asyncio.gather(*calls)]

    texts = asyncio.run(together())
    assert set(texts) == {content(ask())}
    return f"{len(texts)} together, each as alone"


@case
def a_prompt_that_is_too_long():
    error = raises(litellm.ContextWindowExceededError, lambda: ask("word " * 20_000))
    assert "4096" in str(error)
    return "ContextWindowExceededError, which agents trim their history on"


@case
def a_full_server():
    with Full():
        refused = raises(litellm.RateLimitError, lambda: ask(max_tokens=2, max_retries=0))
    assert refused.status_code == 429
    return "RateLimitError"


@case
def other_errors():
    raises(litellm.BadRequestError, lambda: ask(temperature=9))
    missing = raises(
        litellm.NotFoundError,
        lambda: litellm.completion(model="openai/none", messages=[{"role": "user", "content": "a"}], **WHERE),
    )
    assert missing.status_code == 404
    return "BadRequestError, NotFoundError"


@case
def leaving_a_stream():
    before = metric("sightline_requests_aborted_total")
    stream = ask(stream=True, max_tokens=3000)
    next(iter(stream))
    # Its own wrapper has no way to leave; the stream inside is the openai package's.
    stream.completion_stream.response.close()
    wait_for(lambda: metric("sightline_requests_aborted_total") == before + 1, "an abort counted")
    return "one abort counted"


run()
