//! The naive cache: a flat map from whole prefixes to what is known of their last page. No tree, no
//! lists, no page ids; every question is answered by looking at everything.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Everything up to the end of a page: flushes seen, namespace, tokens.
type Prefix = (u64, u8, Vec<u32>);

/// One holder or none is all that counts; ids are those of tables.
#[derive(Debug, Default)]
struct Part {
    holders: BTreeSet<u64>,
    /// When the last holder let go.
    stamp: u64,
    keep: bool,
}

#[derive(Debug, Default)]
struct Page {
    full: Part,
    window: Option<Part>,
}

/// Counts of one pool.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) active: usize,
    pub(super) cached: usize,
    pub(super) hits: u64,
    pub(super) failures: u64,
    /// Capacity, pressure, flush.
    pub(super) evicted: [u64; 3],
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) page_tokens: usize,
    pub(super) full: usize,
    /// Capacity in pages and window in tokens.
    pub(super) window: Option<(usize, usize)>,
}

/// A table of the model.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) id: u64,
    pub(super) namespace: u8,
    pub(super) tokens: Vec<u32>,
    pub(super) computed: usize,
    /// Pages covered.
    pub(super) covered: usize,
    pub(super) published: usize,
    /// First page held in the window pool.
    pub(super) first: usize,
    marks: [usize; 3],
    flushes: u64,
    /// Whether it holds on to pages that were swapped, and how many it does in each pool.
    pub(super) holds: bool,
    swapped: [usize; 2],
}

impl Table {
    pub(super) fn new(id: u64, namespace: u8, tokens: Vec<u32>) -> Self {
        let (computed, covered, published, first) = (0, 0, 0, 0);
        let (marks, flushes, holds, swapped) = ([0; 3], 0, false, [0; 2]);
        Self {
            id,
            namespace,
            tokens,
            computed,
            covered,
            published,
            first,
            marks,
            flushes,
            holds,
            swapped,
        }
    }
}

#[derive(Debug)]
pub(super) struct Naive {
    pub(super) shape: Shape,
    pages: BTreeMap<Prefix, Page>,
    clock: u64,
    flushes: u64,
    pub(super) counts: [Counts; 2],
    pub(super) queries: u64,
}

impl Naive {
    pub(super) fn new(shape: Shape) -> Self {
        let (pages, counts) = (BTreeMap::new(), [Counts::default(); 2]);
        Self { shape, pages, clock: 0, flushes: 0, counts, queries: 0 }
    }

    fn prefix(&self, flushes: u64, namespace: u8, tokens: &[u32], pages: usize) -> Prefix {
        (flushes, namespace, tokens[..pages * self.shape.page_tokens].to_vec())
    }

    fn key(&self, table: &Table, pages: usize) -> Prefix {
        self.prefix(table.flushes, table.namespace, &table.tokens, pages)
    }

    /// Whole pages of the past that a match needs in the window pool.
    fn window_pages(&self) -> usize {
        self.shape.window.map_or(0, |(_, w)| (w - 1).div_ceil(self.shape.page_tokens))
    }

    fn has_window(&self, prefix: &Prefix) -> bool {
        self.pages.get(prefix).is_some_and(|page| page.window.is_some())
    }

    /// (usable, in the full pool) pages of the longest cached prefix of so many tokens, all but
    /// the last one at most. Window pages before `kept` are not asked for.
    fn longest(
        &self,
        (flushes, namespace): (u64, u8),
        tokens: &[u32],
        at_most: usize,
        kept: usize,
    ) -> (usize, usize) {
        let limit = tokens.len().saturating_sub(1).min(at_most) / self.shape.page_tokens;
        let prefix = |pages| self.prefix(flushes, namespace, tokens, pages);
        let full = (1..=limit).take_while(|pages| self.pages.contains_key(&prefix(*pages))).count();
        let usable = |end: &usize| {
            let first = kept.max(*end - self.window_pages().min(*end));
            self.shape.window.is_none()
                || (first + 1..=*end).all(|pages| self.has_window(&prefix(pages)))
        };
        ((1..=full).rev().find(usable).unwrap_or(0), full)
    }

