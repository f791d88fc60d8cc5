//! The dashboards, one in each file.

mod common;
mod hicache;
mod instances;
mod kv_pools;
mod node_health;
mod observability;
mod overview;
mod pd_flow;
mod queue;
mod router;
mod transfer;

use crate::ir::Dashboard;

/// All dashboards.
#[must_use]
pub fn all() -> Vec<Dashboard> {
    vec![
        overview::board(),
        queue::board(),
        pd_flow::board(),
        kv_pools::board(),
        hicache::board(),
        transfer::board(),
        router::board(),
        instances::board(),
        node_health::board(),
        observability::board(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Color, Panel};
    use crate::links;
    use std::collections::BTreeSet;

    /// Whether a panel can turn red or orange.
    fn judges(panel: &Panel) -> bool {
        let bad = |color: Color| matches!(color, Color::Red | Color::Orange);
        panel.thresholds.iter().any(|step| bad(step.color))
    }

    #[test]
    fn a_panel_that_can_be_red_leads_somewhere() {
        for board in all() {
            for (_, panel) in board.panels().filter(|(_, panel)| judges(panel)) {
                let own = links::alerts_of(&board.uid, &panel.slug).count();
                let ways = own + panel.alerts.len() + panel.details.len();
                assert!(ways > 0, "{}/{} has no link", board.uid, panel.slug);
            }
        }
    }

    #[test]
    fn every_board_leads_to_every_other_and_never_to_itself() {
        let boards = all();
        let uids: BTreeSet<String> = boards.iter().map(|board| board.uid.clone()).collect();
        for board in &boards {
            let mut reached: BTreeSet<String> = board.related.iter().cloned().collect();
            assert!(reached.insert(board.uid.clone()), "{} leads to itself", board.uid);
            assert_eq!(reached, uids);
            for (_, panel) in board.panels() {
                assert!(!panel.details.contains(&board.uid), "{}/{}", board.uid, panel.slug);
            }
        }
    }

    #[test]
    fn variables_are_those_of_the_subject() {
        let names = |uid: &str| -> Vec<String> {
            let boards = all();
            let board = boards.iter().find(|board| board.uid == uid).expect("one of ours");
            board.variables.iter().map(|variable| variable.name.clone()).collect()
        };
        let of_processes =
            ["datasource", "cluster", "job", "engine_role", "model_name", "instance"];
        assert_eq!(names(common::QUEUE), of_processes);
        assert_eq!(names(common::KV_POOLS)[..6], of_processes);
        assert_eq!(names(common::TRANSFER)[6], "pool");
        assert_eq!(names(common::OBSERVABILITY), ["datasource", "cluster", "job", "instance"]);
        assert_eq!(names(common::NODE), ["datasource", "cluster", "node"]);
    }

    #[test]
    fn what_is_marked_is_alerts_restarts_and_changes() {
        for board in all() {
            let names: Vec<&str> =
                board.annotations.iter().map(|mark| mark.name.as_str()).collect();
            assert_eq!(names[0], "Firing alerts", "{}", board.uid);
            let starts = names.iter().any(|name| matches!(*name, "Restarts" | "Starts"));
            assert!(starts, "{}: {names:?}", board.uid);
        }
        let of_processes = &all()[0].annotations;
        let names: Vec<&str> = of_processes.iter().map(|mark| mark.name.as_str()).collect();
        let changes = ["Restarts", "Starts", "Builds", "Configuration", "Settings", "Limits"];
        assert_eq!(names[1..], changes);
    }
}
