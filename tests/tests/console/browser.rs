//! The boards in a browser: a real model answers, every panel holds data, and the data moves.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::{fixture_model, http, root, skip};

use crate::up::Up;
use crate::webdriver::{Browser, missing};

pub(crate) const WIDTH: u32 = 1500;

/// Panels that may say "No data" over the tiny fixture or in a topology, by board, panel title and
/// reason.
const EMPTY: &[(&str, &str, &str)] = &[
    (
        "sightline-queue",
        "Queue drain",
        "the capacity is trusted from 5 % of busy time on, which two layers never reach",
    ),
    ("sightline-hicache", "Time of one copy", "without a host tier nothing is copied"),
    (
        "sightline-hicache",
        "Prefill that each ratio saves",
        "tokens a busy second are trusted from 5 % of busy time on",
    ),
    ("sightline-hicache", "Age of pages: device", "no page was used again or given up so far"),
];

/// Boards whose numbers change under load in every topology; others are of parts that a topology
/// lacks, or of what seldom changes.
const MOVING: [&str; 3] = ["sightline-overview", "sightline-queue", "sightline-kv-pools"];

/// Panels of a board whose numbers must change, where `most` of a moving one do.
pub(crate) fn moves(uid: &str, most: usize) -> usize {
    if MOVING.contains(&uid) { most } else { 0 }
}

/// Where pictures go.
pub(crate) fn screens() -> Result<PathBuf> {
    let screens = root().join("target/screens");
    std::fs::create_dir_all(&screens)?;
    Ok(screens)
}

/// The uids of all boards that the console lists.
pub(crate) fn uids(up: &Up) -> Result<Vec<String>> {
    let listed = http::get(&up.console, "/console/api/boards")?.json()?;
    let listed = listed.as_array().context("a list of boards")?;
    let uid = |board: &Value| Some(board["uid"].as_str()?.to_owned());
    listed.iter().map(|board| uid(board).context("a uid")).collect()
}

/// The demo model where there is one, else the tiny fixture.
fn model() -> (PathBuf, bool) {
    let named = std::env::var_os("SIGHTLINE_TEST_MODEL").map(PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))
        .map(|cache| cache.join("sightline/models/SmolLM2-135M-Instruct.Q4_1.gguf"));
    match named.or(cache).filter(|path| path.exists()) {
        Some(path) => (path, true),
        None => (fixture_model("tiny-llama"), false),
    }
}

#[test]
fn the_boards_show_a_living_server() -> Result<()> {
    if let Some(reason) = missing() {
        skip(&reason);
        return Ok(());
    }
    let (model, real) = model();
    let up = Up::start(&model, &["--demo-load"])?;
    ask(&up, real)?;
    let browser = Browser::start(WIDTH, 1000)?;
    let screens = screens()?;
    home(&browser, &up, &screens)?;
    let uids = uids(&up)?;
    ensure!(uids.len() >= 6, "only {uids:?} are listed");
    for uid in &uids {
        board(&browser, &up, uid, moves(uid, if real { 3 } else { 1 }))
            .with_context(|| format!("board {uid}"))?;
        browser.screenshot(&screens.join(format!("{uid}.png")))?;
        let complaints = browser.complaints()?;
        ensure!(complaints.is_empty(), "{uid}: {complaints:?}");
    }
    panel_alone(&browser, &up)?;
    crate::alerts::page(&browser, &up, &screens).context("the page of the alerts")?;
    drop(browser);
    up.signal("TERM")?;
    let (status, said) = up.wait()?;
    ensure!(status.code() == Some(0), "{status}: {said}");
    Ok(())
}

/// The model must answer; the demo model must say something that looks like words.
fn ask(up: &Up, real: bool) -> Result<()> {
    let models = http::get(&up.api, "/v1/models")?.json()?;
    let name = models["data"][0]["id"].as_str().context("a model is served")?.to_owned();
    let body = json!({ "model": name, "prompt": "Hello", "max_tokens": 16 });
    let answer = http::post(&up.api, "/v1/completions", &body)?.json()?;
    let text = answer["choices"][0]["text"].as_str().context("a completion")?;
    if real {
        let prompt = "The capital of France is";
        let body = json!({ "model": name, "prompt": prompt, "max_tokens": 3, "temperature": 0 });
        let answer = http::post(&up.api, "/v1/completions", &body)?.json()?;
        let said = answer["choices"][0]["text"].as_str().unwrap_or("");
        ensure!(said.contains("Paris"), "the demo model says {said:?}");
    }
    ensure!(real || !text.is_empty(), "an empty completion");
    Ok(())
}

fn home(browser: &Browser, up: &Up, screens: &Path) -> Result<()> {
    browser.go(&format!("{}/?theme=dark", up.console))?;
    let cards = browser.wait_until("document.querySelectorAll('.card').length >= 3")?;
    ensure!(cards, "the home page does not list the boards");
    let up_now =
        "[...document.querySelectorAll('.fact .big')].some(f => f.textContent === '2 of 2')";
    ensure!(browser.wait_until(up_now)?, "the home page does not show server and exporter as up");
    browser.screenshot(&screens.join("home.png"))
}

