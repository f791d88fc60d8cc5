//! The worker: requests in, reports out, threads in between.

use crate::card::{self, Card};
use crate::closing::{Alive, Threads};
use crate::events;
use crate::library;
use crate::protocol::{self, Fault, FaultKind, Group, LineError, Open, Report, Request};
use nvml_wrapper::Nvml;
use std::io::{BufReader, Read, Write};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long threads may take to leave the library when the worker ends.
const PATIENCE: Duration = Duration::from_secs(3);
/// Stack of a thread: the library wants some, the default is for programs with few threads.
const STACK_BYTES: usize = 512 * 1024;

/// How a worker ended.
#[derive(Debug)]
pub enum Ending {
    /// Asked to, and every thread was out of the library.
    Clean,
    /// Asked to, while a thread hangs in the library.
    Hung,
    /// A request that is none.
    Garbage(LineError),
}

#[expect(clippy::disallowed_methods, reason = "the worker is a rim: it times the driver")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Where reports go, a whole line at a time.
#[derive(Clone)]
pub(crate) struct Output(Arc<Mutex<dyn Write + Send>>);

impl Output {
    pub(crate) fn say(&self, report: &Report) {
        let line = protocol::to_line(report);
        let mut output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // When nobody listens any more, the input has ended too, and with it this worker.
        drop(output.write_all(&line).and_then(|()| output.flush()));
    }
}

/// What the thread that opens the library leaves behind, for as long as it is wanted.
enum Library {
    Opening,
    Open { nvml: &'static Nvml, cards: Vec<SyncSender<Group>> },
    Closed,
}

type Shared = Arc<Mutex<Library>>;

fn lock(library: &Shared) -> MutexGuard<'_, Library> {
    library.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves requests until they end. Hangs only where `input` does: calls into the library are made
/// on threads of their own, initialisation included.
pub fn run(input: impl Read, output: impl Write + Send + 'static) -> Ending {
    let output = Output(Arc::new(Mutex::new(output)));
    let mut input = BufReader::new(input);
    let threads = Threads::new();
    let library = Arc::new(Mutex::new(Library::Opening));
    let mut asked_to_open = false;
    let garbage = loop {
        match protocol::read(&mut input) {
            Ok(Some(Request::Open(how))) if !asked_to_open => {
                asked_to_open = true;
                let (library, output, alive) = (library.clone(), output.clone(), threads.alive());
                spawn("nvml-open", move || open(&how, &library, &output, &alive));
            }
            Ok(Some(Request::Open(_))) => {
                let detail = "the library is open, or being opened";
                output.say(&Report::Failed(Fault::new(FaultKind::BadRequest, detail)));
            }
            Ok(Some(Request::Poll { card, group })) => poll(card, group, &library, &output),
            Ok(Some(Request::Release) | None) => break None,
            Err(error) => break Some(error),
        }
    };
    let clean = close(threads, &library);
    output.say(&Report::Bye { clean });
    match garbage {
        Some(error) => Ending::Garbage(error),
        None if clean => Ending::Clean,
        None => Ending::Hung,
    }
}

fn open(how: &Open, library: &Shared, output: &Output, alive: &Alive) {
    let (nvml, hello) = match library::open(&how.libraries) {
        Ok(open) => open,
        Err(fault) => return output.say(&Report::Failed(fault)),
    };
    let probe_again = Duration::from_millis(how.probe_again_millis);
    let cards = (0..hello.cards).map(|index| {
        let (ask, asked) = sync_channel(1);
        let card = Card::new(nvml, index, probe_again);
        let (out, held) = (output.clone(), alive.clone());
        spawn(&format!("nvml-{index}"), move || card::serve(card, &asked, &out, held));
        ask
    });
    let cards = cards.collect();
    {
        let mut library = lock(library);
        if matches!(*library, Library::Closed) {
            // Too late; the threads just started end as their senders go.
            return;
        }
        *library = Library::Open { nvml, cards };
    }
    let cards = hello.cards;
    output.say(&Report::Hello(hello));
    for index in 0..cards {
        let (out, held) = (output.clone(), alive.clone());
        spawn(&format!("xid-{index}"), move || events::listen(nvml, index, &out, &held));
    }
}

fn poll(card: u32, group: Group, library: &Shared, output: &Output) {
    let detail = match &*lock(library) {
        Library::Open { cards, .. } => match cards.get(card as usize) {
            Some(ask) => match ask.try_send(group) {
                Ok(()) => return,
                Err(TrySendError::Full(_)) => "the card is still busy with what was asked before",
                Err(TrySendError::Disconnected(_)) => "the card's thread has ended",
            },
            None => "there is no such card",
        },
        Library::Opening | Library::Closed => "the library is not open",
    };
    let fault = Fault::new(FaultKind::BadRequest, detail);
    output.say(&Report::Error { card, group, micros: 0, fault });
}

/// Ends all threads and, when none hangs, closes the library. Says whether none did.
fn close(threads: Threads, library: &Shared) -> bool {
    // The cards' threads end when nobody can ask them any more.
    let closed = std::mem::replace(&mut *lock(library), Library::Closed);
    let nvml = match &closed {
        Library::Open { nvml, .. } => Some(*nvml),
        Library::Opening | Library::Closed => None,
    };
    drop(closed);
    if !threads.end(PATIENCE) {
        return false;
    }
    let Some(nvml) = nvml else { return true };
    let threads = Threads::new();
    let alive = threads.alive();
    spawn("nvml-close", move || {
        library::close(nvml);
        drop(alive);
    });
    threads.end(PATIENCE)
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
    // Detached: it may hang for ever, and ends with the process.
    drop(thread.spawn(work).expect("a worker has a bounded number of small threads"));
}
