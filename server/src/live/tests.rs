use metric_catalog::install::Registry;
use metric_catalog::labels::Role;
use tracing::Level;
use types::Clock;

use super::*;
use crate::tests::rig::settings;

fn wanted(pairs: &[(&str, &str)]) -> Vec<(String, Option<String>)> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), Some((*value).to_owned()))).collect()
}

fn metrics(registry: &Registry) -> SettingsMetrics {
    SettingsMetrics::new(registry, Clock::start())
}

/// Live settings of a command line.
fn live<V: Changing>(args: &[&str], registry: &Registry) -> Live<V> {
    let given: Vec<OsString> = args.iter().map(OsString::from).collect();
    let file = args.contains(&"--config");
    let parsed = Cli::parse_args(file::expand(given.clone()).expect("a file")).expect("flags");
    let values = V::of(&parsed.command).expect("values");
    Live::new(values, file.then_some(given), metrics(registry))
}

fn never<V>(_: &V) {
    panic!("nothing to apply")
}

#[test]
fn a_change_is_all_or_nothing_and_has_a_number() {
    let settings = settings("--model fake --max-queued-requests 8");
    let live = Live::new(Values::new(&settings), None, metrics(&Registry::disabled()));
    let pairs = [("max-queued-requests", "4"), ("ttft_objective", "2s"), ("port", "1")];
    let mut seen = None;
    let changed = live
        .change(Some(1), &wanted(&pairs), |values| seen = Some(*values))
        .expect("values that work");
    assert_eq!(changed.generation, 2);
    assert_eq!(changed.applied, [Key::MaxQueuedRequests, Key::TtftObjective]);
    assert_eq!(changed.needs_restart, ["port"]);
    assert_eq!(seen.expect("applied").limits.max_queued_requests, 4);
    for (pairs, says) in [
        ([("log-level", "debug"), ("drain-deadline", "5")], "needs a unit"),
        ([("log-level", "debug"), ("max-queued-tokens", "-1")], "max-queued-tokens"),
        ([("log-level", "debug"), ("nonsense", "1")], "no such setting"),
    ] {
        let error = live.change(None, &wanted(&pairs), never).expect_err(says);
        assert!(error.to_string().contains(says), "{error}");
    }
    let stale = live.change(Some(1), &wanted(&[("log-level", "debug")]), never);
    assert!(matches!(stale, Err(ChangeError::Stale { now: 2, known: 1 })));
    let same = live.change(Some(2), &wanted(&[("max-queued-requests", "4")]), never);
    assert_eq!(same.expect("nothing new").generation, 2);
    let (generation, values, drift) = live.current();
    assert_eq!((generation, values.log_level), (2, Level::INFO));
    assert_eq!(drift, [Key::MaxQueuedRequests, Key::TtftObjective]);
    let back = [("max-queued-requests".to_owned(), None)];
    let changed = live.change(Some(2), &back, |_| {}).expect("back to the flag");
    assert_eq!(changed.values.limits.max_queued_requests, 8);
    assert!(matches!(live.reload(|_| {}), Err(ChangeError::NoFile)));
}

/// A file that is gone after the test.
struct File(std::path::PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("sightline-{name}-{}.toml", std::process::id());
        let file = Self(std::env::temp_dir().join(name));
        file.write(text);
        file
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.0, text).expect("the folder is writable");
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

