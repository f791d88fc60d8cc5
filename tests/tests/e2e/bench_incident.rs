//! `sightline bench incident` end to end, so many times as fast: what it finds must not depend on
//! how busy the machine is.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use tests::cluster::binary;

fn sightline() -> &'static Path {
    static BINARY: OnceLock<std::path::PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| binary("stack", "sightline"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// Whether the one promise that has these words holds.
fn holds(run: &Value, words: &str) -> bool {
    let promises = run["promises"].as_array().expect("promises");
    let said = |promise: &&Value| promise["what"].as_str().is_some_and(|what| what.contains(words));
    let found: Vec<&Value> = promises.iter().filter(said).collect();
    assert_eq!(found.len(), 1, "{words:?} in {promises:#?}");
    found[0]["holds"] == true
}

#[test]
fn the_incident_shows_without_limits_and_the_defaults_contain_it() -> Result<()> {
    let options = "bench incident --scale 20 --duration 100s --quiet --seed 7 --json -";
    let output = Command::new(sightline()).args(options.split_whitespace()).output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    let results: Value =
        serde_json::from_slice(&output.stdout).with_context(|| told.to_string())?;
    ensure!(matches!(output.status.code(), Some(0 | 1)), "{:?}: {told}", output.status);
    let (a, b) = (&results["runs"][0], &results["runs"][1]);
    let of = |run: &Value, pointer: &str| number(run.pointer(pointer).expect(pointer));

    for words in ["prefill work waits", "clients give up", "peer_abort", "exactly one page"] {
        assert!(holds(a, words), "{a:#}");
    }
    assert!(of(a, "/first_gave_up_at_seconds") >= 60.0, "nobody is less patient: {a:#}");
    for words in
        ["429 with Retry-After", "no transfer fails", "nothing is aborted", "nobody gives up"]
    {
        assert!(holds(b, words), "{b:#}");
    }
    assert!(of(b, "/requests/sent_away") > 0.0, "the door was never closed: {b:#}");
    assert!(holds(b, "comes back"), "{b:#}");
    // A machine that is busy with other things may be late; the queue is bounded all the same.
    let alerts = b["alerts"].as_array().context("alerts")?;
    let critical = |alert: &&Value| alert["alert"] == "PrefillQueueDrainCritical";
    assert_eq!(alerts.iter().find(critical), None, "{b:#}");

    // The same clients, the same rate: with bounds more of them are answered, and sooner.
    let share = |run| of(run, "/requests/answered") / of(run, "/requests/asked");
    assert!(share(b) == 1.0 && share(a) < 0.8, "{} and {}", share(a), share(b));
    let ttft = |run| of(run, "/ttft_seconds/p50");
    assert!(ttft(b) < ttft(a), "{} and {}", ttft(b), ttft(a));
    assert!(of(a, "/queue/drain_seconds_max") > 1.5 * of(b, "/queue/drain_seconds_max"));
    assert!(of(b, "/prefill/unused_share") < 0.01, "nothing is computed for nobody: {b:#}");
    for run in [a, b] {
        assert_eq!(of(run, "/left_behind"), 0.0, "{run:#}");
        assert_eq!(of(run, "/requests/failed"), 0.0, "{run:#}");
    }
    Ok(())
}

#[test]
fn its_processes_end_with_it() -> Result<()> {
    let mut child = Command::new(sightline())
        .args(["bench", "incident", "--run", "b", "--scale", "20"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let log = std::io::BufReader::new(child.stderr.take().context("stderr is piped")?);
    // The crowd is there, and so are all processes.
    let mut lines = std::io::BufRead::lines(log);
    let began = lines.by_ref().find(|line| line.as_ref().is_ok_and(|l| l.starts_with("run B:")));
    ensure!(began.is_some(), "it ended before the crowd came: {:?}", child.wait()?);
    let servers = children(child.id())?;
    assert_eq!(servers.len(), 3, "{servers:?}");
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status()?;
    ensure!(status.success(), "kill: {status}");
    assert_eq!(child.wait()?.code(), Some(130));
    crate::eventually("its processes are gone", || Ok(servers.iter().all(|pid| has_ended(pid))))
}

/// Whether a process is gone, or only waits for somebody to take note of its end.
fn has_ended(pid: &str) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    // The state follows the name, which is in parentheses.
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// Processes that `pid` started.
fn children(pid: u32) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let list = std::fs::read_to_string(task?.path().join("children"))?;
        found.extend(list.split_whitespace().map(str::to_owned));
    }
    Ok(found)
}
