//! The compose file beside the files it mounts: what no YAML parser sees.

use crate::root;
use dashboards::provision::{DATASOURCE_UID, SCRAPE_INTERVAL_SECONDS};
use metric_catalog::engines::Engine;
use std::fs;
use std::process::Command;

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Values of `- value` lines below a `key:` line, and of `key: value` lines.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    let mut inside = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let content = line.trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        if inside.is_some_and(|outer| indent <= outer) {
            inside = None;
        }
        if let (Some(_), Some(item)) = (inside, content.strip_prefix("- ")) {
            found.push(item.trim_matches('"'));
        }
        if let Some(value) = content.strip_prefix(key).and_then(|rest| rest.strip_prefix(':')) {
            let value = value.trim();
            if value.is_empty() {
                inside = Some(indent);
            } else {
                found.push(value.trim_matches('"'));
            }
        }
    }
    found
}

#[test]
fn images_are_pinned_and_ports_are_local() {
    let compose = read("docker-compose.yml");
    let images = values(&compose, "image");
    for name in ["python", "prom/prometheus", "prom/alertmanager", "grafana/grafana"] {
        assert!(images.iter().any(|image| image.starts_with(name)), "{name}: {images:?}");
    }
    for image in images {
        let tag = image.rsplit_once(':').map(|(_, tag)| tag);
        assert!(tag.is_some_and(|tag| tag != "latest"), "{image} is not pinned");
    }
    let ports = values(&compose, "ports");
    assert_eq!(ports.len(), 4, "API, Prometheus, Alertmanager, Grafana: {ports:?}");
    assert!(ports.iter().all(|port| port.starts_with("127.0.0.1:")), "{ports:?}");
}

#[test]
fn every_mounted_file_exists() {
    let compose = read("docker-compose.yml");
    let mounts = values(&compose, "volumes");
    // As it is, or as the default of a setting: `./folder:/there` or `${SETTING:-./folder}:/there`.
    let local = |mount: &&str| {
        let source = mount.strip_prefix("./").or_else(|| Some(mount.split_once(":-./")?.1))?;
        Some((source.split(['}', ':']).next()?.to_owned(), (*mount).to_owned()))
    };
    let local: Vec<_> = mounts.iter().filter_map(local).collect();
    assert!(local.len() >= 9, "{mounts:?}");
    for (source, mount) in local {
        assert!(root().join(&source).exists(), "{source} is mounted and does not exist");
        assert!(mount.ends_with(":ro"), "{mount} is writable");
    }
}

#[test]
fn provisioning_and_compose_agree() {
    let compose = read("docker-compose.yml");
    let folder = values(&read("dashboards/provisioning/dashboards/sightline.yml"), "path").join("");
    assert!(compose.contains(&format!("./dashboards/generated:{folder}:ro")), "{folder}");
    let datasource = read("dashboards/provisioning/datasources/sightline.yml");
    assert_eq!(values(&datasource, "uid"), [DATASOURCE_UID]);
    assert_eq!(values(&datasource, "url"), ["http://prometheus:9090"]);
    let interval = format!("{SCRAPE_INTERVAL_SECONDS}s");
    assert_eq!(values(&datasource, "timeInterval"), [interval.as_str()]);
    assert_eq!(values(&read("prometheus/prometheus.yml"), "scrape_interval"), [interval]);
    assert!(compose.contains("/usr/share/grafana/public/sightline/runbook.md:ro"));
}

/// Grafana looks into folders of folders, and this stack runs no other engine.
#[test]
fn dashboards_over_other_engines_are_covered() {
    let compose = read("docker-compose.yml");
    let folder = values(&read("dashboards/provisioning/dashboards/sightline.yml"), "path").join("");
    let empty = values(&compose, "tmpfs");
    for engine in Engine::ALL {
        let covered = format!("{folder}/{engine}");
        assert!(empty.contains(&covered.as_str()), "{covered} is shown: {empty:?}");
    }
}

/// What can be set is in `.env.example` with its default, and nothing else is.
#[test]
fn every_setting_is_described() {
    let files = read("docker-compose.yml") + &read("docker-compose.gpu.yml");
    let mut used: Vec<_> = files
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .flat_map(|line| line.split("${").skip(1))
        .filter_map(|text| text.split_once('}').map(|(inside, _)| inside))
        .map(|inside| inside.split_once(":-").expect("every setting has a default"))
        .collect();
    used.sort_unstable();
    used.dedup();
    let example = read(".env.example");
    let mut described: Vec<_> = example
        .lines()
        .filter_map(|line| line.strip_prefix("# ")?.split_once('='))
        .filter(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
        .collect();
    described.sort_unstable();
    for (name, default) in &used {
        // A named volume, root where it owns that volume, and a build without prebuilt programs.
        if !["MODEL_DIR", "MODEL_USER", "PREBUILT"].contains(name) {
            assert!(described.contains(&(name, default)), "{name}={default} is not described");
        }
    }
    for (name, _) in described {
        assert!(used.iter().any(|(used, _)| *used == name), "{name} is described and not used");
    }
}

#[test]
fn docker_compose_takes_the_files() {
    let files = ["docker-compose.yml", "docker-compose.gpu.yml"];
    let files = files.iter().flat_map(|file| ["-f".into(), root().join(file).into_os_string()]);
    let run = Command::new("docker-compose").args(files).args(["config", "-q"]).output();
    match run {
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{errors}");
        }
        Err(error) => {
            // Docker is no need of the tests: without it only the checks above remain.
            println!("SKIP docker-compose is not installed: {error}");
        }
    }
}
