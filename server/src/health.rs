//! `sightline-server health`: asks a running server whether it is ready.
//!
//! Plain blocking sockets: a health check that starts a runtime costs more than its answer.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};

use crate::cli::HealthArgs;
use crate::exit::Exit;
use crate::out;

/// Prints the answer of `/readyz`; `Exit::Ok` when it is 200, `Exit::Temporary` otherwise.
#[must_use]
pub(crate) fn run(args: &HealthArgs) -> Exit {
    match ask(args) {
        Ok((status, body)) => {
            let printed = out::line(body.trim());
            if status == 200 && printed.is_ok() { Exit::Ok } else { Exit::Temporary }
        }
        Err(error) => {
            out::complain(&format!("error: --address {}: {error}", args.address));
            Exit::Temporary
        }
    }
}

fn ask(args: &HealthArgs) -> std::io::Result<(u16, String)> {
    let address = args.address.to_socket_addrs()?.next().ok_or(std::io::ErrorKind::NotFound)?;
    let mut stream = TcpStream::connect_timeout(&address, args.timeout.0)?;
    stream.set_read_timeout(Some(args.timeout.0))?;
    stream.set_write_timeout(Some(args.timeout.0))?;
    let request = format!("GET /readyz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(64 * 1024).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::InvalidData)?;
    let status = head.split_whitespace().nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or(std::io::ErrorKind::InvalidData)?, body.to_owned()))
}
