//! The catalog against live servers, both ways: a running server exposes every metric that its role
//! declares and nothing else, and every counter and histogram can move, label value by label value.

mod drive;
mod elsewhere;

use anyhow::Result;
use metric_catalog::def::{Info, Kind, LabelInfo, Values};
use metric_catalog::labels::Role;
use metric_catalog::roles::Per;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use tests::cluster::Server;
use tests::scrape::{Labels, Page};

use self::elsewhere::ELSEWHERE;

/// Labels that every series carries.
const CONSTANT: [&str; 2] = ["engine_role", "model_name"];

/// What one metric's series look like, without the constant labels and `le`; those of several
/// models add up.
fn series(page: &Page, info: &Info) -> BTreeMap<Labels, f64> {
    let sample = match info.kind {
        Kind::Counter | Kind::Gauge => info.name.to_owned(),
        Kind::Histogram => format!("{}_count", info.name),
    };
    let own = |labels: &Labels| {
        let kept = labels.iter().filter(|(key, _)| !CONSTANT.contains(&key.as_str()));
        kept.map(|(key, value)| (key.clone(), value.clone())).collect::<Labels>()
    };
    let mut found = BTreeMap::new();
    for ((_, labels), value) in page.samples.iter().filter(|((name, _), _)| *name == sample) {
        *found.entry(own(labels)).or_default() += value;
    }
    found
}

#[test]
fn a_fresh_server_exposes_the_catalog_and_nothing_else() -> Result<()> {
    let server = Server::start(&["--model", "fake:step=0ms"])?;
    exposes_what_its_role_declares(&server.metrics()?, Role::Unified);
    Ok(())
}

#[test]
fn a_fresh_pair_exposes_the_catalog_and_nothing_else() -> Result<()> {
    let pair = drive::pair::Pair::start("fake:step=0ms", &[], &[])?;
    exposes_what_its_role_declares(&pair.prefill.metrics()?, Role::Prefill);
    exposes_what_its_role_declares(&pair.decode.metrics()?, Role::Decode);
    Ok(())
}

#[test]
fn a_fresh_router_exposes_the_catalog_and_nothing_else() -> Result<()> {
    let worker = Server::start(&["--model", "fake:step=0ms"])?;
    let router = drive::router::start(&[&worker.api], &[])?;
    exposes_what_its_role_declares(&router.metrics()?, Role::Router);
    Ok(())
}

/// The page has every family of the role and no other, and each closed one has all its series.
fn exposes_what_its_role_declares(page: &Page, role: Role) {
    let mine = || metric_catalog::all().filter(|info| info.is_of(role));
    let declared: BTreeSet<&str> = mine().map(|info| info.name).collect();
    let exposed: BTreeSet<&str> = page.types.keys().map(String::as_str).collect();
    assert_eq!(exposed, declared, "{role:?}");
    for info in mine() {
        assert_eq!(page.types[info.name], info.kind.as_str(), "{}", info.name);
        let found: BTreeSet<Labels> = series(page, info).into_keys().collect();
        let label = |(at, value): (usize, &Cow<'static, str>)| {
            (info.labels[at].name.to_owned(), value.clone().into_owned())
        };
        let expected: BTreeSet<Labels> = info
            .combinations(role)
            .iter()
            .map(|set| set.iter().enumerate().map(label).collect())
            .collect();
        if info.is_closed() {
            assert_eq!(found, expected, "{} at {role:?}", info.name);
        } else {
            assert!(!found.is_empty(), "{} at {role:?}", info.name);
        }
    }
    for (name, labels) in page.samples.keys() {
        assert!(labels.contains_key(CONSTANT[0]), "{name} lacks {}", CONSTANT[0]);
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let info = mine().find(|info| info.name == name || Some(info.name) == family);
        let info = info.unwrap_or_else(|| panic!("{name} is of no family of {role:?}"));
        let model = labels.get(CONSTANT[1]).map(String::as_str);
        match (role, info.per) {
            (Role::Router, Per::Process) => assert_eq!(model, None, "{name} {labels:?}"),
            (Role::Router, Per::Model) => {
                assert_eq!(
                    model == Some("none"),
                    is_for_no_model(info, labels),
                    "{name} {labels:?}"
                );
            }
            (Role::Unified | Role::Prefill | Role::Decode, _) => {
                assert!(model.is_some(), "{name} {labels:?}");
            }
        }
    }
}

