//! Tells a service manager how the process does, where it was started by one that wants to know.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The socket of the service manager.
#[derive(Debug)]
pub struct Manager(Option<(UnixDatagram, SocketAddr)>);

impl Manager {
    /// The one that the environment names; without one, everything said goes nowhere.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "set by the service manager, not by an operator")]
    pub fn of_environment() -> Self {
        Self::named(&std::env::var("NOTIFY_SOCKET").unwrap_or_default())
    }

    fn named(name: &str) -> Self {
        let address = match name.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name),
            None if name.is_empty() => return Self(None),
            None => SocketAddr::from_pathname(name),
        };
        let socket = UnixDatagram::unbound().ok();
        // Whoever does not read what is said must not hold up the page.
        let socket = socket.filter(|socket| socket.set_nonblocking(true).is_ok());
        Self(socket.zip(address.ok()))
    }

    /// The process serves.
    pub fn ready(&self) {
        self.say("READY=1");
    }

    /// The process still works.
    pub fn alive(&self) {
        self.say("WATCHDOG=1");
    }

    /// The process is ending.
    pub fn stopping(&self) {
        self.say("STOPPING=1");
    }

    fn say(&self, what: &str) {
        if let Some((socket, address)) = &self.0
            && let Err(error) = socket.send_to_addr(what.as_bytes(), address)
        {
            tracing::debug!(%error, what, "The service manager does not listen.");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_arrives() {
        let name = format!("sightline-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("short");
        let there = UnixDatagram::bind_addr(&address).expect("free");
        let manager = Manager::named(&format!("@{name}"));
        let mut buffer = [0; 32];
        let mut heard = || {
            let read = there.recv(&mut buffer).expect("open");
            String::from_utf8_lossy(&buffer[..read]).into_owned()
        };
        manager.ready();
        assert_eq!(heard(), "READY=1");
        manager.alive();
        assert_eq!(heard(), "WATCHDOG=1");
        manager.stopping();
        assert_eq!(heard(), "STOPPING=1");
        Manager::named("").ready();
        Manager::named("/nowhere/at/all").ready();
    }
}
