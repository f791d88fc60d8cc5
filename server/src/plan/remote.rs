//! `plan --live URL`: what a running server advises about its host tier, printed.

use std::fmt::Write;
use std::io;
use std::time::Duration;

use serde_json::Value;

use super::live::FORM;
use crate::cli::{Format, LiveUrl};
use crate::config::{Class, Finding, decimal};
use crate::peer;
use program::exit::Exit;
use program::out;

/// How long a server may take to answer.
const TIME: Duration = Duration::from_secs(10);
/// More is no answer of a Sightline server.
const BODY_MAX: usize = 1 << 20;

/// Asks, and prints the answer.
pub(super) fn run(url: &LiveUrl, format: Format) -> Exit {
    let answer = match ask(url) {
        Ok(answer) => answer,
        Err(finding) => {
            out::complain(&finding.to_string());
            return finding.class.exit();
        }
    };
    let text = match format {
        Format::Text => text(url, &answer),
        Format::Json => answer.to_string(),
    };
    match out::line(&text) {
        Ok(()) => Exit::Ok,
        Err(error) => Exit::of_io(&error),
    }
}

fn finding(
    id: &'static str,
    class: Class,
    url: &LiveUrl,
    reason: impl Into<String>,
    fix: impl Into<String>,
) -> Finding {
    let (value, reason, fix) = (url.to_string(), reason.into(), fix.into());
    Finding { id, class, flag: "--live", value, reason, fix }
}

fn ask(url: &LiveUrl) -> Result<Value, Finding> {
    let get = |path: &str| {
        let path = format!("{}{path}", url.path);
        peer::get(&url.authority, &path, TIME, BODY_MAX)
    };
    let answer = get("/internal/plan").map_err(|error| unreachable(url, &error))?;
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
    if answer.status == 200 && body["server"] == "sightline" {
        return if body["form"] == FORM { Ok(body) } else { Err(other(url, &body["version"])) };
    }
    if answer.status >= 500 || answer.status == 429 {
        let said = body["error"]["message"].as_str().map(|said| format!(": {}", plain(said)));
        let reason = format!("it answers {}{}", answer.status, said.unwrap_or_default());
        return Err(finding("LIVE001", Class::Temporary, url, reason, "again, once it is up"));
    }
    // An older one has no such route; its version tells it from other servers.
    let version = get("/version").ok().filter(|answer| answer.status == 200);
    let version: Value =
        version.and_then(|answer| serde_json::from_slice(&answer.body).ok()).unwrap_or(Value::Null);
    if version["version"].is_string() && version["model"].is_string() {
        return Err(other(url, &version["version"]));
    }
    let reason = format!(
        "no Sightline server: it answers {} to GET {}/internal/plan",
        answer.status, url.path
    );
    let fix = "the URL of the API, as the server prints it when it is ready";
    Err(finding("LIVE002", Class::Peer, url, reason, fix))
}

fn unreachable(url: &LiveUrl, error: &io::Error) -> Finding {
    use io::ErrorKind::{FileTooLarge, InvalidData, TimedOut, UnexpectedEof};
    let fix = "the URL of the API, as the server prints it when it is ready";
    let kind = error.kind();
    if kind == InvalidData || kind == FileTooLarge {
        let reason = "no Sightline server: its answer is no HTTP, or no answer to this";
        return finding("LIVE002", Class::Peer, url, reason, fix);
    }
    let reason = if kind == TimedOut {
        format!("no answer within {} s", TIME.as_secs())
    } else if kind == UnexpectedEof {
        "the connection broke".to_owned()
    } else {
        format!("cannot be reached: {error}")
    };
    finding("LIVE001", Class::Temporary, url, reason, fix)
}

fn other(url: &LiveUrl, version: &Value) -> Finding {
    let theirs = version.as_str().map_or_else(|| "of an unknown version".to_owned(), plain);
    let ours = env!("CARGO_PKG_VERSION");
    let reason = format!("the server is Sightline {theirs}, and its advice has another form");
    let fix = format!("plan --live of that version; this is {ours}");
    finding("LIVE003", Class::Peer, url, reason, fix)
}

