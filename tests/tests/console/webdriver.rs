//! A headless Chromium over the WebDriver protocol.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tests::http;

const DRIVER: &str = "/usr/bin/chromedriver";
const BROWSER: &str = "/usr/bin/chromium";

/// Longest run of a script, in milliseconds: below the patience of the HTTP client.
const SCRIPT_MS: u64 = 45_000;

/// The Escape key.
pub(crate) const ESCAPE: &str = "\u{e00c}";

/// The key to the left.
pub(crate) const LEFT: &str = "\u{e012}";

/// The Enter key.
pub(crate) const ENTER: &str = "\u{e007}";

/// A browser with one window; closed when dropped.
pub(crate) struct Browser {
    driver: Child,
    base: String,
    session: String,
    profile: PathBuf,
}

/// Why no browser can be started here, if so.
pub(crate) fn missing() -> Option<String> {
    let absent = [BROWSER, DRIVER].into_iter().find(|path| !Path::new(path).exists())?;
    Some(format!("{absent} is missing; Debian's chromium and chromium-driver bring it"))
}

impl Browser {
    /// Starts driver and browser with a fresh profile.
    pub(crate) fn start(width: u32, height: u32) -> Result<Self> {
        // Browsers that share a profile end one another.
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = format!("console-test-{}-{number}", std::process::id());
        let profile = std::env::temp_dir().join(name);
        let mut driver = Command::new(DRIVER)
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("start chromedriver")?;
        let stdout = driver.stdout.take().context("stdout is piped")?;
        let port = BufReader::new(stdout)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| {
                let port = line.split("on port ").nth(1)?.trim_end_matches('.').to_owned();
                line.contains("started successfully").then_some(port)
            })
            .context("chromedriver names its port")?;
        let base = format!("http://127.0.0.1:{port}");
        let mut browser = Self { driver, base, session: String::new(), profile };
        let opened = browser.call("/session", &browser.capabilities(width, height))?;
        browser.session = opened["sessionId"].as_str().context("a session id")?.to_owned();
        browser.post("/timeouts", &json!({ "script": SCRIPT_MS, "pageLoad": SCRIPT_MS }))?;
        Ok(browser)
    }

    fn capabilities(&self, width: u32, height: u32) -> Value {
        let args = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            &format!("--user-data-dir={}", self.profile.display()),
            &format!("--window-size={width},{height}"),
        ];
        json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "binary": BROWSER, "args": args },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } })
    }

    fn call(&self, path: &str, body: &Value) -> Result<Value> {
        let answer = http::post(&self.base, path, body)?.json()?;
        if let Some(error) = answer["value"]["error"].as_str() {
            bail!("{path}: {error}: {}", answer["value"]["message"]);
        }
        Ok(answer["value"].clone())
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.call(&format!("/session/{}{path}", self.session), body)
    }

    /// Loads an address.
    pub(crate) fn go(&self, url: &str) -> Result<()> {
        self.post("/url", &json!({ "url": url })).map(drop)
    }

    /// Sets the size of the window.
    pub(crate) fn resize(&self, width: u32, height: u32) -> Result<()> {
        self.post("/window/rect", &json!({ "width": width, "height": height })).map(drop)
    }

    /// Runs a script; its `return` is the answer.
    pub(crate) fn run(&self, script: &str) -> Result<Value> {
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Runs the body of an asynchronous function; its `return` is the answer.
    pub(crate) fn evaluate(&self, body: &str) -> Result<Value> {
        let script = format!(
            "const done = arguments[0];
             (async () => {{ {body} }})().then(done, error => done(String(error)));"
        );
        self.post("/execute/async", &json!({ "script": script, "args": [] }))
    }

    /// Evaluates `expression` in the page until it is true or patience ends: whether it became so.
    pub(crate) fn wait_until(&self, expression: &str) -> Result<bool> {
        let script = format!(
            "const done = arguments[0]; const until = performance.now() + {};
             const look = () => {{
               let good = false;
               try {{ good = Boolean({expression}); }} catch {{ good = false; }}
               if (good || performance.now() > until) done(good); else setTimeout(look, 150);
             }};
             look();",
            SCRIPT_MS - 5_000
        );
        let answer = self.post("/execute/async", &json!({ "script": script, "args": [] }))?;
        Ok(answer == Value::Bool(true))
    }

    /// Waits as [`Self::wait_until`], and says `what` with what the page shows when it does not
    /// become so.
    pub(crate) fn expect(&self, what: &str, expression: &str) -> Result<()> {
        if self.wait_until(expression)? {
            return Ok(());
        }
        let shown =
            self.run("return location.href + ' ' + document.body.innerText.slice(0, 600)")?;
        bail!("{what}: never {expression}; shown: {shown}")
    }

    /// Types keys one after another; see the WebDriver specification for those without a letter.
    pub(crate) fn keys(&self, keys: &str) -> Result<()> {
        let press =
            |key: char| ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key }));
        let actions: Vec<Value> = keys.chars().flat_map(press).collect();
        let source = json!({ "type": "key", "id": "keys", "actions": actions });
        self.post("/actions", &json!({ "actions": [source] })).map(drop)
    }

    /// Presses the pointer at the first of some shares of the box of an element and lets it go at
    /// the last; one share is a click.
    pub(crate) fn drag(&self, element: &str, shares: &[(f64, f64)]) -> Result<()> {
        let found = self.run(&format!(
            "const node = {element}; node.scrollIntoView({{ block: 'center' }});
             const box = node.getBoundingClientRect();
             return [box.left, box.top, box.width, box.height]"
        ))?;
        let side = |at: usize| found[at].as_f64().context("a box");
        let (left, top, width, height) = (side(0)?, side(1)?, side(2)?, side(3)?);
        let to = |(x, y): &(f64, f64)| {
            let (x, y) = ((left + width * x).round(), (top + height * y).round());
            json!({ "type": "pointerMove", "x": x as i64, "y": y as i64, "duration": 50 })
        };
        let (first, rest) = shares.split_first().context("a place")?;
        let mut actions = vec![to(first), json!({ "type": "pointerDown", "button": 0 })];
        actions.extend(rest.iter().map(to));
        actions.push(json!({ "type": "pointerUp", "button": 0 }));
        let source = json!({ "type": "pointer", "id": "mouse", "actions": actions });
        self.post("/actions", &json!({ "actions": [source] })).map(drop)
    }

    /// Writes a picture of the window.
    pub(crate) fn screenshot(&self, file: &Path) -> Result<()> {
        let answer =
            http::get(&self.base, &format!("/session/{}/screenshot", self.session))?.json()?;
        let text = answer["value"].as_str().context("a picture")?;
        let bytes = base64(text).context("a picture in base64")?;
        ensure!(bytes.starts_with(b"\x89PNG"), "not a PNG");
        std::fs::write(file, bytes).with_context(|| format!("write {}", file.display()))
    }

    /// Errors and warnings of the page since the last call.
    pub(crate) fn complaints(&self) -> Result<Vec<String>> {
        let entries = self.post("/se/log", &json!({ "type": "browser" }))?;
        let text = |entry: &Value| {
            let level = entry["level"].as_str()?;
            let message = entry["message"].as_str()?;
            ["SEVERE", "WARNING"].contains(&level).then(|| format!("{level}: {message}"))
        };
        Ok(entries.as_array().into_iter().flatten().filter_map(text).collect())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let path = format!("/session/{}", self.session);
            drop(http::request(&self.base, "DELETE", &path, None));
        }
        drop(self.driver.kill());
        drop(self.driver.wait());
        drop(std::fs::remove_dir_all(&self.profile));
    }
}

fn base64(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| -> Option<u32> {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        Some(u32::from(value))
    };
    let digits: Vec<u32> =
        text.bytes().take_while(|b| *b != b'=').map(digit).collect::<Option<_>>()?;
    let mut out = Vec::with_capacity(digits.len() * 3 / 4);
    for four in digits.chunks(4) {
        let bits = four.iter().fold(0, |sum, digit| sum << 6 | digit) << (6 * (4 - four.len()));
        out.extend(bits.to_be_bytes()[1..].iter().take(four.len() * 6 / 8));
    }
    Some(out)
}
