//! Lints that need no `PromQL` parser: names, links, places, sizes, variables.

use super::{Lint, Sink};
use crate::backend::classic::DATASOURCE_VARIABLE;
use crate::ids::is_slug;
use crate::ir::Kind;
use crate::layout::COLUMNS;
use crate::links;
use crate::model::classic::{DataSourceRef, GridPos, Panel, Variable};
use crate::output::Board;
use crate::provision::SCRAPE_INTERVAL_SECONDS;
use crate::unit::grafana_id;
use crate::usage::names_in;
use crate::variables::{is_built_in, references};
use metric_catalog::alerts::{Group, Severity};
use metric_catalog::target::Target;
use std::collections::{BTreeMap, BTreeSet};

/// Longest uid that Grafana takes.
const UID_MAX: usize = 40;

/// Annotations of Kubernetes end here, and dashboards may travel in one.
const BYTES_MAX: usize = 256 * 1024;

/// Above this, a dashboard should be split.
const BYTES_WARN: usize = 200 * 1000;

/// Runs all of them.
pub(super) fn run(boards: &[Board], sink: &mut Sink) {
    names_of_the_set(boards, sink);
    for board in boards {
        variables(board, sink);
        names(board, sink);
        datasources(board, sink);
        texts(board, sink);
        grid(board, sink);
        links(board, boards, sink);
        size(board, sink);
        units(board, sink);
    }
    alerts(boards, sink);
    ruin(boards, sink);
}

/// Panels with their slugs, those inside folded rows too.
fn panels(board: &Board) -> Vec<(String, &Panel)> {
    let slugs = board.slugs();
    let flat = board
        .classic
        .panels
        .iter()
        .flat_map(|panel| std::iter::once(panel).chain(panel.children()));
    flat.map(|panel| {
        let id = panel.common().id;
        (slugs.get(&id).cloned().unwrap_or_else(|| format!("id {id}")), panel)
    })
    .collect()
}

/// L07 over all dashboards: uids and titles are unique, and uids are readable slugs.
fn names_of_the_set(boards: &[Board], sink: &mut Sink) {
    let mut uids = BTreeSet::new();
    let mut titles = BTreeSet::new();
    for board in boards {
        let (uid, title) = (&board.classic.uid, &board.classic.title);
        let ours = Target::of_uid(uid) == Some(board.target);
        if uid.len() > UID_MAX || !is_slug(uid) || !ours {
            let rule = format!("[a-z0-9-], at most {UID_MAX}, starting with {}-", board.target);
            sink.push(Lint::L07, uid, "", format!("uid {uid} is not a slug: {rule}"));
        }
        if !uids.insert(uid) {
            sink.push(Lint::L07, uid, "", "two dashboards have this uid");
        }
        if !titles.insert(title) {
            sink.push(Lint::L07, uid, "", format!("two dashboards are called {title}"));
        }
    }
}

/// L06: every variable that is named is declared, every one declared is used by a query.
fn variables(board: &Board, sink: &mut Sink) {
    let uid = &board.classic.uid;
    let declared: Vec<&str> = board.classic.templating.list.iter().map(Variable::name).collect();
    let mut used = BTreeSet::new();
    let mut note = |panel: &str, place: &str, text: &str, sink: &mut Sink| {
        for name in references(text) {
            if !declared.contains(&name.as_str()) && !is_built_in(&name) {
                let message = format!("{place} names ${name}, which is not declared");
                sink.push(Lint::L06, uid, panel, message);
            }
            used.insert(name);
        }
    };
    for (slug, panel) in panels(board) {
        let common = panel.common();
        note(&slug, "the title", common.title, sink);
        for target in common.targets {
            note(&slug, &format!("query {}", target.ref_id), &target.expr, sink);
            note(&slug, "a legend", &target.legend_format, sink);
            note(&slug, "a data source", &target.datasource.uid, sink);
        }
        for link in common.links {
            note(&slug, "a link", &link.url, sink);
        }
        for link in common.data_links {
            note(&slug, "a link of a series", &link.url, sink);
        }
    }
    for annotation in &board.classic.annotations.list {
        note("", &annotation.name, annotation.expr.as_deref().unwrap_or(""), sink);
    }
    let mut seen: Vec<&str> = Vec::new();
    for variable in &board.classic.templating.list {
        if let Variable::Query(query) = variable {
            for name in references(&query.query.query) {
                if !seen.contains(&name.as_str()) {
                    let message = format!("${} needs ${name}, which comes later", query.name);
                    sink.push(Lint::L06, uid, "", message);
                }
            }
            if query.refresh != 2 {
                let message = format!("${} is not read again with the time range", query.name);
                sink.push(Lint::L06, uid, "", message);
            }
        }
        seen.push(variable.name());
    }
    for name in declared.iter().filter(|name| !used.contains(**name)) {
        sink.push(Lint::L06, uid, "", format!("${name} is declared and no query uses it"));
    }
}