/// What a terminal may show.
fn plain(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(1000).collect()
}

fn text(url: &LiveUrl, answer: &Value) -> String {
    let mut page = String::new();
    write(url, answer, &mut page).expect("writing to a string cannot fail");
    page
}

fn write(url: &LiveUrl, answer: &Value, page: &mut String) -> std::fmt::Result {
    let said = |value: &Value| value.as_str().map(plain).unwrap_or_default();
    let tier = match &answer["tier"] {
        tier if tier["enabled"] == true => {
            let bytes = decimal(tier["bytes"].as_u64().unwrap_or(0));
            format!("a host tier of ratio {} ({bytes})", tier["ratio"])
        }
        _ => "no host tier".to_owned(),
    };
    writeln!(
        page,
        "{url}: Sightline {}, {}, model {}, {tier}",
        said(&answer["version"]),
        said(&answer["state"]),
        said(&answer["model"]),
    )?;
    writeln!(page, "{}", window(&answer["window"]))?;
    rooms(&answer["room"], page)?;
    page.push('\n');
    for candidate in answer["candidates"].as_array().into_iter().flatten() {
        writeln!(page, "  {}", said(&candidate["text"]))?;
    }
    write!(page, "\nadvice: {}", said(&answer["advice"]["text"]))
}

fn window(window: &Value) -> String {
    let number = |field: &str| window[field].as_u64().unwrap_or(0);
    let Some(seconds) = window["seconds"].as_u64() else { return "no traffic yet".to_owned() };
    let since = match window["since_start"] == true {
        true => "since its start",
        false => "the last hour",
    };
    let found = match window["hit_ratio"].as_f64() {
        Some(ratio) => format!("{:.1} % of them found", ratio * 100.0),
        None => "none looked up".to_owned(),
    };
    format!(
        "{since} ({seconds} s): {} requests, {} prompt tokens, {found}",
        number("requests"),
        number("prompt_tokens")
    )
}

/// Room by node, or what bounds ranks that are bound to none.
fn rooms(room: &Value, page: &mut String) -> std::fmt::Result {
    let size = |value: &Value| value.as_u64().map(decimal);
    for node in room["nodes"].as_array().into_iter().flatten() {
        if let (Some(id), Some(bytes)) = (node["node"].as_u64(), size(&node["bytes"])) {
            writeln!(page, "room for the tier on node {id}: {bytes}")?;
        }
    }
    let limits = [("host_bytes", "the host"), ("group_bytes", "the control group")];
    let locked = [("locked_bytes", "the limit of locked memory")];
    for (field, name) in limits.into_iter().chain(locked) {
        if let Some(bytes) = size(&room[field]) {
            writeln!(page, "room for the tier by {name}: {bytes}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_is_lines_for_people() {
        let url: LiveUrl = "node7:8000".parse().expect("a URL");
        let answer = json!({
            "version": "0.1.0", "state": "ready", "model": "v4\u{1b}[2J",
            "tier": {"enabled": true, "ratio": 2.0, "bytes": 61_000_000_000_u64},
            "window": {
                "seconds": 3605, "since_start": false, "requests": 12_000,
                "prompt_tokens": 9_000_000, "hit_ratio": 0.3141,
            },
            "room": {"nodes": [{"node": 0, "bytes": 200_000_000_000_u64}], "host_bytes": null},
            "candidates": [{"text": "ratio 6 would give +11 % hits for 38 GB more on node 0"}],
            "advice": {"text": "keep ratio 2"},
        });
        assert_eq!(
            text(&url, &answer),
            "http://node7:8000: Sightline 0.1.0, ready, model v4[2J, a host tier of ratio 2.0 \
             (61.00 GB)\n\
             the last hour (3605 s): 12000 requests, 9000000 prompt tokens, 31.4 % of them found\n\
             room for the tier on node 0: 200.00 GB\n\n  \
             ratio 6 would give +11 % hits for 38 GB more on node 0\n\n\
             advice: keep ratio 2"
        );
        // Whatever comes, something is printed.
        let empty = text(&url, &json!({"window": null, "candidates": 5}));
        assert!(empty.contains("no traffic yet"), "{empty}");
    }
}