    /// Tokens that would hit now, and pages of them that somebody holds.
    pub(super) fn peek(&self, namespace: u8, tokens: &[u32]) -> (usize, usize) {
        let (pages, _) = self.longest((self.flushes, namespace), tokens, usize::MAX, 0);
        let held = |end: &usize| {
            let prefix = self.prefix(self.flushes, namespace, tokens, *end);
            !self.pages[&prefix].full.holders.is_empty()
        };
        (pages * self.shape.page_tokens, (1..=pages).filter(held).count())
    }

    /// `counts`: whether the tokens do, and whether the hits do.
    pub(super) fn attach(&mut self, table: &mut Table, counts: (bool, bool)) -> usize {
        if counts.0 {
            self.queries += table.tokens.len() as u64;
        }
        if table.published == 0 {
            table.flushes = self.flushes;
        }
        let of = (table.flushes, table.namespace);
        let (pages, full) = self.longest(of, &table.tokens, usize::MAX, 0);
        if table.published == 0 {
            self.mark(table, pages, full);
        }
        if pages > table.published {
            self.take(table, pages, 0, counts.1);
        }
        table.published * self.shape.page_tokens
    }

    fn mark(&self, table: &mut Table, pages: usize, full: usize) {
        let branch = if full > pages { full } else { 0 };
        let (last, again) = (table.tokens.len(), table.tokens.len().saturating_sub(1));
        let page = self.shape.page_tokens;
        table.marks = [last / page, again / page, branch];
    }

    /// The pages of an empty table for `computed` tokens that come from elsewhere. Returns the
    /// tokens that are cached, or the pool that is short.
    pub(super) fn land(
        &mut self,
        table: &mut Table,
        computed: usize,
        counts: (bool, bool),
    ) -> Result<usize, usize> {
        let kept = self.first_kept(computed);
        let of = (self.flushes, table.namespace);
        let (pages, full) = self.longest(of, &table.tokens, computed, kept);
        let page = |end: usize| &self.pages[&self.prefix(of.0, of.1, &table.tokens, end)];
        let end = computed.div_ceil(self.shape.page_tokens);
        let held = (1..=pages).filter(|end| !page(*end).full.holders.is_empty()).count();
        if self.counts[0].active + end - held > self.shape.full {
            return Err(0);
        }
        if let Some((capacity, _)) = self.shape.window {
            let first = kept.max(pages - self.window_pages().min(pages));
            let window = |end: &usize| page(*end).window.as_ref().expect("usable");
            let held = (first + 1..=pages).filter(|end| !window(end).holders.is_empty()).count();
            if self.counts[1].active + end - first - held > capacity {
                return Err(1);
            }
        }
        if counts.0 {
            self.queries += table.tokens.len() as u64;
        }
        table.flushes = self.flushes;
        self.mark(table, pages, full);
        if pages > 0 {
            self.take(table, pages, kept, counts.1);
        }
        table.first = table.first.max(kept);
        let more = [end - table.covered, end - table.covered.max(table.first)];
        self.take_room(more);
        table.covered = end;
        Ok(pages * self.shape.page_tokens)
    }

    /// Takes the pages of a cached prefix that the table has not got, of the window none before
    /// `kept`.
    fn take(&mut self, table: &mut Table, pages: usize, kept: usize, counts: bool) {
        // Its own pages behind the published ones are free again.
        self.counts[0].active -= table.covered - table.published;
        for end in table.published + 1..=pages {
            self.hold_full(table, end);
        }
        let mut hits = [pages - table.published, 0];
        if self.shape.window.is_some() {
            self.counts[1].active -= table.covered - table.first.max(table.published);
            let first = table.first.max(pages - self.window_pages().min(pages)).max(kept);
            for end in table.first + 1..=first.min(table.published) {
                self.let_go_of_window(table, end, Self::marked(table, end, self.window_pages()));
            }
            for end in first.max(table.published) + 1..=pages {
                self.hold_window(table, end);
                hits[1] += 1;
            }
            table.first = first;
        }
        if counts {
            self.counts[0].hits += hits[0] as u64;
            self.counts[1].hits += hits[1] as u64;
        }
        (table.published, table.covered) = (pages, pages);
    }

