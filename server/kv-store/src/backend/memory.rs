//! Objects in memory, with failures on request: what tests of a store run on.

use super::{Backend, BackendError, Listed, Work};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;

/// What a backend can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// [`Backend::read`].
    Read,
    /// [`Backend::write`].
    Write,
    /// [`Backend::size`].
    Size,
    /// [`Backend::delete`].
    Delete,
    /// [`Backend::list`].
    List,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The operation fails.
    Fail,
    /// The operation never ends.
    Hang,
    /// The operation waits for [`MemoryBackend::release`].
    Hold,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, (Bytes, u64)>,
    writes: u64,
    bytes: u64,
    most_bytes: u64,
    faults: HashMap<Operation, VecDeque<Fault>>,
    calls: HashMap<Operation, u64>,
}

/// Objects in memory. They end with it.
#[derive(Debug)]
pub struct MemoryBackend {
    state: Mutex<State>,
    held: Semaphore,
}

impl Default for MemoryBackend {
    fn default() -> Self {
        Self { state: Mutex::default(), held: Semaphore::new(0) }
    }
}

impl MemoryBackend {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the next operation of a kind that has no fault yet go wrong. Several queue up.
    pub fn inject(&self, operation: Operation, fault: Fault) {
        self.state().faults.entry(operation).or_default().push_back(fault);
    }

    /// Lets `operations` that wait, or will wait, after [`Fault::Hold`] go on.
    pub fn release(&self, operations: usize) {
        self.held.add_permits(operations);
    }

    /// The paths of all objects.
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        self.state().objects.keys().cloned().collect()
    }

    /// The bytes of an object.
    #[must_use]
    pub fn object(&self, path: &str) -> Option<Bytes> {
        self.state().objects.get(path).map(|(bytes, _)| bytes.clone())
    }

    /// Puts other bytes in the place of an object, as somebody else might.
    pub fn replace(&self, path: &str, bytes: Bytes) {
        let mut state = self.state();
        state.remove(path);
        state.put(path, bytes);
    }

    /// The most bytes there ever were at once.
    #[must_use]
    pub fn most_bytes(&self) -> u64 {
        self.state().most_bytes
    }

    /// How often an operation was asked for.
    #[must_use]
    pub fn calls(&self, operation: Operation) -> u64 {
        self.state().calls.get(&operation).copied().unwrap_or(0)
    }

    async fn fault(&self, operation: Operation) -> Result<(), BackendError> {
        let fault = {
            let mut state = self.state();
            *state.calls.entry(operation).or_default() += 1;
            state.faults.get_mut(&operation).and_then(VecDeque::pop_front)
        };
        match fault {
            None => Ok(()),
            Some(Fault::Fail) => Err(BackendError::Failed(format!("{operation:?} was to fail"))),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Hold) => {
                self.held.acquire().await.expect("it is never closed").forget();
                Ok(())
            }
        }
    }
}

impl State {
    fn remove(&mut self, path: &str) {
        let old = self.objects.remove(path);
        self.bytes -= old.map_or(0, |(bytes, _)| bytes.len() as u64);
    }

    fn put(&mut self, path: &str, bytes: Bytes) {
        self.writes += 1;
        self.bytes += bytes.len() as u64;
        let old = self.objects.insert(path.to_owned(), (bytes, self.writes));
        // Old and new are there together for a moment, as in a file system.
        self.most_bytes = self.most_bytes.max(self.bytes);
        self.bytes -= old.map_or(0, |(bytes, _)| bytes.len() as u64);
    }
}

impl Backend for MemoryBackend {
    fn read<'a>(&'a self, path: &'a str, max_bytes: u64) -> Work<'a, Bytes> {
        Box::pin(async move {
            self.fault(Operation::Read).await?;
            let bytes = self.object(path).ok_or(BackendError::Absent)?;
            if bytes.len() as u64 > max_bytes {
                return Err(BackendError::TooLong(max_bytes));
            }
            Ok(bytes)
        })
    }

    fn write<'a>(&'a self, path: &'a str, pieces: Vec<Bytes>) -> Work<'a, ()> {
        Box::pin(async move {
            self.fault(Operation::Write).await?;
            self.state().put(path, pieces.concat().into());
            Ok(())
        })
    }

    fn size<'a>(&'a self, path: &'a str) -> Work<'a, Option<u64>> {
        Box::pin(async move {
            self.fault(Operation::Size).await?;
            Ok(self.state().objects.get(path).map(|(bytes, _)| bytes.len() as u64))
        })
    }

    fn delete<'a>(&'a self, path: &'a str) -> Work<'a, ()> {
        Box::pin(async move {
            self.fault(Operation::Delete).await?;
            self.state().remove(path);
            Ok(())
        })
    }

    fn list<'a>(&'a self, each: &'a mut (dyn FnMut(Listed) + Send)) -> Work<'a, ()> {
        Box::pin(async move {
            self.fault(Operation::List).await?;
            let listed = |(path, (bytes, written)): (&String, &(Bytes, u64))| Listed {
                path: path.clone(),
                bytes: bytes.len() as u64,
                modified: *written,
            };
            let all: Vec<Listed> = self.state().objects.iter().map(listed).collect();
            all.into_iter().for_each(each);
            Ok(())
        })
    }
}
