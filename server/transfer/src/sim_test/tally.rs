//! What a simulation counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use crate::failure::Failure;
use crate::observe::{Side, Stage, TransferEnd, TransferObserver};
use crate::room::PeerName;

/// By the engines.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) asked: u64,
    pub(super) rejected: u64,
    pub(super) unanswered: u64,
    pub(super) accepted: u64,
    pub(super) given_up: u64,
    /// By number.
    pub(super) arrived: BTreeSet<u64>,
    pub(super) delivered: BTreeSet<u64>,
    failures: BTreeMap<Failure, u64>,
}

impl Tally {
    /// An engine was told of a failure, of a request that it had not given up.
    pub(super) fn told(&mut self, failure: Failure) {
        *self.failures.entry(failure).or_default() += 1;
    }
}

/// By one end.
#[derive(Debug, Default)]
pub(super) struct Ends {
    inner: Mutex<Counted>,
}

#[derive(Debug, Default, Clone)]
pub(super) struct Counted {
    pub(super) ends: u64,
    pub(super) ok: u64,
    pub(super) bytes: u64,
    pub(super) failures: BTreeMap<Failure, u64>,
}

impl Ends {
    pub(super) fn counted(&self) -> Counted {
        self.inner.lock().unwrap().clone()
    }
}

impl TransferObserver for Ends {
    fn on_bytes(&self, _: Side, _: &PeerName, _: &'static str, bytes: u64) {
        self.inner.lock().unwrap().bytes += bytes;
    }

    fn on_end(&self, end: &TransferEnd) {
        let mut inner = self.inner.lock().unwrap();
        inner.ends += 1;
        match end.result {
            Ok(()) => {
                inner.ok += 1;
                assert!(end.wire.is_some() || end.bootstrap.is_some());
                assert_eq!(end.stage, Stage::Wire, "what is whole was on the wire");
            }
            Err(failure) => *inner.failures.entry(failure).or_default() += 1,
        }
        assert_ne!(end.stage, Stage::Total);
        let parts = [end.bootstrap, end.alloc, end.wire];
        let sum: Duration = parts.iter().flatten().sum();
        assert!(sum <= end.total, "{end:?}");
        assert!(end.side == Side::Recv || end.alloc.is_none());
    }

    fn on_busy(&self, _: Side, _: &PeerName, busy: Duration) {
        assert!(busy > Duration::ZERO);
    }
}

/// What all seeds together have seen: a simulation that never fails in some way shows nothing.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    pub(super) arrived: u64,
    pub(super) delivered: u64,
    pub(super) rejected: u64,
    pub(super) given_up: u64,
    pub(super) recv: BTreeMap<Failure, u64>,
    pub(super) send: BTreeMap<Failure, u64>,
    pub(super) strays: u64,
    pub(super) told: BTreeMap<Failure, u64>,
}

impl Coverage {
    pub(super) fn add(&mut self, tally: &Tally, recv: &Counted, send: &Counted, strays: u64) {
        self.arrived += tally.arrived.len() as u64;
        self.delivered += tally.delivered.len() as u64;
        self.rejected += tally.rejected;
        self.given_up += tally.given_up;
        self.strays += strays;
        let sides = [(&mut self.recv, recv), (&mut self.send, send)];
        for (all, counted) in sides {
            for (failure, count) in &counted.failures {
                *all.entry(*failure).or_default() += count;
            }
        }
        for (failure, count) in &tally.failures {
            *self.told.entry(*failure).or_default() += count;
        }
    }
}

impl Counted {
    /// Both together.
    pub(super) fn plus(mut self, other: &Self) -> Self {
        self.ends += other.ends;
        self.ok += other.ok;
        self.bytes += other.bytes;
        for (failure, count) in &other.failures {
            *self.failures.entry(*failure).or_default() += count;
        }
        self
    }
}
