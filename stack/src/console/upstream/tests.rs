use std::sync::Mutex as Lock;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{Method, StatusCode, header};
use axum::response::IntoResponse;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tower::ServiceExt;

use super::*;
use crate::console::{Guard, Source, with_pages};
use crate::prometheus::{self, Folder};

/// What the stand-in was asked: method, path, parameters and the credentials.
type Asked = Arc<Lock<Vec<(Method, String, String, Option<String>)>>>;

/// Answers everything with `status` and `body`, and notes what it was asked.
/// It ends with the last value.
async fn stand_in(
    status: u16,
    body: &'static str,
) -> (String, Asked, JoinSet<std::io::Result<()>>) {
    let asked = Asked::default();
    let noted = Arc::clone(&asked);
    let answer = async move |request: Request| {
        let (parts, body_sent) = request.into_parts();
        let form = to_bytes(body_sent, 1 << 20).await.expect("a body");
        let form = String::from_utf8(form.to_vec()).expect("text");
        let query = parts.uri.query().unwrap_or("").to_owned();
        let who = parts.headers.get(header::AUTHORIZATION);
        let who = who.and_then(|who| Some(who.to_str().ok()?.to_owned()));
        let path = parts.uri.path().to_owned();
        noted.lock().expect("sound").push((parts.method, path, query + &form, who));
        if status == 0 {
            std::future::pending::<()>().await;
        }
        (StatusCode::from_u16(status).expect("a status"), body).into_response()
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let mut serving = JoinSet::new();
    serving.spawn(axum::serve(listener, Router::new().fallback(answer)).into_future());
    (url, asked, serving)
}

const YES: &str = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;

fn console_with(url: &str, access: Access, timeout: Duration) -> Router {
    let options =
        Options { url, access, timeout, targets: vec!["vllm"], scrape_interval: Some(30.0) };
    let upstream = Arc::new(Upstream::new(options).expect("valid"));
    let guard = Guard::new([127, 0, 0, 1].into(), &[]);
    with_pages(routes(Arc::clone(&upstream)), Source::Upstream(upstream), guard)
}

fn console(url: &str) -> Router {
    console_with(url, Access::default(), Duration::from_secs(20))
}

async fn call(console: &Router, request: Request<Body>) -> (u16, Value) {
    let response = console.clone().oneshot(request).await.expect("routes do not fail");
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), 64 << 20).await.expect("a body");
    (status, serde_json::from_slice(&body).expect("JSON"))
}

async fn get(console: &Router, path: &str) -> (u16, Value) {
    call(console, Request::get(path).body(Body::empty()).expect("valid")).await
}

async fn post(console: &Router, path: &str, body: &str) -> (u16, Value) {
    call(console, Request::post(path).body(Body::from(body.to_owned())).expect("valid")).await
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test);
}

#[test]
fn known_questions_travel_with_known_parameters_only() {
    run(async {
        let (url, asked, _serving) = stand_in(200, YES).await;
        let console = console(&format!("{url}/below/"));
        let (status, body) =
            get(&console, "/api/v1/query?query=up%7Ba=%22%2B%22%7D&time=5&evil=1&dedup=x").await;
        assert_eq!((status, &body["status"]), (200, &"success".into()));
        let (status, _) = post(&console, "/api/v1/labels", "match[]=up&match[]=a&x=y").await;
        assert_eq!(status, 200);
        get(&console, "/api/v1/label/job/values?match[]=up&start=1").await;
        get(&console, "/api/v1/rules?type=alert&file[]=x&z=1").await;
        let seen = asked.lock().expect("sound").clone();
        let seen: Vec<(&str, &str, &str)> = seen
            .iter()
            .map(|(m, path, query, _)| (m.as_str(), path.as_str(), query.as_str()))
            .collect();
        assert_eq!(
            seen,
            [
                ("POST", "/below/api/v1/query", "query=up%7Ba%3D%22%2B%22%7D&time=5&timeout=20"),
                ("POST", "/below/api/v1/labels", "match%5B%5D=up&match%5B%5D=a"),
                ("GET", "/below/api/v1/label/job/values", "match%5B%5D=up&start=1"),
                ("GET", "/below/api/v1/rules", "type=alert&file%5B%5D=x"),
            ]
        );
    });
}

