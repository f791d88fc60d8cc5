//! The page of the alerts: what is inactive, waits, fires, has ended or cannot be evaluated.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::up::{Up, signal};
use crate::webdriver::Browser;

/// Rows of a table of the page, by its name.
fn rows(list: &str) -> String {
    format!("[...document.querySelectorAll('[data-list={list}] tbody tr')]")
}

/// The live rules, then a server that stops answering, then answers that are made up.
pub(crate) fn page(browser: &Browser, up: &Up, screens: &Path) -> Result<()> {
    browser.go(&format!("{}/alerts?theme=dark", up.console))?;
    listed(browser)?;
    pending(browser, up, screens)?;
    every_state(browser, screens)?;
    let complaints = browser.complaints()?;
    ensure!(complaints.is_empty(), "{complaints:?}");
    Ok(())
}

fn listed(browser: &Browser) -> Result<()> {
    let inactive = format!(
        "{}.filter(r => r.querySelector('.badge.ok')?.textContent === 'inactive').length >= 10",
        rows("alerting")
    );
    ensure!(browser.wait_until(&inactive)?, "inactive rules are not listed");
    let watchdog = format!(
        "{}.some(r => /Watchdog/.test(r.innerText) && /firing/.test(r.innerText)
           && /for \\d+/.test(r.innerText) && r.querySelector('a[href*=\"#watchdog\"]'))",
        rows("active")
    );
    ensure!(browser.wait_until(&watchdog)?, "the watchdog does not fire with its runbook");
    let fold = "document.querySelector('details.fold summary').click(); return null";
    browser.run(fold)?;
    let recording = format!(
        "{}.length > 5 && {}.every(r => r.innerText.includes('ok'))",
        rows("recording"),
        rows("recording")
    );
    ensure!(browser.wait_until(&recording)?, "recording rules are not listed as evaluated");
    Ok(())
}

/// A server that stands still answers no scrape: its target is down, which must last to be told.
fn pending(browser: &Browser, up: &Up, screens: &Path) -> Result<()> {
    let server = *up.children()?.first().context("`up` has a child")?;
    signal(server, "STOP")?;
    let waits = format!(
        "{}.some(r => r.dataset.state === 'pending' && /TargetDown/.test(r.innerText)
           && r.querySelector('.badge.warn').textContent === 'pending'
           && /fires in /.test(r.innerText) && r.querySelector('a[href*=\"runbook\"]'))",
        rows("active")
    );
    let shown =
        browser.wait_until(&waits).and_then(|first| Ok(first || browser.wait_until(&waits)?));
    browser.screenshot(&screens.join("alerts.png"))?;
    signal(server, "CONT")?;
    ensure!(shown?, "a target that is down is not shown as pending");
    let gone = format!("!{}.some(r => /TargetDown/.test(r.innerText))", rows("active"));
    let ended = browser.wait_until(&gone)? || browser.wait_until(&gone)?;
    ensure!(ended, "the alert stays although the target is back");
    Ok(())
}

/// Every state, from answers in the shape of the API that no live server gives within seconds.
fn every_state(browser: &Browser, screens: &Path) -> Result<()> {
    let (rules, resolved) = made_up();
    browser.run(&format!(
        "const answers = {{ '/api/v1/rules': {rules}, '/console/api/resolved': {resolved} }};
         const live = window.fetch;
         window.fetch = (path, options) => answers[path]
           ? Promise.resolve(new Response(
               JSON.stringify({{ status: 'success', data: answers[path] }})))
           : live(path, options);
         return null"
    ))?;
    for (what, list, condition) in [
        (
            "firing comes first, in red",
            "active",
            "rows[0].dataset.state === 'firing'
            && shade(rows[0]) === color('--bad') && /12.5/.test(rows[0].innerText)",
        ),
        (
            "summary and further annotations",
            "active",
            "/too deep/.test(rows[0].innerText) && /owner: harbour/.test(rows[0].innerText)",
        ),
        (
            "links to board and runbook",
            "active",
            "rows[0].querySelector('a[href=\"/d/sightline-queue\"]')
            && rows[0].querySelector('a[href$=\"#queue-drain\"]')",
        ),
        ("kept firing", "active", "/kept firing; gone since/.test(rows[1].innerText)"),
        (
            "pending, in another colour",
            "active",
            "rows[2].dataset.state === 'pending'
            && shade(rows[2]) === color('--warn') && color('--warn') !== color('--bad')",
        ),
        (
            "ended",
            "resolved",
            "/resolved/.test(rows[0].innerText) && /for 2m/.test(rows[0].innerText)",
        ),
        ("the error of a rule", "broken", "/many-to-many/.test(rows[0].innerText)"),
        ("waits and keeps", "alerting", "/for 5m, then 10m more/.test(rows[0].innerText)"),
    ] {
        let expression = format!(
            "(() => {{ const rows = {};
               const shade = (row) => getComputedStyle(row.querySelector('.badge')).color;
               const color = (name) => {{
                 const probe = document.body.appendChild(document.createElement('i'));
                 probe.style.color = `var(${{name}})`;
                 const found = getComputedStyle(probe).color;
                 probe.remove();
                 return found;
               }};
               return {condition}; }})()",
            rows(list)
        );
        ensure!(browser.wait_until(&expression)?, "not shown: {what}");
    }
    browser.screenshot(&screens.join("alert_states.png"))
}

/// The data of `/api/v1/rules` and of `/console/api/resolved`.
fn made_up() -> (Value, Value) {
    let labels = |name: &str| json!({ "alertname": name, "severity": "critical", "instance": "i" });
    let annotations = json!({ "summary": "the queue is too deep", "owner": "harbour",
        "dashboard": "sightline-queue", "runbook": "queue-drain" });
    let alert = |name: &str, state: &str| {
        json!({ "labels": labels(name), "annotations": annotations, "state": state,
            "activeAt": "2026-01-01T00:00:00Z", "value": "1.25e+01" })
    };
    let mut kept = alert("Kept", "firing");
    kept["keepFiringSince"] = "2026-01-01T00:01:00Z".into();
    let rule = |name: &str, state: &str, alerts: Vec<Value>| {
        json!({ "state": state, "name": name, "query": "x > 1", "duration": 300,
            "keepFiringFor": 600, "labels": { "severity": "critical" },
            "annotations": annotations, "alerts": alerts, "health": "ok", "evaluationTime": 0.1,
            "lastEvaluation": "2026-01-01T00:02:00Z", "type": "alerting" })
    };
    let mut broken = rule("Broken", "inactive", Vec::new());
    broken["health"] = "err".into();
    broken["lastError"] = "many-to-many matching not allowed".into();
    let rules = json!([
        rule("Waiting", "pending", vec![alert("Waiting", "pending")]),
        rule("Deep", "firing", vec![alert("Deep", "firing"), kept]),
        broken,
    ]);
    let group = json!({ "name": "g", "file": "f.yml", "rules": rules, "interval": 15, "limit": 0,
        "evaluationTime": 0.1, "lastEvaluation": "2026-01-01T00:02:00Z" });
    let mut ended = alert("Ended", "inactive");
    ended["resolvedAt"] = "2026-01-01T00:02:00Z".into();
    (json!({ "groups": [group] }), json!({ "alerts": [ended] }))
}
