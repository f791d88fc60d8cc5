//! Ports: taken or refused before anything is started.

use std::io::ErrorKind;
use std::net::IpAddr;

use tokio::net::TcpListener;

use super::{Failure, exit};

/// The probes listen this far above the API.
const PROBES_ABOVE: u16 = 100;

/// Binds a port; the error says which option to change.
pub(super) async fn listen(
    what: &str,
    option: &str,
    host: IpAddr,
    port: u16,
) -> Result<TcpListener, Failure> {
    TcpListener::bind((host, port)).await.map_err(|error| {
        let (code, reason) = if error.kind() == ErrorKind::AddrInUse {
            (exit::TEMPORARY, "is in use".to_owned())
        } else if error.kind() == ErrorKind::PermissionDenied {
            (exit::PERMISSION, "is not permitted".to_owned())
        } else {
            (exit::CONFIGURATION, format!("cannot be used on {host} ({error})"))
        };
        Failure::new(
            code,
            format!(
                "port {port} of the {what} {reason}: stop what uses it, or choose another with \
                 {option} (0 takes any free port)"
            ),
        )
    })
}

/// Checks that a part will get its ports: its own and, for all but the transfer link, that of the
/// probes above it.
pub(super) async fn check(what: &str, host: IpAddr, port: u16) -> Result<(), Failure> {
    drop(listen(what, "--port", host, port).await?);
    if port != 0 && what != "transfer link" {
        let probes = port.saturating_add(PROBES_ABOVE);
        let what = format!("probes (100 above the {what})");
        drop(listen(&what, "--port", host, probes).await?);
    }
    Ok(())
}
