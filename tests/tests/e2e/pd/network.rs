//! The network between decode workers and the transfer port of a prefill worker, as a proxy that
//! knows where frames and messages begin, and does to them what a test or a seed says.

use std::io::{Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use transfer::{FRAME_HEADER_BYTES, MESSAGE_HEADER_BYTES};

/// The kind in the head of a frame; other kinds are messages.
const FRAME: u8 = 0xf0;

/// What happens to a frame or a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// One bit of what is behind the head flips.
    Payload,
    /// One bit of the head flips.
    Head,
    /// Its end is missing.
    Drop,
    /// Its connection ends before it.
    Cut,
    /// It is held back for so long.
    Delay(Duration),
    /// It is held back, and so is everything after it on any connection, until it is let go.
    Hold,
}

/// What the next frames and messages have before them.
#[derive(Debug)]
enum Weather {
    Fair,
    /// Of the frames with pages, these: so many pass before, so many are met.
    Frames {
        fault: Fault,
        pass: usize,
        meet: usize,
    },
    /// Of everything in both directions so many in 1000 meet one of these, so many in all.
    Storm {
        faults: Vec<Fault>,
        per_mille: u64,
        left: usize,
    },
}

#[derive(Debug)]
struct State {
    weather: Weather,
    dice: Dice,
    met: usize,
    holds: bool,
    sockets: Vec<TcpStream>,
    over: bool,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

/// A proxy on a port of its own, gone when dropped.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

/// Numbers that a seed decides (`SplitMix64`).
#[derive(Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ x >> 31) % end
    }
}

impl Network {
    /// In front of `target`; what is random follows from `seed`.
    pub(crate) fn to(target: &str, seed: u64) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let (weather, dice) = (Weather::Fair, Dice(seed));
        let state = State { weather, dice, met: 0, holds: false, sockets: Vec::new(), over: false };
        let shared =
            Shared { target: target.parse()?, state: Mutex::new(state), changed: Condvar::new() };
        let shared = Arc::new(shared);
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accepting.accept(&listener));
        Ok(Self { port, shared })
    }

    /// After `pass` more frames with pages, `meet` of them meet the fault.
    pub(crate) fn frames(&self, fault: Fault, pass: usize, meet: usize) {
        self.shared.lock().weather = Weather::Frames { fault, pass, meet };
    }

    /// So many in 1000 frames and messages in either direction meet one of the faults, at most so
    /// many in all.
    pub(crate) fn storm(&self, faults: &[Fault], per_mille: u64, at_most: usize) {
        let faults = faults.to_vec();
        self.shared.lock().weather = Weather::Storm { faults, per_mille, left: at_most };
    }

    /// No more faults, and what is held back goes on its way.
    pub(crate) fn heal(&self) {
        let mut state = self.shared.lock();
        (state.weather, state.holds) = (Weather::Fair, false);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// How many frames and messages have met a fault.
    pub(crate) fn met(&self) -> usize {
        self.shared.lock().met
    }

    /// Whether everything is held back.
    pub(crate) fn holds(&self) -> bool {
        self.shared.lock().holds
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.over = true;
        for socket in state.sockets.drain(..) {
            // Its other side may have closed it.
            drop(socket.shutdown(Shutdown::Both));
        }
        drop(state);
        self.shared.changed.notify_all();
        // So that the listener is looked at once more.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for near in listener.incoming() {
            if self.lock().over {
                return;
            }
            // Where nobody listens behind it, the connection is closed at once.
            let both = near.and_then(|near| Ok((near, TcpStream::connect(self.target)?)));
            if let Ok((near, far)) = both {
                drop(self.join(&near, &far));
            }
        }
    }

    /// Passes on what comes from either side, until one of them ends.
    fn join(self: &Arc<Self>, near: &TcpStream, far: &TcpStream) -> Result<()> {
        for socket in [near, far] {
            socket.set_nodelay(true)?;
            let kept = socket.try_clone()?;
            self.lock().sockets.push(kept);
        }
        for (from, to, pages) in [(near, far, false), (far, near, true)] {
            let (from, to, own) = (from.try_clone()?, to.try_clone()?, Arc::clone(self));
            thread::spawn(move || {
                // How it ends is the same for both sides: they see a closed connection.
                drop(own.pass(&from, &to, pages));
                for socket in [from, to] {
                    drop(socket.shutdown(Shutdown::Both));
                }
            });
        }
        Ok(())
    }

    /// One direction; only one of them has frames.
    fn pass(&self, mut from: &TcpStream, mut to: &TcpStream, pages: bool) -> Result<()> {
        loop {
            let (head, mut bytes) = whole(&mut from)?;
            let frame = pages && bytes[4] == FRAME && bytes.len() > head;
            match self.meet(frame) {
                None | Some(Fault::Hold) => {}
                Some(Fault::Payload) if bytes.len() > head => self.flip(&mut bytes[head..]),
                Some(Fault::Payload | Fault::Head) => self.flip(&mut bytes[..head]),
                Some(Fault::Drop) => bytes.truncate(bytes.len() / 2),
                Some(Fault::Cut) => return Ok(()),
                Some(Fault::Delay(time)) => self.late(time),
            }
            self.held();
            to.write_all(&bytes)?;
        }
    }

    /// What this frame with pages, or anything else, meets.
    fn meet(&self, frame: bool) -> Option<Fault> {
        let mut state = self.lock();
        let State { weather, dice, .. } = &mut *state;
        let fault = match weather {
            Weather::Fair => None,
            Weather::Frames { .. } if !frame => None,
            Weather::Frames { pass, .. } if *pass > 0 => {
                *pass -= 1;
                None
            }
            Weather::Frames { fault, meet, .. } => (*meet > 0).then(|| {
                *meet -= 1;
                *fault
            }),
            Weather::Storm { faults, per_mille, left } => {
                let hit = *left > 0 && dice.below(1000) < *per_mille;
                hit.then(|| {
                    *left -= 1;
                    faults[dice.below(faults.len() as u64) as usize]
                })
            }
        };
        state.met += usize::from(fault.is_some());
        state.holds |= fault == Some(Fault::Hold);
        fault
    }

    fn flip(&self, bytes: &mut [u8]) {
        let bit = self.lock().dice.below(bytes.len() as u64 * 8) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
    }

    /// Until nothing is held back any more.
    fn held(&self) {
        let waits = |state: &mut State| state.holds && !state.over;
        drop(self.changed.wait_while(self.lock(), waits));
    }

    /// The fault itself: nobody waits for anything by it.
    fn late(&self, time: Duration) {
        let waits = |state: &mut State| !state.over;
        drop(self.changed.wait_timeout_while(self.lock(), time, waits));
    }
}

/// The next frame or message, and how long its head is.
fn whole(from: &mut impl Read) -> Result<(usize, Vec<u8>)> {
    let mut bytes = vec![0; MESSAGE_HEADER_BYTES];
    from.read_exact(&mut bytes)?;
    let head = if bytes[4] == FRAME { FRAME_HEADER_BYTES } else { MESSAGE_HEADER_BYTES };
    let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    bytes.resize(head + length, 0);
    from.read_exact(&mut bytes[MESSAGE_HEADER_BYTES..])?;
    Ok((head, bytes))
}
