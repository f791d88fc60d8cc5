//! What one fault pages: the alerts that the stories expect, under the inhibition rules.

use metric_catalog::alerts::routing::{Labels, pages};

use crate::folder;

/// The alerts that a story expects at one moment: its first line, the moment, the labels.
pub(crate) struct Moment {
    pub story: String,
    pub at: String,
    pub firing: Vec<Labels>,
}

/// `{name: "value", ..}`, as the scenarios write labels.
fn labels(text: &str) -> Labels {
    let inner = text.trim().trim_start_matches('{').trim_end_matches('}');
    let pair = |part: &str| {
        let (name, value) = part.split_once(": ").expect("a label has a value");
        (name.trim().to_owned(), value.trim().trim_matches('"').to_owned())
    };
    inner.split(", ").map(pair).collect()
}

pub(crate) fn moments() -> Vec<Moment> {
    let path = folder().join("rules/tests/stories.yml");
    let text = std::fs::read_to_string(path).expect("the stories are there");
    let mut found: Vec<Moment> = Vec::new();
    let (mut story, mut at, mut alert) = (String::new(), String::new(), String::new());
    for line in text.lines() {
        let line = line.trim();
        if let Some(first) = line.strip_prefix("# STORY ") {
            first.clone_into(&mut story);
        } else if let Some(time) = line.strip_prefix("- eval_time: ") {
            time.clone_into(&mut at);
        } else if let Some(name) = line.strip_prefix("alertname: ") {
            name.clone_into(&mut alert);
        } else if let Some(set) = line.strip_prefix("- exp_labels: ") {
            let mut set = labels(set);
            set.insert("alertname".to_owned(), alert.clone());
            match found.iter_mut().find(|moment| moment.story == story && moment.at == at) {
                Some(moment) => moment.firing.push(set),
                None => {
                    let firing = vec![set];
                    found.push(Moment { story: story.clone(), at: at.clone(), firing });
                }
            }
        }
    }
    found
}

/// Words that a story starts with, the moment, how many critical alerts fire, and what is paged:
/// the alert, and the instance or the model that tells it from others.
type Paged = (&'static str, &'static str, usize, &'static [(&'static str, &'static str)]);

const PAGED: &[Paged] = &[
    ("one dead prefill of one", "75m", 4, &[("TargetDown", "p0")]),
    ("one dead prefill of two", "74m", 3, &[("TargetDown", "p0")]),
    ("the incident, whole", "51m15s", 1, &[("PrefillQueueDrainCritical", "p0")]),
    ("the incident, whole", "70m", 5, &[("PrefillQueueDrainCritical", "p0")]),
    ("the incident is over", "63m", 2, &[("PrefillQueueDrainCritical", "p0")]),
    ("the dead prefill of one is back", "63m", 3, &[("TargetDown", "p0")]),
    ("link cut between live peers", "74m", 4, &[("PeerDown", "d0")]),
    ("decode hangs", "74m", 3, &[("SchedulerStalled", "d0")]),
    ("p0 down and p2 stalled", "74m", 2, &[("TargetDown", "p0"), ("SchedulerStalled", "p2")]),
    (
        "the prefill of model m1 is dead",
        "74m",
        5,
        &[("TargetDown", "p0"), ("SloBudgetBurnFast", "m2")],
    ),
    ("the same prefill, its unit in state failed", "75m", 6, &[("ServiceFailed", "h0:9840")]),
    ("Xid 79 takes a card", "68m", 5, &[("GpuXidCritical", "h0:9840")]),
    // The event is over after ten minutes, its consequence is not.
    ("Xid 79 takes a card", "74m", 5, &[("GpuMissing", "h0:9840")]),
];

#[test]
fn one_fault_makes_one_page() {
    let moments = moments();
    let mut told = Vec::new();
    for moment in &moments {
        let is_this =
            |(story, at, ..): &&Paged| moment.story.starts_with(story) && moment.at == *at;
        let expected = PAGED.iter().find(is_this);
        let what = format!("{} at {}", moment.story, moment.at);
        let (story, at, critical, paged) =
            expected.unwrap_or_else(|| panic!("who is paged: {what}"));
        told.push((*story, *at));
        let is_critical = |set: &&Labels| set["severity"] == "critical";
        assert_eq!(moment.firing.iter().filter(is_critical).count(), *critical, "{what}");
        let pages = pages(&moment.firing);
        let name = |set: &Labels| {
            let of = set.get("instance").or(set.get("model_name")).cloned().unwrap_or_default();
            (set["alertname"].clone(), of)
        };
        let mut pages: Vec<_> = pages.into_iter().map(name).collect();
        let mut paged: Vec<_> =
            paged.iter().map(|(alert, of)| ((*alert).to_owned(), (*of).to_owned())).collect();
        pages.sort();
        paged.sort();
        assert_eq!(pages, paged, "{what}");
    }
    let all: Vec<_> = PAGED.iter().map(|(story, at, ..)| (*story, *at)).collect();
    told.sort_unstable();
    let mut sorted = all;
    sorted.sort_unstable();
    assert_eq!(told, sorted, "each is told once");
}
