//! `sightline bench` from outside, against servers that behave in all kinds of ways.

use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::mock::{Manners, Mock};
use crate::sightline;

const SHAPE: &str = "--endpoint completions --prompt-tokens 20..60 --output-tokens 3..9 --seed 5";

fn bench(url: &str, options: &str) -> Output {
    let mut args = vec!["bench", "--base-url", url, "--json", "-", "--quiet"];
    args.extend(SHAPE.split_whitespace().chain(options.split_whitespace()));
    sightline(&args)
}

fn results(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn an_honest_server_agrees_exactly() {
    let mock = Mock::start(Manners { refuses: true, ..Manners::default() });
    let options = "--rate 200 --max-requests 40 --slo ttft=30s --require differences<=0 \
                   --require goodput>=0.5 --require refused<=0.5";
    let output = bench(&mock.url(), options);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let results = results(&output);
    let run = &results["runs"][0];
    assert_eq!(run["requests"]["offered"], 40);
    assert_eq!(run["requests"]["completed"], 20);
    let refusal = &run["refusals"][0];
    assert_eq!((&refusal["status"], &refusal["retry_after_min"]), (&429.into(), &3.into()));
    for row in run["counters"]["rows"].as_array().expect("compared") {
        assert_eq!(row["bench_min"], row["bench_max"], "nothing is vague here: {row}");
    }
    // Two requests measured the vocabulary, one of them refused: what is sent is told all the same.
    assert_eq!(mock.offered(), 42);
}

#[test]
fn a_server_that_lies_is_caught() {
    for (lie, words) in [(1, "counts more"), (-1, "counts less")] {
        let mock = Mock::start(Manners { lie, ..Manners::default() });
        let url = mock.url();
        let mut args = vec!["bench", "--base-url", &url, "--quiet", "--no-stream"];
        args.extend(SHAPE.split_whitespace());
        args.extend(["--concurrency", "2", "--max-requests", "10"]);
        args.extend(["--require", "differences<=0", "--require", "errors<=0"]);
        let output = sightline(&args);
        let table = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{table}");
        assert!(table.contains("1 of 10 DIFFER") && table.contains(words), "{table}");
        assert!(table.contains("NOT MET     differences<=0"), "{table}");
        assert!(!table.contains("NOT MET     errors"), "{table}");
    }
}

#[test]
fn lengths_are_learnt_from_usage_and_told_as_they_were() {
    let mock = Mock::start(Manners { silent: true, ..Manners::default() });
    let output = bench(&mock.url(), "--concurrency 3 --max-requests 30");
    let results = results(&output);
    assert_eq!((output.status.code(), &results["lengths_by"]), (Some(0), &"usage".into()));
    let planned = &results["runs"][0]["tokens"]["prompts_planned"];
    let [meant, sent] = ["meant", "sent"].map(|key| planned[key].as_f64().expect("a number"));
    assert!((sent / meant - 1.0).abs() < 0.05, "{planned}");
    let counters = &results["runs"][0]["counters"];
    assert_eq!(counters["compared"], false);
    assert!(counters["reason"].as_str().is_some_and(|text| text.contains("404")), "{counters}");
}

#[test]
fn a_stream_that_is_cut_is_no_answer() {
    let mock = Mock::start(Manners { cuts: true, ..Manners::default() });
    let output = bench(&mock.url(), "--concurrency 1 --max-requests 4 --require errors<=0");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let run = &results(&output)["runs"][0];
    assert_eq!(run["errors"][0]["kind"], "stream cut");
    assert_eq!((&run["requests"]["failed"], &run["requests"]["completed"]), (&4.into(), &0.into()));
}

#[test]
fn the_same_seed_sends_the_same_and_rates_send_others() {
    let mock = Mock::start(Manners::default());
    let sent = |options: &str| {
        let output = bench(&mock.url(), options);
        let results = results(&output);
        let runs = results["runs"].as_array().expect("runs").clone();
        runs.iter().map(|run| run["tokens"]["prompt"].clone()).collect::<Vec<_>>()
    };
    let both = sent("--rate 300,400 --max-requests 12");
    assert_eq!(both.len(), 2);
    assert_ne!(both[0], both[1]);
    assert_eq!(sent("--rate 100 --max-requests 12"), both[..1]);
}

#[test]
fn how_it_fails_is_in_the_exit_code() {
    let mock = Mock::start(Manners::default());
    let refused = "http://127.0.0.1:1";
    for (url, options, code, words) in [
        (refused, "--rate 1", 75, "does not answer"),
        (&format!("{}/else", mock.url()), "--rate 1", 76, "404"),
        (&mock.url(), "", 64, "say how requests arrive"),
        (&mock.url(), "--rate 0", 78, "--rate must be above 0"),
        (&mock.url(), "--rate 1 --timeout 0s", 78, "--timeout must be above 0s"),
        (&mock.url(), "--rate 1 --patience 200h", 78, "above 0s and at most 168h"),
        (&mock.url(), "--rate x", 64, "invalid value"),
        (&mock.url(), "--trace no-such-file.jsonl", 78, "no-such-file"),
    ] {
        let output = bench(url, options);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{options}: {told}");
        assert!(told.contains(words), "{options}: {told}");
    }
}

/// Ends the process when a test fails half-way.
struct Guarded(Option<Child>);

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

#[test]
fn an_interrupt_prints_what_there_is() {
    let mock = Mock::start(Manners { hangs: true, silent: true, ..Manners::default() });
    let mut command = Command::new(env!("CARGO_BIN_EXE_sightline"));
    let options = "--json - --rate 100 --duration 300s --patience 250s --quiet";
    command.args(["bench", "--base-url", &mock.url(), "--model", "mock"]);
    command.args(SHAPE.split_whitespace()).args(options.split_whitespace());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let pid = child.id().to_string();
    let mut guarded = Guarded(Some(child));
    // Two of them measured the vocabulary.
    while mock.offered() < 12 {
        let child = guarded.0.as_mut().expect("still there");
        assert!(matches!(child.try_wait(), Ok(None)), "it ended by itself");
        std::thread::yield_now();
    }
    let killed = Command::new("kill").args(["-INT", &pid]).status().expect("kill runs");
    assert!(killed.success());
    let output = guarded.0.take().expect("still there").wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130));
    let run = &results(&output)["runs"][0];
    assert_eq!(run["interrupted"], true);
    let of = |key: &str| run["requests"][key].as_u64().expect("a number");
    assert!(of("unfinished") > 0, "{run}");
    assert_eq!(of("offered"), of("unfinished"));
}
