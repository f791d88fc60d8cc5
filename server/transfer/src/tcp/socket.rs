//! Sockets of a link: where a listener may be, options, buffers.

use std::io;
use std::net::{IpAddr, SocketAddr};
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};

/// Connections that the system keeps for us until they are accepted.
const BACKLOG: u32 = 128;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Messages: small, and in a hurry.
    Control,
    /// KV: the system holds up to this many bytes on each side.
    Data {
        /// Of each of the two buffers, before the system's own limits.
        buffer_bytes: u32,
    },
}

/// Why a listener cannot be had. The text says what would work.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The host is no name or address of this machine, or the port is taken.
    #[error("transfer port {host}:{port}: {error}; --transfer-host and --transfer-port choose it")]
    System {
        /// As configured.
        host: String,
        /// As configured.
        port: u16,
        /// The system's reason.
        error: io::Error,
    },
    /// Other hosts could connect, and nothing would tell them from a worker.
    #[error(
        "transfer port {host}:{port}: {address} can be reached from other hosts, and there is no \
         secret; give --pd-secret-file FILE to both roles, or --transfer-host 127.0.0.1"
    )]
    NeedsSecret {
        /// As configured.
        host: String,
        /// As configured.
        port: u16,
        /// What the host stands for.
        address: IpAddr,
    },
}

/// Listens at the first address of `host`; port 0 takes any.
///
/// # Errors
/// A host that is not this machine, a port that is taken; without a secret also any address but
/// loopback.
pub(crate) async fn listen(
    host: &str,
    port: u16,
    buffer_bytes: u32,
    has_secret: bool,
) -> Result<TcpListener, BindError> {
    let failed = |error| BindError::System { host: host.into(), port, error };
    let address = first_address(host, port).await.map_err(failed)?;
    if !has_secret && !address.ip().is_loopback() {
        let address = address.ip();
        return Err(BindError::NeedsSecret { host: host.into(), port, address });
    }
    let bound = || {
        let socket = new_socket(address)?;
        socket.set_reuseaddr(true)?;
        // Accepted connections inherit the buffers, which decide the window at their beginning.
        set_buffers(&socket, buffer_bytes)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    bound().map_err(failed)
}

/// Connects to the first address of `host`.
///
/// # Errors
/// The system's.
pub(crate) async fn dial(host: &str, port: u16, what: Use) -> io::Result<TcpStream> {
    let address = first_address(host, port).await?;
    let socket = new_socket(address)?;
    if let Use::Data { buffer_bytes } = what {
        set_buffers(&socket, buffer_bytes)?;
    }
    let stream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn new_socket(address: SocketAddr) -> io::Result<TcpSocket> {
    if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }
}

fn set_buffers(socket: &TcpSocket, bytes: u32) -> io::Result<()> {
    socket.set_send_buffer_size(bytes)?;
    socket.set_recv_buffer_size(bytes)
}

async fn first_address(host: &str, port: u16) -> io::Result<SocketAddr> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let mut addresses = lookup_host((bare, port)).await?;
    addresses.next().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_a_secret_only_loopback_is_bound() {
        for host in ["127.0.0.1", "localhost", "[::1]"] {
            match listen(host, 0, 1 << 20, false).await {
                Ok(listener) => assert!(listener.local_addr().unwrap().ip().is_loopback()),
                // A machine without IPv6 has no ::1.
                Err(error) => assert!(host == "[::1]", "{error}"),
            }
        }
        let error = listen("0.0.0.0", 0, 1 << 20, false).await.unwrap_err().to_string();
        assert!(error.contains("--pd-secret-file FILE"), "{error}");
        assert!(error.contains("--transfer-host 127.0.0.1"), "{error}");
        assert!(listen("0.0.0.0", 0, 1 << 20, true).await.is_ok());
    }

    #[tokio::test]
    async fn a_taken_port_is_named() {
        let first = listen("127.0.0.1", 0, 1 << 20, false).await.unwrap();
        let port = first.local_addr().unwrap().port();
        let error = listen("127.0.0.1", port, 1 << 20, false).await.unwrap_err().to_string();
        assert!(error.contains(&format!("127.0.0.1:{port}")), "{error}");
        let stream = dial("127.0.0.1", port, Use::Data { buffer_bytes: 1 << 20 }).await.unwrap();
        assert!(stream.nodelay().unwrap());
    }
}
