//! A dashboard of 60 time series with two queries each, on standard output: the same task that
//! `scripts/bench_dashboards.py` gives to other generators.
//!
//! With `--lint` it is checked, too; findings are an error.

use dashboards::build::{line, section, time_series};
use dashboards::ids::PanelsLock;
use dashboards::ir::{Color, Dashboard, Panel, Variable, VariableSource};
use dashboards::{lint, output, provision};
use metric_catalog::def::{Label as _, Unit};
use metric_catalog::labels::Instance;
use metric_catalog::promql::{Window, quantile, rate, sum};
use metric_catalog::server;
use std::io::{self, Write as _};
use std::process::ExitCode;

const PANELS: u32 = 60;

fn panel(index: u32) -> Panel {
    let window = Window::Interval;
    let (slug, title) = (format!("panel-{index}"), format!("Panel {index}"));
    let panel = time_series(&slug).title(&title).describe("Read it.");
    if index.is_multiple_of(2) {
        let request = rate(server::REQUESTS_ADMITTED, window);
        let queued = rate(server::REQUESTS_REJECTED, window);
        let panel = panel.unit(Unit::RequestsPerSecond);
        let panel = panel.query(sum(request).by(Instance::KEY), "admitted {{instance}}");
        panel.query(sum(queued).by(Instance::KEY), "refused {{instance}}").span(12).into()
    } else {
        let at = |share| quantile(share, server::TIME_TO_FIRST_TOKEN, window).by(Instance::KEY);
        let panel = panel.unit(Unit::Seconds).threshold(1.0 + f64::from(index), Color::Red);
        panel.query(at(0.5), "p50 {{instance}}").query(at(0.95), "p95 {{instance}}").span(12).into()
    }
}

fn variable(name: &str, source: VariableSource) -> Variable {
    let text = name.to_owned();
    Variable { name: text.clone(), label: text.clone(), description: text, source }
}

fn main() -> ExitCode {
    let label = |name: &str| {
        let selector = server::SERVED_MODEL_INFO.name().to_owned();
        variable(name, VariableSource::Label { selector, label: name.to_owned() })
    };
    let uid = provision::DATASOURCE_UID.to_owned();
    let mut variables = vec![variable("datasource", VariableSource::Datasource(uid))];
    variables.extend(dashboards::variables::SCOPE.iter().map(|name| label(name)));
    let panels: Vec<Panel> = (0..PANELS).map(panel).collect();
    let lines = panels.chunks(2).map(|pair| line(8, pair.to_vec())).collect();
    let board = Dashboard {
        uid: "sightline-sixty".to_owned(),
        title: "Sixty".to_owned(),
        description: "Sixty panels.".to_owned(),
        from: "now-1h".to_owned(),
        refresh_seconds: 10,
        variables,
        annotations: Vec::new(),
        related: Vec::new(),
        split_from: Vec::new(),
        sections: vec![section("all", "All", lines)],
    };
    let boards = output::render(vec![board], &mut PanelsLock::default()).expect("slugs and widths");
    io::stdout().write_all(boards[0].json.as_bytes()).expect("standard output is open");
    if std::env::args().any(|arg| arg == "--lint") {
        let report = lint::run(&boards);
        // Alerts point to other dashboards, which are not here.
        let own = report.findings.iter().filter(|finding| finding.code != "L20");
        let found: Vec<_> = own.filter(|finding| finding.dashboard == "sightline-sixty").collect();
        if !found.is_empty() {
            writeln!(io::stderr(), "{found:?}").expect("standard error is open");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
