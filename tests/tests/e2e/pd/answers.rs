//! A set answers as one server does.

use super::*;

/// Every surface that generates: whole and streamed, greedy and sampled, several choices, scores,
/// stop strings, chats.
fn requests() -> Vec<(&'static str, Value)> {
    let mut requests = Vec::new();
    let mut complete = |number: u64, fields: Value| {
        let mut body = prompt(number);
        for (key, value) in fields.as_object().expect("an object") {
            body[key] = value.clone();
        }
        requests.push((PATH, body));
    };
    complete(1, json!({"temperature": 0}));
    complete(2, json!({"temperature": 1.2, "logprobs": 3, "max_tokens": 40}));
    complete(3, json!({"n": 3, "max_tokens": 9}));
    complete(4, json!({"prompt": ["short", "another short one"], "temperature": 0}));
    complete(5, json!({"stop": [" o", "e"], "max_tokens": 60}));
    complete(6, json!({"echo": true, "logprobs": 1}));
    let content = prompt(7)["prompt"].clone();
    let chat = json!({
        "model": "m", "messages": [{"role": "user", "content": content}], "max_tokens": 16,
        "temperature": 0.7, "seed": 5, "logprobs": true, "top_logprobs": 2, "ignore_eos": true
    });
    requests.push(("/v1/chat/completions", chat));
    requests
}

/// Choices of a stream, put together from its events.
fn streamed(server: &Server, path: &str, body: &Value) -> Result<(String, Value)> {
    let mut body = body.clone();
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let text = body.to_string();
    let mut stream = http::open(&server.api, "POST", path, Some(text.as_bytes()))?;
    ensure!(stream.status == 200, "{body}: {}", stream.status);
    let (mut text, mut usage) = (String::new(), Value::Null);
    while let Some(event) = stream.event()? {
        if event == "[DONE]" {
            return Ok((text, usage));
        }
        let event: Value = serde_json::from_str(&event)?;
        for choice in event["choices"].as_array().into_iter().flatten() {
            let piece = choice["text"].as_str().or(choice["delta"]["content"].as_str());
            text += &format!("{}|{}", choice["index"], piece.unwrap_or_default());
        }
        if !event["usage"].is_null() {
            usage = event["usage"]["completion_tokens"].clone();
        }
    }
    anyhow::bail!("the stream of {body} has no end")
}

#[test]
fn a_set_answers_as_one_server_token_for_token() -> Result<()> {
    let (set, unified) = (Set::start(1, 1, 0)?, unified()?);
    // Twice: the second time the prompts are cached, here or there.
    for _ in 0..2 {
        for (path, body) in requests() {
            let [answer, one] = [&set.router, &unified].map(|to| http::post(&to.api, path, &body));
            let (answer, one) = (answer?, one?);
            ensure!(answer.status == 200, "{body}: {}", answer.text()?);
            ensure!(choices(&answer)? == choices(&one)?, "{body}\n{:?}", answer.text());
            if body["n"].is_null() && !body["prompt"].is_array() {
                ensure!(streamed(&set.router, path, &body)? == streamed(&unified, path, &body)?);
            }
        }
    }
    set.idle()?;
    let [sent, received] = set.ended("ok")?;
    ensure!(sent == received && sent >= 6.0, "{sent} sent, {received} received");
    let [prefill, decode] = set.sums("sightline_kv_transfer_bytes_total", &[])?;
    ensure!(prefill == decode && prefill > 0.0, "{prefill} sent, {decode} received");
    ensure!(set.ended("error")? == [0.0; 2] && set.ended("aborted")? == [0.0; 2]);
    Ok(())
}
