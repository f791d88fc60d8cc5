//! The same questions to this engine and to a real Prometheus, over the same samples.
//!
//! Asked are all expressions of the generated boards and rules, and a list that covers the
//! language. Times lie between samples, where window edges of all Prometheus versions agree.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dashboards::variables::{HOSTS, SCOPE};
use serde_json::Value;

use super::*;
use crate::http;
use crate::promql::ast::{Expr, Selector};
use crate::store::{Bounds, NAME};

/// Unix seconds of the first sample; samples follow each second.
const FROM: i64 = 1_800_000_000;
const SECONDS: i64 = 600;

/// Expressions beyond those of the boards, over the metrics named in them.
const LANGUAGE: &[&str] = &[
    "diff_counter_total",
    "diff_gauge{a=\"x\"} offset 90s",
    "diff_gauge @ 1800000200.5",
    "rate(diff_counter_total[1m]) or irate(diff_counter_total[1m]) or diff_gauge",
    "increase(diff_counter_total[2m]) + on (a) group_left () sum by (a) (diff_gauge)",
    "sum without (a) (diff_gauge) / ignoring (b) group_left sum(diff_gauge)",
    "delta(diff_gauge[1m])",
    "idelta(diff_gauge[1m])",
    "deriv(diff_gauge[2m])",
    "predict_linear(diff_gauge[2m], 60)",
    "changes(diff_gauge[2m]) + resets(diff_counter_total[5m])",
    "avg_over_time(diff_gauge[1m]) - min_over_time(diff_gauge[1m])",
    "max_over_time(diff_gauge[1m]) > bool stddev_over_time(diff_gauge[1m])",
    "quantile_over_time(0.9, diff_gauge[90s])",
    "count_over_time(diff_gauge[10s]) + sum_over_time(diff_gauge[10s])",
    "last_over_time(diff_gone[3m]) + present_over_time(diff_gone[3m])",
    "diff_gone",
    "absent(diff_gone) or absent(diff_never{a=\"x\"})",
    "absent_over_time(diff_gone[1m])",
    "topk(1, diff_gauge) or bottomk(1, diff_gauge)",
    "quantile by (b) (0.4, diff_gauge)",
    "stddev(diff_gauge) * stdvar by (a) (diff_gauge)",
    "stdvar by (a) (diff_gauge)",
    "count_values(\"v\", round(diff_gauge, 10))",
    "count by (a) (diff_gauge) and group by (a) (diff_gauge)",
    "histogram_quantile(0.5, sum by (le) (rate(diff_bucket[1m])))",
    "histogram_quantile(0.99, rate(diff_bucket[1m]))",
    "clamp_min(diff_gauge, 40) + clamp_max(diff_gauge, 60) + clamp(diff_gauge, 1, 2)",
    "abs(-diff_gauge) + ceil(diff_gauge) + floor(diff_gauge) + sgn(diff_gauge)",
    "exp(diff_gauge / 100) + ln(diff_gauge) + log2(diff_gauge) + log10(diff_gauge)",
    "sqrt(diff_gauge) ^ 2 % 7 - -diff_gauge",
    "label_replace(diff_gauge, \"c\", \"$1-$2\", \"a\", \"(.)(.*)\")",
    "label_join(diff_gauge, \"c\", \"/\", \"a\", \"b\")",
    "diff_gauge unless on (a) diff_gauge{b=\"1\"} > 50",
    "diff_gauge > 50 < 90",
    "50 < diff_gauge",
    "diff_gauge == bool 50",
    "vector(scalar(sum(diff_gauge))) + time()",
    "timestamp(diff_gauge)",
    "hour() + minute() + day_of_week() + day_of_month()",
    "max_over_time(rate(diff_counter_total[30s])[2m:20s])",
    "sum_over_time((diff_gauge > 50)[1m:5s])",
    "avg_over_time(diff_gauge[1m] offset 1m)",
    "{__name__=~\"diff_g.*\", a!=\"y\", b!~\"2|3\"}",
    "1 + 2 * 3 ^ 2 - 7 % 4",
];

