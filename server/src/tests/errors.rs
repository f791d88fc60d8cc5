//! Wrong requests: always a 4xx, always a body in OpenAI's form.

use axum::body::Body;
use axum::http::Request;
use serde_json::json;

use super::rig::{Answer, Rig, completion, raw};

const FLAGS: &str = "--model fake:step=0ms,context=256 --max-body-bytes 64KiB";

fn with(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::from(body.to_owned())).expect("a request")
}

async fn check(rig: &Rig, request: Request<Body>, status: u16, code: &str) {
    let answer = Answer::read(rig.send(request).await).await;
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.error_code(), code);
}

#[tokio::test]
async fn paths_methods_and_types() {
    let rig = Rig::new(FLAGS);
    let json = ("content-type", "application/json");
    let body = completion(2).to_string();
    let path = "/v1/completions";
    check(&rig, with("GET", path, &[], ""), 405, "method_not_allowed").await;
    check(&rig, with("FOO1", "/v1/models", &[], ""), 405, "method_not_allowed").await;
    check(&rig, with("GET", "/v1/nothing", &[], ""), 404, "not_found").await;
    check(&rig, with("POST", "/v1/models/", &[], ""), 404, "not_found").await;
    check(&rig, with("GET", "/v1/models/%FF", &[], ""), 404, "not_found").await;
    let text = ("content-type", "text/plain");
    check(&rig, with("POST", path, &[text], &body), 415, "unsupported_media_type").await;
    check(&rig, with("POST", path, &[], &body), 415, "unsupported_media_type").await;
    let gzip = ("content-encoding", "gzip");
    check(&rig, with("POST", path, &[json, gzip], &body), 415, "unsupported_media_type").await;
    let charset = ("content-type", "Application/JSON; charset=utf-8");
    let fine = rig.send(with("POST", path, &[charset], &body)).await;
    assert_eq!(fine.status(), 200);
    assert_eq!(rig.metric("http_requests_total", &["method=\"OTHER\""]).await, 1.0);
    assert_eq!(rig.metric("http_requests_total", &["status_code=\"415\""]).await, 3.0);
}

#[tokio::test]
async fn bodies_that_no_client_should_send() {
    let rig = Rig::new(FLAGS);
    let deep = format!("{{\"model\":\"fake\",\"x\":{}1{}}}", "[".repeat(5000), "]".repeat(5000));
    let digits = format!("{{\"model\":\"fake\",\"prompt\":\"a\",\"seed\":{}}}", "9".repeat(400));
    let bodies = [
        "{\"model\":\"fake\",\"prompt\":\"\\ud83d\"}",
        "{\"model\":\"fake\",\"prompt\":\"a\",\"temperature\":1e999}",
        "{\"model\":\"fake\",\"prompt\":\"a\",\"max_tokens\":-1}",
        "{\"model\":\"fake\",\"prompt\":\"a\",\"temperature\":NaN}",
        "{\"model\":\"fake\",\"prompt\":[1,2,99999]}",
        "{\"model\":\"fake\"",
        "[1,2]",
        "null",
        "",
        deep.as_str(),
        digits.as_str(),
    ];
    for body in bodies {
        for path in ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"] {
            let answer = Answer::read(rig.send(raw(path, body.to_owned())).await).await;
            let clipped: String = body.chars().take(60).collect();
            if path.contains("okenize") && answer.status == 200 {
                continue;
            }
            assert_eq!(answer.status, 400, "{path} {clipped}: {}", answer.text());
            answer.error_code();
        }
    }
    let nul = json!({"model": "fake", "prompt": "a\u{0}b", "max_tokens": 1});
    assert_eq!(rig.post("/v1/completions", &nul).await.status, 200);
    let broken = b"{\"model\":\"fake\",\"prompt\":\"\xff\xfe\"}".to_vec();
    let answer = rig.send(raw("/v1/completions", broken)).await;
    assert_eq!(answer.status(), 400);
    assert_eq!(rig.waiting(), 0);
}

#[tokio::test]
async fn errors_name_the_field_and_the_limit() {
    let rig = Rig::new(FLAGS);
    let body = json!({"model": "fake", "messages": [{"role": "user", "content": 5}]});
    let answer = rig.post("/v1/chat/completions", &body).await;
    assert_eq!(answer.json()["error"]["param"], "messages[0].content");
    let long = json!({"model": "fake", "prompt": "a".repeat(300)});
    let answer = rig.post("/v1/completions", &long).await;
    assert_eq!(
        (answer.status.as_u16(), answer.error_code().as_str()),
        (400, "context_length_exceeded")
    );
    let message = answer.json()["error"]["message"].to_string();
    assert!(message.contains("This model's maximum context length is 256 tokens"), "{message}");
    let other = json!({"model": "gpt-9", "prompt": "a"});
    assert_eq!(rig.post("/v1/completions", &other).await.status, 404);
    let rejected = rig.metric("requests_rejected_total", &["reason=\"invalid\""]).await;
    assert_eq!(rejected, 3.0);
}

#[tokio::test]
async fn a_large_body_is_not_read() {
    let rig = Rig::new(FLAGS);
    let announced = with(
        "POST",
        "/v1/completions",
        &[("content-type", "application/json"), ("content-length", "999999999")],
        "",
    );
    let answer = Answer::read(rig.send(announced).await).await;
    assert_eq!((answer.status.as_u16(), answer.error_code().as_str()), (413, "request_too_large"));
    assert_eq!(answer.header("connection"), "close");
    let sent = raw("/v1/completions", "x".repeat(70_000));
    assert_eq!(rig.send(sent).await.status(), 413);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let rig = Rig::new("--model fake:step=0ms --body-timeout 3s");
    let never = Body::from_stream(futures_util::stream::pending::<Result<bytes::Bytes, String>>());
    let answer = Answer::read(rig.send(raw("/v1/completions", never)).await).await;
    assert_eq!((answer.status.as_u16(), answer.error_code().as_str()), (408, "body_timeout"));
}
