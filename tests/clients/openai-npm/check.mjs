// The openai package for Node.js against a running server of 2 running and 2 queued requests.

import assert from "node:assert/strict";
import OpenAI from "openai";

const api = process.argv[2];
const client = new OpenAI({ baseURL: `${api}/v1`, apiKey: "unused", maxRetries: 0, timeout: 60_000 });
const model = (await client.models.list()).data[0].id;
const prompt = "The harbour office keeps a ledger of";
const user = "What does the harbour office keep?";
const common = { model, temperature: 0, max_tokens: 16, ignore_eos: true };

async function plain(path, body) {
  const answer = await fetch(api + path, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
  });
  assert.equal(answer.status, 200);
  return answer.json();
}

async function metric(name) {
  const page = await (await fetch(`${api}/metrics`)).text();
  return page.split("\n").filter((line) => line.startsWith(`${name}{`))
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" "))), 0);
}

const refusals = () => metric("sightline_requests_rejected_total");

async function waitFor(condition, what) {
  const until = Date.now() + 60_000;
  while (!(await condition())) {
    assert.ok(Date.now() < until, `not within 60 s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const ask = (more = {}, options = {}) =>
  client.chat.completions.create({ ...common, messages: [{ role: "user", content: user }], ...more }, options);

const cases = {
  async "answers are the server's"() {
    const whole = await ask();
    const own = await plain("/v1/chat/completions", { ...common, messages: [{ role: "user", content: user }] });
    assert.equal(whole.choices[0].message.content, own.choices[0].message.content);
    assert.equal(whole.usage.completion_tokens, 16);
    const text = await client.completions.create({ ...common, prompt });
    assert.equal(text.choices[0].text, (await plain("/v1/completions", { ...common, prompt })).choices[0].text);
    return `chat and completion, ${whole.usage.total_tokens} tokens in usage`;
  },
  async "streams"() {
    let text = "";
    let usage = null;
    let chunks = 0;
    for await (const chunk of await ask({ stream: true, stream_options: { include_usage: true } })) {
      chunks += 1;
      usage = chunk.usage ?? usage;
      text += chunk.choices.map((choice) => choice.delta.content ?? "").join("");
    }
    assert.equal(text, (await ask()).choices[0].message.content);
    assert.equal(usage.completion_tokens, 16);
    return `${chunks} chunks make the same text, usage in the last`;
  },
  async "the stream helper"() {
    const stream = client.chat.completions.stream({ ...common, messages: [{ role: "user", content: user }] });
    const final = await stream.finalChatCompletion();
    assert.equal(final.choices[0].message.content, (await ask()).choices[0].message.content);
    return "the same text";
  },
  async "errors have the package's types"() {
    await assert.rejects(client.completions.create({ ...common, prompt: "word ".repeat(20_000) }), (error) => {
      assert.ok(error instanceof OpenAI.BadRequestError);
      assert.equal(error.code, "context_length_exceeded");
      return true;
    });
    await assert.rejects(client.completions.create({ ...common, model: "x", prompt }), OpenAI.NotFoundError);
    await assert.rejects(ask({ temperature: 9 }), OpenAI.BadRequestError);
    return "too long, unknown model, bad value";
  },
  async "a full server refuses and the package retries"() {
    const room = 4; // two run, two wait
    const leave = new AbortController();
    const before = await refusals();
    const hold = async () => {
      try {
        const stream = await client.completions.create(
          { ...common, prompt, max_tokens: 3000, stream: true }, { signal: leave.signal });
        for await (const chunk of stream) assert.ok(chunk);
      } catch (error) {
        assert.ok(error instanceof OpenAI.RateLimitError || leave.signal.aborted, String(error));
      }
    };
    // One more than there is room for: its refusal shows that the others are in.
    const holders = Array.from({ length: room + 1 }, hold);
    await waitFor(async () => (await refusals()) > before, "a refusal");
    let refused = null;
    await ask({ max_tokens: 2 }).catch((error) => { refused = error; });
    assert.ok(refused instanceof OpenAI.RateLimitError, String(refused));
    const after = Number(refused.headers.get("retry-after"));
    assert.ok(after >= 1);
    const seen = await refusals();
    const patient = ask({ max_tokens: 2 }, { maxRetries: 2, timeout: 120_000 });
    await waitFor(async () => (await refusals()) === seen + 1, "the refusal of the patient client");
    leave.abort();
    const answer = await patient;
    await Promise.all(holders);
    assert.equal(answer.choices.length, 1);
    return `429 with Retry-After ${after}; with two retries the package got through`;
  },
  async "leaving a stream ends it at the server"() {
    await waitFor(async () => (await metric("sightline_running_requests")) === 0, "nothing runs");
    const before = await metric("sightline_requests_aborted_total");
    for (let turn = 0; turn < 3; turn += 1) {
      const stream = await ask({ stream: true, max_tokens: 3000 });
      for await (const chunk of stream) {
        assert.ok(chunk);
        break;
      }
      stream.controller.abort();
    }
    await waitFor(async () => (await metric("sightline_requests_aborted_total")) === before + 3, "three aborts");
    return "three streams left, three aborts counted";
  },
};

let failed = 0;
for (const [name, check] of Object.entries(cases)) {
  try {
    console.log(`ok   ${name}: ${await check()}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL ${name}\n${error.stack}`);
  }
}
console.log(`${Object.keys(cases).length - failed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
