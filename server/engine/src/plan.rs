//! What a step will run.

use admission::{Rank, Rejected};
use model::Batch;
use transfer::Failure;
use types::RequestId;

use crate::request::{Request, Taken};
use crate::stats::Preemptions;

/// One request's part of a step, in batch order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) rank: Rank,
    pub(crate) len: usize,
    /// The next token is chosen after this slice.
    pub(crate) logits: bool,
    /// Rows of logits that come of it: of its last tokens.
    pub(crate) logits_rows: usize,
    pub(crate) decode: bool,
}

/// What a step will run. Kept from step to step, so that its memory is allocated once.
#[derive(Default)]
pub(crate) struct StepPlan {
    /// Decode rows first, then prompt chunks.
    pub(crate) rows: Vec<Row>,
    pub(crate) batch: Batch,
    pub(crate) preemptions: Preemptions,
    /// Requests that stand still until pages are copied.
    pub(crate) held: u64,
    /// Prompt tokens taken from the cache for the first time.
    pub(crate) cached: Taken,
    /// Requests that were evicted before they could start; they have ended.
    pub(crate) refused: Vec<(Request, Rejected)>,
    /// Decode: those that were given pages.
    pub(crate) landed: Vec<Rank>,
    /// One that has to go, so that others can go on.
    pub(crate) given_up: Option<(RequestId, Failure)>,
    /// Whether the next step may find more to do, though nothing happens before it.
    pub(crate) again: bool,
    /// Prompt chunks, until they follow the decode rows.
    pub(crate) chunks: Vec<Row>,
}

impl StepPlan {
    pub(crate) fn clear(&mut self) {
        self.drop_rows();
        self.preemptions = Preemptions::default();
        self.held = 0;
        self.cached = Taken::default();
        self.landed.clear();
        self.given_up = None;
        self.again = false;
    }

    /// The step did not run after all.
    pub(crate) fn drop_rows(&mut self) {
        self.rows.clear();
        self.batch.clear();
    }

    /// Whether it has no row so far.
    pub(crate) const fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.chunks.is_empty()
    }

    /// Tokens of decode rows, which come first.
    pub(crate) fn decode_tokens(&self) -> usize {
        self.rows.iter().take_while(|row| row.decode).count()
    }

    pub(crate) fn add(&mut self, request: &Request, len: usize) {
        let (decode, logits) = (request.is_decoding(), request.samples_after(len));
        let logits_rows = request.logits_wanted(len);
        let row = Row { rank: request.rank, len, logits, logits_rows, decode };
        if decode { self.rows.push(row) } else { self.chunks.push(row) }
    }
}