#[test]
fn what_is_not_for_the_pages_does_not_travel() {
    run(async {
        let (url, asked, _serving) = stand_in(200, YES).await;
        let console = console(&url);
        for path in [
            "/api/v1/admin/tsdb/delete_series?match[]=up",
            "/api/v1/write",
            "/api/v1/status/config",
            "/api/v1/../../-/quit",
        ] {
            let (status, body) = post(&console, path, "").await;
            assert_eq!((status, &body["errorType"]), (404, &"not_found".into()), "{path}");
        }
        let response = console.clone().oneshot(
            Request::delete("/api/v1/series?match[]=up").body(Body::empty()).expect("valid"),
        );
        assert_eq!(response.await.expect("answered").status(), 405);
        for (path, part) in [
            ("/api/v1/query", "it is empty"),
            ("/api/v1/query?query=up&time=x", "valid timestamp"),
            ("/api/v1/query_range?query=up&start=1&end=2", "valid duration"),
            ("/api/v1/query_range?query=up&start=0&end=1e5&step=1", "11,000 points"),
            ("/api/v1/query_range?query=up&start=0&end=1e8&step=86400", "more than 400"),
            ("/api/v1/series?match[]=rate(x%5B1m%5D)", "selector"),
            ("/api/v1/label/a%2Fb/values", "invalid label name"),
        ] {
            let (status, body) = get(&console, path).await;
            assert_eq!((status, &body["errorType"]), (400, &"bad_data".into()), "{path}: {body}");
            let message = body["error"].as_str().unwrap_or("");
            assert!(message.contains(part), "{path}: {message}");
        }
        assert_eq!(asked.lock().expect("sound").len(), 0, "nothing of this travels");
    });
}

#[test]
fn what_the_other_server_says_comes_through_and_the_rest_is_explained() {
    run(async {
        let refused = r#"{"status":"error","errorType":"execution","error":"many-to-many"}"#;
        let (url, _, _serving) = stand_in(422, refused).await;
        let (status, body) = get(&console(&url), "/api/v1/query?query=up").await;
        assert_eq!(
            (status, body.to_string()),
            (422, serde_json::from_str::<Value>(refused).expect("JSON").to_string())
        );
        for (code, said, part) in [
            (401, "who are you?", "--token-file"),
            (200, "<html>login</html>", "begins with"),
            (404, "nothing here", "no Prometheus answers below"),
            (200, "{\"status\":\"success\"}", "no status and data"),
            (302, "", "points to nowhere"),
        ] {
            let (url, _, _serving) = stand_in(code, said).await;
            let (status, body) = get(&console(&url), "/api/v1/query?query=up").await;
            assert_eq!((status, &body["errorType"]), (502, &"unavailable".into()), "{body}");
            let message = body["error"].as_str().unwrap_or("");
            assert!(message.contains(part), "{code}: {message}");
        }
    });
}

#[test]
fn a_server_that_is_gone_or_slow_is_an_error_in_the_panel() {
    run(async {
        let gone = console("http://127.0.0.1:1");
        let (status, body) = get(&gone, "/api/v1/alerts").await;
        assert_eq!((status, &body["errorType"]), (502, &"unavailable".into()));
        let (status, start) = get(&gone, "/console/api/start?board=sightline-queue").await;
        assert_eq!(status, 200, "the page opens all the same");
        assert_eq!(start["data"]["board"]["uid"], "sightline-queue");
        let problem = start["data"]["problem"].as_str().unwrap_or("");
        assert!(problem.contains("no connection"), "{start}");
        let (url, _, _serving) = stand_in(0, "").await;
        let slow = console_with(&url, Access::default(), Duration::from_millis(50));
        let (status, body) = get(&slow, "/api/v1/query?query=up").await;
        assert_eq!((status, &body["errorType"]), (503, &"timeout".into()));
        let both = json!([{"query": "a"}, {"query": "b", "start": 0, "end": 1, "step": 1}]);
        let (status, body) = post(&slow, "/console/api/batch", &both.to_string()).await;
        assert_eq!((status, &body["data"][1]["errorType"]), (200, &"timeout".into()), "{body}");
    });
}

