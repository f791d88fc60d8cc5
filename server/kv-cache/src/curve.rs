//! The hit ratio that every other size of the host tier would have, from the requests that come.
//!
//! With an inclusive, write-through host tier and the least recently used page going first on both
//! tiers, device and host together hit exactly like one list of `max(C, floor(ratio * C))` pages,
//! `C` being the device's. So one recency list with a marker at each candidate's capacity answers
//! for all of them, exactly; models with a window pool have one small list per candidate beside it,
//! because what a candidate keeps there depends on where its own match ended. See
//! `docs/adr/018-hit-ratio-curve.md`.
//!
//! Pages are named by their chained hashes; keys that are equal are taken for the same prefix.
//! Synchronous, without a clock; the caller feeds it in the order of the engine's events.

mod list;
mod sample;
mod window;

#[cfg(test)]
mod tests;

use self::list::{Found, MarkedList};
use self::sample::Sampler;
use self::window::WindowList;
use crate::Retention;

/// Ratios that are followed by default, beside 0 and the one in force.
pub const CANDIDATE_RATIOS: [f64; 11] = [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0];

/// What the curve is drawn for.
#[derive(Debug, Clone, PartialEq)]
pub struct CurveOptions {
    /// Tokens of a page.
    pub page_tokens: usize,
    /// Pages of the device pool that keeps everything; at least 1.
    pub device_pages: usize,
    /// The window pool, where the model has one.
    pub window: Option<CurveWindow>,
    /// Host to device ratios to follow, in any order; 0 (the device alone) is added.
    pub ratios: Vec<f64>,
    /// Whether the last token of a prompt is always computed, so that a prompt of whole pages can
    /// hit all but its last one. True for an engine.
    pub computes_last_token: bool,
    /// Pages followed at most; at least 1. With one pool, a sample of so many stands for all once
    /// there are more. With a window pool candidates that would need more are left out: which pages
    /// a window keeps hangs on single pages, and a sample of them says nothing.
    pub max_pages: usize,
}

/// Why a curve starts again from nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResetReason {
    /// The cache was emptied.
    Flush,
    /// The weights have changed.
    Weights,
    /// The device pool has another size.
    Resize,
}

impl ResetReason {
    /// Every reason, in declaration order.
    pub const ALL: [Self; 3] = [Self::Flush, Self::Weights, Self::Resize];
}

/// The window pool of a model with two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CurveWindow {
    /// Its pages on the device.
    pub device_pages: usize,
    /// Which computed pages keep a page in it.
    pub retention: Retention,
}

/// Counters of one candidate; they only grow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Host to device ratio; 0 is the device alone.
    pub ratio: f64,
    /// Pages that device and host hold together in the pool that keeps everything.
    pub pages: usize,
    /// The same in the window pool; 0 without one.
    pub window_pages: usize,
    /// Of `pages`, how many slots the host tier has: `floor(ratio * device pages)`.
    pub host_pages: usize,
    /// The same for the window pool.
    pub host_window_pages: usize,
    /// Prompt tokens that would have been found.
    pub hit_tokens: u64,
    /// Prompt tokens that the full pool had and the window pool had lost.
    pub window_loss_tokens: u64,
    /// Whether the list has been long enough to trust this candidate.
    pub warm: bool,
}

/// The curve.
#[derive(Debug)]
pub struct HitCurve {
    options: CurveOptions,
    /// By ascending capacities, each pair of them once.
    sizes: Vec<Size>,
    /// Each candidate ratio, ascending, and the number of its size.
    ratios: Vec<(f64, usize)>,
    list: MarkedList,
    sampler: Sampler,
    lookup_tokens: u64,
    cold_tokens: f64,
    requests: u64,
    resets: [u64; ResetReason::ALL.len()],
    looked_up_pages: u64,
    /// Scratch: pages that a request pushed behind a marker.
    crossed: Vec<(usize, u64)>,
}

#[derive(Debug)]
struct Size {
    pages: usize,
    window: Option<WindowList>,
    /// Weighted where pages are sampled, and then it may fall by the correction of a request.
    hits: f64,
    /// The most that `hits` has been.
    hit_tokens: u64,
    window_loss_tokens: u64,
}

/// `ratio` times so many pages, as a host tier of that ratio is cut.
fn scaled(pages: usize, ratio: f64) -> usize {
    (pages as f64 * ratio) as usize
}

impl HitCurve {
    /// A curve of nothing yet.
    ///
    /// # Panics
    /// When a page has no tokens, the device no pages, or no page may be followed.
    #[must_use]
    pub fn new(options: CurveOptions) -> Self {
        Self::with_seed(options, 0)
    }

