//! Addresses of hosts.
//!
//! The system's look-up blocks, and may do so for minutes when its name servers do not answer. It
//! runs on a thread of the runtime's blocking pool; while one for a host runs, whoever else asks
//! for that host waits for the same one. So a host takes one thread at most, however often it is
//! asked for. Addresses and this host's own name need no look-up.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

type Found = Result<Arc<[IpAddr]>, Arc<io::Error>>;
type LookUp = Box<dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync>;

/// Looks up names. Clones share what runs.
#[derive(Clone)]
pub(super) struct Names(Arc<Inner>);

struct Inner {
    running: Mutex<BTreeMap<String, watch::Receiver<Option<Found>>>>,
    look_up: LookUp,
}

impl Default for Names {
    /// As the system looks them up.
    fn default() -> Self {
        Self::new(|host| {
            let found = (host, 0).to_socket_addrs()?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// Whether finding this host's address may take a thread.
#[must_use]
pub fn is_looked_up(host: &str) -> bool {
    known(host).is_none()
}

/// Addresses that no one needs to be asked for.
fn known(host: &str) -> Option<Arc<[IpAddr]>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Some(Arc::new([address]));
    }
    let own = host.trim_end_matches('.').eq_ignore_ascii_case("localhost");
    own.then(|| Arc::from([Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]))
}

impl Names {
    fn new(look_up: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner { running: Mutex::default(), look_up: Box::new(look_up) }))
    }

    /// The addresses of a host.
    ///
    /// # Errors
    /// The system knows none.
    pub(super) async fn addresses(&self, host: &str) -> Found {
        if let Some(known) = known(host) {
            return Ok(known);
        }
        let mut running = self.join(host);
        match running.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(found)) => found.clone(),
            Ok(None) | Err(_) => Err(Arc::new(io::Error::other("the look-up was given up"))),
        }
    }

    /// The look-up of a host that runs; starts one where none does.
    fn join(&self, host: &str) -> watch::Receiver<Option<Found>> {
        let mut running = self.0.running();
        if let Some(running) = running.get(host) {
            return running.clone();
        }
        let (tell, found) = watch::channel(None);
        running.insert(host.to_owned(), found.clone());
        let runs = Runs { inner: Arc::clone(&self.0), host: host.to_owned() };
        // It is not waited for at the end of the program: nothing could end it.
        drop(tokio::task::spawn_blocking(move || {
            let found = (runs.inner.look_up)(&runs.host);
            drop(runs);
            tell.send_replace(Some(found.map(Arc::from).map_err(Arc::new)));
        }));
        found
    }
}

impl Inner {
    fn running(&self) -> MutexGuard<'_, BTreeMap<String, watch::Receiver<Option<Found>>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A look-up that runs, or waits for a thread.
struct Runs {
    inner: Arc<Inner>,
    host: String,
}

impl Drop for Runs {
    fn drop(&mut self) {
        self.inner.running().remove(&self.host);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use super::*;

    /// A runtime whose pool has two threads.
    fn run<T>(test: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().max_blocking_threads(2).build().expect("a runtime");
        let result = runtime.block_on(test);
        runtime.shutdown_background();
        result
    }

    const WELL: [u8; 4] = [192, 0, 2, 1];

    /// `dead` is answered when the other end of the pipe says so or goes; says who was looked up.
    fn names(end: Receiver<()>) -> (Names, Receiver<String>) {
        let (tell, asked) = channel();
        let (end, tell) = (Mutex::new(end), Mutex::new(tell));
        let names = Names::new(move |host| {
            drop(tell.lock().expect("no panic").send(host.to_owned()));
            if host == "dead" {
                let ended = end.lock().expect("no panic").recv();
                return Err(io::Error::other(format!("no name server answers: {ended:?}")));
            }
            Ok(vec![WELL.into()])
        });
        (names, asked)
    }

    /// Gives up at once, as a probe does after its deadline.
    async fn give_up(names: &Names, host: &str) {
        let soon = tokio::time::timeout(Duration::from_millis(1), names.addresses(host)).await;
        assert!(soon.is_err(), "{soon:?}");
    }

    #[test]
    fn a_name_that_is_never_found_takes_one_thread_however_often_it_is_asked_for() {
        let (end, ends) = channel();
        let (names, asked) = names(ends);
        run(async {
            for _ in 0..10 {
                give_up(&names, "dead").await;
            }
            let well = names.addresses("well").await.expect("another name is found");
            assert_eq!(*well, [IpAddr::from(WELL)]);
            let all: Vec<String> = asked.try_iter().collect();
            assert_eq!(all, ["dead", "well"]);
            // Once it has ended, the next one is another.
            drop(end);
            while !names.0.running().is_empty() {
                tokio::task::yield_now().await;
            }
            let failed = names.addresses("dead").await.expect_err("not found");
            assert!(failed.to_string().contains("no name server"), "{failed}");
            assert_eq!(asked.try_iter().count(), 1);
        });
    }

    #[test]
    fn addresses_and_this_host_are_known() {
        let (_end, ends) = channel();
        let (names, asked) = names(ends);
        run(async {
            let own: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            for (host, expected) in [
                ("localhost", &own[..]),
                ("LocalHost.", &own),
                ("127.0.0.1", &own[..1]),
                ("::1", &own[1..]),
            ] {
                assert_eq!(*names.addresses(host).await.expect("known"), *expected, "{host}");
                assert!(!is_looked_up(host), "{host}");
            }
        });
        assert_eq!(asked.try_iter().count(), 0);
        assert!(is_looked_up("localhost.example"));
    }
}
