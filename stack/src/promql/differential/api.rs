//! Labels, series and errors: the rest of the API answers as Prometheus does.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use dashboards::client::address::encoded;
use serde_json::Value;
use tower::ServiceExt;

use super::samples::{COUNT, FROM_MS, INTERVAL_MS};
use crate::promapi::{self, Api};
use crate::prometheus::Prometheus;
use crate::rules::Rules;
use crate::store::Store;

/// Selections of series; in a query they are escaped.
const SELECTORS: &[&str] = &[
    "diff_gauge",
    "diff_gauge{a=\"x\"}",
    "{__name__=~\"diff_.*\", b=\"2\"}",
    "up",
    "{job!=\"\", model_name=\"m1\", __name__=~\"[a-z]+_[a-d].*\"}",
    "diff_none",
];

/// Wrong or odd questions; the answers need not have the same words, but the same kind.
const WRONG: &[&str] = &[
    "/api/v1/query?query=sum(",
    "/api/v1/query",
    "/api/v1/query?query=up&time=x",
    "/api/v1/query?query=up&timeout=x",
    "/api/v1/query?query=diff_gauge%20*%20on(b)%20diff_gauge&time=1700001000",
    "/api/v1/query?query=label_replace(diff_gauge,%22c%22,%22%22,%22a%22,%22(%22)",
    "/api/v1/query_range?query=up&start=1&end=2",
    "/api/v1/query_range?query=up&start=9&end=2&step=1",
    "/api/v1/query_range?query=up&start=1&end=2&step=-1",
    "/api/v1/query_range?query=up&start=0&end=20000&step=1",
    "/api/v1/query_range?query=up%5B1m%5D&start=1&end=2&step=1",
    "/api/v1/query_range?query=%22a%22&start=1&end=2&step=1",
    "/api/v1/series",
    "/api/v1/series?match[]=rate(up%5B1m%5D)",
    "/api/v1/series?match[]=up&start=x",
    "/api/v1/labels?match[]=(",
    "/api/v1/label/a-b/values",
    "/api/v1/rules?type=x",
];

async fn ours(routes: &Router, path: &str) -> (u16, Value) {
    let request = Request::get(path).body(Body::empty()).expect("valid");
    let response = routes.clone().oneshot(request).await.expect("routes do not fail");
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), 64 << 20).await.expect("a body");
    (status, serde_json::from_slice(&body).expect("JSON"))
}

/// Label sets and names in an order of their own.
fn sorted(data: &Value) -> BTreeSet<String> {
    data.as_array().into_iter().flatten().map(Value::to_string).collect()
}

pub(super) async fn compare(store: Store, prometheus: &Prometheus) {
    let rules = Arc::new(Rules::parse(&[]).expect("no rules"));
    let api = promapi::routes(Arc::new(Api::new(Arc::new(store), rules, Arc::default())));
    let (start, end) = (FROM_MS / 1000, (FROM_MS + COUNT * INTERVAL_MS) / 1000);
    let mut paths = vec![format!("/api/v1/labels?start={start}&end={end}")];
    for label in ["job", "__name__", "a", "nothing"] {
        paths.push(format!("/api/v1/label/{label}/values?start={start}&end={end}"));
    }
    for selector in SELECTORS {
        let range = format!("match[]={}&start={start}&end={end}", encoded(selector));
        paths.push(format!("/api/v1/series?{range}"));
        paths.push(format!("/api/v1/series?{range}&match[]=diff_counter_total"));
        paths.push(format!("/api/v1/labels?{range}"));
        paths.push(format!("/api/v1/label/instance/values?{range}"));
    }
    let mut filled = 0;
    for path in &paths {
        let (theirs, ours) = (prometheus.get(path).await, ours(&api, path).await);
        assert_eq!((ours.0, theirs.0), (200, 200), "{path}: {} {}", ours.1, theirs.1);
        assert_eq!(sorted(&ours.1["data"]), sorted(&theirs.1["data"]), "{path}");
        filled += usize::from(!sorted(&theirs.1["data"]).is_empty());
    }
    assert!(filled * 4 > paths.len() * 3, "only {filled} of {} are not empty", paths.len());
    for path in WRONG {
        let (theirs, ours) = (prometheus.get(path).await, ours(&api, path).await);
        let kind = |answer: &(u16, Value)| (answer.0, answer.1["errorType"].clone());
        assert_eq!(kind(&ours), kind(&theirs), "{path}:\n{}\n{}", ours.1, theirs.1);
        assert_eq!(ours.1["status"], "error", "{path}");
    }
}