/// Opens a board, unfolds it, and waits until its panels hold data that moves.
/// Numbers of at least `moves` panels must change.
pub(crate) fn board(browser: &Browser, up: &Up, uid: &str, moves: usize) -> Result<()> {
    browser.resize(WIDTH, 1000)?;
    let query = "theme=dark&from=now-2m&to=now&refresh=1s";
    browser.go(&format!("{}/d/{uid}?{query}", up.console))?;
    let there = browser.wait_until("document.querySelectorAll('.panel').length > 3")?;
    ensure!(there, "the board has no panels: {}", page_text(browser)?);
    browser
        .run("document.querySelectorAll('.row[aria-expanded=false]').forEach(r => r.click())")?;
    // A window as tall as the page: panels out of sight are not asked for.
    let height = browser.run("return document.documentElement.scrollHeight")?;
    let height = u32::try_from(height.as_u64().context("a height")?)?;
    browser.resize(WIDTH, height.clamp(1000, 9000) + 160)?;

    let listed = EMPTY.iter().filter(|(board, ..)| *board == uid);
    let allowed: Vec<&str> = listed.map(|(_, panel, _)| *panel).collect();
    let allowed = Value::from(allowed).to_string();
    let bad = format!(
        "[...document.querySelectorAll('.panel')].filter(p => !['drawn', 'said'].includes(
           p.dataset.state) && !{allowed}.includes(p.querySelector('h3').textContent))"
    );
    // Two rounds of patience: the demo load reaches some panels only after its first burst.
    let settled = format!("{bad}.length === 0");
    if !browser.wait_until(&settled)? && !browser.wait_until(&settled)? {
        let script = format!("return {bad}.map(p => p.dataset.state + ': ' + p.innerText)");
        anyhow::bail!("panels without data: {}", browser.run(&script)?);
    }
    drawn(browser)?;
    moving(browser, moves)
}

/// No canvas without a size, no body without content, no value that is not one.
fn drawn(browser: &Browser) -> Result<()> {
    let blank = browser.run(
        "return [...document.querySelectorAll('.panel')].filter(p => {
           const canvas = p.querySelector('canvas');
           if (canvas) return canvas.width < 50 || canvas.height < 20;
           return p.querySelector('.body').innerText.trim() === '';
         }).map(p => p.querySelector('h3').textContent)",
    )?;
    ensure!(blank == json!([]), "blank panels: {blank}");
    let odd = browser.run(
        "return [...document.querySelectorAll('.panel')].filter(p =>
           /NaN|undefined|\\[object/.test(p.innerText)).map(p => p.innerText)",
    )?;
    ensure!(odd == json!([]), "panels with odd text: {odd}");
    Ok(())
}

/// Numbers change while we look, in several panels; the tiny fixture is done before most gauges
/// are read.
fn moving(browser: &Browser, panels: usize) -> Result<()> {
    browser.run(
        "window.before = new Map([...document.querySelectorAll('.panel')].map(
           p => [p.dataset.panel, p.querySelector('.body').innerText])); return null",
    )?;
    let changed = format!(
        "[...document.querySelectorAll('.panel')].filter(p => window.before.get(p.dataset.panel)
           !== p.querySelector('.body').innerText).length >= {panels}"
    );
    ensure!(browser.wait_until(&changed)?, "the numbers stand still");
    Ok(())
}

/// A panel can be looked at alone, and the way back is there.
fn panel_alone(browser: &Browser, up: &Up) -> Result<()> {
    browser.resize(WIDTH, 1000)?;
    browser.go(&format!("{}/d/sightline-overview?refresh=1s", up.console))?;
    let there = "document.querySelector('.panel[data-type=timeseries][data-state=drawn] .open')";
    ensure!(browser.wait_until(there)?, "no time series was drawn");
    browser.run(&format!("{there}.click()"))?;
    let alone = "document.querySelectorAll('.panel').length === 1
        && document.querySelector('.panel').dataset.state === 'drawn'
        && location.search.includes('viewPanel')";
    ensure!(browser.wait_until(alone)?, "the panel does not stand alone");
    browser.run("document.querySelector('.tools a.button').click()")?;
    let back = "document.querySelectorAll('.panel').length > 3";
    ensure!(browser.wait_until(back)?, "the board does not come back");
    let complaints = browser.complaints()?;
    ensure!(complaints.is_empty(), "{complaints:?}");
    Ok(())
}

fn page_text(browser: &Browser) -> Result<String> {
    let text = browser.run("return document.body.innerText.slice(0, 400)")?;
    Ok(text.as_str().unwrap_or("").to_owned())
}
