//! Resources of API version `dashboard.grafana.app/v2`.
//!
//! What a panel looks like is Classic's decision; here it gets the other frame: panels are elements
//! named by their slug, and sections hold the places, counted from their own top.

use super::Placement;
use super::classic::PLUGIN;
use crate::ir;
use crate::model::classic::{self, DataLink, GridPos, Target, Transformation, VariableQuery};
use crate::model::v2::{
    API_VERSION, AnnotationQuery, AnnotationSource, AnnotationSpec, BuiltInAnnotations, Change,
    ChangeOf, ChangeSpec, Choice, CursorSync, Dashboard, DataQuery, DatasourceSpec, Element,
    ElementReference, Grid, Hide, Item, Link, MarkerQuery, MarkerTexts, Metadata, Node, Panel,
    PanelQuerySpec, PanelSpec, Prometheus, QUERY_VERSION, Queries, Query, QueryOptions, QuerySpec,
    Refresh, Resource, Row, Rows, RowsLayout, Sort, Source, Spec, TimeSettings, Variable, Viz,
    VizOf, VizSpec, Words,
};
use std::collections::BTreeMap;

/// Refreshes to choose from: those of Grafana that are no shorter than a scrape.
const REFRESHES: [&str; 7] = ["5s", "10s", "30s", "1m", "5m", "15m", "1h"];

/// What All is in a list of chosen values.
const ALL: &str = "$__all";

/// Turns a dashboard into a resource. `classic` is the same dashboard in Classic form.
#[must_use]
pub fn render(
    board: &ir::Dashboard,
    placement: &Placement,
    classic: &classic::Dashboard,
) -> Resource {
    let flat = classic.panels.iter().flat_map(|p| std::iter::once(p).chain(p.children()));
    let by_id: BTreeMap<u32, &classic::Panel> = flat.map(|p| (p.common().id, p)).collect();
    let mut elements = BTreeMap::new();
    let mut rows = Vec::new();
    for (section, places) in board.sections.iter().zip(&placement.sections) {
        let mut items = Vec::new();
        let panels = section.lines.iter().flat_map(|line| &line.panels);
        for (panel, (grid, id)) in panels.zip(places.placed.panels.iter().zip(&places.ids)) {
            let top = places.placed.row.y + places.placed.row.h;
            items.push(Node::new(item(&panel.slug, *grid, top)));
            let drawn = by_id.get(id).and_then(|classic| element(classic));
            let drawn = drawn.expect("the Classic form has every panel of the placement");
            elements.insert(panel.slug.clone(), drawn);
        }
        let layout = Node::new(Grid { items });
        let title = section.title.clone();
        rows.push(Node::new(Row { title, collapse: section.collapsed, layout }));
    }
    Resource {
        api_version: API_VERSION.to_owned(),
        kind: Dashboard::Dashboard,
        metadata: Metadata { name: classic.uid.clone() },
        spec: spec(classic, elements, Node::new(Rows { rows })),
    }
}

fn spec(
    classic: &classic::Dashboard,
    elements: BTreeMap<String, Node<Panel, PanelSpec>>,
    layout: Node<RowsLayout, Rows>,
) -> Spec {
    Spec {
        title: classic.title.clone(),
        description: classic.description.clone(),
        tags: classic.tags.clone(),
        editable: classic.editable,
        cursor_sync: match classic.graph_tooltip {
            0 => CursorSync::Off,
            1 => CursorSync::Crosshair,
            _ => CursorSync::Tooltip,
        },
        preload: classic.preload,
        time_settings: TimeSettings {
            timezone: classic.timezone.clone(),
            from: classic.time.from.clone(),
            to: classic.time.to.clone(),
            auto_refresh: classic.refresh.clone(),
            auto_refresh_intervals: REFRESHES.map(str::to_owned).to_vec(),
            hide_timepicker: false,
            fiscal_year_start_month: classic.fiscal_year_start_month,
        },
        variables: classic.templating.list.iter().map(variable).collect(),
        annotations: classic.annotations.list.iter().map(annotation).collect(),
        links: classic.links.iter().map(link).collect(),
        elements,
        layout,
    }
}

fn item(slug: &str, grid: GridPos, top: u32) -> Item {
    let element = Element { kind: ElementReference::ElementReference, name: slug.to_owned() };
    Item { x: grid.x, y: grid.y - top, width: grid.w, height: grid.h, element }
}

/// The panel with its drawing; none for a heading, which is a row of the layout.
fn element(panel: &classic::Panel) -> Option<Node<Panel, PanelSpec>> {
    Some(match panel {
        classic::Panel::Row(_) => return None,
        classic::Panel::Stat(viz) => framed(viz, Viz::Stat),
        classic::Panel::Gauge(viz) => framed(viz, Viz::Gauge),
        classic::Panel::BarGauge(viz) => framed(viz, Viz::BarGauge),
        classic::Panel::TimeSeries(viz) => framed(viz, Viz::TimeSeries),
        classic::Panel::Heatmap(viz) => framed(viz, Viz::Heatmap),
        classic::Panel::Table(viz) => framed(viz, Viz::Table),
        classic::Panel::BarChart(viz) => framed(viz, Viz::BarChart),
        classic::Panel::StateTimeline(viz) => framed(viz, Viz::StateTimeline),
        classic::Panel::Text(viz) => framed(viz, Viz::Text),
    })
}