    /// The pool that is short, if one is.
    pub(super) fn grow(&mut self, table: &mut Table, tokens: usize) -> Result<(), usize> {
        let pages = tokens.div_ceil(self.shape.page_tokens).max(table.covered);
        let more = pages - table.covered;
        let capacities = [Some(self.shape.full), self.shape.window.map(|(pages, _)| pages)];
        for (pool, capacity) in capacities.iter().enumerate() {
            if capacity.is_some_and(|capacity| self.counts[pool].active + more > capacity) {
                self.counts[pool].failures += 1;
                return Err(pool);
            }
        }
        self.take_room([more; 2]);
        table.covered = pages;
        Ok(())
    }

    /// So many pages of each pool become active, others go for them.
    fn take_room(&mut self, more: [usize; 2]) {
        let capacities = [Some(self.shape.full), self.shape.window.map(|(pages, _)| pages)];
        for (pool, (capacity, more)) in capacities.into_iter().zip(more).enumerate() {
            let Some(capacity) = capacity else { continue };
            while self.counts[pool].active + self.counts[pool].cached + more > capacity {
                if pool == 0 { self.evict_full() } else { self.evict_window() }
            }
            self.counts[pool].active += more;
        }
    }

    pub(super) fn publish(&mut self, table: &mut Table) {
        let whole = table.computed / self.shape.page_tokens;
        if table.published == 0 && whole > 0 {
            table.flushes = self.flushes;
        }
        for end in table.published + 1..=whole {
            let key = self.key(table, end);
            let known = self.pages.contains_key(&key);
            if known {
                // The same page twice: one is free again, or kept apart.
                if table.holds {
                    table.swapped[0] += 1;
                } else {
                    self.counts[0].active -= 1;
                }
                self.hold_full(table, end);
            } else {
                self.pages.entry(key.clone()).or_default().full.holders.insert(table.id);
            }
            if self.shape.window.is_some() && end > table.first {
                if self.has_window(&key) {
                    if table.holds {
                        table.swapped[1] += 1;
                    } else {
                        self.counts[1].active -= 1;
                    }
                    self.hold_window(table, end);
                } else {
                    let part = Part { holders: [table.id].into(), ..Part::default() };
                    self.pages.get_mut(&key).expect("just there").window = Some(part);
                }
            }
            table.published = end;
        }
        self.slide(table);
    }

    /// The first page that a table with so many tokens keeps in the window pool.
    fn first_kept(&self, computed: usize) -> usize {
        let last = computed.saturating_sub(1) / self.shape.page_tokens;
        last.saturating_sub(self.window_pages())
    }

    /// Pages that were swapped are free.
    pub(super) fn let_go_of_swapped(&mut self, table: &mut Table) {
        for (counts, swapped) in self.counts.iter_mut().zip(&mut table.swapped) {
            counts.active -= std::mem::take(swapped);
        }
        table.holds = false;
    }

    fn slide(&mut self, table: &mut Table) {
        if self.shape.window.is_none() {
            return;
        }
        let first = self.first_kept(table.computed);
        for end in table.first + 1..=first {
            if end <= table.published {
                self.let_go_of_window(table, end, Self::marked(table, end, self.window_pages()));
            } else {
                self.counts[1].active -= 1;
            }
        }
        table.first = table.first.max(first);
    }

    /// A page is worth caching where a mark's window covers it.
    fn marked(table: &Table, end: usize, window: usize) -> bool {
        table.marks.iter().any(|mark| (mark.saturating_sub(window) + 1..=*mark).contains(&end))
    }

