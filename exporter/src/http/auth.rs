//! Passwords: checked with bcrypt on a thread of its own, successful checks remembered.
//!
//! Every failure costs one check at the price of the dearest hash, whether the name exists or not,
//! so that timing tells nothing. A remembered pair costs two hashes of a few bytes: those who know
//! their password never wait behind those who guess. The queue of checks is bounded; who finds it
//! full is told to come again.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::{io, thread};

use bcrypt::HashParts;
use rustls::crypto::ring::default_provider;
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

/// Checks that wait; each takes tens of milliseconds.
const QUEUE: usize = 16;

/// Longer ones are not looked at: bcrypt reads 72 bytes.
const PASSWORD_BYTES_MAX: usize = 1024;

/// What came of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Name and password are right.
    Yes,
    /// They are not.
    No,
    /// Too many checks wait; come again.
    Busy,
}

type Memory = Mutex<BTreeMap<String, [u8; 32]>>;

struct Check {
    hash: String,
    known: bool,
    /// What a failure costs, whoever it was.
    cost: u32,
    user: String,
    password: Vec<u8>,
    answer: oneshot::Sender<Verdict>,
}

/// Checks passwords. Clones share the thread and what it remembers.
#[derive(Debug, Clone)]
pub struct Checker {
    queue: SyncSender<Check>,
    memory: Arc<Memory>,
    key: [u8; 32],
}

impl Checker {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives no thread or no random bytes.
    pub fn start() -> io::Result<Self> {
        let mut key = [0; 32];
        let random = default_provider().secure_random;
        random.fill(&mut key).map_err(|_| io::Error::other("the system has no random bytes"))?;
        let (queue, checks) = sync_channel(QUEUE);
        let checker = Self { queue, memory: Arc::default(), key };
        let memory = Arc::clone(&checker.memory);
        let thread = thread::Builder::new().name("passwords".to_owned()).stack_size(128 << 10);
        thread.spawn(move || work(&checks, &memory, key))?;
        Ok(checker)
    }

    /// Whether this is the password of this user, by the hashes given.
    pub async fn check(
        &self,
        users: &BTreeMap<String, String>,
        user: &str,
        password: &[u8],
    ) -> Verdict {
        let password = &password[..password.len().min(PASSWORD_BYTES_MAX)];
        let hash = users.get(user);
        if let Some(hash) = hash
            && self.memory().get(user) == Some(&remembered(&self.key, hash, password))
        {
            return Verdict::Yes;
        }
        let Some(dearest) = dearest(users) else { return Verdict::No };
        let (answer, result) = oneshot::channel();
        let check = Check {
            hash: hash.unwrap_or(dearest).clone(),
            known: hash.is_some(),
            cost: cost(dearest),
            user: user.to_owned(),
            password: password.to_vec(),
            answer,
        };
        match self.queue.try_send(check) {
            Ok(()) => result.await.unwrap_or(Verdict::Busy),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Verdict::Busy,
        }
    }

