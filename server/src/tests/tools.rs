//! Tools end to end. The models here say nothing sensible, so calls are forced.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::rig::Rig;

const CHAT: &str = "/v1/chat/completions";

fn tools() -> Value {
    json!([
        {"type": "function", "function": {
            "name": "get_weather", "description": "The weather of a place.",
            "parameters": {
                "$defs": {"Unit": {"enum": ["C", "F"]}},
                "type": "object",
                "properties": {
                    "city": {"type": "string", "maxLength": 5}, "unit": {"$ref": "#/$defs/Unit"}
                },
                "required": ["city", "unit"]
            }
        }},
        {"type": "function", "function": {"name": "now"}}
    ])
}

fn ask(model: &str, choice: Value) -> Value {
    json!({
        "model": model, "messages": [{"role": "user", "content": "Weather?"}], "seed": 5,
        "temperature": 1.0, "max_tokens": 500, "tools": tools(), "tool_choice": choice
    })
}

fn named(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name}})
}

/// The fixture with another chat template.
struct Folder(PathBuf);

impl Folder {
    fn new(template: &str) -> Self {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models");
        let name = format!("sightline-tools-{}-{template}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder for temporary files");
        for file in ["config.json", "generation_config.json", "tokenizer.json", "model.safetensors"]
        {
            let from = fixture.join("tiny-llama").join(file);
            std::fs::copy(from, folder.join(file)).expect("the fixture can be copied");
        }
        let config = fixture.join("tiny-llama/tokenizer_config.json");
        std::fs::copy(config, folder.join("tokenizer_config.json")).expect("it can be copied");
        let templates = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http/tools/templates");
        let from = templates.join(format!("{template}.jinja"));
        std::fs::copy(from, folder.join("chat_template.jinja")).expect("it can be copied");
        Self(folder)
    }

