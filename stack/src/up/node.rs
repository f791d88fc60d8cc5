//! The node exporter beside the servers.

use std::ffi::OsString;

use metric_catalog::node::PORT;

use super::child::Part;
use super::{Failure, ports, topology};
use crate::cli::UpArgs;

fn port(args: &UpArgs) -> u16 {
    args.exporter_port.unwrap_or(if args.port == topology::API_PORT { PORT } else { 0 })
}

/// Checks that it will get its port, if one is to be started.
pub(super) async fn check(args: &UpArgs) -> Result<(), Failure> {
    if args.node_exporter.is_some() {
        return Ok(());
    }
    let asked = port(args);
    drop(ports::listen("node exporter", "--exporter-port", args.host, asked).await?);
    Ok(())
}

/// The exporter, with every server of `targets` (scrape job and `host:port`) as a service.
pub(super) fn exporter(args: &UpArgs, targets: &[(&str, String)]) -> Part {
    let listen = std::net::SocketAddr::new(args.host, port(args));
    let mut all: Vec<OsString> = vec!["--listen".into(), listen.to_string().into()];
    all.extend(["--log-level", "warn"].map(OsString::from));
    for (job, address) in targets {
        let name = job.strip_prefix("sightline-").unwrap_or(job);
        let urls = format!("url=http://{address}/health,metrics=http://{address}/metrics");
        all.extend(["--service".into(), format!("{name},{urls}").into()]);
    }
    let starting = "Starting the node exporter".to_owned();
    Part { name: "node exporter", program: &["exporter"], args: all, starting }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::up;

    #[test]
    fn every_server_is_a_service_of_the_exporter() {
        let targets = [
            ("sightline-router", "127.0.0.1:8000".to_owned()),
            ("sightline-decode", "127.0.0.1:8002".to_owned()),
        ];
        let part = exporter(&up(&[]), &targets);
        let line: Vec<_> = part.args.iter().map(|arg| arg.to_string_lossy()).collect();
        let line = line.join(" ");
        assert!(line.starts_with("--listen 127.0.0.1:9840 "), "{line}");
        let service = "--service decode,url=http://127.0.0.1:8002/health,\
                       metrics=http://127.0.0.1:8002/metrics";
        assert!(line.ends_with(service), "{line}");
        assert_eq!(line.matches("--service").count(), 2, "{line}");
    }

    #[test]
    fn other_ports_of_the_api_leave_the_exporter_a_free_one() {
        assert_eq!(port(&up(&["--port", "0"])), 0);
        assert_eq!(port(&up(&["--port", "9000"])), 0);
        assert_eq!(port(&up(&["--port", "9000", "--exporter-port", "9841"])), 9841);
    }
}
