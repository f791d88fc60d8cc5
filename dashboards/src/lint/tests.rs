use super::*;
use crate::ids::PanelsLock;
use crate::ir;
use crate::model::classic::{Panel, Variable};
use crate::{boards, output};
use metric_catalog::def::Unit;

fn render(boards: Vec<ir::Dashboard>) -> Vec<Board> {
    output::render(boards, &mut PanelsLock::default()).expect("places and ids")
}

fn ours() -> Vec<Board> {
    render(boards::all())
}

/// The board of that uid.
fn board<'a>(boards: &'a mut [ir::Dashboard], uid: &str) -> &'a mut ir::Dashboard {
    boards.iter_mut().find(|board| board.uid == uid).expect("one of ours")
}

/// The panel of that slug on the board of that uid.
fn panel<'a>(boards: &'a mut [ir::Dashboard], uid: &str, slug: &str) -> &'a mut ir::Panel {
    let lines = board(boards, uid).sections.iter_mut().flat_map(|section| &mut section.lines);
    lines.flat_map(|line| &mut line.panels).find(|p| p.slug == slug).expect("one of its panels")
}

fn assert_found(boards: &[Board], lint: Lint, message: &str) {
    let report = run(boards);
    let hit = |finding: &Finding| finding.code == lint.code() && finding.message.contains(message);
    assert!(report.findings.iter().any(hit), "no {lint} {message:?} in\n{}", report.to_text());
    assert!(!report.findings.is_empty() && report.to_json().contains(lint.code()));
}

/// Plants a mistake in the boards as they are written in Rust.
fn planted(lint: Lint, message: &str, plant: impl FnOnce(&mut Vec<ir::Dashboard>)) {
    let mut boards = boards::all();
    plant(&mut boards);
    assert_found(&render(boards), lint, message);
}

/// Plants a mistake in the JSON, as a broken back end would.
fn planted_in_json(lint: Lint, message: &str, plant: impl FnOnce(&mut Board)) {
    let mut boards = ours();
    plant(&mut boards[0]);
    assert_found(&boards, lint, message);
}

#[test]
fn our_boards_are_clean() {
    let report = run(&ours());
    assert!(report.findings.is_empty(), "{}", report.to_text());
    assert!(report.waived.iter().all(|waived| waived.reason.len() > 10));
    assert!(report.queries > 100 && report.dashboards == 10);
}

#[test]
fn l00_a_waiver_without_a_use_or_a_reason() {
    planted(Lint::L00, "has no reason", |boards| {
        let waiver = Waiver { lint: Lint::L05, reason: " ".to_owned() };
        panel(boards, "sightline-queue", "drain-time").waivers.push(waiver);
    });
    if cfg!(feature = "lint") {
        planted(Lint::L00, "waives nothing", |boards| {
            let waiver = Waiver { lint: Lint::L05, reason: "none".to_owned() };
            panel(boards, "sightline-queue", "drain-time").waivers.push(waiver);
        });
    }
}

#[test]
fn l04_a_unit_that_is_not_the_query_s() {
    planted(Lint::L04, "shows Bytes", |boards| {
        panel(boards, "sightline-queue", "drain-time").unit = Some(Unit::Bytes);
    });
}

#[test]
fn l06_variables() {
    planted(Lint::L06, "$job needs $cluster, which comes later", |boards| {
        board(boards, "sightline-queue").variables.swap(1, 2);
    });
    planted(Lint::L06, "names $instance, which is not declared", |boards| {
        board(boards, "sightline-queue").variables.retain(|variable| variable.name != "instance");
    });
    planted(Lint::L06, "$zone is declared and no query uses it", |boards| {
        let mut extra = board(boards, "sightline-queue").variables[1].clone();
        extra.name = "zone".to_owned();
        board(boards, "sightline-queue").variables.push(extra);
    });
    planted_in_json(Lint::L06, "$job is not read again", |board| {
        let list = &mut board.classic.templating.list;
        let Some(Variable::Query(job)) = list.iter_mut().find(|variable| variable.name() == "job")
        else {
            panic!("a variable job")
        };
        job.refresh = 1;
    });
    planted(Lint::L06, "names $jbo, which is not declared", |boards| {
        let queries = &mut panel(boards, "sightline-queue", "drain-time").queries;
        queries[0].expr = queries[0].expr.replace("$job", "$jbo");
    });
}

#[test]
fn l07_names_and_ids() {
    planted(Lint::L07, "is not a slug", |boards| boards[0].uid = "Overview".to_owned());
    planted(Lint::L07, "two dashboards are called", |boards| {
        boards[0].title = boards[1].title.clone();
    });
    planted_in_json(Lint::L07, "id 0 means no panel", |board| {
        let Some(Panel::Row(row)) = board.classic.panels.first_mut() else { panic!("a row") };
        row.id = 0;
    });
    planted_in_json(Lint::L07, "is also that of", |board| {
        let id = board.classic.panels[1].common().id;
        let Some(Panel::Row(row)) = board.classic.panels.first_mut() else { panic!("a row") };
        row.id = id;
    });
    planted_in_json(Lint::L07, "two queries are called A", |board| {
        with_targets(board, |targets| targets.push(targets[0].clone()));
    });
}