/// L07 in one dashboard: ids and names of queries.
fn names(board: &Board, sink: &mut Sink) {
    let uid = &board.classic.uid;
    let mut ids = BTreeMap::new();
    for (slug, panel) in panels(board) {
        let common = panel.common();
        if common.id == 0 {
            sink.push(Lint::L07, uid, &slug, "id 0 means no panel to Grafana");
        }
        if let Some(other) = ids.insert(common.id, slug.clone()) {
            let message = format!("id {} is also that of {other}", common.id);
            sink.push(Lint::L07, uid, &slug, message);
        }
        let mut refs = BTreeSet::new();
        for target in common.targets.iter().filter(|target| !refs.insert(target.ref_id.clone())) {
            let message = format!("two queries are called {}", target.ref_id);
            sink.push(Lint::L07, uid, &slug, message);
        }
    }
}

/// L08: panels, queries, variables and annotations all go to the templated data source.
fn datasources(board: &Board, sink: &mut Sink) {
    let uid = &board.classic.uid;
    let templated = format!("${{{DATASOURCE_VARIABLE}}}");
    let mut check = |panel: &str, what: &str, source: &DataSourceRef| {
        if source.uid != templated {
            let message = format!("{what} goes to {}, not to {templated}", source.uid);
            sink.push(Lint::L08, uid, panel, message);
        }
    };
    for (slug, panel) in panels(board) {
        let common = panel.common();
        if let Some(source) = common.datasource {
            check(&slug, "the panel", source);
        }
        for target in common.targets {
            check(&slug, &format!("query {}", target.ref_id), &target.datasource);
        }
    }
    for variable in &board.classic.templating.list {
        if let Variable::Query(query) = variable {
            check("", &format!("${}", query.name), &query.datasource);
        }
    }
    for annotation in board.classic.annotations.list.iter().filter(|a| a.built_in.is_none()) {
        check("", &annotation.name, &annotation.datasource);
    }
    let has_variable = |variable: &Variable| match variable {
        Variable::Datasource(source) => source.name == DATASOURCE_VARIABLE,
        Variable::Query(_) => false,
    };
    if !board.classic.templating.list.iter().any(has_variable) {
        sink.push(Lint::L08, uid, "", format!("no variable {DATASOURCE_VARIABLE}"));
    }
}

/// L09: title, description, unit and a query, on every kind of panel.
fn texts(board: &Board, sink: &mut Sink) {
    let uid = &board.classic.uid;
    if board.classic.description.trim().is_empty() {
        sink.push(Lint::L09, uid, "", "no description");
    }
    for (slug, panel) in panels(board) {
        let common = panel.common();
        let (row, text) = (common.kind == "row", common.kind == "text");
        let mut missing = Vec::new();
        if common.title.trim().is_empty() {
            missing.push("title");
        }
        if !row && common.description.trim().is_empty() {
            missing.push("description");
        }
        if !row && !text && common.unit.is_none_or(str::is_empty) {
            missing.push("unit");
        }
        if !row && !text && common.targets.is_empty() {
            missing.push("query");
        }
        for what in missing {
            sink.push(Lint::L09, uid, &slug, format!("no {what}"));
        }
    }
}