/// Whether a series of a family that a router has by model is about what is for none.
fn is_for_no_model(info: &Info, labels: &Labels) -> bool {
    let value = |label: &LabelInfo| Cow::from(labels.get(label.name).cloned().unwrap_or_default());
    let values: Vec<Cow<'static, str>> = info.labels.iter().map(value).collect();
    info.per(&values) == Per::Process
}

#[test]
fn every_counter_and_histogram_moves_for_each_of_its_label_values() -> Result<()> {
    moves(&drive::all()?, Role::Unified);
    Ok(())
}

#[test]
fn what_only_a_pair_has_moves_for_each_of_its_label_values() -> Result<()> {
    let (prefill, decode) = drive::pair::all()?;
    moves(&prefill, Role::Prefill);
    moves(&decode, Role::Decode);
    Ok(())
}

#[test]
fn what_only_a_router_has_moves_for_each_of_its_label_values() -> Result<()> {
    moves(&drive::router::all()?, Role::Router);
    Ok(())
}

/// Whether every counter and histogram of the role is above 0 on one of the pages.
fn moves(pages: &[Page], role: Role) {
    let still: BTreeSet<String> = metric_catalog::all()
        .filter(|info| info.kind != Kind::Gauge && info.is_of(role))
        .flat_map(|info| never_moved(pages, info, role))
        .collect();
    let still: Vec<String> = still.into_iter().collect();
    assert!(still.is_empty(), "never above 0 at {role:?}:\n  {}", still.join("\n  "));
}

/// Whether a value of a label must be driven at this role: what a unified server has, too, is
/// driven there, since the engine is the same.
fn is_of_role(info: &Info, label: &str, value: &str, role: Role) -> bool {
    if role == Role::Unified || !info.is_of(Role::Unified) {
        return true;
    }
    let at = info.labels.iter().position(|known| known.name == label);
    let of_unified = info.combinations(Role::Unified);
    // Where another label is open, no combination is known, and no value is of a pair alone.
    info.is_closed() && !of_unified.iter().any(|set| at.is_some_and(|at| set[at] == value))
}

/// The metric if it is 0 on all pages, and the values of its closed labels that no series above 0
/// has: declared ones, or, where another label is open, those that a page shows.
fn never_moved(pages: &[Page], info: &Info, role: Role) -> Vec<String> {
    let elsewhere = |value: &str| {
        let mut listed = ELSEWHERE.iter().filter(|(name, ..)| *name == info.name);
        listed.any(|(_, driven, _)| driven.is_empty() || driven.split('|').any(|of| of == value))
    };
    let closed = |name: &str| info.label(name).map(|label| label.values);
    let mut moved: BTreeSet<(String, String)> = BTreeSet::new();
    let mut shown: BTreeSet<(String, String)> = BTreeSet::new();
    let mut any = false;
    for (labels, value) in pages.iter().flat_map(|page| series(page, info)) {
        let labels =
            labels.into_iter().filter(|(name, _)| matches!(closed(name), Some(Values::Closed(_))));
        let labels: Vec<_> = labels.collect();
        shown.extend(labels.clone());
        if value > 0.0 {
            any = true;
            moved.extend(labels);
        }
    }
    for set in info.combinations(role) {
        let names = info.labels.iter().map(|label| label.name.to_owned());
        shown.extend(names.zip(set.into_iter().map(Cow::into_owned)));
    }
    let mut still = Vec::new();
    let own = role == Role::Unified || !info.is_of(Role::Unified);
    if !any && own && !elsewhere("") {
        still.push(info.name.to_owned());
    }
    for (label, value) in shown.difference(&moved) {
        if is_of_role(info, label, value, role) && !elsewhere(value) {
            still.push(format!("{}{{{label}={value:?}}}", info.name));
        }
    }
    still
}
