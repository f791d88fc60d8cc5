//! Classic for import by hand: the dialog asks for the data source once, and it stays.
//!
//! What is provisioned has a variable for the data source instead; that variable is left out here,
//! for it would select nothing.

use super::classic::{DATASOURCE_VARIABLE, PLUGIN};
use crate::manifest::MIN_GRAFANA;
use crate::model::classic::{Dashboard, DataSourceRef, Panel, Variable};
use crate::model::shared::{Input, Requirement, RequirementType, Shared};
use std::collections::{BTreeMap, BTreeSet};

/// Name of the input.
pub const INPUT: &str = "DS_PROMETHEUS";

/// Turns a provisioned dashboard into one for import.
#[must_use]
pub fn render(provisioned: &Dashboard) -> Shared {
    let mut dashboard = provisioned.clone();
    dashboard.templating.list.retain(|variable| variable.name() != DATASOURCE_VARIABLE);
    for_each_source(&mut dashboard, &mut |source| {
        if source.kind == PLUGIN {
            source.uid = format!("${{{INPUT}}}");
        }
    });
    let input = Input {
        name: INPUT.to_owned(),
        label: "Prometheus".to_owned(),
        description: "Prometheus that holds the metrics.".to_owned(),
        kind: "datasource".to_owned(),
        plugin_id: PLUGIN.to_owned(),
        plugin_name: "Prometheus".to_owned(),
    };
    Shared {
        inputs: vec![input],
        elements: BTreeMap::new(),
        requires: requires(&dashboard),
        id: (),
        dashboard,
    }
}

/// Every data source that a dashboard names.
fn for_each_source(dashboard: &mut Dashboard, change: &mut dyn FnMut(&mut DataSourceRef)) {
    for variable in &mut dashboard.templating.list {
        match variable {
            Variable::Query(query) => change(&mut query.datasource),
            Variable::Datasource(_) => {}
        }
    }
    dashboard.annotations.list.iter_mut().for_each(|annotation| change(&mut annotation.datasource));
    dashboard.panels.iter_mut().for_each(|panel| panel.for_each_source(change));
}

/// Grafana, the data source, and the plugin of each panel.
fn requires(dashboard: &Dashboard) -> Vec<Requirement> {
    let require = |kind, id: &str, name: &str, version: &str| Requirement {
        kind,
        id: id.to_owned(),
        name: name.to_owned(),
        version: version.to_owned(),
    };
    let flat = dashboard.panels.iter().flat_map(|p| std::iter::once(p).chain(p.children()));
    let kinds: BTreeSet<&str> =
        flat.filter(|panel| !matches!(panel, Panel::Row(_))).map(|p| p.common().kind).collect();
    let mut all = vec![
        require(RequirementType::Grafana, "grafana", "Grafana", MIN_GRAFANA),
        require(RequirementType::Datasource, PLUGIN, "Prometheus", ""),
    ];
    all.extend(kinds.into_iter().map(|kind| require(RequirementType::Panel, kind, kind, "")));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PanelsLock;
    use crate::output;
    use crate::write::canonical_json;
    use metric_catalog::target::Target;
    use serde_json::Value;

    #[test]
    fn an_answered_input_gives_the_provisioned_form_again() {
        let sets = Target::ALL.iter().map(|&target| (target, output::source(target))).collect();
        let boards = output::render_all(sets, &mut PanelsLock::default()).expect("sound");
        assert!(boards.len() >= 6);
        for board in boards {
            let text = canonical_json(&render(&board.classic));
            assert!(!text.contains("${datasource}"), "{}", board.ir.uid);
            let mut json: Value = serde_json::from_str(&text).expect("own output");
            let fields = json.as_object_mut().expect("an object");
            assert_eq!(fields.remove("id"), Some(Value::Null));
            assert_eq!(fields.remove("__elements"), Some(serde_json::json!({})));
            let inputs = fields.remove("__inputs").expect("inputs");
            assert_eq!(inputs[0]["name"], INPUT);
            assert_eq!(inputs.as_array().map(Vec::len), Some(1));
            let requires = fields.remove("__requires").expect("requirements");
            assert_eq!(requires[0]["id"], "grafana");
            assert!(requires.as_array().is_some_and(|list| list.len() >= 3), "{requires}");
            // The dialog replaces the input in every string.
            let answered = json.to_string().replace("${DS_PROMETHEUS}", "${datasource}");
            let mut read: Dashboard = serde_json::from_str(&answered).expect("Classic");
            let variable = board.classic.templating.list[0].clone();
            assert_eq!(variable.name(), DATASOURCE_VARIABLE);
            read.templating.list.insert(0, variable);
            assert_eq!(read, board.classic);
        }
    }
}
