//! `sightline up --topology pd`: three processes that are used like one.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::{fixture_model, http, skip};

use crate::browser::{WIDTH, board, moves, screens, uids};
use crate::up::{Up, signal};
use crate::webdriver::{Browser, missing};

const FLAGS: [&str; 3] = ["--no-demo-load", "--topology", "pd"];

fn result_of(up: &Up, query: &str) -> Result<Vec<Value>> {
    let path = format!("/api/v1/query?query={query}");
    let answer = http::get(&up.console, &path)?.json()?;
    Ok(answer["data"]["result"].as_array().cloned().unwrap_or_default())
}

/// Asks again and again until `good`; each question waits for the answer to the one before.
pub(crate) fn until(up: &Up, query: &str, good: impl Fn(&[Value]) -> bool) -> Result<Vec<Value>> {
    let mut last = Vec::new();
    for _ in 0..20_000 {
        last = result_of(up, query)?;
        if good(&last) {
            return Ok(last);
        }
    }
    anyhow::bail!("{query} stays at {last:?}")
}

#[test]
fn a_pair_behind_a_router_answers_is_watched_and_stops() -> Result<()> {
    let up = Up::start(&fixture_model("tiny-llama"), &FLAGS)?;
    let children = up.children()?;
    ensure!(children.len() == 4, "children: {children:?}");
    let text = "The harbour office keeps a ledger of ships, of crews and of storms. ".repeat(3);
    let body = json!({"model": "tiny-llama", "prompt": text, "max_tokens": 8, "temperature": 0});
    let answer = http::post(&up.api, "/v1/completions", &body)?;
    ensure!(answer.status == 200, "status {}: {}", answer.status, answer.text()?);
    ensure!(answer.json()?["usage"]["completion_tokens"] == 8, "{}", answer.text()?);
    let targets = until(&up, "up", |targets| {
        targets.len() == 4 && targets.iter().all(|target| target["value"][1] == "1")
    })?;
    let mut jobs: Vec<_> = targets.iter().map(|t| t["metric"]["job"].to_string()).collect();
    jobs.sort_unstable();
    let expected = ["decode", "node", "prefill", "router"];
    ensure!(jobs == expected.map(|job| format!("\"sightline-{job}\"")), "{jobs:?}");
    // The prompt was computed by the one and its KV received by the other.
    let bytes = "sum(sightline_kv_transfer_bytes_total)";
    until(&up, bytes, |sum| sum.first().is_some_and(|sum| sum["value"][1] != "0"))?;
    up.signal("TERM")?;
    let (status, said) = up.wait()?;
    ensure!(status.code() == Some(0), "{status}: {said}");
    Ok(())
}

#[test]
fn the_boards_show_a_pair_and_a_variable_filters() -> Result<()> {
    if let Some(reason) = missing() {
        skip(&reason);
        return Ok(());
    }
    let up = Up::start(&fixture_model("tiny-llama"), &["--demo-load", "--topology", "pd"])?;
    let browser = Browser::start(WIDTH, 1000)?;
    for uid in uids(&up)? {
        board(&browser, &up, &uid, moves(&uid, 1)).with_context(|| format!("board {uid}"))?;
        browser.screenshot(&screens()?.join(format!("{uid}-pair.png")))?;
    }
    filters(&browser, &up)?;
    let complaints = browser.complaints()?;
    ensure!(complaints.is_empty(), "{complaints:?}");
    Ok(())
}

/// Names of series in the legends of the board; those of a role go when another is chosen.
fn filters(browser: &Browser, up: &Up) -> Result<()> {
    browser.resize(WIDTH, 1000)?;
    browser.go(&format!("{}/d/sightline-queue?from=now-5m&refresh=1s", up.console))?;
    let targets = until(up, "sightline_served_model_info", |targets| targets.len() >= 2)?;
    let instance = |job: &str| {
        let found = targets.iter().find(|target| target["metric"]["job"] == job);
        found.and_then(|target| target["metric"]["instance"].as_str()).map(str::to_owned)
    };
    let decode = instance("sightline-decode").context("a decode worker")?;
    let prefill = instance("sightline-prefill").context("a prefill worker")?;
    let legends =
        "[...document.querySelectorAll('.legend .label')].map(l => l.innerText).join(' ')";
    let both = format!("{legends}.includes('{decode}') && {legends}.includes('{prefill}')");
    browser.expect("both workers", &both)?;
    browser.run("document.querySelector('[data-variable=job] summary').click(); return null")?;
    let choice = "document.querySelector('[data-variable=job] [data-value=sightline-decode]')";
    browser.expect("the choice", choice)?;
    browser.run(&format!("{choice}.click(); return null"))?;
    browser.expect("the address", "/var-job=sightline-decode/.test(location.search)")?;
    let one = format!("{legends}.includes('{decode}') && !{legends}.includes('{prefill}')");
    browser.expect("one worker", &one)?;
    browser.run(
        "document.querySelector('[data-variable=job] [data-value=\"$__all\"]').click();
         return null",
    )?;
    browser.expect("both again", &both)
}

#[test]
fn the_death_of_one_ends_all_with_its_cause() -> Result<()> {
    let up = Up::start(&fixture_model("tiny-llama"), &FLAGS)?;
    let children = up.children()?;
    ensure!(children.len() == 4, "children: {children:?}");
    // In the order of their start: prefill worker, decode worker, router, node exporter.
    signal(children[1], "KILL")?;
    let (status, said) = up.wait()?;
    ensure!(status.code() == Some(70), "{status}: {said}");
    ensure!(said.contains("the decode worker ended (signal: 9"), "{said}");
    Ok(())
}
