use axum::body::{Body, to_bytes};
use axum::http::Request;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use crate::store::{Bounds, Labels, NAME};

fn api() -> Arc<Api> {
    let store = Store::new(Bounds::default());
    for (job, factor) in [("a", 1.0), ("b", 2.0)] {
        let labels = Labels::new([(NAME.into(), "m".into()), ("job".into(), job.into())]);
        for second in 0..100 {
            store.append_labels(&labels, second * 1000, factor * second as f64);
        }
    }
    let rules = Rules::parse(&[(
        "r.yml",
        "groups: [{name: g, rules: [{alert: Up, expr: m > 1e9}, {record: r, expr: m}]}]",
    )]);
    let rules = Arc::new(rules.expect("valid rules"));
    Arc::new(Api::new(Arc::new(store), rules, Arc::default()))
}

/// Calls the router without a socket.
fn call(request: Request<Body>) -> (u16, Value) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let response = routes(api()).oneshot(request).await.expect("routes do not fail");
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), 1 << 20).await.expect("a body");
        (status, serde_json::from_slice(&body).expect("JSON"))
    })
}

fn get(path: &str) -> (u16, Value) {
    call(Request::get(path).body(Body::empty()).expect("valid"))
}

fn post(path: &str, body: &str) -> (u16, Value) {
    call(Request::post(path).body(Body::from(body.to_owned())).expect("valid"))
}

#[test]
fn instant_queries_answer_in_prometheus_shape() {
    let expected = json!({"status": "success", "data": {"resultType": "vector", "result": [
        {"metric": {"__name__": "m", "job": "a"}, "value": [50.5, "50"]},
        {"metric": {"__name__": "m", "job": "b"}, "value": [50.5, "100"]},
    ]}});
    assert_eq!(get("/api/v1/query?query=m&time=50.5"), (200, expected.clone()));
    assert_eq!(post("/api/v1/query", "query=m&time=50.5"), (200, expected));
    let (_, scalar) = get("/api/v1/query?query=1%2F0&time=1");
    assert_eq!(scalar["data"], json!({"resultType": "scalar", "result": [1, "+Inf"]}));
    let (_, text) = get("/api/v1/query?query=%22a%5C%22b%22&time=1");
    assert_eq!(text["data"], json!({"resultType": "string", "result": [1, "a\"b"]}));
    let (_, raw) = get("/api/v1/query?query=m%7Bjob=%22b%22%7D%5B2s%5D&time=50");
    assert_eq!(raw["data"]["result"][0]["values"], json!([[49, "98"], [50, "100"]]));
}

#[test]
fn range_queries_answer_in_prometheus_shape() {
    let (status, body) =
        get("/api/v1/query_range?query=sum(rate(m%5B10s%5D))&start=20&end=40&step=10s");
    assert_eq!(status, 200);
    let expected = json!({"resultType": "matrix", "result": [
        {"metric": {}, "values": [[20, "3"], [30, "3"], [40, "3"]]},
    ]});
    assert_eq!(body["data"], expected);
}

#[test]
fn errors_have_type_and_status() {
    for (path, status, kind, part) in [
        ("/api/v1/query?query=sum(", 400, "bad_data", "parse error"),
        ("/api/v1/query", 400, "bad_data", "no expression found in input"),
        ("/api/v1/query?query=m&time=x", 400, "bad_data", "valid timestamp"),
        ("/api/v1/query?query=m*on(x)m&time=50", 422, "execution", "duplicate series"),
        ("/api/v1/query_range?query=m&start=9&end=1&step=1", 400, "bad_data", "before start"),
        ("/api/v1/query_range?query=m&start=1&end=9&step=0", 400, "bad_data", "step widths"),
        ("/api/v1/query_range?query=m&start=0&end=1e6&step=1", 400, "bad_data", "11,000 points"),
        ("/api/v1/query_range?query=m%5B1m%5D&start=0&end=9&step=1", 400, "bad_data", "range"),
        ("/api/v1/series", 400, "bad_data", "no match[]"),
        ("/api/v1/series?match%5B%5D=rate(m)", 400, "bad_data", "match[]"),
        ("/api/v1/rules?type=x", 400, "bad_data", "not supported"),
    ] {
        let (found, body) = get(path);
        assert_eq!(found, status, "{path}: {body}");
        assert_eq!(body["status"], "error");
        assert_eq!(body["errorType"], kind, "{path}");
        let message = body["error"].as_str().unwrap_or("");
        assert!(message.contains(part), "{path}: {message}");
    }
}

#[test]
fn every_bound_says_what_would_work() {
    for (path, status, kind, part) in [
        ("/api/v1/query_range?query=m&start=0&end=22000&step=1", 400, "bad_data", "2.001 s would"),
        ("/api/v1/query?query=m&timeout=0", 503, "timeout", "shorter range"),
        ("/api/v1/query?query=m&timeout=x", 400, "bad_data", "valid duration"),
        ("/api/v1/query?query=m&lookback_delta=0", 400, "bad_data", "lookback_delta"),
        ("/api/v1/query?query=m%20@%201e300", 400, "bad_data", "out of bounds"),
        ("/api/v1/query?query=m%20offset%20999999y", 400, "bad_data", "duration"),
        ("/api/v1/query?query=count_over_time(vector(1)%5B2h:1ms%5D)", 422, "execution", "longer"),
        ("/api/v1/label/no-name/values", 400, "bad_data", "invalid label name"),
        ("/api/v1/write", 404, "not_found", "changes nothing"),
        ("/api/v2/query", 404, "not_found", "not part of"),
    ] {
        let (found, body) = get(path);
        assert_eq!((found, &body["errorType"]), (status, &kind.into()), "{path}: {body}");
        let message = body["error"].as_str().unwrap_or("");
        assert!(message.contains(part), "{path}: {message}");
    }
    let (status, body) = post("/api/v1/query", &"x".repeat(FORM_BYTES_MAX + 1));
    assert_eq!((status, &body["errorType"]), (413, &"bad_data".into()));
    let many = vec![json!({"query": "m"}); BATCH_MAX + 1];
    let (status, body) = post("/console/api/batch", &json!(many).to_string());
    assert_eq!((status, &body["errorType"]), (400, &"bad_data".into()));
    let message = body["error"].as_str().unwrap_or("");
    assert!(message.contains("second"), "{message}");
}