/// Changes the queries of the first time series.
fn with_targets(board: &mut Board, change: impl FnOnce(&mut Vec<crate::model::classic::Target>)) {
    let targets = board.classic.panels.iter_mut().find_map(|panel| {
        if let Panel::TimeSeries(viz) = panel { Some(&mut viz.targets) } else { None }
    });
    change(targets.expect("a time series"));
}

#[test]
fn l08_a_fixed_data_source() {
    planted_in_json(Lint::L08, "query A goes to prometheus", |board| {
        with_targets(board, |targets| targets[0].datasource.uid = "prometheus".to_owned());
    });
    planted_in_json(Lint::L08, "Firing alerts goes to x", |board| {
        board.classic.annotations.list[1].datasource.uid = "x".to_owned();
    });
    planted_in_json(Lint::L08, "no variable datasource", |board| {
        board.classic.templating.list.remove(0);
    });
}

#[test]
fn l09_missing_texts() {
    planted(Lint::L09, "no description", |boards| {
        panel(boards, "sightline-queue", "drain-time").description.clear();
    });
    planted(Lint::L09, "no title", |boards| {
        panel(boards, "sightline-queue", "drain-time").title.clear();
    });
    planted(Lint::L09, "no unit", |boards| {
        panel(boards, "sightline-queue", "drain-time").unit = None;
    });
    planted(Lint::L09, "no query", |boards| {
        panel(boards, "sightline-queue", "drain-time").queries.clear();
    });
}

#[test]
fn l10_a_broken_grid() {
    let row = |board: &mut Board, change: fn(&mut crate::model::classic::GridPos)| {
        let Some(Panel::Row(row)) = board.classic.panels.first_mut() else { panic!("a row") };
        change(&mut row.grid_pos);
    };
    planted_in_json(Lint::L10, "lies on", |board| row(board, |grid| grid.y = 1));
    planted_in_json(Lint::L10, "a gap in line 0", |board| row(board, |grid| grid.w = 12));
    planted_in_json(Lint::L10, "sticks out", |board| row(board, |grid| grid.x = 12));
}

#[test]
fn l13_links_to_nowhere() {
    planted(Lint::L13, "dashboard sightline-nope, which does not exist", |boards| {
        boards[0].related.push("sightline-nope".to_owned());
    });
    planted(Lint::L13, "names alert Nope", |boards| {
        panel(boards, "sightline-queue", "drain-time").alerts.push("Nope".to_owned());
    });
    planted_in_json(Lint::L13, "which is no runbook section", |board| {
        board.classic.links[0].url = "/public/sightline/runbook.md#nope".to_owned();
    });
}

#[test]
fn l14_a_threshold_that_is_not_the_alert_s() {
    planted(Lint::L14, "does not draw the limit of PrefillQueueDrainCritical", |boards| {
        panel(boards, "sightline-queue", "drain-time").thresholds[1].value = 45.0;
    });
    planted(Lint::L14, "draws no line", |boards| {
        let kind = &mut panel(boards, "sightline-queue", "drain-time").kind;
        let ir::Kind::TimeSeries(options) = kind else { panic!("a time series") };
        options.lines = false;
    });
    planted(Lint::L14, "not in ascending order", |boards| {
        panel(boards, "sightline-queue", "drain-time").thresholds.reverse();
    });
}

#[test]
fn l15_l18_too_large_and_too_eager() {
    planted_in_json(Lint::L15, "split it", |board| board.json = " ".repeat(210_000));
    planted_in_json(Lint::L15, "more than 262144", |board| board.json = " ".repeat(300_000));
    planted(Lint::L18, "refreshes every 1 s", |boards| boards[0].refresh_seconds = 1);
}

#[test]
fn l20_an_alert_without_its_panel() {
    planted(Lint::L20, "alert PrefillQueueDrainSlow points to it", |boards| {
        panel(boards, "sightline-queue", "drain-time").slug = "renamed".to_owned();
    });
}

#[test]
fn l20_a_metric_of_ruin_without_an_alert() {
    let mut groups = metric_catalog::alerts::groups();
    assert_eq!(structure::unwatched(&["sightline_node_healthy"], &groups), [""; 0]);
    for group in &mut groups {
        group.alerts.retain(|alert| !alert.expr.to_string().contains("sightline_node_healthy"));
    }
    let unwatched = structure::unwatched(&["sightline_node_healthy", "up"], &groups);
    assert_eq!(unwatched, ["sightline_node_healthy"]);
}