    fn serve(&self) -> Rig {
        Rig::new(&format!("--model {} --served-model-name tiny", self.0.display()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn check_weather(call: &Value) {
    assert_eq!(call["type"], "function");
    assert!(call["id"].as_str().expect("an id").starts_with("call_"), "{call}");
    assert_eq!(call["function"]["name"], "get_weather");
    let arguments = call["function"]["arguments"].as_str().expect("a text");
    let arguments: Value = serde_json::from_str(arguments).expect("JSON");
    assert!(arguments["city"].is_string(), "{arguments}");
    assert!(["C", "F"].map(Value::from).contains(&arguments["unit"]), "{arguments}");
}

#[tokio::test]
async fn a_named_function_is_called_whatever_the_template() {
    for template in [None, Some("hermes"), Some("llama"), Some("mistral"), Some("deepseek")] {
        let folder = template.map(Folder::new);
        let (rig, model) = match &folder {
            Some(folder) => (folder.serve(), "tiny"),
            None => (Rig::new("--model fake:step=0ms,context=4096"), "fake"),
        };
        let answer = rig.post(CHAT, &ask(model, named("get_weather"))).await.json();
        let choice = &answer["choices"][0];
        assert_eq!(choice["finish_reason"], "tool_calls", "{template:?}: {answer}");
        assert_eq!(choice["message"]["content"], Value::Null);
        let calls = choice["message"]["tool_calls"].as_array().expect("calls");
        assert_eq!(calls.len(), 1);
        check_weather(&calls[0]);

        // The next turn of the conversation takes the call and its result.
        let mut next = ask(model, json!("none"));
        next["max_tokens"] = json!(2);
        next["messages"] = json!([
            {"role": "user", "content": "Weather?"},
            choice["message"],
            {"role": "tool", "tool_call_id": calls[0]["id"], "content": "{\"sun\": true}"},
            {"role": "user", "content": "Thanks."}
        ]);
        let answer = rig.post(CHAT, &next).await;
        assert_eq!(answer.status, 200, "{template:?}: {}", answer.text());
    }
}

#[tokio::test]
async fn streamed_calls_are_the_calls() {
    let folder = Folder::new("hermes");
    let rig = folder.serve();
    let mut body = ask("tiny", json!("required"));
    body["n"] = json!(3);
    body["max_tokens"] = json!(900);
    let whole = rig.post(CHAT, &body).await.json();
    body["stream"] = json!(true);
    let (events, done) = rig.post(CHAT, &body).await.events();
    assert!(done);
    let choices = events.iter().flat_map(|event| event["choices"].as_array().expect("choices"));
    let mut several = false;
    for expect in whole["choices"].as_array().expect("choices") {
        let mine: Vec<&Value> =
            choices.clone().filter(|choice| choice["index"] == expect["index"]).collect();
        let calls = mine.iter().filter_map(|choice| choice["delta"]["tool_calls"].as_array());
        let calls: Vec<&Value> = calls.flatten().collect();
        let indexes: Vec<usize> =
            calls.iter().filter_map(|call| call["index"].as_u64()).map(|at| at as usize).collect();
        assert_eq!(indexes, (0..calls.len()).collect::<Vec<_>>());
        let message = &expect["message"];
        let functions = message["tool_calls"].as_array().cloned().unwrap_or_default();
        let of_whole: Vec<&Value> = functions.iter().map(|call| &call["function"]).collect();
        assert_eq!(calls.iter().map(|call| &call["function"]).collect::<Vec<_>>(), of_whole);
        let content = mine.iter().filter_map(|choice| choice["delta"]["content"].as_str());
        let content: String = content.collect();
        assert_eq!(content, message["content"].as_str().unwrap_or_default());
        assert_eq!(mine.last().expect("an end")["finish_reason"], expect["finish_reason"]);
        several |= calls.len() > 1;
        let mut ids: Vec<&Value> = calls.iter().map(|call| &call["id"]).collect();
        ids.dedup();
        assert_eq!(ids.len(), calls.len(), "identifiers differ");
    }
    assert!(several, "no answer of these seeds made two calls");
}

#[tokio::test]
async fn free_answers_are_text_and_prompts_know_the_tools() {
    let folder = Folder::new("hermes");
    let rig = folder.serve();
    let mut body = ask("tiny", json!("auto"));
    body["max_tokens"] = json!(20);
    body["ignore_eos"] = json!(true);
    let with = rig.post(CHAT, &body).await.json();
    assert_eq!(with["choices"][0]["finish_reason"], "length");
    assert!(with["choices"][0]["message"]["content"].is_string());
    body["tool_choice"] = json!("none");
    let without = rig.post(CHAT, &body).await.json();
    let tokens = |answer: &Value| answer["usage"]["prompt_tokens"].as_u64().expect("a count");
    assert!(tokens(&with) > tokens(&without) + 50);
    body["tool_choice"] = json!("auto");
    body["response_format"] = json!({"type": "json_object"});
    let both = rig.post(CHAT, &body).await;
    assert_eq!((both.status.as_u16(), both.error_code().as_str()), (400, "unsupported_parameter"));
}

#[tokio::test]
async fn what_cannot_be_done_is_said() {
    let rig = Rig::new("--model fake:step=0ms,context=4096");
    let auto = rig.post(CHAT, &ask("fake", json!("auto"))).await;
    assert_eq!((auto.status.as_u16(), auto.error_code().as_str()), (400, "unsupported_parameter"));
    assert!(auto.text().contains("chat template has no place for tools"), "{}", auto.text());
    let mut strict = ask("fake", named("now"));
    strict["tools"][1]["function"]["strict"] = json!(true);
    strict["tools"][1]["function"]["parameters"] =
        json!({"type": "object", "properties": {"a": {"not": {}}}});
    let refused = rig.post(CHAT, &strict).await.json();
    let param = "tools[1].function.parameters.properties.a.not";
    assert_eq!(refused["error"]["param"], param, "{refused}");
    let off = Rig::new("--model fake:step=0ms,context=4096 --tool-call-parser none");
    let forced = off.post(CHAT, &ask("fake", named("now"))).await.json();
    assert_eq!(forced["error"]["param"], "tool_choice", "{forced}");
}

#[tokio::test]
async fn a_call_that_is_cut_comes_back_as_text() {
    let rig = Rig::new("--model fake:step=0ms,context=4096");
    let mut body = ask("fake", named("get_weather"));
    body["max_tokens"] = json!(30);
    let answer = rig.post(CHAT, &body).await.json();
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["message"]["content"], "<tool_call>\n{\"name\": \"get_weat");
    assert!(choice["message"].get("tool_calls").is_none());
}