#[test]
fn an_answer_that_is_cut_says_so() {
    for path in [
        "/api/v1/query?query=m&time=50&limit=1",
        "/api/v1/query_range?query=m&start=1&end=9&step=1&limit=1",
        "/api/v1/labels?limit=1",
        "/api/v1/label/job/values?limit=1",
        "/api/v1/series?match%5B%5D=m&limit=1",
    ] {
        let (status, body) = get(path);
        assert_eq!(status, 200, "{path}");
        assert_eq!(body["warnings"], json!(["results truncated due to limit"]), "{path}: {body}");
        assert_eq!(get(&path.replace("limit=1", "limit=2")).1["warnings"], Value::Null, "{path}");
    }
}

#[test]
fn a_query_looks_back_as_far_as_it_is_told() {
    let found = |more: &str| {
        let (_, body) = get(&format!("/api/v1/query?query=count(m)&time=120{more}"));
        body["data"]["result"].as_array().map(Vec::len)
    };
    assert_eq!(found(""), Some(1));
    assert_eq!(found("&lookback_delta=10s&stats=all"), Some(0));
}

#[test]
fn turns_are_bounded_and_waiting_is_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let api = api();
        let mut held = Vec::new();
        for _ in 0..CONCURRENT_QUERIES {
            held.push(api.turn(TIMEOUT).await.expect("a free turn"));
        }
        let late = api.turn(Duration::ZERO).await.expect_err("no turn is free");
        assert!(late.body().contains("query timed out in query queue"), "{}", late.body());
        let places = api.waiting.try_acquire_many(WAITING_QUERIES as u32).expect("nobody waits");
        let refused = api.turn(TIMEOUT).await.expect_err("too many wait");
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.body().contains("64 queries wait"), "{}", refused.body());
        drop(places);
        held.clear();
        assert!(api.turn(TIMEOUT).await.is_ok());
    });
}

#[test]
fn grafana_gets_what_it_asks_a_datasource_for() {
    let form = "query=1%2B1&time=50";
    assert_eq!(post("/api/v1/query", form).1["data"]["result"], json!([50, "2"]));
    let flags = get("/api/v1/status/flags").1;
    assert_eq!(flags["data"]["query.timeout"], "30s");
    assert_eq!(flags["data"]["storage.tsdb.retention.time"], "2h");
    let exemplars = "/api/v1/query_exemplars?query=m&start=0&end=9";
    assert_eq!(get(exemplars).1["data"], json!([]));
    assert_eq!(get("/api/v1/query_exemplars?query=(").0, 400);
    let config = get("/api/v1/status/config").1;
    assert!(config["data"]["yaml"].as_str().is_some_and(|y| y.contains("scrape_interval: 1s")));
    let tsdb = get("/api/v1/status/tsdb").1;
    assert_eq!(tsdb["data"]["headStats"]["numSeries"], 2);
    assert_eq!(get("/api/v1/alertmanagers").1["data"]["activeAlertmanagers"], json!([]));
    assert_eq!(get("/api/v1/status/runtimeinfo").1["data"]["storageRetention"], "2h or 256MiB");
    assert_eq!(get("/api/v1/targets?state=dropped").1["data"]["activeTargets"], json!([]));
}

#[test]
fn labels_series_and_metadata_are_listed() {
    assert_eq!(get("/api/v1/labels").1["data"], json!(["__name__", "job"]));
    assert_eq!(get("/api/v1/label/job/values").1["data"], json!(["a", "b"]));
    let some = "/api/v1/label/job/values?match%5B%5D=m%7Bjob!=%22a%22%7D";
    assert_eq!(get(some).1["data"], json!(["b"]));
    assert_eq!(get("/api/v1/label/job/values?start=1000").1["data"], json!([]));
    let series = get("/api/v1/series?match%5B%5D=m&limit=1").1;
    assert_eq!(series["data"], json!([{"__name__": "m", "job": "a"}]));
    assert_eq!(get("/api/v1/metadata").1["data"], json!({}));
    assert_eq!(get("/api/v1/alerts").1["data"], json!({"alerts": []}));
    assert_eq!(get("/api/v1/targets").1["data"]["activeTargets"], json!([]));
    assert_eq!(get("/api/v1/status/buildinfo").1["status"], "success");
    let rules = get("/api/v1/rules?type=alert").1;
    assert_eq!(rules["data"]["groups"][0]["rules"][0]["state"], "inactive");
}

#[test]
fn a_batch_answers_each_query_by_itself() {
    let body = json!([
        {"query": "m{job=\"a\"}", "time": 50},
        {"query": "m{job=\"a\"}", "start": 10, "end": 12, "step": 1},
        {"query": "sum("},
    ]);
    let (status, body) = post("/console/api/batch", &body.to_string());
    assert_eq!(status, 200);
    let answers = &body["data"];
    assert_eq!(answers[0]["data"]["result"][0]["value"], json!([50, "50"]));
    assert_eq!(answers[1]["data"]["result"][0]["values"].as_array().map(Vec::len), Some(3));
    assert_eq!(answers[2]["errorType"], "bad_data");
    assert_eq!(post("/console/api/batch", "{}").0, 400);
}
