//! A small incident: more prompts than a slow server can compute, until an alert says so.

use std::path::Path;

use anyhow::Result;
use serde_json::json;
use tests::{http, skip};

use crate::browser::{WIDTH, screens};
use crate::up::Up;
use crate::webdriver::{Browser, missing};

/// A hundred prompt tokens a second.
const SLOW: &str = "fake:prefill-token=10ms,decode-row=1ms";
const REQUESTS: usize = 40;
/// Bytes, which are tokens here: all of them are a minute and a half of work.
const PROMPT: usize = 220;
const NAME: &str = "PrefillQueueDrainCritical";

#[test]
fn an_overload_turns_red_and_says_what_to_do() -> Result<()> {
    if let Some(reason) = missing() {
        skip(&reason);
        return Ok(());
    }
    let limits =
        ["--max-queued-tokens", "0", "--max-queued-requests", "64", "--ttft-objective", "0s"];
    let args = [&["--no-demo-load", "--"][..], &limits].concat();
    let up = Up::start(Path::new(SLOW), &args)?;
    let browser = Browser::start(WIDTH, 1000)?;
    browser.go(&format!("{}/d/sightline-queue?theme=dark&from=now-5m&refresh=1s", up.console))?;
    browser.expect("no alert yet", "document.querySelector('[data-status=alerts].ok')")?;
    for request in 0..REQUESTS {
        let api = up.api.clone();
        // What waits is cut off with the server; nobody waits for the answer.
        std::thread::spawn(move || {
            // Prompts that begin alike would be computed once.
            let prompt = format!("{request:02}{}", "a".repeat(PROMPT));
            let body = json!({ "model": "fake", "prompt": prompt, "max_tokens": 2 });
            drop(http::post(&api, "/v1/completions", &body));
        });
    }
    burst(&browser)?;
    red(&browser)?;
    ways_on(&browser, &up)
}

/// The panels of the queue show it.
fn burst(browser: &Browser) -> Result<()> {
    let panel = |title: &str| {
        format!(
            "[...document.querySelectorAll('.panel')].find(
               p => p.querySelector('h3').textContent === '{title}')"
        )
    };
    let waiting =
        format!("Number({}.querySelector('.number').innerText) >= 20", panel("Waiting requests"));
    browser.expect("the number of those that wait", &waiting)?;
    let most = format!(
        "[...{}.querySelectorAll('.legend tbody tr')].some(row => /waiting/.test(row.innerText)
           && Number(row.lastChild.innerText) >= 20)",
        panel("Queue depth")
    );
    browser.run(&format!("{}.scrollIntoView(); return null", panel("Queue depth")))?;
    browser.expect("the burst over time", &most)?;
    browser.run("scrollTo(0, 0); return null").map(drop)
}

/// Strip, banner and panel turn red; the banner says what to do.
fn red(browser: &Browser) -> Result<()> {
    let strip = "document.querySelector('[data-status=alerts].bad')";
    // The rule holds for half a minute, and is looked at four times a minute.
    let turned = browser.wait_until(strip)? || browser.wait_until(strip)?;
    anyhow::ensure!(turned, "no alert fires");
    let line = format!("document.querySelector('.banner [data-alert={NAME}]')");
    let told =
        format!("/What now\\?\\s+\\w+/.test({line}.innerText) && {line}.querySelector('.bad')");
    browser.expect("what to do now", &told)?;
    let bell = "document.querySelector('.panel[data-alert=firing] .bell[data-state=firing]')";
    browser.expect("the panel that is watched", bell)?;
    browser.screenshot(&screens()?.join("incident.png"))
}

/// From the alert to its panel, its section of the runbook, and its rule.
fn ways_on(browser: &Browser, up: &Up) -> Result<()> {
    let link = |name: &str| {
        format!(
            "[...document.querySelectorAll('.banner [data-alert={NAME}] .links a')].find(
               a => a.innerText === '{name}').click(); return null"
        )
    };
    browser.run(&link("panel"))?;
    let alone =
        "/viewPanel=/.test(location.search) && document.querySelectorAll('.panel').length === 1
        && document.querySelector('.panel').dataset.alert === 'firing'";
    browser.expect("its panel", alone)?;
    browser.run(&link("runbook"))?;
    let section = "location.pathname === '/runbook' && location.hash === '#queue-drain'
        && document.querySelector('#queue-drain .badge.bad')";
    browser.expect("its section of the runbook, marked", section)?;
    browser.run("document.querySelector('#queue-drain .badge.bad').click(); return null")?;
    let row = format!(
        "document.querySelector(
           '[data-list=active] tr.marked[data-rule={NAME}][data-state=firing]')"
    );
    browser.expect("the alert in the list", &row)?;
    browser.go(&format!("{}/?theme=dark", up.console))?;
    let card = "document.querySelector('.card.firing[href=\"/d/sightline-queue\"]')
        && document.querySelector('.page .banner li')";
    browser.expect("the home page", card)
}
