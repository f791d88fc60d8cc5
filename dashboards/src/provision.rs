//! Grafana's provisioning files: the data source with its fixed uid, and the folder of dashboards.
//!
//! The texts are fixed but for a few constants, so they are written as text. The
//! address of Prometheus is its service in `docker-compose.yml`.

use crate::links::TAG;
use crate::output::Artifact;

/// Folder of the files, from the root of the repository.
pub const FOLDER: &str = "dashboards/provisioning";

/// Uid of the provisioned data source; the first value of the `datasource` variable.
pub const DATASOURCE_UID: &str = "prometheus";

/// Scrape interval that Grafana is told, which sets the smallest `$__rate_interval`. The same as
/// in `prometheus/prometheus.yml`.
pub const SCRAPE_INTERVAL_SECONDS: u32 = 5;

/// Both files.
#[must_use]
pub fn artifacts() -> Vec<Artifact> {
    let file =
        |kind: &str, text: String| Artifact::common(format!("{FOLDER}/{kind}/sightline.yml"), text);
    vec![file("datasources", datasources()), file("dashboards", dashboards())]
}

const HEADER: &str = "# Written by `sightline-dashboards generate`; do not edit.\n";

fn datasources() -> String {
    format!(
        "{HEADER}\
apiVersion: 1
prune: true
datasources:
  - name: Prometheus
    uid: {DATASOURCE_UID}
    type: prometheus
    access: proxy
    url: http://prometheus:9090
    isDefault: true
    editable: false
    jsonData:
      httpMethod: POST
      prometheusType: Prometheus
      timeInterval: {SCRAPE_INTERVAL_SECONDS}s
"
    )
}

fn dashboards() -> String {
    format!(
        "{HEADER}\
apiVersion: 1
providers:
  - name: {TAG}
    orgId: 1
    type: file
    folder: Sightline
    folderUid: {TAG}
    disableDeletion: false
    allowUiUpdates: false
    updateIntervalSeconds: 30
    options:
      path: /etc/sightline/dashboards
      foldersFromFilesStructure: false
"
    )
}
