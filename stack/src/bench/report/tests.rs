use super::*;
use crate::bench::record::{Ended, Failure, Record};
use crate::bench::tally::tests::{complete, refused};

/// A run with something of everything.
pub(crate) fn everything() -> Run {
    let objectives = "ttft=105ms,itl=100ms".parse().expect("valid");
    let mut tally = Tally::new(objectives, Duration::from_secs(1));
    for planned in 0..12 {
        tally.add(&complete(planned * 500));
    }
    tally.add(&refused(2_000, 1));
    tally.add(&refused(3_000, 4));
    tally.add(&Record { ended: Ended::Left, usage: None, events: 2, ..complete(2_500) });
    let slow = Record { first: Some(Duration::from_millis(4_120)), ..complete(4_000) };
    tally.add(&slow);
    let message = "The maximum context length is 64 tokens.".to_owned();
    let failure =
        Failure::Status { status: 400, reason: "context_length_exceeded".to_owned(), message };
    tally.add(&Record { ended: Ended::Failed(failure), ..refused(4_000, 1) });
    let exact = |name: &str, low: u64, server: f64| Row {
        name: name.to_owned(),
        low,
        high: Some(low),
        server,
    };
    let counters = Ok(vec![
        exact("admitted", 14, 14.0),
        Row { high: Some(1), ..exact("aborted", 0, 1.0) },
        exact("generated tokens", 70, 69.0),
    ]);
    let unmet = vec!["goodput>=0.9: it is 0.7692".to_owned()];
    Run { name: "4/s".to_owned(), tally, counters, unmet, interrupted: false }
}

#[test]
fn the_table_tells_everything() {
    let table = run(&everything());
    assert_eq!(
        table,
        "
4/s
  offered     15 in 4.65 s: 11 complete, 2 refused, 1 failed, 1 left, 1 retried, 2 warm-up before
  goodput     71.4% of 14, 2.15 requests/s, for ttft <= 105ms, itl <= 100ms
  missed      ttft 1, itl 0, e2e 0
  throughput  2.37 requests/s, 11.8 output tokens/s, 87.5 tokens/s in all
  tokens      32.0 a prompt, 5.0 an answer; meant 30.0, sent 32.0; 50.0% cached
                     p50       p90       p95       p99       max     count
  TTFT            100 ms    100 ms    120 ms    120 ms    120 ms        12
  ITL            10.0 ms   10.0 ms   10.0 ms   10.0 ms   10.0 ms        48
  TPOT           10.0 ms   10.0 ms   10.0 ms   10.0 ms   10.0 ms        11
  E2E             150 ms    150 ms    150 ms    150 ms    150 ms        11
  refusal        2.00 ms   2.00 ms   2.00 ms   2.00 ms   2.00 ms         2
  lag            1.00 ms   1.00 ms   1.00 ms   1.00 ms   1.00 ms        15
  refused     3 x 429 queue_requests_full, Retry-After 1 to 4 s
  failed      1 x status 400 context_length_exceeded: The maximum context length is 64 tokens.
  counters    1 of 3 DIFFER:
              generated tokens: bench 70, server 69
                the server counts less: another instance answered, it restarted, or it lost count
  NOT MET     goodput>=0.9: it is 0.7692
"
    );
}

#[test]
fn runs_are_summed_up_in_a_line_each() {
    let other = Run { name: "16 clients".to_owned(), tally: Tally::default(), ..everything() };
    assert_eq!(
        summary(&[everything(), other]),
        "
  load         offered   goodput   refused  TTFT p50  TTFT p99   ITL p99   E2E p99    tokens/s
  4/s               15     71.4%     13.3%    100 ms    120 ms   10.0 ms    150 ms        11.8
  16 clients         0         -      0.0%         -         -         -         -         0.0
"
    );
}

#[test]
fn agreement_takes_one_line_and_silence_says_why() {
    let mut agreeing = everything();
    agreeing.unmet.clear();
    if let Ok(rows) = &mut agreeing.counters {
        rows.pop();
    }
    let table = run(&agreeing);
    let last = table.lines().last().expect("a line");
    assert_eq!(last, "  counters    all 2 agree with the server's, 1 of them exactly");
    agreeing.counters = Err("http://x/metrics answered 404 Not Found".to_owned());
    assert!(run(&agreeing).ends_with("not compared: http://x/metrics answered 404 Not Found\n"));
}

#[test]
fn times_have_three_digits() {
    let check = |micros: u64, text: &str| assert_eq!(time(Duration::from_micros(micros)), text);
    check(7, "7 us");
    check(1_234, "1.23 ms");
    check(12_345, "12.3 ms");
    check(123_456, "123 ms");
    check(1_234_567, "1.23 s");
    check(123_456_789, "123 s");
}
