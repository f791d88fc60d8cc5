//! The generated alert rules over what the processes of the incident's two runs tell, evaluated by
//! Prometheus' own engine, and who is called by the inhibition rules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use admission::Limits as Bounds;
use metric_catalog::alerts::routing;
use tests::replay::Recording;
use tests::scrape::Labels;

use super::incident::{DEFAULTS, OBJECTIVE, Shown, UNBOUNDED, replayed};
use super::telemetry::Watch;

/// Between two scrapes, as in the configuration.
const SCRAPE: Duration = Duration::from_secs(5);
/// A service that is known before the crowd comes.
const CALM: Duration = Duration::from_secs(60);
/// Between two evaluations of the rules.
const EVALUATION: Duration = Duration::from_secs(15);

/// A folder of one test, removed when it ends.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let folder = format!("sightline-cluster-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).expect("a folder for temporary files");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// `None`, after saying so, where promtool is not installed.
pub(crate) fn promtool() -> Option<()> {
    if std::process::Command::new("promtool").arg("--version").output().is_ok() {
        return Some(());
    }
    tests::skip("promtool (Debian's package prometheus) is not installed");
    None
}

/// The alerts that fire at each evaluation.
type Firing = BTreeMap<u64, Vec<Labels>>;

fn watched(name: &str, bounds: Bounds, clients: usize) -> (Firing, Shown) {
    let watch = Watch::new(SCRAPE, EVALUATION, OBJECTIVE).expect("a registry for the router");
    let (mut world, shown) = replayed(bounds, clients, CALM, Some(watch)).expect("all holds");
    let recording: Recording = world.watch.take().expect("it was watched").into_recording();
    let folder = Folder::new(name);
    let at: Vec<u64> = (0..=recording.seconds()).step_by(15).collect();
    let firing = recording.firing(&folder.0, &at).expect("promtool evaluates the rules");
    (firing, shown)
}

/// Name and instance, which tell one alert from another.
fn name(labels: &Labels) -> String {
    let of = labels.get("instance").or(labels.get("model_name")).map_or("", String::as_str);
    format!("{} {of}", labels["alertname"])
}

/// When each of the alerts that `select` takes was seen, as spans from the first to the last second
/// of a sight without a gap.
fn spans(
    firing: &Firing,
    select: impl Fn(&[Labels]) -> Vec<&Labels>,
) -> BTreeMap<String, Vec<(u64, u64)>> {
    let mut spans: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
    for (at, alerts) in firing {
        let names: BTreeSet<String> = select(alerts).into_iter().map(name).collect();
        for name in names {
            let seen = spans.entry(name).or_default();
            match seen.last_mut() {
                Some((_, last)) if *last + EVALUATION.as_secs() == *at => *last = *at,
                Some(_) | None => seen.push((*at, *at)),
            }
        }
    }
    spans
}

#[test]
fn without_bounds_one_page_goes_out_before_the_first_client_gives_up() {
    if promtool().is_none() {
        return;
    }
    let (firing, shown) = watched("a", UNBOUNDED, 30);
    let fired = spans(&firing, |alerts| alerts.iter().collect());
    println!("{shown}\n{fired:?}");
    let pages = spans(&firing, routing::pages);
    assert_eq!(pages.len(), 1, "one thing is paged: {pages:#?}");
    let page = &pages["PrefillQueueDrainCritical prefill-0:8001"];
    let [(first, _)] = page[..] else { panic!("it goes out once: {pages:#?}") };
    let gave_up = shown.first_gave_up.expect("somebody did");
    let lead = gave_up.saturating_sub(Duration::from_secs(first));
    assert!(lead >= Duration::from_secs(10), "{lead:?} before the first client gives up");
    // What it mutes is there: without the inhibition several would be called.
    for symptom in ["AbortCascade", "SloBudgetBurnFast"] {
        assert!(fired.keys().any(|alert| alert.starts_with(symptom)), "{symptom}: {fired:#?}");
    }
}

#[test]
fn with_the_default_bounds_nothing_fires_but_that_the_queue_is_full() {
    if promtool().is_none() {
        return;
    }
    for clients in [15, 40] {
        let (firing, shown) = watched(&format!("b{clients}"), DEFAULTS, clients);
        let fired = spans(&firing, |alerts| alerts.iter().collect());
        println!("{shown}\n{fired:?}");
        let expected = ["QueueNearLimit", "RequestsRejected"];
        for alert in fired.keys() {
            let known = expected.iter().any(|expected| alert.starts_with(expected));
            assert!(known, "{alert} with {clients} clients: {fired:#?}");
        }
        assert!(
            !fired.is_empty(),
            "{clients} clients are more than are served, and nobody says so"
        );
    }
}