/// L10: panels and headings tile the grid; so do the children of each folded row.
fn grid(board: &Board, sink: &mut Sink) {
    let slugs = board.slugs();
    let name = |id: u32| slugs.get(&id).cloned().unwrap_or_default();
    let mut tile = |panels: &[Panel], top: u32| {
        let mut cells: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        for panel in panels {
            let common = panel.common();
            let GridPos { h, w, x, y } = common.grid;
            if w == 0 || h == 0 || x + w > COLUMNS || y < top {
                let message = format!("sticks out of the grid: {w}x{h} at {x},{y}");
                sink.push(Lint::L10, &board.classic.uid, &name(common.id), message);
                continue;
            }
            for cell in (y..y + h).flat_map(|y| (x..x + w).map(move |x| (y, x))) {
                if let Some(other) = cells.insert(cell, common.id)
                    && other != common.id
                {
                    let message = format!("lies on {}", name(other));
                    sink.push(Lint::L10, &board.classic.uid, &name(common.id), message);
                }
            }
        }
        let bottom = cells.keys().next_back().map_or(top, |(y, _)| y + 1);
        let gap = (top..bottom).find(|&y| (0..COLUMNS).any(|x| !cells.contains_key(&(y, x))));
        if let Some(y) = gap {
            let message = format!("a gap in line {y} of the grid");
            sink.push(Lint::L10, &board.classic.uid, "", message);
        }
    };
    tile(&board.classic.panels, 0);
    for row in &board.classic.panels {
        tile(row.children(), row.common().grid.y + 1);
    }
}

/// L13: links lead somewhere.
fn links(board: &Board, boards: &[Board], sink: &mut Sink) {
    let uid = &board.classic.uid;
    let mut check = |panel: &str, url: &str| {
        if let Some(target) = url.strip_prefix("/d/") {
            let target = target.split(['?', '/']).next().unwrap_or(target);
            if !boards.iter().any(|other| other.classic.uid == target) {
                let message = format!("links to dashboard {target}, which does not exist");
                sink.push(Lint::L13, uid, panel, message);
            }
            return;
        }
        if url.starts_with(links::ALERT_LIST) {
            if !links::all_alerts().iter().any(|alert| url == links::alert_list(alert.name)) {
                sink.push(Lint::L13, uid, panel, format!("links to {url}, which is no alert"));
            }
            return;
        }
        let anchor = url.strip_prefix(links::RUNBOOK).and_then(|rest| rest.strip_prefix('#'));
        if !anchor.is_some_and(links::is_anchor) {
            let message = format!("links to {url}, which is no runbook section");
            sink.push(Lint::L13, uid, panel, message);
        }
    };
    for link in &board.classic.links {
        check("", &link.url);
    }
    for (slug, panel) in panels(board) {
        let common = panel.common();
        common.links.iter().for_each(|link| check(&slug, &link.url));
        common.data_links.iter().for_each(|link| check(&slug, &link.url));
    }
}

/// L15 and L18: numbers of the whole file.
fn size(board: &Board, sink: &mut Sink) {
    let uid = &board.classic.uid;
    let bytes = board.json.len();
    if bytes > BYTES_MAX {
        sink.push(Lint::L15, uid, "", format!("{bytes} bytes, more than {BYTES_MAX}"));
    } else if bytes > BYTES_WARN {
        sink.push(Lint::L15, uid, "", format!("{bytes} bytes; split it before {BYTES_MAX}"));
    }
    if board.ir.refresh_seconds < SCRAPE_INTERVAL_SECONDS {
        let message = format!(
            "refreshes every {} s, scraped every {SCRAPE_INTERVAL_SECONDS} s",
            board.ir.refresh_seconds
        );
        sink.push(Lint::L18, uid, "", message);
    }
}

/// L04: the unit of a panel is that of its queries. A heat map's unit is that of its buckets, and
/// a table shows labels.
fn units(board: &Board, sink: &mut Sink) {
    for (_, panel) in board.ir.panels() {
        let labels_only = matches!(panel.kind, Kind::Heatmap | Kind::Table(_));
        let Some(unit) = panel.unit.filter(|_| !labels_only) else { continue };
        for query in panel.queries.iter().filter(|q| grafana_id(q.unit) != grafana_id(unit)) {
            let message = format!("shows {unit:?}, but {:?} is {:?}", query.legend, query.unit);
            sink.push(Lint::L04, &board.ir.uid, &panel.slug, message);
        }
    }
}

