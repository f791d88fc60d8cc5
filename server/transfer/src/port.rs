//! The ends as a driver shares them between its own thread and the engine's: each behind a lock,
//! with the callbacks around it.
//!
//! The engine's calls change the end and wake the driver; the driver polls, and whatever goes to
//! the engine, to the server or to metrics is called from there, with no lock held. So nobody is
//! called back from inside his own call.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use types::{RequestId, Time};

use crate::decode::DecodeEnd;
use crate::ends::{Count, Output, RoomKey, Violation};
use crate::failure::Failure;
use crate::link::{
    Answered, Backend, Chunk, LandPages, Landing, NewsSink, NotOffered, Offered, Offers, Prompt,
    Sending,
};
use crate::message::Message;
use crate::observe::{LinkSnapshot, TransferObserver};
use crate::prefill::{FrameJob, PrefillEnd};
use crate::room::{PeerId, PeerName, Room};

/// What a port needs of its driver and of the process.
pub struct Surroundings {
    /// The clock.
    pub now: Box<dyn Fn() -> Time + Send + Sync>,
    /// There is something to poll, or a frame to take. Called on the engine's thread and on those
    /// of forward passes; must not block. Several calls may be one.
    pub wake: Arc<dyn Fn() + Send + Sync>,
    /// Takes the news.
    pub news: Arc<dyn NewsSink>,
    /// Takes the numbers.
    pub observer: Arc<dyn TransferObserver>,
}

impl Surroundings {
    fn count(&self, count: &Count) {
        match count {
            Count::Bytes { side, peer, part, bytes } => {
                self.observer.on_bytes(*side, peer, part, *bytes);
            }
            Count::End(end) => self.observer.on_end(end),
            Count::Busy { side, peer, busy } => self.observer.on_busy(*side, peer, *busy),
        }
    }
}

/// What is left for the driver to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Act {
    /// Send this message.
    Control(PeerId, Message),
    /// Close the connections of this peer; the end has forgotten it.
    Lost(PeerId, Failure),
    /// Log that the peer broke the protocol.
    Violated(PeerId, Option<Room>, Violation),
}

/// No statement under these locks leaves anything half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The decode worker's end behind a lock.
pub struct DecodePort {
    name: &'static str,
    inner: Mutex<DecodeInner>,
    around: Surroundings,
}

struct DecodeInner {
    end: DecodeEnd,
    asked: BTreeMap<RoomKey, Answered>,
}

impl std::fmt::Debug for DecodePort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DecodePort").field("name", &self.name).finish_non_exhaustive()
    }
}

impl DecodePort {
    /// Around `end`; `name` is the [backend's](Backend::name).
    #[must_use]
    pub fn new(name: &'static str, end: DecodeEnd, around: Surroundings) -> Arc<Self> {
        let inner = Mutex::new(DecodeInner { end, asked: BTreeMap::new() });
        Arc::new(Self { name, inner, around })
    }

    /// Calls the end, with the time. It must not be kept long: the engine waits for the lock.
    pub fn with<R>(&self, call: impl FnOnce(&mut DecodeEnd, Time) -> R) -> R {
        call(&mut lock(&self.inner).end, (self.around.now)())
    }

    /// Carries out outputs until one is for the driver; `None` when there are no more. To be called
    /// by one thread.
    pub fn poll(self: &Arc<Self>) -> Option<Act> {
        loop {
            let output = lock(&self.inner).end.poll_output()?;
            match output {
                Output::Control(peer, message) => return Some(Act::Control(peer, message)),
                Output::Lost(peer, failure) => return Some(Act::Lost(peer, failure)),
                Output::Violated(peer, room, violation) => {
                    return Some(Act::Violated(peer, room, violation));
                }
                Output::News(request, news) => self.around.news.news(request, news),
                Output::Count(count) => self.around.count(&count),
                Output::Answered(key, answer) => self.answered(key, answer),
                Output::Offered(..) => unreachable!("decode workers are not offered anything"),
            }
        }
    }

    /// As [`Backend::offer`]; says under which room, where it came to one, so that the offer can be
    /// [abandoned](DecodeEnd::abandon) before it is answered.
    pub fn ask(
        &self,
        peer: &PeerName,
        request: RequestId,
        prompt: Prompt,
        answered: Answered,
    ) -> Option<RoomKey> {
        let mut inner = lock(&self.inner);
        let now = (self.around.now)();
        let key = match inner.end.offer(now, peer, request, prompt) {
            Ok(key) => {
                inner.asked.insert(key, answered);
                drop(inner);
                Some(key)
            }
            Err(error) => {
                drop(inner);
                answered(Err(error));
                None
            }
        };
        (self.around.wake)();
        key
    }