    pub(super) fn release(&mut self, table: &mut Table) {
        self.let_go_of_swapped(table);
        self.counts[0].active -= table.covered - table.published;
        if self.shape.window.is_some() {
            self.counts[1].active -= table.covered - table.published.max(table.first);
            for end in (table.first + 1..=table.published).rev() {
                self.let_go_of_window(table, end, true);
            }
        }
        self.clock += 1;
        for end in (1..=table.published).rev() {
            let key = self.key(table, end);
            let page = self.pages.get_mut(&key).expect("held pages stay");
            assert!(page.full.holders.remove(&table.id), "held once");
            if page.full.holders.is_empty() {
                page.full.stamp = self.clock;
                self.counts[0].active -= 1;
                self.counts[0].cached += 1;
                if table.flushes < self.flushes {
                    self.drop_page(&key, [2, 2]);
                }
            }
        }
        let fresh = Table::new(table.id, table.namespace, std::mem::take(&mut table.tokens));
        *table = fresh;
    }

    pub(super) fn flush(&mut self) {
        let unheld = self.pages.iter().filter(|(_, page)| page.full.holders.is_empty());
        let unheld: Vec<_> = unheld.map(|(key, _)| key.clone()).collect();
        for key in unheld {
            self.drop_page(&key, [2, 2]);
        }
        self.flushes += 1;
    }

    fn hold_full(&mut self, table: &Table, end: usize) {
        let key = self.key(table, end);
        let part = &mut self.pages.get_mut(&key).expect("found before").full;
        if part.holders.is_empty() {
            self.counts[0].cached -= 1;
            self.counts[0].active += 1;
        }
        assert!(part.holders.insert(table.id), "held once");
    }

    fn hold_window(&mut self, table: &Table, end: usize) {
        let key = self.key(table, end);
        let page = self.pages.get_mut(&key).expect("found before");
        let part = page.window.as_mut().expect("usable");
        if part.holders.is_empty() {
            self.counts[1].cached -= 1;
            self.counts[1].active += 1;
        }
        assert!(part.holders.insert(table.id), "held once");
    }

    fn let_go_of_window(&mut self, table: &Table, end: usize, keep: bool) {
        let key = self.key(table, end);
        let page = self.pages.get_mut(&key).expect("held pages stay");
        let part = page.window.as_mut().expect("held windows stay");
        assert!(part.holders.remove(&table.id), "held once");
        part.keep |= keep;
        if part.holders.is_empty() {
            self.counts[1].active -= 1;
            self.clock += 1;
            part.stamp = self.clock;
            if part.keep {
                self.counts[1].cached += 1;
            } else {
                page.window = None;
            }
        }
    }

    /// The page let go of longest ago; of those let go of together, the last of its sequence.
    fn evict_full(&mut self) {
        let unheld = self.pages.iter().filter(|(_, page)| page.full.holders.is_empty());
        let oldest = unheld.min_by_key(|(key, page)| (page.full.stamp, Reverse(key.2.len())));
        let key = oldest.expect("something is cached").0.clone();
        assert!(!self.has_children(&key), "the oldest page has pages behind it");
        self.drop_page(&key, [0, 1]);
    }

    fn evict_window(&mut self) {
        let parts = self.pages.iter().filter_map(|(key, page)| Some((key, page.window.as_ref()?)));
        let unheld = parts.filter(|(_, part)| part.holders.is_empty());
        let key = unheld.min_by_key(|(_, part)| part.stamp).expect("something is cached").0.clone();
        self.pages.get_mut(&key).expect("just found").window = None;
        self.counts[1].cached -= 1;
        self.counts[1].evicted[0] += 1;
    }

    fn has_children(&self, key: &Prefix) -> bool {
        let longer = key.2.len() + self.shape.page_tokens;
        self.pages.keys().any(|(flushes, namespace, tokens)| {
            (*flushes, *namespace) == (key.0, key.1)
                && tokens.len() == longer
                && tokens.starts_with(&key.2)
        })
    }

    /// Drops a page; `why` is a reason for each pool.
    fn drop_page(&mut self, key: &Prefix, why: [usize; 2]) {
        let page = self.pages.remove(key).expect("it is there");
        assert!(page.full.holders.is_empty(), "held pages stay");
        self.counts[0].cached -= 1;
        self.counts[0].evicted[why[0]] += 1;
        if page.window.is_some() {
            self.counts[1].cached -= 1;
            self.counts[1].evicted[why[1]] += 1;
        }
    }
}