    /// Forgets what was remembered: the hashes have changed.
    pub fn forget(&self) {
        self.memory().clear();
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, [u8; 32]>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Check {
    /// The verdict, and the rounds of hashing that it took: 2^cost each.
    fn run(&self) -> (Verdict, u64) {
        let own = cost(&self.hash);
        let matches = bcrypt::verify(&self.password, &self.hash).unwrap_or(false);
        if matches && self.known {
            return (Verdict::Yes, 1 << own);
        }
        // What the dearest hash would have taken longer: 2^own + 2^own + 2^(own + 1) + .. = 2^cost.
        let mut rounds = 1 << own;
        for cost in own..self.cost {
            // Nobody is let in by it: it is for the time that it takes.
            let spent = bcrypt::hash_with_salt(&self.password, cost, [0; 16]);
            rounds += if spent.is_ok() { 1 << cost } else { 0 };
        }
        (Verdict::No, rounds)
    }
}

/// One check after the other; ends with the last sender.
fn work(checks: &Receiver<Check>, memory: &Memory, key: [u8; 32]) {
    while let Ok(check) = checks.recv() {
        // Nobody waits any more: the client has left.
        if check.answer.is_closed() {
            continue;
        }
        let (verdict, _) = check.run();
        if verdict == Verdict::Yes {
            // One entry for each user of the file, which has a bound.
            let entry = remembered(&key, &check.hash, &check.password);
            memory.lock().unwrap_or_else(PoisonError::into_inner).insert(check.user, entry);
        }
        if check.answer.send(verdict).is_err() {
            tracing::debug!("A client left while its password was checked.");
        }
    }
}

/// What is kept of a successful check: of no use to who reads it without the key, and void once the
/// hash in the file is another.
fn remembered(key: &[u8; 32], hash: &str, password: &[u8]) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(key);
    digest.update((hash.len() as u64).to_le_bytes());
    digest.update(hash.as_bytes());
    digest.update(password);
    digest.finalize().into()
}

/// The hash that takes longest, for names that are not in the file.
fn dearest(users: &BTreeMap<String, String>) -> Option<&String> {
    users.values().max_by_key(|hash| cost(hash))
}

/// What checking a hash costs; 0 where it is none.
fn cost(hash: &str) -> u32 {
    hash.parse::<HashParts>().map_or(0, |parts| parts.get_cost())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users() -> BTreeMap<String, String> {
        // Cost 4, the least there is: these tests are about what happens, not how long it takes.
        let hash = |password: &str| bcrypt::hash(password, 4).expect("hashes");
        [("anna", "one"), ("ben", "two")].map(|(name, pw)| (name.to_owned(), hash(pw))).into()
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
    }

    #[test]
    fn right_is_right_and_remembered_until_the_hash_changes() {
        let (checker, mut users) = (Checker::start().expect("starts"), users());
        block_on(async {
            assert_eq!(checker.check(&users, "anna", b"one").await, Verdict::Yes);
            assert_eq!(checker.memory().len(), 1);
            assert_eq!(checker.check(&users, "anna", b"one").await, Verdict::Yes);
            for (user, password) in [("anna", "two"), ("ben", "one"), ("carl", "one"), ("", "")] {
                let verdict = checker.check(&users, user, password.as_bytes()).await;
                assert_eq!(verdict, Verdict::No, "{user}:{password}");
            }
            assert_eq!(checker.memory().len(), 1, "failures leave nothing behind");
            users.insert("anna".to_owned(), users["ben"].clone());
            assert_eq!(checker.check(&users, "anna", b"one").await, Verdict::No);
            assert_eq!(checker.check(&users, "anna", b"two").await, Verdict::Yes);
            checker.forget();
            assert!(checker.memory().is_empty());
        });
    }

    #[test]
    fn who_guesses_does_not_hold_up_who_knows() {
        let (checker, users) = (Checker::start().expect("starts"), users());
        block_on(async {
            assert_eq!(checker.check(&users, "anna", b"one").await, Verdict::Yes);
            // A queue whose worker never takes anything: as if every check took for ever.
            let (queue, _held) = sync_channel(1);
            let busy = Checker { queue, ..checker.clone() };
            let mut waiting = std::pin::pin!(busy.check(&users, "anna", b"guess"));
            assert!(futures_poll(waiting.as_mut()).is_none());
            assert_eq!(busy.check(&users, "anna", b"another").await, Verdict::Busy);
            assert_eq!(busy.check(&users, "anna", b"one").await, Verdict::Yes);
        });
    }

    /// Polls once.
    fn futures_poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match future.poll(&mut context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn every_failure_costs_what_the_dearest_hash_costs() {
        let mut users = users();
        users.insert("x".into(), bcrypt::hash("x", 7).expect("hashes"));
        let run = |user: &str, password: &str| {
            // The queue of a checker whose worker never takes anything.
            let (queue, checks) = sync_channel(1);
            let checker = Checker { queue, ..Checker::start().expect("starts") };
            let mut asked = std::pin::pin!(checker.check(&users, user, password.as_bytes()));
            assert!(futures_poll(asked.as_mut()).is_none());
            checks.try_recv().expect("it is queued").run()
        };
        for (user, password) in [("anna", "two"), ("x", "one"), ("carl", "x"), ("anna", "")] {
            assert_eq!(run(user, password), (Verdict::No, 1 << 7), "{user}:{password}");
        }
        assert_eq!(run("anna", "one"), (Verdict::Yes, 1 << 4));
    }

    #[test]
    fn the_dearest_hash_answers_for_nobody() {
        let mut users = users();
        users.insert("x".into(), bcrypt::hash("x", 6).expect("hashes"));
        assert_eq!(dearest(&users), users.get("x"));
        assert_eq!(dearest(&BTreeMap::new()), None);
    }
}