    /// A curve that draws another sample, where it must.
    fn with_seed(options: CurveOptions, seed: u64) -> Self {
        assert!(options.page_tokens > 0 && options.device_pages > 0, "pages hold tokens");
        assert!(options.max_pages > 0, "at least one page is followed");
        let mut ratios: Vec<f64> = options.ratios.clone();
        ratios.push(0.0);
        ratios.sort_by(f64::total_cmp);
        ratios.dedup();
        let held = |pages: usize, ratio: f64| pages.max(scaled(pages, ratio));
        let mut sizes: Vec<Size> = Vec::new();
        let mut places = Vec::new();
        for ratio in ratios {
            let pages = held(options.device_pages, ratio);
            let window = options.window.map(|window| held(window.device_pages, ratio));
            if window.is_some() && ratio > 1.0 && pages > options.max_pages {
                continue;
            }
            let same = |size: &Size| {
                (size.pages, size.window.as_ref().map(WindowList::capacity)) == (pages, window)
            };
            if !sizes.last().is_some_and(same) {
                let window = window.map(WindowList::new);
                sizes.push(Size { pages, window, hits: 0.0, hit_tokens: 0, window_loss_tokens: 0 });
            }
            places.push((ratio, sizes.len() - 1));
        }
        let list = MarkedList::new(sizes.iter().map(|size| size.pages).collect());
        Self {
            options,
            sizes,
            ratios: places,
            list,
            sampler: Sampler::new(seed),
            lookup_tokens: 0,
            cold_tokens: 0.0,
            requests: 0,
            resets: [0; ResetReason::ALL.len()],
            looked_up_pages: 0,
            crossed: Vec::new(),
        }
    }

    /// A request of `prompt_tokens` tokens is looked up for the first time; `keys` names its whole
    /// pages. Pages that nobody has computed yet count as missing until they are
    /// [published](Self::publish).
    pub fn lookup(&mut self, keys: &[u64], prompt_tokens: usize) {
        let page = self.options.page_tokens;
        let limit = if self.options.computes_last_token {
            prompt_tokens.saturating_sub(1) / page
        } else {
            prompt_tokens / page
        };
        let looked_up = &keys[..keys.len().min(limit)];
        self.requests += 1;
        self.lookup_tokens += prompt_tokens as u64;
        self.looked_up_pages += looked_up.len() as u64;
        self.count_hits(looked_up, keys);
        self.touch(keys, true);
    }

    /// The pages of `keys` are computed now, their whole prefix included: the pages of a prompt, or
    /// those of a prompt and its answer, of which the first `prompt_pages` have been looked up.
    pub fn publish(&mut self, keys: &[u64], prompt_pages: usize) {
        self.touch(keys, false);
        if let Some(window) = self.options.window
            && keys.len() > prompt_pages
        {
            let page = self.options.page_tokens;
            for list in self.sizes.iter_mut().filter_map(|size| size.window.as_mut()) {
                keep(list, keys, prompt_pages, prompt_pages, window.retention, page);
            }
        }
    }

    /// The request of `keys` ended before all of them were computed: what nobody has computed is
    /// forgotten.
    pub fn abort(&mut self, keys: &[u64]) {
        for key in keys.iter().rev() {
            if self.list.drop_pending(*key) {
                self.sizes.iter_mut().filter_map(|size| size.window.as_mut()).for_each(|window| {
                    window.remove(*key);
                });
            }
        }
    }

    /// Starts again from nothing; counters keep their values, and so does the sample.
    pub fn reset(&mut self, reason: ResetReason) {
        self.resets[reason as usize] += 1;
        self.list = MarkedList::new(self.capacities());
        self.looked_up_pages = 0;
        for window in self.sizes.iter_mut().filter_map(|size| size.window.as_mut()) {
            *window = WindowList::new(window.capacity());
        }
    }

    /// Each candidate, by ascending ratio.
    pub fn candidates(&self) -> impl Iterator<Item = Candidate> {
        let window = self.options.window.map_or(0, |window| window.device_pages);
        self.ratios.iter().map(move |(ratio, index)| {
            let size = &self.sizes[*index];
            Candidate {
                host_pages: scaled(self.options.device_pages, *ratio),
                host_window_pages: scaled(window, *ratio),
                ratio: *ratio,
                pages: size.pages,
                window_pages: size.window.as_ref().map_or(0, WindowList::capacity),
                hit_tokens: size.hit_tokens,
                window_loss_tokens: size.window_loss_tokens,
                warm: self.is_warm(*index),
            }
        })
    }

    /// Prompt tokens of the requests seen.
    #[must_use]
    pub const fn lookup_tokens(&self) -> u64 {
        self.lookup_tokens
    }

    /// Tokens of pages that were not followed when they were looked up: no candidate could have
    /// had them.
    #[must_use]
    pub const fn cold_tokens(&self) -> u64 {
        self.cold_tokens as u64
    }

    /// How often it started again, for this reason.
    #[must_use]
    pub const fn resets(&self, reason: ResetReason) -> u64 {
        self.resets[reason as usize]
    }

