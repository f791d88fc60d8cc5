use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Alone {
    #[command(flatten)]
    bench: BenchArgs,
}

fn parse(line: &str) -> Result<BenchArgs, clap::Error> {
    let words = std::iter::once("bench").chain(line.split_whitespace());
    Alone::try_parse_from(words).map(|alone| alone.bench)
}

fn planned(line: &str) -> Plan {
    plan(&parse(line).expect(line)).expect(line)
}

fn fixture(name: &str) -> String {
    format!("{}/../tests/fixtures/traces/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn rates_run_one_after_the_other() {
    let names =
        |line: &str| -> Vec<String> { planned(line).loads.iter().map(Load::name).collect() };
    assert_eq!(names("--rate 2,4.5"), ["2/s", "4.5/s"]);
    assert_eq!(names("--concurrency 1,16"), ["1 clients", "16 clients"]);
    assert_eq!(names("--burst 16 --burst-every 5s"), ["16 each 5s"]);
    assert_eq!(names("--rate 2 --burst 16"), ["2/s and 16 each 10s"]);
    assert_eq!(names(&format!("--trace {}", fixture("tiny_short.jsonl"))), ["trace"]);
}

#[test]
fn a_run_has_an_end() {
    let bounds = |line: &str| {
        let limits = planned(line).limits;
        (limits.duration.map(|duration| duration.as_secs()), limits.requests)
    };
    assert_eq!(bounds("--rate 2"), (Some(30), None));
    assert_eq!(bounds("--rate 2 --max-requests 9"), (None, Some(9)));
    assert_eq!(bounds("--rate 2 --max-requests 9 --duration 5s"), (Some(5), Some(9)));
    assert_eq!(bounds(&format!("--trace {}", fixture("tiny_short.jsonl"))), (None, None));
}

#[test]
fn a_trace_is_scaled_in_time() {
    let plan = planned(&format!("--trace {} --trace-speed 4", fixture("tiny_short.jsonl")));
    let Load::Open { pattern: Pattern::Times(times), .. } = &plan.loads[0] else {
        panic!("{:?}", plan.loads);
    };
    assert_eq!(times[..3], [0, 250, 500].map(Duration::from_millis));
    assert!(matches!(plan.source, Source::Replay(_)));
}

#[test]
fn what_does_not_fit_is_named() {
    for (line, reason) in [
        ("", "--rate, --burst, --concurrency or --trace"),
        ("--rate 0", "--rate must be above 0"),
        ("--rate 2,-1", "--rate must be above 0"),
        ("--rate NaN", "--rate must be above 0"),
        ("--concurrency 0", "--concurrency must be from 1"),
        ("--rate 1 --burstiness 0", "--burstiness must be"),
        ("--burst 0", "--burst must be at least 1"),
        ("--rate 1 --abort-rate 2", "--abort-rate must be from 0 to 1, not 2"),
        ("--rate 1 --output-tokens 0..5", "--output-tokens must be at least 1"),
        ("--rate 1 --warmup 40s", "--warmup must be shorter"),
        ("--rate 1 --trace-speed 2", "--trace-speed is about a trace"),
        ("--trace no-such-file", "no-such-file: No such file"),
        ("--trace /", "directory"),
    ] {
        let error = plan(&parse(line).expect(line)).expect_err(line);
        assert!(error.to_string().contains(reason), "{line}: {error}");
    }
    for line in [
        "--rate 1 --concurrency 2",
        "--rate 1 --trace x",
        "--rate 1 --no-stream --abort-rate 0.5",
        "--rate 1 --extra-body [1]",
        "--rate 1 --slo ttft=2",
        "--base-url https://x",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}
