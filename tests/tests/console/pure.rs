//! What the scripts of the console compute without a page: units, times, steps, variables, tables.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::webdriver::Browser;

/// Evaluates each pair of an expression and its value, with `names` of a script, as `units.js`.
fn check(browser: &Browser, script: &str, names: &str, pairs: &[(&str, Value)]) -> Result<()> {
    let each: Vec<String> = pairs.iter().map(|(text, _)| format!("() => {text}")).collect();
    let answer = browser.evaluate(&format!(
        "const {{ {names} }} = await import('/js/{script}');
         return [{}].map(one => {{
           try {{ return one(); }} catch (error) {{ return String(error); }}
         }});",
        each.join(",\n")
    ))?;
    for (index, (expression, value)) in pairs.iter().enumerate() {
        ensure!(answer[index] == *value, "{expression}: {} is not {value}", answer[index]);
    }
    Ok(())
}

/// Everything; needs a page of the console with any policy that lets its own scripts in.
pub(crate) fn all(browser: &Browser) -> Result<()> {
    units(browser)?;
    times(browser)?;
    variables(browser)?;
    tables(browser)
}

fn units(browser: &Browser) -> Result<()> {
    check(
        browser,
        "units.js",
        "format, axisLabels",
        &[
            ("format(1500, 'short')", json!("1.50 K")),
            ("format(1234567, 'short')", json!("1.23 Mil")),
            ("format(42, 'short')", json!("42")),
            ("format(0.25, 's')", json!("250 ms")),
            ("format(4.9, 's')", json!("4.90 s")),
            ("format(90, 's')", json!("1.50 mins")),
            ("format(7200, 's')", json!("2 hours")),
            ("format(0.000012, 's')", json!("12 µs")),
            ("format(1536, 'bytes')", json!("1.50 KiB")),
            ("format(3 * 2 ** 30, 'bytes')", json!("3 GiB")),
            ("format(1500, 'decbytes')", json!("1.50 kB")),
            ("format(2500000, 'Bps')", json!("2.50 MB/s")),
            ("format(2 ** 20, 'binBps')", json!("1 MiB/s")),
            ("format(0.6349, 'percentunit')", json!("63.5%")),
            ("format(12.5, 'percent', 1)", json!("12.5%")),
            ("format(1500, 'reqps')", json!("1.50K req/s")),
            ("format(12, 'count:tok/s')", json!("12 tok/s")),
            ("format(1.98e9, 'hertz')", json!("1.98 GHz")),
            ("format(412, 'watt')", json!("412 W")),
            ("format(61, 'celsius')", json!("61 °C")),
            ("format(Infinity, 's')", json!("∞")),
            ("format(null, 's')", json!("-")),
            ("axisLabels([0, 0.5, 1], 's')", json!(["0 s", "500 ms", "1 s"])),
            ("axisLabels([0, 500, 1000, 1500], 'short')", json!(["0", "500", "1 K", "1.5 K"])),
        ],
    )
}

fn times(browser: &Browser) -> Result<()> {
    check(
        browser,
        "time.js",
        "parseTime, stepOf, windowOf, promDuration, span",
        &[
            ("parseTime('now', 1000)", json!(1000)),
            ("parseTime('now-15m', 1000)", json!(100)),
            ("parseTime('1700000000000', 0)", json!(1_700_000_000)),
            ("parseTime('soon', 0)", json!(null)),
            ("parseTime('now/d', 1700000000) <= 1700000000", json!(true)),
            ("parseTime('now/d', 1700000000, true) > 1700000000", json!(true)),
            (
                "parseTime('2026-01-31 14:00:00', 0) === new Date(2026, 0, 31, 14) / 1000",
                json!(true),
            ),
            ("stepOf(300)", json!(1)),
            ("stepOf(3600)", json!(10)),
            ("stepOf(3600, 480, 15)", json!(15)),
            ("stepOf(7 * 86400)", json!(1800)),
            (
                "windowOf({ from: 'now-5m', to: 'now' }, 1000.5)",
                json!({ "from": 700.5, "to": 1000.5, "step": 1, "start": 701, "end": 1000 }),
            ),
            ("promDuration(90)", json!("90s")),
            ("promDuration(7200)", json!("2h")),
            ("span(3725)", json!("1h 2m")),
        ],
    )
}

fn variables(browser: &Browser) -> Result<()> {
    let made = "(chosen) => { const all = new Variables({ templating: { list: [
        { type: 'datasource', name: 'datasource' },
        { type: 'query', name: 'job', query: 'label_values(up, job)', multi: true,
          includeAll: true },
        { type: 'custom', name: 'one', query: 'a,b' } ] } }, new URLSearchParams(chosen), 5);
        return all; }";
    let of = |chosen: &str, text: &str| {
        format!("({made})('{chosen}').replace({text}, {{ step: 1, start: 100, end: 400 }})")
    };
    let all = of("var-one=a", r#"'up{job=~"$job",x="${one}"}[$__rate_interval]'"#);
    let some = of("var-job=a.b&var-job=c", r#"'{job=~"$job"}'"#);
    let forms = of("var-job=a&var-job=c", "'${job:csv} ${job:pipe} ${job:queryparam} $__range'");
    let alone = of("", "'${datasource} $unknown [[job]]'");
    check(
        browser,
        "variables.js",
        "Variables",
        &[
            (all.as_str(), json!(r#"up{job=~".*",x="a"}[20s]"#)),
            (some.as_str(), json!(r#"{job=~"(a\\.b|c)"}"#)),
            (forms.as_str(), json!("a,c a|c var-job=a&var-job=c 5m")),
            (alone.as_str(), json!("prometheus $unknown .*")),
        ],
    )
}

fn tables(browser: &Browser) -> Result<()> {
    let made = "transformed({ transformations: [{ id: 'merge' }, { id: 'organize', options: {
        excludeByName: { Time: true }, indexByName: { i: 0, 'Value #B': 1, 'Value #A': 2 },
        renameByName: { 'Value #A': 'first' } } }] }, [
        { refId: 'A', labels: { i: 'x' }, value: 1 }, { refId: 'A', labels: { i: 'y' }, value: 2 },
        { refId: 'B', labels: { i: 'y' }, value: 3 } ], { end: 7 })
        .fields.map(field => [field.name, ...field.values])";
    let unknown = "transformed({ transformations: [{ id: 'magic' }] }, [], { end: 7 })";
    check(
        browser,
        "transform.js",
        "transformed, order",
        &[
            (made, json!([["i", "x", "y"], ["Value #B", null, 3], ["first", 1, 2]])),
            (unknown, json!("Error: this console does not know the transformation \"magic\"")),
            ("order([3, null, 1], true)", json!([0, 2, 1])),
        ],
    )
}
