//! Hands on a board: keys, addresses, ranges, themes; and what the page asks of its server.

use anyhow::{Result, ensure};
use tests::{fixture_model, skip};

use crate::browser::{WIDTH, screens};
use crate::up::Up;
use crate::webdriver::{Browser, ENTER, ESCAPE, LEFT, missing};
use crate::{made_up, pure};

const READY: &str = "performance.getEntriesByName('panels-drawn').length > 0";

#[test]
fn the_console_is_operated_by_keys_and_addresses() -> Result<()> {
    if let Some(reason) = missing() {
        skip(&reason);
        return Ok(());
    }
    let up = Up::start(&fixture_model("tiny-llama"), &["--demo-load"])?;
    let browser = Browser::start(WIDTH, 1000)?;
    addresses(&browser, &up)?;
    pure::all(&browser)?;
    quiet(&browser)?;
    ranges(&browser)?;
    keys(&browser)?;
    search(&browser)?;
    themes(&browser, &up)?;
    runbook(&browser, &up)?;
    made_up::shown(&browser, &up)?;
    browser.screenshot(&screens()?.join("made_up_light.png"))?;
    made_up::panels(&browser)?;
    made_up::picker(&browser)?;
    made_up::legend_and_links(&browser)?;
    let complaints = browser.complaints()?;
    ensure!(complaints.is_empty(), "{complaints:?}");
    Ok(())
}

/// The state of a board is in its address, and comes from there.
fn addresses(browser: &Browser, up: &Up) -> Result<()> {
    let query =
        "theme=dark&from=now-10m&to=now&refresh=off&var-job=sightline-unified&var-job=other";
    browser.go(&format!("{}/d/sightline-queue?{query}", up.console))?;
    browser.expect("the board is drawn", READY)?;
    let chosen = "[...document.querySelectorAll('[data-variable=job] .chip')].map(c => c.innerText)
        .join() === 'sightline-unified,other'";
    browser.expect("the variable is as the address says", chosen)?;
    let range = "document.querySelector('.time .value').innerText === 'Last 10m'";
    browser.expect("so is the range", range)?;
    let paused = "document.querySelector('select[aria-label=Refresh]').value === '0'";
    browser.expect("so is the refresh", paused)?;
    browser.go(&format!("{}/d/sightline-queue?from=yesterday&to=now", up.console))?;
    let told = "/\"yesterday\" is no time/.test(document.querySelector('.tools').innerText)";
    browser.expect("a range that is none is told", told)
}

/// Panels out of sight are not asked for, and what is no longer wanted is given up.
fn quiet(browser: &Browser) -> Result<()> {
    browser.run("document.querySelector('.boards a[href*=overview]').click(); return null")?;
    let overview = "location.pathname === '/d/sightline-overview'
        && document.querySelector('.panel[data-state=drawn]')";
    browser.expect("a link leads to the next board", overview)?;
    browser.run(
        "window.asked = []; window.ended = []; const live = window.fetch;
         window.fetch = (path, options) => {
           if (!String(path).endsWith('/batch')) return live(path, options);
           window.asked.push(JSON.parse(options.body).length);
           const answer = live(path, options);
           answer.catch((error) => window.ended.push(error.name));
           return answer;
         };
         return null",
    )?;
    browser.expect("it asks again", "window.asked.length > 1")?;
    let some = "Math.max(...window.asked) < [...document.querySelectorAll('.panel')].length * 2
        && [...document.querySelectorAll('.panel')].some(p => p.dataset.state === 'waiting')";
    browser.expect("what is out of sight waits", some)?;
    browser.run(
        "const button = [...document.querySelectorAll('.when button')].pop();
         for (let index = 0; index < 4; index += 1) button.click(); return null",
    )?;
    browser.expect("older questions are given up", "window.ended.includes('AbortError')")?;
    let drawn = "document.querySelector('.panel').dataset.state !== 'error'";
    browser.expect("giving up is no error", drawn)
}

fn ranges(browser: &Browser) -> Result<()> {
    browser.run("document.querySelector('.time summary').click(); return null")?;
    browser.run("document.querySelector('[data-range=\"now-15m\"]').click(); return null")?;
    browser.expect("a quick range", "/from=now-15m/.test(location.search)")?;
    let plot = "document.querySelector('.panel[data-type=timeseries][data-state=drawn] .u-over')";
    browser.expect("a time series is drawn", plot)?;
    browser.drag(plot, &[(0.25, 0.5), (0.5, 0.5), (0.75, 0.5)])?;
    browser.expect("dragging zooms", "/from=\\d{13}&to=\\d{13}/.test(location.search)")?;
    let half = "(() => { const p = new URLSearchParams(location.search);
        const length = (p.get('to') - p.get('from')) / 1000;
        return length > 400 && length < 500; })()";
    browser.expect("to the half that was dragged over", half)?;
    browser.run("history.back(); return null")?;
    browser.expect("and back", "/from=now-15m/.test(location.search)")?;
    let told = "document.querySelector('.time .value').innerText === 'Last 15 minutes'";
    browser.expect("the picker follows", told)?;
    browser.run("document.querySelector('.time summary').click(); return null")?;
    browser.keys(&format!("soon{ENTER}"))?;
    let problem = "/\"soon\" is no time; try now-1h/.test(
        document.querySelector('.time .problem').innerText)";
    browser.expect("a typed range that is none is told", problem)?;
    browser.keys(ESCAPE)
}

