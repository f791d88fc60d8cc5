use super::*;
use crate::bench::tally::tests::{complete, refused};

/// A page of a server that counted so much.
fn page(admitted: u64, full: u64, finished: u64, aborted: u64, tokens: u64) -> Vec<String> {
    vec![format!(
        "sightline_requests_admitted_total {admitted}\n\
         sightline_requests_rejected_total{{reason=\"queue_requests_full\"}} {full}\n\
         sightline_requests_rejected_total{{reason=\"invalid\"}} 0\n\
         sightline_requests_finished_total{{outcome=\"stop\"}} 0\n\
         sightline_requests_finished_total{{outcome=\"length\"}} {}\n\
         sightline_requests_finished_total{{outcome=\"aborted\"}} {aborted}\n\
         sightline_requests_aborted_total{{stage=\"decode\",initiator=\"client\"}} {aborted}\n\
         sightline_request_prompt_tokens_sum {}\n\
         sightline_request_prompt_tokens_bucket{{le=\"1\"}} 900\n\
         sightline_prompt_tokens_total{{source=\"computed\"}} {}\n\
         sightline_prompt_tokens_total{{source=\"cached\"}} {}\n\
         sightline_generation_tokens_total {tokens}\n\
         sightline_time_to_first_token_seconds_count{{streaming=\"true\"}} {finished}\n\
         sightline_queue_requests{{queue=\"waiting\"}} 2\nsightline_running_requests 1\n",
        finished - aborted,
        32 * admitted,
        16 * admitted,
        16 * admitted,
    )]
}

fn read(pages: &[String]) -> Counters {
    Counters::read(pages).expect("valid").expect("a server's page")
}

fn three_and_two() -> Ours {
    let mut ours = Ours::default();
    for planned in 0..3 {
        ours.add(&complete(planned));
    }
    ours.add(&refused(0, 1));
    ours.add(&refused(0, 1));
    ours
}

fn names(rows: &[Row]) -> Vec<&str> {
    rows.iter().filter(|row| !row.agrees()).map(|row| row.name.as_str()).collect()
}

#[test]
fn equal_counts_agree_exactly() {
    let before = read(&page(10, 5, 10, 1, 100));
    assert_eq!(before.busy, 3.0);
    let rows = compare(&three_and_two(), &before, &read(&page(13, 7, 13, 1, 115)));
    assert_eq!(names(&rows), Vec::<&str>::new(), "{rows:#?}");
    assert!(rows.iter().all(|row| row.high == Some(row.low)), "nothing is vague: {rows:#?}");
    let of = |name: &str| rows.iter().find(|row| row.name == name).map(|row| row.low);
    assert_eq!(of("offered"), Some(5));
    assert_eq!(of("rejected: queue_requests_full"), Some(2));
    assert_eq!(of("rejected: invalid"), None, "nothing to say");
    assert_eq!((of("prompt tokens"), of("cached prompt tokens")), (Some(96), Some(48)));
}

#[test]
fn a_counter_that_lies_is_named() {
    let before = read(&page(0, 0, 0, 0, 0));
    let ours = three_and_two();
    let differing = |after: Vec<String>| {
        let rows = compare(&ours, &before, &read(&after));
        let rows = rows.into_iter().filter(|row| !row.agrees());
        rows.map(|row| (row.name.clone(), row.explanation())).collect::<Vec<_>>()
    };
    let less = differing(page(3, 2, 3, 0, 14));
    assert_eq!(less.len(), 1);
    assert!(less[0].0 == "generated tokens" && less[0].1.contains("counts less"), "{less:?}");
    let more = differing(page(3, 3, 3, 0, 15));
    let named: Vec<&str> = more.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(named, ["offered", "rejected", "rejected: queue_requests_full"]);
    assert!(more[0].1.contains("other clients"));
    let restarted = compare(&ours, &read(&page(9, 9, 9, 0, 9)), &before);
    assert!(restarted.iter().all(|row| row.agrees() || row.explanation().contains("restarted")));
}

#[test]
fn what_cannot_be_known_is_a_range() {
    let mut ours = three_and_two();
    let left = Record { ended: Ended::Left, usage: None, events: 2, ..complete(0) };
    ours.add(&left);
    let lost = Record { status: None, ended: Ended::GaveUp, usage: None, events: 0, ..complete(0) };
    ours.add(&lost);
    ours.add(&Record { ended: Ended::Failed(Failure::Connect(String::new())), ..lost.clone() });
    let before = read(&page(0, 0, 0, 0, 0));
    let agrees = |after: Vec<String>| names(&compare(&ours, &before, &read(&after))).is_empty();
    assert!(agrees(page(4, 2, 4, 1, 17)), "the one that left was aborted");
    assert!(agrees(page(4, 2, 4, 0, 20)), "or had finished before it was noticed");
    assert!(agrees(page(5, 2, 5, 2, 19)), "the lost one may have arrived");
    assert!(!agrees(page(6, 2, 6, 2, 19)), "but only once");
    assert!(!agrees(page(4, 2, 4, 1, 16)), "both tokens that were seen were generated");
    assert!(!agrees(page(4, 2, 4, 3, 17)), "two were broken off at most");
}

#[test]
fn late_refusals_were_admitted_before() {
    let mut record = refused(0, 1);
    record.refusals[0].reason = "queue_timeout".to_owned();
    let mut ours = Ours::default();
    ours.add(&record);
    let zero = "sightline_requests_rejected_total{reason=\"queue_timeout\"} 0\n";
    let one = zero.replace(" 0\n", " 1\n");
    let before = read(&[page(0, 0, 0, 0, 0)[0].clone() + zero]);
    let tokens = page(1, 0, 0, 0, 0)[0].replace("prompt_tokens_total{source=\"cached\"} 16", "x 0");
    let rows = compare(&ours, &before, &read(&[tokens + &one]));
    let differing = names(&rows);
    assert!(differing.iter().all(|name| name.contains("tokens")), "{rows:#?}");
    assert_eq!(rows.iter().find(|row| row.name == "offered").map(|row| row.server), Some(1.0));
}

#[test]
fn pages_of_other_servers_have_no_such_counters() {
    let other = vec!["vllm:num_requests_running{model_name=\"m\"} 0\n".to_owned()];
    assert_eq!(Counters::read(&other).expect("valid"), None);
    assert!(Counters::read(&["<html>".to_owned()]).is_err());
    let two = [page(1, 0, 1, 0, 1).remove(0), page(2, 1, 2, 0, 3).remove(0)];
    let sums = read(&two);
    assert_eq!(sums.sum("sightline_requests_admitted_total", |_| true), 3.0);
    assert_eq!(sums.busy, 6.0);
}