    /// The share of pages that is followed; 1 when the curve is exact.
    #[must_use]
    pub fn sampling_ratio(&self) -> f64 {
        self.sampler.rate()
    }

    /// Requests seen.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.requests
    }

    /// Pages followed now.
    #[must_use]
    pub fn tracked_pages(&self) -> usize {
        self.list.len()
    }

    fn is_warm(&self, size: usize) -> bool {
        let enough = self.looked_up_pages >= 10 * self.sizes[size].pages as u64;
        self.list.reached() > size || (self.list.dropped() == 0 && enough)
    }

    /// Where the list is cut: the sizes, by the share of pages that is in it.
    fn capacities(&self) -> Vec<usize> {
        let rate = self.sampler.rate();
        let cut = |size: &Size| ((size.pages as f64 * rate).round() as usize).max(1);
        self.sizes.iter().map(cut).collect()
    }

    /// Follows fewer pages once there are too many. One in sixteen goes at a time, so that this
    /// costs little per page: it goes through the whole list.
    fn sample(&mut self) {
        // A request may bring more pages than may be followed; nobody looks at them in between.
        if self.list.len() <= self.options.max_pages || self.options.window.is_some() {
            return;
        }
        let most = self.options.max_pages - self.options.max_pages / 16;
        self.sampler.shrink(self.list.keys(), most);
        let (capacities, sampler) = (self.capacities(), self.sampler);
        self.list.resample(capacities, |key| sampler.takes(key));
    }

    fn count_hits(&mut self, looked_up: &[u64], keys: &[u64]) {
        let page = self.options.page_tokens as f64;
        let weight = self.sampler.rate().recip();
        // The followed pages that candidate `size` finds in the full pool are those before the
        // first one beyond it; ends only grow with the size.
        let mut ends = vec![usize::MAX; self.sizes.len()];
        let (mut open, mut seen) = (0, 0);
        for key in looked_up.iter().filter(|key| self.sampler.takes(**key)) {
            let first = match self.list.find(*key) {
                Found::Within(segment) => usize::from(segment),
                Found::Pending => self.sizes.len(),
                Found::Absent => {
                    self.cold_tokens += page * weight;
                    self.sizes.len()
                }
            };
            while open < first {
                ends[open] = seen;
                open += 1;
            }
            seen += 1;
        }
        // What the sample has too little of is in what everybody asks for: it hits in every size.
        let correction = looked_up.len() as f64 - seen as f64 * weight;
        let window = self.options.window;
        for (size, end) in self.sizes.iter_mut().zip(ends) {
            let end = end.min(seen);
            let hit = match &mut size.window {
                None => end,
                Some(list) => {
                    let hit = (1..=end).rev().find(|pages| list.has(looked_up[pages - 1]));
                    let hit = hit.unwrap_or(0);
                    let retention = window.map_or(Retention::All, |window| window.retention);
                    keep(list, keys, hit, end, retention, self.options.page_tokens);
                    hit
                }
            };
            size.hits += (hit as f64 * weight + correction) * page;
            size.hit_tokens = size.hit_tokens.max(size.hits as u64);
            size.window_loss_tokens += (end - hit) as u64 * page as u64;
        }
    }

    fn touch(&mut self, keys: &[u64], pending: bool) {
        let Self { list, crossed, sizes, options, sampler, .. } = self;
        crossed.clear();
        let follows_windows = options.window.is_some();
        // The last page first: so a page is always more recent than those behind it, and the list
        // drops leaves first.
        for key in keys.iter().rev().filter(|key| sampler.takes(**key)) {
            list.touch(*key, pending, &mut |candidate, key| {
                if follows_windows {
                    crossed.push((candidate, key));
                }
            });
        }
        // Pages of the request itself cross and come back.
        for (candidate, key) in crossed.drain(..) {
            if !list.is_within(key, candidate)
                && let Some(window) = &mut sizes[candidate].window
            {
                window.remove(key);
            }
        }
        self.sample();
    }
}

/// What a candidate does in its window pool with a request whose match ended after `hit` pages,
/// and after `full` in the pool that keeps everything.
fn keep(
    list: &mut WindowList,
    keys: &[u64],
    hit: usize,
    full: usize,
    retention: Retention,
    page_tokens: usize,
) {
    if hit > 0 {
        list.touch(keys[hit - 1]);
    }
    let last = keys.len();
    let every = match retention {
        Retention::All => Some(1),
        Retention::TailEvery(tokens) => Some((tokens / page_tokens).max(1)),
        Retention::Tail | Retention::TailBranch => None,
    };
    let branch = retention == Retention::TailBranch;
    for pages in hit + 1..=last {
        let kept = pages == last
            || every.is_some_and(|every| pages % every == 0)
            || (branch && pages == full);
        if kept {
            list.touch(keys[pages - 1]);
        }
    }
}