#[test]
fn the_file_is_the_truth_when_it_is_read_again() {
    let file = File::new("live", "model = \"fake\"\nmax-queued-requests = 8\nport = 1\n");
    let args = ["sightline-server", "serve", "--config", file.path()];
    let live: Live<Values> = live(&args, &Registry::disabled());
    live.change(None, &wanted(&[("log-level", "debug")]), |_| {}).expect("a level");
    file.write("model = \"fake\"\nmax-queued-requests = 9\nport = 2\nthreads = 3\n");
    let changed = live.reload(|_| {}).expect("a good file");
    assert_eq!(changed.applied, [Key::MaxQueuedRequests, Key::LogLevel]);
    assert_eq!(changed.needs_restart, ["port", "threads"]);
    assert_eq!(live.current().2, []);
    for (text, says) in [("port = [1]", "key port"), ("max-queued-requests = -1", "-1")] {
        file.write(&format!("model = \"fake\"\n{text}\n"));
        let error = live.reload(never).expect_err(text);
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(live.values().limits.max_queued_requests, 9);
    drop(file);
    assert!(matches!(live.reload(|_| {}), Err(ChangeError::File(_))));
}

#[test]
fn a_router_takes_other_limits_and_refuses_those_that_mean_nothing() {
    let file = File::new("router", "worker = \"a:1\"\npolicy = \"round_robin\"\n");
    let args = ["sightline-server", "router", "--config", file.path()];
    let live: Live<RouterValues> = live(&args, &Registry::disabled());
    let pairs = [("policy", "prefix_hash"), ("hold_time", "3s"), ("worker", "b:1")];
    let changed = live.change(Some(1), &wanted(&pairs), |_| {}).expect("values that work");
    assert_eq!(changed.applied, [RouterKey::Policy, RouterKey::HoldTime]);
    assert_eq!(changed.needs_restart, ["worker"]);
    for (key, value, says) in [
        ("policy", "best", "cache_aware, least_pending_tokens"),
        ("poll-interval", "0s", "try --poll-interval 500ms"),
        ("retry-share", "2", "from 0 to 1"),
        ("hold-time", "2m", "90s"),
        ("max-queued-requests", "2", "those that can change are policy, retries"),
    ] {
        let error = live.change(None, &wanted(&[(key, value)]), never).expect_err(value);
        let text = error.to_string();
        assert!(text.contains(says) && text.contains(key), "{text}");
    }
    file.write("worker = \"a:1\"\npolicy = \"power_of_two\"\nidle-timeout = \"5s\"\n");
    let changed = live.reload(|_| {}).expect("a good file");
    let keys = [RouterKey::Policy, RouterKey::HoldTime, RouterKey::IdleTimeout];
    assert_eq!(changed.applied, keys, "what an admin changed is as the file says");
    file.write("worker = \"a:1\"\npoll-interval = \"0s\"\n");
    let error = live.reload(never).expect_err("a poll every 0 s");
    assert!(error.to_string().contains("--poll-interval 0s"), "{error}");
    assert_eq!(live.values().policy, ::router::PolicyKind::PowerOfTwo);
}

#[test]
fn values_are_checked_as_they_are_together() {
    let args = ["sightline-server", "router", "--worker", "a:1"];
    let live: Live<RouterValues> = live(&args, &Registry::disabled());
    let alone = live.change(None, &wanted(&[("hold-requests", "0")]), never);
    let text = alone.expect_err("nobody could wait").to_string();
    assert!(text.starts_with("hold-requests: ") && text.contains("--hold-time 0s"), "{text}");
    let both = [("hold-requests", "0"), ("hold-time", "0s")];
    let changed = live.change(None, &wanted(&both), |_| {}).expect("nobody is to wait");
    assert_eq!(changed.applied, [RouterKey::HoldTime, RouterKey::HoldRequests]);
    live.change(None, &wanted(&[("hold-tokens", "0")]), |_| {}).expect("no more than before");
    // What is in force counts, and not what a router would have had.
    let text = live.change(None, &wanted(&[("hold-time", "5s")]), never);
    let text = text.expect_err("there is no place to wait in").to_string();
    assert!(text.starts_with("hold-time: ") && text.contains("hold-requests"), "{text}");
    let all = [("hold-time", "5s"), ("hold-requests", "3"), ("hold_tokens", "900")];
    let changed = live.change(None, &wanted(&all), |_| {}).expect("they go together");
    assert_eq!(changed.values.hold_requests, 3);
    assert_eq!(live.current().0, 4, "what was refused has no number");
}

#[test]
fn what_became_of_changes_is_recorded() {
    let registry = Registry::new(Role::Unified, "fake").expect("a registry");
    let file = File::new("recorded", "model = \"fake\"\n");
    let args = ["sightline-server", "serve", "--config", file.path()];
    let live: Live<Values> = live(&args, &registry);
    let value = |name: &str| {
        let page = registry.render();
        let name = format!("sightline_config_{name}");
        let of = |line: &&str| {
            line.strip_prefix(&*name).is_some_and(|rest| rest.starts_with(['{', ' ']))
        };
        let lines: Vec<String> = page.lines().filter(of).map(str::to_owned).collect();
        lines
    };
    let number = |name: &str| {
        let of = |line: &String| line.rsplit_once(' ').and_then(|(_, v)| v.parse::<f64>().ok());
        value(name).iter().filter_map(of).collect::<Vec<_>>()
    };
    let info = value("generation_info");
    assert!(info.len() == 1 && info[0].contains("generation=\"1\""), "{info:?}");
    assert_eq!(number("last_reload_successful"), [1.0]);
    assert!(number("last_reload_success_timestamp_seconds")[0] > 1.6e9);
    live.change(None, &wanted(&[("log-level", "debug")]), |_| {}).expect("a level");
    let changed = value("generation_info");
    assert!(changed.len() == 1 && changed[0].contains("generation=\"2\""), "{changed:?}");
    assert_eq!(number("drift"), [1.0]);
    live.change(None, &wanted(&[("log-level", "loud")]), never).expect_err("no level");
    assert_eq!(number("last_reload_successful"), [1.0], "the file is as good as it was");
    file.write("model = [1]\n");
    live.reload(never).expect_err("no file of flags");
    assert_eq!((number("last_reload_successful"), number("drift")), (vec![0.0], vec![1.0]));
    file.write("model = \"fake\"\n");
    live.reload(|_| {}).expect("a good file");
    assert_eq!((number("last_reload_successful"), number("drift")), (vec![1.0], vec![0.0]));
    assert_eq!(number("reload_total"), [2.0, 2.0], "failed and ok");
    let again = value("generation_info");
    let hash = |line: &str| line.split("hash=\"").nth(1).map(|rest| rest[..16].to_owned());
    assert!(again[0].contains("generation=\"3\""), "{again:?}");
    assert_eq!(hash(&again[0]), hash(&info[0]), "the same settings have the same hash");
}
