//! The embedded time-series store: recent samples of one small cluster, in memory.
//!
//! It is bounded three ways (age, bytes, number of series) and loses everything at exit. It does
//! not read a clock, parse expositions, or evaluate expressions.

mod chunk;
mod labels;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{PoisonError, RwLock};

use chunk::Chunk;
pub(crate) use labels::{Labels, MatchOp, Matcher, NAME, anchored};

/// The value that marks the end of a series, bit for bit the one of Prometheus.
pub(crate) const STALE: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

/// Whether a value is the end mark rather than a measured not-a-number.
pub(crate) fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE.to_bits()
}

/// What the store may hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Samples older than this, counted from the newest, are dropped.
    pub(crate) retention_ms: i64,
    /// Bytes of samples and labels; when they are passed, the oldest samples go first. Labels may
    /// take a quarter of it: new series beyond that are refused.
    pub(crate) bytes_max: usize,
    /// New series beyond this are refused.
    pub(crate) series_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { retention_ms: 2 * 3600 * 1000, bytes_max: 256 << 20, series_max: 50_000 }
    }
}

/// A series that exists in the store; valid until retention removes the series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeriesRef(u64);

/// A series with decoded samples: (Unix milliseconds, value), increasing in time.
#[derive(Debug, Clone)]
pub(crate) struct SeriesSamples {
    pub(crate) labels: Labels,
    pub(crate) samples: Vec<(i64, f64)>,
}

/// What the store holds now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) series: usize,
    /// Of samples and labels.
    pub(crate) bytes: usize,
    /// Samples not taken because a bound or the order in time forbade it.
    pub(crate) refused: u64,
}

/// What the store holds now, in more detail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) series: usize,
    pub(crate) chunks: usize,
    pub(crate) label_pairs: usize,
    /// Unix milliseconds of the oldest and newest sample; 0 while there is none.
    pub(crate) oldest_ms: i64,
    pub(crate) newest_ms: i64,
    /// Metrics with the most series and labels with the most values, most first.
    pub(crate) by_metric: Vec<(String, usize)>,
    pub(crate) by_label: Vec<(String, usize)>,
}

#[derive(Debug)]
struct Series {
    labels: Labels,
    chunks: VecDeque<Chunk>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    series: BTreeMap<u64, Series>,
    by_labels: HashMap<Labels, u64>,
    by_name: HashMap<String, BTreeSet<u64>>,
    bytes: usize,
    label_bytes: usize,
    refused: u64,
    newest_ms: i64,
    swept_ms: i64,
}

/// The store; shared by the scraper, the rules and the queries.
#[derive(Debug)]
pub(crate) struct Store {
    bounds: Bounds,
    inner: RwLock<Inner>,
}

/// Old data is looked for this often, in time of the samples.
const SWEEP_MS: i64 = 10_000;

impl Store {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, inner: RwLock::default() }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it may hold.
    pub(crate) const fn bounds(&self) -> Bounds {
        self.bounds
    }

    pub(crate) fn totals(&self) -> Totals {
        let inner = self.read();
        let bytes = inner.bytes + inner.label_bytes;
        Totals { series: inner.series.len(), bytes, refused: inner.refused }
    }

    /// Counts what is held, with the `top` first of each list.
    pub(crate) fn summary(&self, top: usize) -> Summary {
        let inner = self.read();
        let mut values: HashMap<&str, HashSet<&str>> = HashMap::new();
        for series in inner.series.values() {
            for (name, value) in series.labels.iter() {
                values.entry(name).or_default().insert(value);
            }
        }
        let most = |mut counts: Vec<(String, usize)>| {
            counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            counts.truncate(top);
            counts
        };
        let oldest = inner.series.values().filter_map(|s| Some(s.chunks.front()?.first_ms)).min();
        Summary {
            series: inner.series.len(),
            chunks: inner.series.values().map(|s| s.chunks.len()).sum(),
            label_pairs: values.values().map(HashSet::len).sum(),
            oldest_ms: oldest.unwrap_or(0),
            newest_ms: inner.newest_ms,
            by_metric: most(inner.by_name.iter().map(|(n, ids)| (n.clone(), ids.len())).collect()),
            by_label: most(values.iter().map(|(n, v)| ((*n).to_owned(), v.len())).collect()),
        }
    }

    /// Finds a series or makes it; `None` when the bound on series is reached.
    pub(crate) fn series(&self, labels: &Labels) -> Option<SeriesRef> {
        if let Some(id) = self.read().by_labels.get(labels) {
            return Some(SeriesRef(*id));
        }
        self.write().create(labels, &self.bounds)
    }

    /// Appends one sample to each series; false in the answer means that the series is gone.
    ///
    /// Samples that are not newer than the last of their series are dropped and counted.
    pub(crate) fn append(&self, samples: &[(SeriesRef, i64, f64)]) -> Vec<bool> {
        let mut inner = self.write();
        let taken = samples.iter().map(|(id, time, value)| inner.push(id.0, *time, *value));
        let taken = taken.collect();
        let bytes = inner.bytes + inner.label_bytes;
        if inner.newest_ms - inner.swept_ms >= SWEEP_MS || bytes > self.bounds.bytes_max {
            inner.sweep(&self.bounds);
        }
        taken
    }

    /// Appends a sample to the series with these labels, which is made when it is new.
    pub(crate) fn append_labels(&self, labels: &Labels, time_ms: i64, value: f64) {
        if let Some(series) = self.series(labels) {
            self.append(&[(series, time_ms, value)]);
        }
    }

    /// Every series that satisfies all matchers and has a sample in the range, with the samples
    /// from `from_ms` to `to_ms` (both included), sorted by labels; none when they are more than
    /// `most` together.
    pub(crate) fn select_at_most(
        &self,
        matchers: &[Matcher],
        from_ms: i64,
        to_ms: i64,
        most: usize,
    ) -> Option<Vec<SeriesSamples>> {
        let inner = self.read();
        let mut left = most;
        let mut found = Vec::new();
        for series in inner.matching(matchers) {
            let mut samples = Vec::new();
            for chunk in &series.chunks {
                if chunk.last_ms >= from_ms && chunk.first_ms <= to_ms {
                    chunk.read(from_ms, to_ms, &mut samples);
                }
            }
            left = left.checked_sub(samples.len())?;
            if !samples.is_empty() {
                found.push(SeriesSamples { labels: series.labels.clone(), samples });
            }
        }
        found.sort_by(|a: &SeriesSamples, b| a.labels.cmp(&b.labels));
        Some(found)
    }

    /// The same without a bound.
    #[cfg(test)]
    pub(crate) fn select(
        &self,
        matchers: &[Matcher],
        from_ms: i64,
        to_ms: i64,
    ) -> Vec<SeriesSamples> {
        self.select_at_most(matchers, from_ms, to_ms, usize::MAX).expect("no bound")
    }

    /// The label sets of the series that satisfy all matchers and have samples in the range.
    pub(crate) fn label_sets(&self, matchers: &[Matcher], from_ms: i64, to_ms: i64) -> Vec<Labels> {
        let inner = self.read();
        let live = |series: &&Series| {
            series.chunks.iter().any(|c| c.last_ms >= from_ms && c.first_ms <= to_ms)
        };
        let mut found: Vec<Labels> =
            inner.matching(matchers).filter(live).map(|s| s.labels.clone()).collect();
        found.sort();
        found
    }
}