#[test]
fn a_batch_keeps_its_order_and_credentials_travel() {
    run(async {
        let (url, asked, _serving) = stand_in(200, YES).await;
        let folder = Folder::new("upstream-token");
        let token_file = folder.0.join("token");
        std::fs::write(&token_file, "abc\n").expect("it can be written");
        let access = Access { token_file: Some(token_file), ..Access::default() };
        let console = console_with(&url, access, Duration::from_secs(20));
        let queries: Vec<Value> = (0..40)
            .map(|n| match n {
                7 => json!({"query": ""}),
                _ => json!({"query": format!("q{n}"), "start": 0, "end": 10, "step": 5}),
            })
            .collect();
        let (status, body) =
            post(&console, "/console/api/batch", &json!(queries).to_string()).await;
        let answers = body["data"].as_array().expect("answers");
        assert_eq!((status, answers.len()), (200, 40));
        for (at, answer) in answers.iter().enumerate() {
            let expected = if at == 7 { "error" } else { "success" };
            assert_eq!(answer["status"], expected, "{at}");
        }
        let asked = asked.lock().expect("sound");
        assert_eq!(asked.len(), 39);
        for (method, path, query, who) in asked.iter() {
            assert_eq!((method, path.as_str()), (&Method::POST, "/api/v1/query_range"));
            assert!(query.contains("&start=0&end=10&step=5"), "{query}");
            assert_eq!(who.as_deref(), Some("Bearer abc"));
        }
    });
}

#[test]
fn facts_are_those_of_the_options() {
    run(async {
        let (url, _, _serving) = stand_in(200, r#"{"status":"success","data":[]}"#).await;
        let (_, start) = get(&console(&url), "/console/api/start").await;
        let data = &start["data"];
        assert_eq!(data["mode"], "upstream");
        assert_eq!(data["source"], url.as_str());
        assert_eq!((&data["targets"], &data["rate_interval"]), (&json!(["vllm"]), &json!(30.0)));
        assert_eq!(data["problem"], Value::Null);
        let boards = data["boards"].as_array().expect("a list");
        assert!(boards.iter().all(|board| board["target"] == "vllm"), "{boards:?}");
    });
}

#[test]
fn a_real_prometheus_answers_every_route() {
    if prometheus::missing() {
        return;
    }
    run(async {
        let folder = Folder::new("upstream-real");
        let rules = "groups: [{name: g, rules: [{alert: Always, expr: vector(1)}]}]";
        std::fs::write(folder.0.join("rules.yml"), rules).expect("writable");
        let config = "global: {scrape_interval: 7s}\nrule_files: [rules.yml]\nscrape_configs:\n\
                      - job_name: self\n  static_configs: [{targets: ['127.0.0.1:1']}]\n";
        let server = prometheus::Prometheus::start(&folder.0, config).await;
        let url = format!("http://{}", server.address);
        let options = Options {
            url: &url,
            access: Access::default(),
            timeout: Duration::from_secs(20),
            targets: Vec::new(),
            scrape_interval: None,
        };
        let upstream = Arc::new(Upstream::new(options).expect("valid"));
        let guard = Guard::new([127, 0, 0, 1].into(), &[]);
        let console = with_pages(routes(Arc::clone(&upstream)), Source::Upstream(upstream), guard);
        for path in [
            "/api/v1/query?query=vector(1)",
            "/api/v1/query_range?query=vector(1)&start=0&end=10&step=5",
            "/api/v1/labels",
            "/api/v1/label/job/values?match[]=up",
            "/api/v1/series?match[]=up",
            "/api/v1/metadata?limit=1",
            "/api/v1/rules?type=alert",
            "/api/v1/alerts",
            "/api/v1/targets?state=active",
            "/api/v1/status/buildinfo",
        ] {
            let (status, body) = get(&console, path).await;
            assert_eq!((status, &body["status"]), (200, &"success".into()), "{path}: {body}");
        }
        let (status, body) = get(&console, "/api/v1/query?query=sum(").await;
        assert_eq!((status, &body["errorType"]), (400, &"bad_data".into()), "{body}");
        let rules = get(&console, "/api/v1/rules").await.1;
        assert_eq!(rules["data"]["groups"][0]["rules"][0]["name"], "Always");
        let batch = json!([{"query": "1+1"}, {"query": "sum("}]).to_string();
        let (_, body) = post(&console, "/console/api/batch", &batch).await;
        assert_eq!(body["data"][0]["data"]["result"][1], "2");
        assert_eq!(body["data"][1]["errorType"], "bad_data");
        let (_, start) = get(&console, "/console/api/start").await;
        assert_eq!(start["data"]["scrape_interval"], 7.0, "{start}");
        assert_eq!(start["data"]["targets"], json!(["sightline", "sglang", "vllm"]));
    });
}
