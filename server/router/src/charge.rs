//! The router's own counts per worker. Ownership is the accounting: a [`Charge`] is one request at
//! one worker, and dropping it is the only way out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Requests and tokens of this router at one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    /// Open requests.
    pub requests: u64,
    /// Uncached prompt tokens that are not computed yet.
    pub pending: u64,
    /// Tokens whose KV the worker holds or will hold.
    pub kv: u64,
}

impl Amount {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.pending += other.pending;
        self.kv += other.kv;
    }

    fn take(&mut self, other: Self) {
        // Exact by construction: only what was added is taken.
        debug_assert!(self.requests >= other.requests && self.pending >= other.pending);
        self.requests = self.requests.saturating_sub(other.requests);
        self.pending = self.pending.saturating_sub(other.pending);
        self.kv = self.kv.saturating_sub(other.kv);
    }
}

#[derive(Debug, Default)]
struct Books {
    /// Everything that is open.
    total: Amount,
    /// Of that, what the last report of the worker cannot know of.
    unreported: Amount,
    /// Of that, what was routed since the last poll began.
    recent: Amount,
    /// Requests that have ended and that the last report of the worker may still count.
    ended: u64,
    /// Of that, those that ended since the last poll began.
    ended_recently: u64,
    /// Polls begun.
    epoch: u64,
    /// Charges of this epoch and later ones are in `unreported`.
    unreported_from: u64,
}

/// The counts of one worker name; outlive its place in the registry while requests are open.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Books>>);

impl Ledger {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request until the charge is dropped.
    pub(crate) fn charge(&self, amount: Amount) -> Charge {
        let mut books = self.books();
        books.total.add(amount);
        books.unreported.add(amount);
        books.recent.add(amount);
        Charge { ledger: self.clone(), amount, epoch: books.epoch }
    }

    /// A poll goes out: what is routed from now on may be missing in its answer. Returns the epoch
    /// that it opens.
    pub(crate) fn poll_began(&self) -> u64 {
        let mut books = self.books();
        books.epoch += 1;
        books.recent = Amount::default();
        books.ended_recently = 0;
        books.epoch
    }

    /// The answer of the poll that opened `epoch` is in. Answers of older polls are ignored.
    pub(crate) fn reported(&self, epoch: u64) {
        let mut books = self.books();
        if epoch == books.epoch {
            books.unreported_from = epoch;
            books.unreported = books.recent;
            books.ended = books.ended_recently;
        }
    }

    /// Requests of this router that have ended and that the last report may still count.
    pub(crate) fn ended(&self) -> u64 {
        self.books().ended
    }

    /// Everything that is open, and of that what the last report cannot know of.
    pub(crate) fn amounts(&self) -> (Amount, Amount) {
        let books = self.books();
        (books.total, books.unreported)
    }
}

/// One request at one worker.
#[derive(Debug)]
pub(crate) struct Charge {
    ledger: Ledger,
    amount: Amount,
    epoch: u64,
}

impl Charge {
    /// The prompt is computed: its tokens are pending no more.
    pub(crate) fn prefill_done(&mut self) {
        let done = Amount { pending: self.amount.pending, ..Amount::default() };
        self.give_back(done);
        self.amount.pending = 0;
    }

    /// The worker's part is done: nothing of the request counts there any more.
    pub(crate) fn end(&mut self) {
        self.give_back(self.amount);
        self.amount = Amount::default();
    }

    /// What counts still.
    pub(crate) const fn amount(&self) -> Amount {
        self.amount
    }

    fn give_back(&self, amount: Amount) {
        let mut books = self.ledger.books();
        books.total.take(amount);
        books.ended += amount.requests;
        books.ended_recently += amount.requests;
        if self.epoch >= books.unreported_from {
            books.unreported.take(amount);
        }
        if self.epoch == books.epoch {
            books.recent.take(amount);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.give_back(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(pending: u64) -> Amount {
        Amount { requests: 1, pending, kv: pending }
    }

    #[test]
    fn what_a_report_covers_is_not_counted_twice() {
        let ledger = Ledger::default();
        let old = ledger.charge(prompt(100));
        let poll = ledger.poll_began();
        let new = ledger.charge(prompt(7));
        assert_eq!(ledger.amounts().1.pending, 107, "no report yet");
        ledger.reported(poll);
        assert_eq!((ledger.amounts().0.pending, ledger.amounts().1.pending), (107, 7));
        drop(old);
        assert_eq!((ledger.amounts().0.pending, ledger.amounts().1.pending), (7, 7));
        drop(new);
        assert_eq!(ledger.amounts(), (Amount::default(), Amount::default()));
        assert_eq!(ledger.ended(), 2, "no report since");
        let poll = ledger.poll_began();
        drop(ledger.charge(prompt(1)));
        ledger.reported(poll);
        assert_eq!(ledger.ended(), 1, "the report knows of the first two");
    }

    #[test]
    fn a_poll_without_an_answer_covers_nothing() {
        let ledger = Ledger::default();
        let lost = ledger.poll_began();
        let mut charge = ledger.charge(prompt(5));
        let poll = ledger.poll_began();
        ledger.reported(lost);
        assert_eq!(ledger.amounts().1, prompt(5), "the answer of an older poll says nothing");
        ledger.reported(poll);
        assert_eq!(ledger.amounts(), (prompt(5), Amount::default()));
        charge.prefill_done();
        charge.prefill_done();
        assert_eq!(ledger.amounts().0, Amount { pending: 0, ..prompt(5) });
    }
}