/// The frame that all kinds share, around options of any kind.
fn framed<O: Clone, C: Clone>(
    viz: &classic::Viz<O, C>,
    kind: fn(VizOf<O, C>) -> Viz,
) -> Node<Panel, PanelSpec> {
    let queries = viz.targets.iter().map(|target| Node::new(query(target))).collect();
    let transformations = viz.transformations.iter().map(change).collect();
    let data = Queries { queries, transformations, query_options: QueryOptions {} };
    let drawing = VizSpec { options: viz.options.clone(), field_config: viz.field_config.clone() };
    let link = |link: &classic::Link| DataLink {
        title: link.title.clone(),
        url: link.url.clone(),
        target_blank: link.target_blank,
    };
    Node::new(PanelSpec {
        id: viz.id,
        title: viz.title.clone(),
        description: viz.description.clone(),
        links: viz.links.iter().map(link).collect(),
        data: Node::new(data),
        viz_config: kind(VizOf {
            kind: crate::model::v2::VizConfig::VizConfig,
            version: String::new(),
            spec: drawing,
        }),
    })
}

fn query(target: &Target) -> PanelQuerySpec {
    let spec = Prometheus {
        editor_mode: target.editor_mode,
        expr: target.expr.clone(),
        format: target.format,
        legend_format: target.legend_format.clone(),
        instant: target.instant,
        range: target.range,
    };
    let query = ask(&target.datasource, spec);
    PanelQuerySpec { ref_id: target.ref_id.clone(), hidden: false, query }
}

fn ask<S>(source: &classic::DataSourceRef, spec: S) -> Query<S> {
    Query {
        kind: DataQuery::DataQuery,
        group: source.kind.clone(),
        version: QUERY_VERSION.to_owned(),
        datasource: Source { name: source.uid.clone() },
        spec,
    }
}

fn change(transformation: &Transformation) -> Change {
    match transformation {
        Transformation::Organize(options) => Change::Organize(with(options)),
        Transformation::Merge(options) => Change::Merge(with(options)),
        Transformation::ConvertFieldType(options) => Change::ConvertFieldType(with(options)),
        Transformation::SortBy(options) => Change::SortBy(with(options)),
        Transformation::GroupingToMatrix(options) => Change::GroupingToMatrix(with(options)),
    }
}

fn with<O: Clone>(options: &O) -> ChangeOf<O> {
    let kind = crate::model::v2::Transformation::Transformation;
    ChangeOf { kind, spec: ChangeSpec { options: options.clone() } }
}

fn variable(variable: &classic::Variable) -> Variable {
    match variable {
        classic::Variable::Datasource(source) => {
            let one = |word: &String| Words::One(word.clone());
            let current =
                Choice { text: one(&source.current.text), value: one(&source.current.value) };
            Variable::Datasource(DatasourceSpec {
                name: source.name.clone(),
                label: source.label.clone(),
                description: source.description.clone(),
                plugin_id: PLUGIN.to_owned(),
                refresh: Refresh::OnDashboardLoad,
                regex: source.regex.clone(),
                current,
                options: Vec::new(),
                multi: source.multi,
                include_all: source.include_all,
                hide: Hide::DontHide,
                skip_url_sync: false,
                allow_custom_value: true,
            })
        }
        classic::Variable::Query(values) => {
            let several = |word: &str| Words::Several(vec![word.to_owned()]);
            let asked = VariableQuery { ..values.query.clone() };
            Variable::Query(QuerySpec {
                name: values.name.clone(),
                label: values.label.clone(),
                description: values.description.clone(),
                query: ask(&values.datasource, asked),
                refresh: Refresh::OnTimeRangeChanged,
                regex: values.regex.clone(),
                sort: Sort::NaturalAsc,
                current: Choice { text: several("All"), value: several(ALL) },
                options: Vec::new(),
                multi: values.multi,
                include_all: values.include_all,
                all_value: values.all_value.clone(),
                hide: Hide::DontHide,
                skip_url_sync: false,
                allow_custom_value: true,
            })
        }
    }
}

fn annotation(annotation: &classic::Annotation) -> Node<AnnotationQuery, AnnotationSpec> {
    let markers = annotation.expr.as_ref().map(|expr| MarkerQuery {
        expr: expr.clone(),
        interval: annotation.step.clone().unwrap_or_default(),
        ref_id: "Anno".to_owned(),
    });
    let own = || BuiltInAnnotations {
        limit: 100,
        match_any: false,
        tags: Vec::new(),
        kind: "dashboard".to_owned(),
    };
    let texts = annotation.title_format.as_ref().map(|title| MarkerTexts {
        title_format: title.clone(),
        text_format: annotation.text_format.clone().unwrap_or_default(),
    });
    let source =
        markers.map_or_else(|| AnnotationSource::BuiltIn(own()), AnnotationSource::Prometheus);
    Node::new(AnnotationSpec {
        name: annotation.name.clone(),
        enable: annotation.enable,
        hide: annotation.hide,
        icon_color: annotation.icon_color.clone(),
        built_in: annotation.built_in.map(|flag| flag == 1),
        query: ask(&annotation.datasource, source),
        legacy_options: texts,
    })
}

fn link(link: &classic::Link) -> Link {
    Link {
        title: link.title.clone(),
        kind: link.kind,
        icon: link.icon.clone(),
        tooltip: link.tooltip.clone(),
        url: link.url.clone(),
        tags: link.tags.clone(),
        as_dropdown: link.as_dropdown,
        target_blank: link.target_blank,
        include_vars: link.include_vars,
        keep_time: link.keep_time,
    }
}