fn keys(browser: &Browser) -> Result<()> {
    browser.keys("?")?;
    let overlay = "document.querySelectorAll('dialog[open] kbd').length > 20";
    browser.expect("the keys are shown", overlay)?;
    browser.keys(ESCAPE)?;
    browser.expect("and go away", "!document.querySelector('dialog')")?;
    browser.keys(LEFT)?;
    browser.expect("earlier", "/from=\\d{13}/.test(location.search)")?;
    browser.keys("n")?;
    browser.expect("until now again", "/to=now/.test(location.search)")?;
    browser.keys("p")?;
    browser.expect("paused", "/refresh=off/.test(location.search)")?;
    browser.keys("p")?;
    browser.expect("and on", "/refresh=5s/.test(location.search)")?;
    browser.keys("jj")?;
    let second = "document.querySelectorAll('.panel')[1].contains(document.activeElement)";
    browser.expect("the second panel has the focus", second)?;
    browser.keys("i")?;
    let queries =
        "/sightline_|ALERTS|up/.test(document.querySelector('dialog[open] pre').innerText)";
    browser.expect("its queries are shown", queries)?;
    browser.keys(ESCAPE)?;
    browser.keys("v")?;
    let alone = "document.querySelectorAll('.panel').length === 1
        && /viewPanel=\\d+/.test(location.search)";
    browser.expect("it stands alone", alone)?;
    browser.keys(ESCAPE)?;
    browser.expect("the board is back", "document.querySelectorAll('.panel').length > 3")?;
    browser.keys("]")?;
    browser.expect("the next board", "location.pathname === '/d/sightline-queue'")?;
    browser.expect("it is drawn", "document.querySelector('.panel[data-state=drawn]')")?;
    browser.keys("[")?;
    browser.expect("and the one before", "location.pathname === '/d/sightline-overview'")?;
    browser.keys("ga")?;
    browser.expect("the alerts", "document.querySelector('[data-list=alerting]')")
}

fn search(browser: &Browser) -> Result<()> {
    browser.keys("/")?;
    browser.expect("the search is open", "document.activeElement.matches('.palette .search')")?;
    browser.keys("oldest request")?;
    let found =
        "/Oldest request/.test(document.querySelector('.palette [aria-selected=true]').innerText)";
    browser.expect("a panel is found", found)?;
    browser.keys(ENTER)?;
    let there = "/viewPanel=\\d+/.test(location.search)
        && document.querySelector('.panel h3').innerText === 'Oldest request'";
    browser.expect("and opened alone", there)
}

/// Both themes, by key; the address says which, and follows to the next board.
fn themes(browser: &Browser, up: &Up) -> Result<()> {
    browser.go(&format!("{}/d/sightline-overview?theme=dark", up.console))?;
    browser.expect("the board is drawn", READY)?;
    let luminous = "(() => { const [r, g, b] = getComputedStyle(document.body).backgroundColor
        .match(/\\d+/g).map(Number); return r + g + b; })()";
    browser.expect("it is dark", &format!("{luminous} < 200"))?;
    browser.keys("t")?;
    browser.expect("it is light", &format!("{luminous} > 600"))?;
    browser.expect("the address says so", "/theme=light/.test(location.search)")?;
    browser.screenshot(&screens()?.join("overview_light.png"))?;
    browser.keys("]")?;
    let kept = "location.pathname === '/d/sightline-queue' && /theme=light/.test(location.search)";
    browser.expect("the next board keeps it", kept)
}

/// Links of panels and alerts end at a section that can be read.
fn runbook(browser: &Browser, up: &Up) -> Result<()> {
    browser.go(&format!("{}/public/sightline/runbook.md#queue-drain", up.console))?;
    let there = "document.getElementById('queue-drain').getBoundingClientRect().top < 200
        && document.querySelectorAll('.entry').length > 20
        && /What to do/.test(document.getElementById('queue-drain').innerText)";
    browser.expect("the section", there)?;
    browser
        .run("document.querySelector('.contents [data-anchor=watchdog]').click(); return null")?;
    let mark = "location.hash === '#watchdog'
        && document.querySelector('.contents [aria-current=true]').innerText === 'watchdog'";
    browser.expect("another section", mark)?;
    browser.screenshot(&screens()?.join("runbook.png"))
}
