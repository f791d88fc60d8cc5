//! The help text.

/// The help text.
pub(in crate::cli) const USAGE: &str = "\
Grafana dashboards, Prometheus rules and provisioning, generated from the metric catalog.

usage: sightline-dashboards COMMAND [options]

commands:
  generate       write every generated file that differs
  check          compare the checkout with what would be generated; 1 when it is stale
  lint           check the dashboards against the catalog; 1 when something is found
  diff OLD NEW   what changed between two dashboards or two folders of them; 1 when something did
  coverage       metrics that no panel and no rule reads, and the reverse; 1 when there are any
                 that are not known to be for reading by hand
  list-metrics   every metric, with the panels that read it
  rules          print the Prometheus rule files
  provision      print Grafana's provisioning files
  live           ask a Prometheus every query of every panel; `live --help`
  doctor         what of it works on a cluster that exists, and what is missing; `doctor --help`
  push           put the dashboards into a Grafana by its API; `push --help`

options:
  --root DIR     root of the repository; without it, the folder here or above that holds
                 dashboards/panels.lock
  --target T     sightline, sglang, vllm or all (default): whose metrics the files read; for
                 generate, check, lint, coverage and rules
  --out DIR      write there and not into the checkout; for generate, rules and provision
  --flavor F     format of the dashboards, with generate --out:
                   classic  for Grafana's file provisioning (default)
                   shared   asks for its data source: for import by hand
                   v2       dashboard.grafana.app/v2: for the API and Git Sync, not for files
                   all      all three
  --compact      a dashboard is one line; with generate --out
  --format F     text (default) or json; for lint also sarif
  --help, --version

exit codes: 0 done, or nothing found; 1 found; 64 the command line is wrong; 70 a file cannot be
read or written
";