/// L13, L14, L20: alerts and panels point to each other, and draw the same line.
fn alerts(boards: &[Board], sink: &mut Sink) {
    for alert in links::all_alerts() {
        let Some(place) = alert.panel else {
            if alert.severity != Severity::None {
                sink.push(Lint::L20, "", "", format!("alert {} has no panel", alert.name));
            }
            continue;
        };
        let target = Target::of_uid(place.board);
        if !boards.iter().any(|board| Some(board.target) == target) {
            continue;
        }
        let board = boards.iter().find(|board| board.ir.uid == place.board);
        let panel = board
            .and_then(|board| board.ir.panels().map(|(_, p)| p).find(|p| p.slug == place.panel));
        let Some(panel) = panel else {
            let message = format!("alert {} points to it, and it does not exist", alert.name);
            sink.push(Lint::L20, place.board, place.panel, message);
            continue;
        };
        let Some(limit) = alert.threshold else { continue };
        if !panel.thresholds.iter().any(|step| step.value.total_cmp(&limit).is_eq()) {
            let message = format!("does not draw the limit of {}, {limit}", alert.name);
            sink.push(Lint::L14, place.board, place.panel, message);
        }
        if let Kind::TimeSeries(options) = &panel.kind
            && !options.lines
        {
            let message = format!("has the limit of {} and draws no line", alert.name);
            sink.push(Lint::L14, place.board, place.panel, message);
        }
    }
    for board in boards {
        for (_, panel) in board.ir.panels() {
            if !panel.thresholds.is_sorted_by(|a, b| a.value < b.value) {
                let message = "thresholds are not in ascending order";
                sink.push(Lint::L14, &board.ir.uid, &panel.slug, message);
            }
            for name in panel.alerts.iter().filter(|name| links::alert(name).is_none()) {
                let message = format!("names alert {name}, which does not exist");
                sink.push(Lint::L13, &board.ir.uid, &panel.slug, message);
            }
        }
    }
}

/// Metrics that say that something is broken or lost, and of which somebody must be told: at least
/// one alert reads each, itself or by a recording rule.
const CRITICAL: &[&str] = &[
    "up",
    metric_catalog::server::SLO_REQUESTS.name(),
    metric_catalog::server::REQUESTS_ABORTED.name(),
    metric_catalog::server::REQUESTS_REJECTED.name(),
    metric_catalog::pair::PD_PEER_UP.name(),
    metric_catalog::pair::KV_TRANSFER_ERRORS.name(),
    metric_catalog::node::HEALTHY.name(),
    metric_catalog::node::GPU_ECC_ERRORS.name(),
    metric_catalog::node::GPU_XID_ERRORS.name(),
    metric_catalog::node::RDMA_PORT_UP.name(),
    metric_catalog::node::SERVICE_OOM_KILLS.name(),
];

/// L20, the other way: a metric of ruin without an alert.
fn ruin(boards: &[Board], sink: &mut Sink) {
    if boards.iter().any(|board| board.target == Target::Sightline) {
        for name in unwatched(CRITICAL, &metric_catalog::alerts::groups()) {
            sink.push(Lint::L20, "", "", format!("no alert reads {name}"));
        }
    }
}

/// Those of the metrics that no alert reads.
pub(super) fn unwatched<'a>(metrics: &[&'a str], groups: &[Group]) -> Vec<&'a str> {
    let alerts = groups.iter().flat_map(|group| &group.alerts);
    let mut open: Vec<&str> = alerts.flat_map(|alert| names_in(&alert.expr.to_string())).collect();
    let mut read = BTreeSet::new();
    while let Some(name) = open.pop() {
        let records = groups.iter().flat_map(|group| &group.recordings);
        if read.insert(name) {
            let made = records.filter(|record| record.series.name == name);
            open.extend(made.flat_map(|record| names_in(&record.expr.to_string())));
        }
    }
    metrics.iter().copied().filter(|name| !read.contains(name)).collect()
}