/// A query with a mistake, what finds it, and in which words. `SCOPE` stands for the conditions of
/// every query.
#[cfg(feature = "lint")]
const BAD_QUERIES: &[(Lint, &str, &str, &str)] = &[
    (Lint::L01, "does not parse", "sum((1)", "x"),
    (Lint::L01, "is called sightline_nope", "sum(sightline_nope{SCOPE})", "x"),
    (Lint::L01, "no metric and no recording rule", "sum(instance:sightline_nope:rate5m)", "x"),
    (Lint::L02, "has no label pool", "sum(sightline_running_requests{pool=\"kv\",SCOPE})", "x"),
    (
        Lint::L02,
        "is never \"waitin\"",
        "sum(sightline_queue_requests{queue=\"waitin\",SCOPE})",
        "x",
    ),
    (
        Lint::L02,
        "grouped by colour",
        "sum by (colour) (sightline_running_requests{SCOPE})",
        "{{colour}}",
    ),
    (Lint::L03, "is a counter", "sum(sightline_requests_admitted_total{SCOPE})", "x"),
    (
        Lint::L03,
        "rate does not fit",
        "sum(rate(sightline_running_requests{SCOPE}[$__rate_interval]))",
        "x",
    ),
    (
        Lint::L03,
        "without le",
        "histogram_quantile(0.9, sum(rate(\
         sightline_time_to_first_token_seconds_bucket{SCOPE}[$__rate_interval])))",
        "x",
    ),
    (
        Lint::L05,
        "fixed window of 300 s",
        "sum(rate(sightline_requests_admitted_total{SCOPE}[5m]))",
        "x",
    ),
    (
        Lint::L06,
        "not restricted by $instance",
        "sum(sightline_running_requests{job=~\"$job\"})",
        "x",
    ),
    (
        Lint::L11,
        "{{pool}} is no label",
        "sum by (instance) (sightline_running_requests{SCOPE})",
        "{{instance}} {{pool}}",
    ),
    (
        Lint::L11,
        "several series are all called",
        "sum by (instance) (sightline_running_requests{SCOPE})",
        "x",
    ),
    (
        Lint::L11,
        "differ only in queue",
        "sum by (instance, queue) (sightline_queue_requests{SCOPE})",
        "{{instance}}",
    ),
    (
        Lint::L12,
        "series with 8 processes",
        "sum by (instance, phase, tp_rank) (rate(\
         sightline_forward_busy_seconds_total{SCOPE}[$__rate_interval]))",
        "{{instance}} {{phase}} {{tp_rank}}",
    ),
    (
        Lint::L16,
        "newer than Prometheus 2.42",
        "sort_by_label(sightline_running_requests{SCOPE})",
        "x",
    ),
    (
        Lint::L17,
        "by (queue), which was lost",
        "sum by (queue) (sum by (instance) (sightline_queue_requests{SCOPE}))",
        "{{queue}}",
    ),
    (
        Lint::L17,
        "the sides of - differ",
        "sum by (instance) (sightline_running_requests{SCOPE}) \
         - sum by (job) (sightline_running_requests{SCOPE})",
        "{{instance}}",
    ),
    (
        Lint::L19,
        "can be 0",
        "sum(sightline_running_requests{SCOPE}) / sum(sightline_running_requests_limit{SCOPE})",
        "x",
    ),
];

#[cfg(feature = "lint")]
fn with_query(boards: &mut Vec<ir::Dashboard>, query: &str, legend: &str) {
    use crate::build::{line, section, time_series};
    use metric_catalog::promql::raw;
    let scope: Vec<String> =
        crate::variables::SCOPE.iter().map(|label| format!("{label}=~\"${label}\"")).collect();
    let query = query.replace("SCOPE", &scope.join(","));
    let bad = time_series("bad").title("Bad").describe("Bad.").unit(Unit::Count);
    let bad = bad.query(raw(&query, &[], Unit::Count), legend);
    boards.truncate(1);
    boards[0].sections = vec![section("bad", "Bad", vec![line(8, vec![bad.into()])])];
}

#[cfg(feature = "lint")]
#[test]
fn bad_queries_are_found() {
    for (lint, message, query, legend) in BAD_QUERIES {
        planted(*lint, message, |boards| with_query(boards, query, legend));
    }
}

#[cfg(feature = "lint")]
#[test]
fn l12_counts_what_a_query_leaves() {
    let many = "sum by (instance, phase, tp_rank) (rate(\
                sightline_forward_busy_seconds_total{SCOPE}[$__rate_interval]))";
    let found = |query: &str| {
        let mut boards = boards::all();
        with_query(&mut boards, query, "{{instance}} {{phase}} {{tp_rank}}");
        run(&render(boards)).findings.iter().any(|finding| finding.code == "L12")
    };
    assert!(found(many));
    assert!(found(&format!("topk(600, {many})")));
    assert!(!found(&format!("topk(5, {many})")));
    assert!(!found(&many.replace("{SCOPE}", "{phase=\"decode\",tp_rank=\"0\",SCOPE}")));
}

#[test]
fn a_report_says_what_and_where() {
    let mut boards = boards::all();
    panel(&mut boards, "sightline-queue", "drain-time").description.clear();
    let report = run(&render(boards));
    let text = report.to_text();
    assert!(text.starts_with("L09 sightline-queue/drain-time: no description\n"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("JSON");
    assert_eq!(json["findings"][0]["panel"], "drain-time");
}
