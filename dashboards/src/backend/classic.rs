//! Classic JSON for file provisioning: every query goes to `${datasource}`.
//!
//! Fields that the server owns are not written, and nothing here depends on time, locale or
//! environment: equal input gives equal bytes.

mod panel;
mod rows;

use super::Placement;
use crate::ir::{Annotation as IrAnnotation, Dashboard as IrDashboard, Section, VariableSource};
use crate::links;
use crate::model::classic::{
    Annotation, Annotations, Choice, Dashboard, DataSourceRef, DatasourceVariable, Link, LinkType,
    Panel, QueryVariable, RowPanel, SCHEMA_VERSION, Templating, TimeRange, Variable, VariableQuery,
};

/// Name of the variable that selects the data source.
pub const DATASOURCE_VARIABLE: &str = "datasource";

/// Everything a label matches, also being absent.
pub const ALL_VALUE: &str = ".*";

/// The data source plugin of every query.
pub const PLUGIN: &str = "prometheus";

/// Uid of Grafana's own annotation source.
const BUILT_IN: &str = "-- Grafana --";

/// Turns a dashboard into Classic JSON structs. `title_of` gives the titles of related boards.
#[must_use]
pub fn render(
    board: &IrDashboard,
    placement: &Placement,
    title_of: &dyn Fn(&str) -> Option<String>,
) -> Dashboard {
    let mut panels = Vec::new();
    for (section, places) in board.sections.iter().zip(&placement.sections) {
        let children: Vec<Panel> = (section.lines.iter().flat_map(|line| &line.panels))
            .zip(places.placed.panels.iter().zip(&places.ids))
            .map(|(panel, (grid, id))| panel::render(&board.uid, panel, *grid, *id, title_of))
            .collect();
        panels.extend(row(section, places.row_id, places.placed.row, children));
    }
    let related = |uid: &String| board_link(uid, title_of(uid).as_deref().unwrap_or(uid));
    Dashboard {
        uid: board.uid.clone(),
        title: board.title.clone(),
        description: board.description.clone(),
        tags: vec![links::TAG.to_owned()],
        timezone: "browser".to_owned(),
        editable: false,
        graph_tooltip: 1,
        fiscal_year_start_month: 0,
        preload: false,
        refresh: format!("{}s", board.refresh_seconds),
        schema_version: SCHEMA_VERSION,
        time: TimeRange { from: board.from.clone(), to: "now".to_owned() },
        templating: Templating { list: board.variables.iter().map(variable).collect() },
        annotations: annotations(&board.annotations),
        links: board.related.iter().map(related).collect(),
        panels,
    }
}

/// A heading; its children follow it, or are inside where it is folded.
fn row(
    section: &Section,
    id: u32,
    grid_pos: crate::model::classic::GridPos,
    children: Vec<Panel>,
) -> Vec<Panel> {
    let heading = |panels| {
        let title = section.title.clone();
        Panel::Row(RowPanel { id, title, grid_pos, collapsed: section.collapsed, panels })
    };
    if section.collapsed {
        vec![heading(children)]
    } else {
        std::iter::once(heading(Vec::new())).chain(children).collect()
    }
}

/// The templated data source.
fn datasource() -> DataSourceRef {
    let uid = format!("${{{DATASOURCE_VARIABLE}}}");
    DataSourceRef { kind: PLUGIN.to_owned(), uid }
}

fn variable(variable: &crate::ir::Variable) -> Variable {
    let (name, label) = (variable.name.clone(), variable.label.clone());
    let description = variable.description.clone();
    match &variable.source {
        VariableSource::Datasource(uid) => Variable::Datasource(DatasourceVariable {
            name,
            label,
            description,
            query: PLUGIN.to_owned(),
            regex: String::new(),
            hide: 0,
            refresh: 1,
            multi: false,
            include_all: false,
            current: Choice { text: "Prometheus".to_owned(), value: uid.clone() },
        }),
        VariableSource::Label { selector, label: key } => {
            let query = format!("label_values({selector}, {key})");
            Variable::Query(QueryVariable {
                description,
                datasource: datasource(),
                query: VariableQuery { query, ref_id: format!("variable-{name}") },
                name,
                label,
                regex: String::new(),
                hide: 0,
                refresh: 2,
                sort: 7,
                multi: true,
                include_all: true,
                all_value: ALL_VALUE.to_owned(),
            })
        }
    }
}

fn annotations(ours: &[IrAnnotation]) -> Annotations {
    let built_in = Annotation {
        built_in: Some(1),
        datasource: DataSourceRef { kind: "grafana".to_owned(), uid: BUILT_IN.to_owned() },
        enable: true,
        hide: true,
        icon_color: "rgba(0, 211, 255, 1)".to_owned(),
        name: "Annotations & Alerts".to_owned(),
        kind: Some("dashboard".to_owned()),
        expr: None,
        step: None,
        title_format: None,
        text_format: None,
        tag_keys: None,
    };
    let query = |annotation: &IrAnnotation| Annotation {
        built_in: None,
        datasource: datasource(),
        enable: annotation.enabled,
        hide: false,
        icon_color: annotation.color.name().to_owned(),
        name: annotation.name.clone(),
        kind: None,
        expr: Some(annotation.expr.clone()),
        step: Some("30s".to_owned()),
        title_format: Some(annotation.title.clone()),
        text_format: Some(annotation.text.clone()),
        tag_keys: None,
    };
    Annotations { list: std::iter::once(built_in).chain(ours.iter().map(query)).collect() }
}

/// A link to another board that takes time range and variables along.
fn board_link(uid: &str, title: &str) -> Link {
    Link {
        kind: LinkType::Link,
        title: title.to_owned(),
        url: links::board(uid),
        icon: "dashboard".to_owned(),
        tooltip: String::new(),
        tags: Vec::new(),
        as_dropdown: false,
        include_vars: true,
        keep_time: true,
        target_blank: false,
    }
}
