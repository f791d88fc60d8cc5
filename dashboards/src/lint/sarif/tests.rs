use super::*;
use crate::ids::PanelsLock;
use crate::lint::{Waived, run};
use crate::{boards, output};
use serde_json::Value;

/// Fields that a form requires and may have, by the name of the object.
const FORM: &[(&str, &[&str], &[&str])] = &[
    ("log", &["version", "runs"], &["$schema"]),
    ("run", &["tool"], &["results", "columnKind"]),
    ("tool", &["driver"], &[]),
    ("driver", &["name"], &["semanticVersion", "rules"]),
    ("rule", &["id"], &["shortDescription", "defaultConfiguration"]),
    ("result", &["message"], &["ruleId", "ruleIndex", "level", "locations", "suppressions"]),
    ("location", &[], &["physicalLocation", "logicalLocations"]),
    ("suppression", &["kind"], &["justification"]),
];

fn assert_form(name: &str, value: &Value) {
    let (_, required, optional) = FORM.iter().find(|form| form.0 == name).expect("a known form");
    let fields = value.as_object().unwrap_or_else(|| panic!("{name} is no object: {value}"));
    for field in *required {
        assert!(fields.contains_key(*field), "{name} without {field}");
    }
    for field in fields.keys().map(String::as_str) {
        assert!(required.contains(&field) || optional.contains(&field), "{name} with {field}");
    }
}

fn report_with_everything() -> (Report, Vec<Board>) {
    let mut ours = boards::all();
    let panels = ours.iter_mut().flat_map(|board| &mut board.sections);
    let mut panels = panels.flat_map(|s| &mut s.lines).flat_map(|line| &mut line.panels);
    panels.next().expect("a panel").description.clear();
    let boards = output::render(ours, &mut PanelsLock::default()).expect("sound");
    let mut report = run(&boards);
    let of_all = Finding {
        code: "L20",
        dashboard: String::new(),
        panel: String::new(),
        message: "an alert has no panel".to_owned(),
    };
    report.findings.push(of_all.clone());
    report.waived.push(Waived { finding: of_all, reason: "a test".to_owned() });
    (report, boards)
}

#[test]
fn the_form_is_that_of_the_standard() {
    let (report, boards) = report_with_everything();
    let log: Value = serde_json::from_str(&sarif(&report, &boards)).expect("JSON");
    assert_form("log", &log);
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    assert_form("run", run);
    assert!(["utf16CodeUnits", "unicodeCodePoints"].contains(&run["columnKind"].as_str().unwrap()));
    assert_form("tool", &run["tool"]);
    let driver = &run["tool"]["driver"];
    assert_form("driver", driver);
    let rules = driver["rules"].as_array().expect("rules");
    assert_eq!(rules.len(), 21);
    for rule in rules {
        assert_form("rule", rule);
        assert!(rule["shortDescription"]["text"].as_str().is_some_and(|text| text.len() > 4));
    }
    let results = run["results"].as_array().expect("results");
    assert_eq!(results.len(), report.findings.len() + report.waived.len());
    for result in results {
        assert_form("result", result);
        let index = usize::try_from(result["ruleIndex"].as_u64().expect("an index")).unwrap();
        assert_eq!(rules[index]["id"], result["ruleId"]);
        assert!(["error", "warning"].contains(&result["level"].as_str().expect("a level")));
        assert!(result["message"]["text"].as_str().is_some_and(|text| !text.is_empty()));
        let location = &result["locations"][0];
        assert_form("location", location);
        let place = &location["physicalLocation"];
        let uri = place["artifactLocation"]["uri"].as_str().expect("a uri");
        assert!(uri.starts_with("dashboards/") && uri.ends_with(".json"), "{uri}");
        assert!(place["region"]["startLine"].as_u64().is_some_and(|line| line >= 1));
    }
    let last = results.last().expect("the waived one");
    assert_form("suppression", &last["suppressions"][0]);
    assert_eq!(last["suppressions"][0]["kind"], "inSource");
}

#[test]
fn a_finding_lies_at_the_line_of_its_panel() {
    let (report, boards) = report_with_everything();
    let finding = report.findings.iter().find(|finding| finding.code == "L09").expect("planted");
    let board = boards.iter().find(|board| board.ir.uid == finding.dashboard).expect("its board");
    let place = location(finding, &boards).physical_location;
    assert_eq!(place.artifact_location.uri, board.path());
    let after = board.json.lines().skip(place.region.start_line);
    let title = after.take(1).next().expect("a line").trim();
    let (_, panel) = board.ir.panels().find(|(_, p)| p.slug == finding.panel).expect("its panel");
    assert_eq!(title, format!("\"title\": {},", Value::from(panel.title.as_str())));
}
