//! Workers behind a name: each address that it resolves to is one.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::worker::{WorkerName, WorkerRole, WorkerSpec};

/// A name that stands for workers of one role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// `NAME:PORT`.
    pub name: String,
    /// What they are.
    pub role: WorkerRole,
}

impl Group {
    /// `ROLE=NAME:PORT`, or `NAME:PORT` for unified workers.
    ///
    /// # Errors
    /// What is wrong, with what would work.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (role, name) = match text.split_once('=') {
            None => (WorkerRole::Unified, text),
            Some((role, name)) => {
                let known = super::role(role);
                let wrong = || format!("there is no role {role:?}; use unified, prefill or decode");
                (known.ok_or_else(wrong)?, name)
            }
        };
        let (name, _) = crate::serve::address::parse(name).map_err(|error| error.to_string())?;
        Ok(Self { name: name.as_str().to_owned(), role })
    }

    /// The workers at `addresses`, each once, in a fixed order.
    #[must_use]
    pub fn workers(&self, addresses: impl IntoIterator<Item = SocketAddr>) -> Vec<WorkerSpec> {
        let mut addresses: Vec<SocketAddr> = addresses.into_iter().collect();
        addresses.sort_unstable();
        addresses.dedup();
        let spec = |address: SocketAddr| WorkerSpec {
            name: WorkerName::new(address.to_string()),
            base: Arc::from(format!("http://{address}")),
            role: self.role,
            model: None,
        };
        addresses.into_iter().map(spec).collect()
    }
}

/// The addresses of `NAME:PORT`, A and AAAA, as the system resolves them.
///
/// # Errors
/// The look-up failed, or gave nothing: a name without addresses is as good as none.
pub async fn resolve(name: &str) -> std::io::Result<Vec<SocketAddr>> {
    let found: Vec<SocketAddr> = tokio::net::lookup_host(name).await?.collect();
    if found.is_empty() {
        return Err(std::io::Error::new(std::io::ErrorKind::NotFound, "it has no address"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_as_many_workers_as_it_has_addresses() {
        let group = Group::parse("decode=workers.local:8002").expect("a group");
        assert_eq!((group.name.as_str(), group.role), ("workers.local:8002", WorkerRole::Decode));
        let address = |text: &str| text.parse::<SocketAddr>().expect(text);
        let found = ["10.0.0.2:8002", "[fd00::1]:8002", "10.0.0.1:8002", "10.0.0.2:8002"];
        let workers = group.workers(found.map(address));
        let names: Vec<_> = workers.iter().map(|worker| worker.name.as_str()).collect();
        assert_eq!(names, ["10.0.0.1:8002", "10.0.0.2:8002", "[fd00::1]:8002"]);
        assert_eq!(&*workers[2].base, "http://[fd00::1]:8002");
        assert!(workers.iter().all(|worker| worker.role == WorkerRole::Decode));
    }

    #[test]
    fn groups_that_make_no_sense_are_refused() {
        let why = |text: &str| Group::parse(text).expect_err(text);
        assert!(why("boss=a:1").contains("no role \"boss\""));
        assert!(why("workers.local").contains("needs a port"));
        assert_eq!(Group::parse("a:1").expect("a group").role, WorkerRole::Unified);
    }
}