impl Inner {
    fn create(&mut self, labels: &Labels, bounds: &Bounds) -> Option<SeriesRef> {
        if let Some(id) = self.by_labels.get(labels) {
            return Some(SeriesRef(*id));
        }
        let bytes = labels.size();
        let full = self.series.len() >= bounds.series_max;
        if full || self.label_bytes + bytes > bounds.bytes_max / 4 {
            self.refused += 1;
            return None;
        }
        self.label_bytes += bytes;
        let id = self.next;
        self.next += 1;
        self.by_labels.insert(labels.clone(), id);
        let name = labels.get(NAME).unwrap_or("").to_owned();
        self.by_name.entry(name).or_default().insert(id);
        self.series.insert(id, Series { labels: labels.clone(), chunks: VecDeque::new() });
        Some(SeriesRef(id))
    }

    fn push(&mut self, id: u64, time_ms: i64, value: f64) -> bool {
        let Some(series) = self.series.get_mut(&id) else {
            return false;
        };
        if series.chunks.back().is_some_and(|chunk| chunk.last_ms >= time_ms) {
            self.refused += 1;
            return true;
        }
        if series.chunks.back().is_none_or(Chunk::is_full) {
            if let Some(full) = series.chunks.back_mut() {
                let before = full.size();
                full.seal();
                self.bytes -= before - full.size();
            }
            series.chunks.push_back(Chunk::default());
            self.bytes += size_of::<Chunk>();
        }
        if let Some(chunk) = series.chunks.back_mut() {
            let before = chunk.size();
            chunk.push(time_ms, value);
            self.bytes += chunk.size() - before;
        }
        self.newest_ms = self.newest_ms.max(time_ms);
        true
    }

    /// Drops what is too old; over the byte bound, the oldest tenth of the time held goes too.
    fn sweep(&mut self, bounds: &Bounds) {
        self.swept_ms = self.newest_ms;
        let mut floor = self.newest_ms - bounds.retention_ms;
        self.drop_before(floor);
        while self.bytes + self.label_bytes > bounds.bytes_max && floor < self.newest_ms {
            floor += ((self.newest_ms - floor) / 10).max(1);
            self.drop_before(floor);
        }
    }

    fn drop_before(&mut self, floor_ms: i64) {
        let mut gone = Vec::new();
        for (id, series) in &mut self.series {
            while series.chunks.front().is_some_and(|chunk| chunk.last_ms < floor_ms) {
                self.bytes -= series.chunks.pop_front().map_or(0, |chunk| chunk.size());
            }
            if series.chunks.is_empty() {
                gone.push(*id);
            }
        }
        for id in gone {
            let Some(series) = self.series.remove(&id) else { continue };
            self.by_labels.remove(&series.labels);
            self.label_bytes -= series.labels.size();
            let name = series.labels.get(NAME).unwrap_or("");
            if let Some(ids) = self.by_name.get_mut(name) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.by_name.remove(name);
                }
            }
        }
    }

    fn matching<'a>(
        &'a self,
        matchers: &'a [Matcher],
    ) -> Box<dyn Iterator<Item = &'a Series> + 'a> {
        let name = matchers.iter().filter(|m| m.label == NAME).find_map(Matcher::exact);
        let accepted =
            |series: &&Series| matchers.iter().all(|matcher| matcher.accepts(&series.labels));
        match name {
            Some(name) => {
                let ids = self.by_name.get(name).into_iter().flatten();
                Box::new(ids.filter_map(|id| self.series.get(id)).filter(accepted))
            }
            None => Box::new(self.series.values().filter(accepted)),
        }
    }
}
