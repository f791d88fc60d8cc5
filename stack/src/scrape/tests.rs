use super::*;
use crate::promql::{Answer, Query};
use crate::store::Bounds;

fn scraper() -> Scraper {
    let target = Target {
        address: "127.0.0.1:9".to_owned(),
        job: "sightline-unified".to_owned(),
        cluster: "local".to_owned(),
        node: "here".to_owned(),
    };
    Scraper::new(target, Arc::new(Store::new(Bounds::default())), Arc::default())
}

fn ask(scraper: &Scraper, query: &str, time_ms: i64) -> Vec<(String, f64)> {
    let query = Query::parse(query).expect("valid query");
    match query.instant(&scraper.store, time_ms).expect("an answer") {
        Answer::Vector(found) => found.into_iter().map(|(l, v)| (l.to_string(), v)).collect(),
        Answer::Scalar(_) | Answer::String(_) | Answer::Matrix(_) => panic!("not a vector"),
    }
}

#[test]
fn a_vanished_series_ends_at_once() {
    let mut scraper = scraper();
    for (time, page) in [(1_000, "a 1\nb 2\n"), (2_000, "b 3\n")] {
        let outcome = scraper.ingest(page, time);
        scraper.finish(outcome, time, Duration::from_millis(3));
    }
    let expected =
        r#"b{cluster="local", instance="127.0.0.1:9", job="sightline-unified", node="here"}"#;
    assert_eq!(ask(&scraper, "{__name__=~\"a|b\"}", 2_500), [(expected.to_owned(), 3.0)]);
    assert_eq!(ask(&scraper, "a", 1_500).len(), 1);
    assert_eq!(ask(&scraper, "up", 2_500)[0].1, 1.0);
    assert_eq!(ask(&scraper, "scrape_samples_scraped", 2_500)[0].1, 1.0);
}

#[test]
fn a_failed_scrape_ends_everything_and_clears_up() {
    let mut scraper = scraper();
    let outcome = scraper.ingest("a 1\n", 1_000);
    scraper.finish(outcome, 1_000, Duration::ZERO);
    scraper.finish(Err("gone".to_owned()), 2_000, Duration::ZERO);
    assert!(ask(&scraper, "a", 2_500).is_empty());
    assert_eq!(ask(&scraper, "up", 2_500)[0].1, 0.0);
    let health = &scraper.knowledge.targets()[0].1;
    assert_eq!(health.last, Some(Err("gone".to_owned())));
    let outcome = scraper.ingest("a 5\n", 3_000);
    scraper.finish(outcome, 3_000, Duration::ZERO);
    assert_eq!(ask(&scraper, "a", 3_500)[0].1, 5.0);
}

#[test]
fn a_bad_page_stores_nothing() {
    let mut scraper = scraper();
    let outcome = scraper.ingest("a 1\nnonsense\n", 1_000);
    assert_eq!(outcome, Err("line 2: a sample needs a value".to_owned()));
    assert!(ask(&scraper, "a", 1_500).is_empty());
}
