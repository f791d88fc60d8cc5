//! The scenarios of the rules, as promtool judges them.

use std::process::{Command, Stdio};

use metric_catalog::alerts;
use metric_catalog::target::Target;

use crate::{assert_success, folder, promtool, scratch};

/// A file of scenarios.
pub(crate) struct File {
    /// Its name, with that of the target where it is not ours.
    pub name: String,
    pub text: String,
}

/// The files of a target, in the order of their names.
pub(crate) fn of(target: Target) -> Vec<File> {
    let (below, prefix) = match target {
        Target::Sightline => (String::new(), String::new()),
        Target::Engine(engine) => (engine.to_string(), format!("{engine}-")),
    };
    let folder = folder().join("rules/tests").join(below);
    let entries = std::fs::read_dir(folder).expect("there are scenarios");
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    let file = |path: std::path::PathBuf| {
        let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("scenarios are text");
        File { name: format!("{prefix}{name}"), text }
    };
    let mut files: Vec<_> = paths.filter(|path| path.is_file()).map(file).collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    files
}

/// Each file of scenarios, against the rules of this build without annotations.
#[test]
fn scenarios_pass() {
    if promtool().is_none() {
        return;
    }
    let scratch = scratch("scenarios");
    for (name, text) in alerts::rule_files_for_tests() {
        std::fs::write(scratch.join(name), text).expect("the scratch folder can be written");
    }
    let mut running = Vec::new();
    for target in Target::ALL {
        let files = of(*target);
        let all: String = files.iter().map(|file| file.text.as_str()).collect();
        every_alert_fires_and_is_silent(*target, &all);
        for File { name, text } in files {
            let copy = scratch.join(name);
            std::fs::write(&copy, text).expect("the scratch folder can be written");
            let child = Command::new("promtool")
                .args(["test", "rules"])
                .arg(&copy)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("promtool starts");
            running.push((copy, child));
        }
    }
    for (path, child) in running {
        let output = child.wait_with_output().expect("promtool ends");
        assert_success(&path.display().to_string(), &output);
    }
}

/// An alert that no scenario sees fire is not tested, and neither is one that none sees silent.
fn every_alert_fires_and_is_silent(target: Target, scenarios: &str) {
    let cases = scenarios.matches("  - interval:").count();
    let checks = scenarios.matches("eval_time:").count();
    println!("{target}: {cases} scenarios with {checks} checks");
    for alert in alerts::alerts_of(target) {
        let fires = format!("alertname: {}\n        exp_alerts:\n          - ", alert.name);
        assert!(scenarios.contains(&fires), "{} of {target} fires in no scenario", alert.name);
        let silent = format!("alertname: {}, exp_alerts: []", alert.name);
        let shown = scenarios.contains(&silent) || alert.name == "Watchdog";
        assert!(shown, "{} of {target} is silent in no scenario", alert.name);
    }
}