    fn answered(self: &Arc<Self>, key: RoomKey, answer: Result<std::time::Duration, NotOffered>) {
        let asked = lock(&self.inner).asked.remove(&key);
        let answer = answer.map(|drain| {
            let landing = Box::new(PortLanding { port: Arc::clone(self), key, over: false });
            Offered { room: key.room, landing, drain }
        });
        if let Some(answered) = asked {
            answered(answer);
        }
    }
}

impl Backend for DecodePort {
    fn name(&self) -> &'static str {
        self.name
    }

    fn offer(&self, peer: &PeerName, request: RequestId, prompt: Prompt, answered: Answered) {
        self.ask(peer, request, prompt, answered);
    }

    fn snapshot(&self) -> LinkSnapshot {
        lock(&self.inner).end.snapshot()
    }
}

/// A transfer in the hands of the engine.
struct PortLanding {
    port: Arc<DecodePort>,
    key: RoomKey,
    /// It was abandoned.
    over: bool,
}

impl Landing for PortLanding {
    fn land(&mut self, _: usize, skip_tokens: usize, pages: Vec<LandPages>) {
        self.port.with(|end, now| end.land(now, self.key, skip_tokens, pages));
        (self.port.around.wake)();
    }

    fn abandon(&mut self, why: Failure) {
        if !std::mem::replace(&mut self.over, true) {
            self.port.with(|end, now| end.abandon(now, self.key, why));
            (self.port.around.wake)();
        }
    }
}

impl Drop for PortLanding {
    fn drop(&mut self) {
        if !self.over {
            self.port.with(|end, now| end.release(now, self.key));
            (self.port.around.wake)();
        }
    }
}

/// The prefill worker's end behind a lock.
pub struct PrefillPort {
    inner: Mutex<PrefillEnd>,
    around: Surroundings,
    offers: Arc<dyn Offers>,
}

impl std::fmt::Debug for PrefillPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrefillPort").finish_non_exhaustive()
    }
}

impl PrefillPort {
    /// Around `end`; `offers` decides.
    #[must_use]
    pub fn new(end: PrefillEnd, around: Surroundings, offers: Arc<dyn Offers>) -> Arc<Self> {
        Arc::new(Self { inner: Mutex::new(end), around, offers })
    }

    /// Calls the end, with the time. It must not be kept long: the engine waits for the lock.
    pub fn with<R>(&self, call: impl FnOnce(&mut PrefillEnd, Time) -> R) -> R {
        call(&mut lock(&self.inner), (self.around.now)())
    }

    /// The next frame for a peer: see [`PrefillEnd::next_frame`].
    #[must_use]
    pub fn next_frame(&self, peer: PeerId) -> Option<FrameJob> {
        self.with(|end, now| end.next_frame(now, peer))
    }

    /// What is open now.
    #[must_use]
    pub fn snapshot(&self) -> LinkSnapshot {
        lock(&self.inner).snapshot()
    }

    /// Carries out outputs until one is for the driver; `None` when there are no more. To be called
    /// by one thread.
    pub fn poll(self: &Arc<Self>) -> Option<Act> {
        loop {
            let output = lock(&self.inner).poll_output()?;
            match output {
                Output::Control(peer, message) => return Some(Act::Control(peer, message)),
                Output::Lost(peer, failure) => return Some(Act::Lost(peer, failure)),
                Output::Violated(peer, room, violation) => {
                    return Some(Act::Violated(peer, room, violation));
                }
                Output::News(request, news) => self.around.news.news(request, news),
                Output::Count(count) => self.around.count(&count),
                Output::Offered(key, name, offer) => {
                    let sending =
                        Box::new(PortSending { port: Arc::clone(self), key, over: false });
                    match self.offers.offer(&name, offer, sending) {
                        Ok(taken) => self.with(|end, now| {
                            end.accept(now, key, taken.request, taken.drain);
                        }),
                        Err(rejected) => self.with(|end, _| end.reject(key, rejected)),
                    }
                }
                Output::Answered(..) => unreachable!("prefill workers do not offer anything"),
            }
        }
    }
}

/// A transfer in the hands of the engine.
struct PortSending {
    port: Arc<PrefillPort>,
    key: RoomKey,
    /// It was abandoned.
    over: bool,
}

impl Sending for PortSending {
    fn chunk(&mut self, chunk: Chunk) {
        if let Some(progress) = &chunk.progress {
            let wake = Arc::clone(&self.port.around.wake);
            progress.on_change(Box::new(move || wake()));
        }
        self.port.with(|end, now| end.chunk(now, self.key, chunk));
        (self.port.around.wake)();
    }

    fn abandon(&mut self, why: Failure) {
        if !std::mem::replace(&mut self.over, true) {
            self.port.with(|end, now| end.abandon(now, self.key, why));
            (self.port.around.wake)();
        }
    }
}

impl Drop for PortSending {
    fn drop(&mut self) {
        if !self.over {
            self.port.with(|end, now| end.release(now, self.key));
            (self.port.around.wake)();
        }
    }
}