fn program(name: &str) -> Option<PathBuf> {
    let path = Path::new("/usr/bin").join(name);
    path.exists().then_some(path)
}

/// Seeded noise, the same everywhere.
fn noise(seed: u64) -> f64 {
    let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((z ^ (z >> 27)) % 10_000) as f64 / 10_000.0
}

/// Expressions of boards and rules, their variables filled in.
fn generated() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for json in crate::console::board_texts() {
        let board: Value = serde_json::from_slice(json).expect("boards are JSON");
        expressions(&board, &mut found);
    }
    for (_, text) in crate::console::rule_files() {
        let rules = crate::rules::Rules::parse(&[("rules", text)]).expect("rules are valid");
        let groups = rules.groups_json(&crate::rules::Filter::default());
        let rules = groups["groups"].as_array().into_iter().flatten();
        for rule in rules.flat_map(|g| g["rules"].as_array().into_iter().flatten()) {
            found.extend(rule["query"].as_str().map(str::to_owned));
        }
    }
    found
}

fn expressions(json: &Value, found: &mut BTreeSet<String>) {
    if let Some(expr) = json.get("expr").and_then(Value::as_str) {
        let filled = expr
            .replace("$__rate_interval", "20s")
            .replace("$__interval", "5s")
            .replace("$__range", "300s");
        let names = SCOPE.iter().chain(HOSTS);
        found.insert(names.fold(filled, |text, name| text.replace(&format!("${name}"), ".*")));
    }
    match json {
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        Value::Object(fields) => fields.values().for_each(|item| expressions(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What is asked of each metric: the values of its labels.
type Wanted = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

fn wanted(queries: &BTreeSet<String>) -> Wanted {
    let mut out = Wanted::new();
    for query in queries {
        let expr = Query::parse(query).unwrap_or_else(|e| panic!("{query}: {e}")).expr;
        selectors(&expr, &mut |selector| {
            let name = selector.matchers.iter().find(|m| m.label == NAME).and_then(Matcher::exact);
            let Some(name) = name else { return };
            let labels = out.entry(name.to_owned()).or_default();
            for matcher in &selector.matchers {
                let plain = |v: &&str| !v.is_empty() && !v.contains(['.', '*', '+', '(']);
                let values = labels.entry(matcher.label.clone()).or_default();
                values.extend(matcher.pattern().split('|').filter(plain).map(str::to_owned));
            }
        });
    }
    out
}

fn selectors(expr: &Expr, visit: &mut impl FnMut(&Selector)) {
    match expr {
        Expr::Number(_) | Expr::String(_) => {}
        Expr::Selector(selector) | Expr::Range { selector, .. } => visit(selector),
        Expr::Subquery(subquery) => selectors(&subquery.expr, visit),
        Expr::Negate(inner) => selectors(inner, visit),
        Expr::Binary(node) => {
            selectors(&node.left, visit);
            selectors(&node.right, visit);
        }
        Expr::Aggregate(node) => selectors(&node.expr, visit),
        Expr::Call(call) => call.args.iter().for_each(|arg| selectors(arg, visit)),
    }
}

/// All series of a metric: each value asked for, and one that is not.
fn series_of(name: &str, labels: &BTreeMap<String, BTreeSet<String>>) -> Vec<Labels> {
    let target = [("cluster", "local"), ("job", "j"), ("instance", "i"), ("node", "n")];
    let own = [("engine_role", "unified"), ("model_name", "m"), (NAME, name)];
    let base =
        Labels::new(target.iter().chain(&own).map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
    let mut sets = vec![base];
    for (label, values) in labels {
        if label == NAME || label == "le" || target.iter().any(|(n, _)| n == label) {
            continue;
        }
        let mut values: Vec<&str> = values.iter().map(String::as_str).take(3).collect();
        values.push("other");
        sets = sets
            .iter()
            .flat_map(|set| values.iter().map(move |value| set.with(label, value)))
            .collect();
    }
    if name.ends_with("_bucket") {
        let bounds = ["0.1", "0.5", "1", "5", "+Inf"];
        sets = sets.iter().flat_map(|set| bounds.map(|le| set.with("le", le))).collect();
    }
    sets
}

/// The sample of a series at a second; counters grow, gauges wander, some series end.
fn sample(labels: &Labels, index: u64, second: i64) -> Option<f64> {
    let name = labels.get(NAME).unwrap_or("");
    let moved = noise(index * 100_003 + second.cast_unsigned());
    if name == "diff_gone" {
        return (second < SECONDS / 2).then_some(7.0);
    }
    if let Some(le) = labels.get("le") {
        let share = le.parse().unwrap_or(10.0_f64).min(10.0) / 10.0;
        return Some(1000.0 + (second as f64 * 10.0 * share.sqrt()).floor());
    }
    if name.ends_with("_total") || name.ends_with("_sum") || name.ends_with("_count") {
        let since = if index % 5 == 4 { second % 250 } else { second };
        return Some(1000.0 + since as f64 * (1.0 + index as f64 % 4.0));
    }
    Some((moved * 100.0).floor() + index as f64 % 3.0 + 0.5)
}

fn own_series(sets: &mut Vec<Labels>) {
    for (name, values) in
        [("diff_counter_total", 3), ("diff_gauge", 3), ("diff_gone", 1), ("diff_bucket", 1)]
    {
        for a in ["x", "yy", "z"].iter().take(values) {
            for b in ["1", "2"] {
                let pairs = [(NAME, name), ("a", *a), ("b", b)];
                let set =
                    Labels::new(pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
                let bounds = ["0.1", "0.5", "1", "5", "+Inf"];
                match name {
                    "diff_bucket" => sets.extend(bounds.map(|le| set.with("le", le))),
                    _ => sets.push(set),
                }
            }
        }
    }
}

/// A folder that is removed with everything in it.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

struct Prometheus(Child);

impl Drop for Prometheus {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Fills both stores with the same samples; the other one as blocks of Prometheus.
fn fill(sets: &[Labels], folder: &Path) -> Store {
    let store = Store::new(Bounds { series_max: usize::MAX, ..Bounds::default() });
    let mut text = String::new();
    for (index, labels) in sets.iter().enumerate() {
        for second in 0..SECONDS {
            let Some(value) = sample(labels, index as u64, second) else { continue };
            store.append_labels(labels, (FROM + second) * 1000 + 250, value);
            let series = labels.to_string().replace(", ", ",");
            writeln!(text, "{series} {value} {}.25", FROM + second)
                .expect("writing to a string does not fail");
        }
    }
    text.push_str("# EOF\n");
    let page = folder.join("page.txt");
    std::fs::write(&page, text).expect("the folder is writable");
    let made = Command::new("/usr/bin/promtool")
        .args(["tsdb", "create-blocks-from", "openmetrics", "--quiet"])
        .args([&page, &folder.join("data")])
        .output()
        .expect("promtool starts");
    assert!(made.status.success(), "promtool: {}", String::from_utf8_lossy(&made.stderr));
    store
}

fn start(folder: &Path, port: u16) -> Prometheus {
    std::fs::write(folder.join("prometheus.yml"), "global: {}\n").expect("writable");
    let child = Command::new("/usr/bin/prometheus")
        .arg(format!("--config.file={}", folder.join("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .args(["--storage.tsdb.retention.time=100y", "--log.level=error"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Prometheus(child.expect("prometheus starts"))
}

/// The answer as series by name, rounded to what both engines must agree on.
fn comparable(result: &Value) -> BTreeMap<String, Vec<(i64, String)>> {
    let series = result.as_array().into_iter().flatten().map(|one| {
        let points = one["values"].as_array().into_iter().flatten().map(|point| {
            let time = point[0].as_f64().unwrap_or(0.0) * 1000.0;
            let value: f64 = match point[1].as_str().unwrap_or("") {
                "+Inf" => f64::INFINITY,
                "-Inf" => f64::NEG_INFINITY,
                text => text.parse().unwrap_or(f64::NAN),
            };
            (time.round() as i64, format!("{value:.9e}"))
        });
        (one["metric"].to_string(), points.collect())
    });
    series.collect()
}

#[test]
fn this_engine_agrees_with_prometheus() {
    let missing = ["prometheus", "promtool"].into_iter().find(|name| program(name).is_none());
    if let Some(name) = missing {
        let ci = std::env::var_os("CI").is_some_and(|value| value == "1" || value == "true");
        assert!(!ci, "cannot run in CI: {name} is missing");
        println!("SKIP {name} is missing; Debian's prometheus brings it");
        return;
    }
    let generated = generated();
    assert!(generated.len() > 50, "only {} generated expressions", generated.len());
    let mut sets: Vec<Labels> =
        wanted(&generated).iter().flat_map(|(name, labels)| series_of(name, labels)).collect();
    own_series(&mut sets);
    let folder = std::env::temp_dir().join(format!("differential-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for temporary files");
    let folder = Folder(folder);
    let store = fill(&sets, &folder.0);
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|socket| socket.local_addr())
        .expect("a free port")
        .port();
    let _prometheus = start(&folder.0, port);
    let queries = LANGUAGE.iter().map(|q| (*q).to_owned()).chain(generated);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime.expect("a runtime").block_on(compare(&store, port, queries.collect()));
    println!("{} expressions, {} of them with data", outcome.asked, outcome.answered);
    assert!(outcome.wrong.is_empty(), "{}", outcome.wrong.join("\n\n"));
    assert!(outcome.answered * 10 > outcome.asked * 8, "too many expressions are empty");
}

struct Outcome {
    asked: usize,
    answered: usize,
    wrong: Vec<String>,
}

async fn compare(store: &Store, port: u16, queries: Vec<String>) -> Outcome {
    let address = format!("127.0.0.1:{port}");
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    for _ in 0..300 {
        ticks.tick().await;
        if ask(&address, "/-/ready".to_owned()).await.is_some() {
            break;
        }
    }
    let (start, end, step) = (FROM * 1000 + 310_500, FROM * 1000 + 590_500, 20_000);
    let mut outcome = Outcome { asked: queries.len(), answered: 0, wrong: Vec::new() };
    for query in queries {
        let path = format!(
            "/api/v1/query_range?query={}&start={}&end={}&step=20",
            escape(&query),
            start as f64 / 1000.0,
            end as f64 / 1000.0
        );
        let theirs = ask(&address, path).await.unwrap_or_default();
        let theirs = comparable(&theirs["data"]["result"]);
        let ours = Query::parse(&query).and_then(|q| q.range(store, start, end, step));
        let ours = match ours {
            Ok(series) => comparable(
                &serde_json::from_str::<Value>(&crate::promapi::matrix_json(&series))
                    .expect("our own JSON")["result"],
            ),
            Err(error) => {
                outcome.wrong.push(format!("{query}\n  error: {error}"));
                continue;
            }
        };
        outcome.answered += usize::from(!theirs.is_empty());
        if ours != theirs {
            let first = theirs.iter().find(|(name, points)| ours.get(*name) != Some(*points));
            let our = first.and_then(|(name, _)| ours.get(name));
            let extra = ours.keys().find(|name| !theirs.contains_key(*name));
            outcome.wrong.push(format!(
                "{query}\n  theirs {} series, first different: {first:?}\n  ours {} series: \
                 {our:?}, not theirs: {extra:?}",
                theirs.len(),
                ours.len()
            ));
        }
    }
    outcome
}

async fn ask(address: &str, path: String) -> Option<Value> {
    let request = http::get(address, &path).ok()?;
    let (status, body) =
        http::fetch(address, request, 64 << 20, Duration::from_secs(20)).await.ok()?;
    let json = serde_json::from_slice(&body).unwrap_or(Value::Null);
    (status.is_success() || json["status"] == "error").then_some(json)
}

fn escape(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
