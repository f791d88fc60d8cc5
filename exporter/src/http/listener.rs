//! Accepts connections, with a bound on how many are open; encrypts them where asked to.
//!
//! When the bound is reached, the oldest connection on which nobody waits for an answer makes room,
//! so that clients that connect and say nothing cannot keep others out.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use super::connection::{self, Link};
use super::{Door, InUse, Peer};
use crate::slot::Stop;

/// After a failed accept (out of file descriptors): the time in which some may come free.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// A bound address, not served yet.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    /// The address with its real port.
    pub address: SocketAddr,
}

impl Bound {
    /// Binds `address`; port 0 chooses a free one. Needs a runtime.
    ///
    /// # Errors
    /// What the system says: in use, not permitted, not an address of this host.
    pub async fn new(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }
}

/// Connections that are open, oldest first.
#[derive(Default)]
struct Open(std::cell::RefCell<VecDeque<Arc<Link>>>);

impl Open {
    /// One more, if there are fewer than `most` or one of them can make room.
    fn enter(self: &Rc<Self>, most: usize) -> Option<Place> {
        let mut open = self.0.borrow_mut();
        if open.len() >= most {
            let at = open.iter().position(|link| link.is_idle())?;
            let idle = open.remove(at)?;
            idle.evicted.cancel();
        }
        let link = Arc::new(Link::default());
        open.push_back(Arc::clone(&link));
        Some(Place { open: Rc::clone(self), link })
    }
}

/// The place of a connection among the open ones; gives it back when dropped.
struct Place {
    open: Rc<Open>,
    link: Arc<Link>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.0.borrow_mut().retain(|link| !Arc::ptr_eq(link, &self.link));
    }
}

/// Serves until `stop`; the connections are tasks of the tracker, which end soon after.
pub async fn serve(bound: Bound, door: Arc<Door>, tasks: TaskTracker, stop: Stop) {
    let open = Rc::new(Open::default());
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.stopped() => return,
            accepted = bound.listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                let Some(place) = open.enter(door.connections) else {
                    tracing::debug!(peer = %address, "Too many connections wait for answers.");
                    continue;
                };
                let (door, stop) = (Arc::clone(&door), stop.clone());
                drop(tasks.spawn_local(async move {
                    attend(stream, address, door, &place.link, stop).await;
                    drop(place);
                }));
            }
            Err(error) => {
                tracing::warn!(%error, "A connection could not be accepted.");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

async fn attend(
    stream: TcpStream,
    address: SocketAddr,
    door: Arc<Door>,
    link: &Arc<Link>,
    stop: Stop,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "A connection was gone before it was served.");
        return;
    }
    let InUse { config: web, outdated } = door.web.in_use();
    let Some(tls) = &web.tls else {
        let peer = Peer { address, certified: false };
        return connection::serve(stream, door, peer, Arc::clone(link), stop, outdated).await;
    };
    let handshake = TlsAcceptor::from(Arc::clone(tls)).accept(stream);
    let encrypted = tokio::select! {
        encrypted = tokio::time::timeout(door.timeout, handshake) => encrypted,
        () = link.evicted.cancelled() => return,
        () = stop.stopped() => return,
    };
    match encrypted {
        Ok(Ok(stream)) => {
            let certified = stream.get_ref().1.peer_certificates().is_some();
            let peer = Peer { address, certified };
            connection::serve(stream, door, peer, Arc::clone(link), stop, outdated).await;
        }
        Ok(Err(error)) => tracing::debug!(peer = %address, %error, "No agreement on TLS."),
        Err(_) => tracing::debug!(peer = %address, "No agreement on TLS in time."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_idle_connection_makes_room_and_places_are_given_back() {
        let open = Rc::new(Open::default());
        let places: Vec<Place> = (0..3).map_while(|_| open.enter(3)).collect();
        assert_eq!(places.len(), 3);
        let fourth = open.enter(3).expect("one is idle");
        let evicted: Vec<bool> = places.iter().map(|p| p.link.evicted.is_cancelled()).collect();
        assert_eq!(evicted, [true, false, false]);
        for place in &places[1..] {
            place.link.enter(connection::Phase::Asked, None);
        }
        fourth.link.enter(connection::Phase::Asked, None);
        assert!(open.enter(3).is_none(), "all of them wait for answers");
        drop(fourth);
        assert!(open.enter(3).is_some());
        drop(places);
        assert!(open.0.borrow().is_empty());
    }
}
