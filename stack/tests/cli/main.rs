//! The program's front door, from outside: what it passes on, and how it says no.

mod bench;
mod console;
mod mock;

use std::process::{Command, Output};

fn sightline(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sightline"));
    command.args(args).output().expect("the program starts")
}

#[test]
fn the_parts_are_reached_through_it() {
    for (args, expect) in [
        (&["--version"][..], "sightline "),
        (&["server", "metrics"], "sightline_queue_requests"),
        (&["dashboards", "list-metrics"], "sightline_queue_requests"),
        (&["plan", "--model", "fake"], "kv"),
    ] {
        let output = sightline(args);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
        assert!(text.contains(expect), "{args:?}: {text}");
    }
}

#[test]
fn what_does_not_exist_is_a_usage_error() {
    for args in [&["no-such-part"][..], &["up", "--no-such-flag"], &["plan"]] {
        let output = sightline(args);
        assert_eq!(output.status.code(), Some(64), "{args:?}: {output:?}");
        assert!(!output.stderr.is_empty(), "{args:?} says nothing");
    }
}
