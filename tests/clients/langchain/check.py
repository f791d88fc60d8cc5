"""langchain-openai against a running server."""

import asyncio

from langchain_openai import ChatOpenAI, OpenAI
from openai import BadRequestError

from common import API, KEEP_GOING, MODEL, PROMPT, case, chat, completion, raises, run

USER = "What does the harbour office keep?"
COMMON = {
    "base_url": API + "/v1", "api_key": "unused", "model": MODEL, "temperature": 0, "max_tokens": 16,
    "max_retries": 0, "extra_body": KEEP_GOING,
}
model = ChatOpenAI(stream_usage=True, **COMMON)
EXPECTED = chat(USER)["choices"][0]["message"]["content"]


@case
def invoke():
    answer = model.invoke(USER)
    assert answer.content == EXPECTED
    usage = answer.usage_metadata
    assert usage["output_tokens"] == 16 and usage["total_tokens"] == usage["input_tokens"] + 16
    assert answer.response_metadata["finish_reason"] == "length"
    return f"the server's text; usage {usage['input_tokens']}+{usage['output_tokens']}"


@case
def roles():
    answer = model.invoke([("system", "You are brief."), ("human", USER), ("ai", "Ships."), ("human", "And?")])
    assert answer.content and answer.usage_metadata["input_tokens"] > 0
    return "system, human, ai and human again"


@case
def stream_with_usage():
    chunks = list(model.stream(USER))
    assert "".join(chunk.content for chunk in chunks) == EXPECTED
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.usage_metadata["output_tokens"] == 16
    return f"{len(chunks)} chunks add up to the text and to 16 tokens"


@case
def stream_asynchronously():
    async def read():
        return "".join([chunk.content async for chunk in model.astream(USER)])

    assert asyncio.run(read()) == EXPECTED
    return "the same text"


@case
def batch():
    questions = [f"{USER} Number {n}." for n in range(6)]
    answers = model.batch(questions, config={"max_concurrency": 4})
    alone = [chat(question)["choices"][0]["message"]["content"] for question in questions]
    assert [answer.content for answer in answers] == alone
    return f"{len(answers)} answers in order, each as alone"


@case
def stop():
    stop = EXPECTED[4:7]
    answer = model.invoke(USER, stop=[stop])
    assert answer.content == EXPECTED[: EXPECTED.index(stop)]
    assert answer.response_metadata["finish_reason"] == "stop"
    return f"cut before {stop!r}"


@case
def completions():
    text = OpenAI(**COMMON).invoke(PROMPT)
    assert text == completion()["choices"][0]["text"]
    return "the class for completions gives the server's text"


@case
def log_probabilities():
    answer = model.bind(logprobs=True, top_logprobs=2).invoke(USER)
    content = answer.response_metadata["logprobs"]["content"]
    assert len(content) == 16 and all(len(token["top_logprobs"]) == 2 for token in content)
    return "sixteen tokens with two alternatives each"


@case
def structured_output():
    schema = {
        "title": "harbour",
        "type": "object",
        "properties": {"open": {"type": "boolean"}},
        "required": ["open"],
        "additionalProperties": False,
    }
    free = ChatOpenAI(**{**COMMON, "max_tokens": 200, "extra_body": {}})
    answer = free.with_structured_output(schema, method="json_schema").invoke(USER)
    assert isinstance(answer["open"], bool) and len(answer) == 1
    return f"random weights still answer {answer}"


@case
def too_long():
    error = raises(BadRequestError, lambda: model.invoke("word " * 20_000))
    assert "maximum context length is 4096" in str(error)
    return "an error that names the limit"


run()
