//! Requests in the order of their arrival: the waiting queue, the retracted queue, the running set.

use std::collections::BTreeMap;

use crate::request::Request;

/// Requests by sequence number, oldest first. Any of them is found, added or removed in
/// logarithmic time, so an abort never walks the queue. It has no bound of its own: a waiting
/// request holds a permit, and running and retracted ones are bounded by `max_running`.
#[derive(Default)]
pub(crate) struct ByAge {
    requests: BTreeMap<u64, Request>,
}

impl ByAge {
    pub(crate) fn insert(&mut self, request: Request) {
        let before = self.requests.insert(request.seq, request);
        assert!(before.is_none(), "a sequence number names one request");
    }

    pub(crate) fn remove(&mut self, seq: u64) -> Option<Request> {
        self.requests.remove(&seq)
    }

    pub(crate) fn get(&self, seq: u64) -> Option<&Request> {
        self.requests.get(&seq)
    }

    pub(crate) fn get_mut(&mut self, seq: u64) -> Option<&mut Request> {
        self.requests.get_mut(&seq)
    }

    pub(crate) fn oldest(&self) -> Option<&Request> {
        self.requests.first_key_value().map(|(_, request)| request)
    }

    pub(crate) fn youngest_seq(&self) -> Option<u64> {
        self.requests.last_key_value().map(|(seq, _)| *seq)
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Request> {
        #[cfg(test)]
        crate::testing::walks(self.requests.len());
        self.requests.values()
    }

    /// Sequence numbers, oldest first.
    pub(crate) fn seqs(&self) -> impl Iterator<Item = u64> + '_ {
        #[cfg(test)]
        crate::testing::walks(self.requests.len());
        self.requests.keys().copied()
    }
}
