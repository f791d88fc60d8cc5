//! Links to workers that do not exist: they fill landed pages and read those that are sent, late,
//! in any order, and after the request has ended, until they say that they have let go.
//!
//! They know what each row must hold. So a page that is somebody else's when a link writes into it
//! is found by the witness, and one that is somebody else's when a link reads it is found here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kv_cache::PoolSpec;
use memory_pool::{LayerProgress, ProgressState};
use model::PartSpec;
use transfer::{CachedTokens, Chunk, Failure, LandPages, Landing, News, RemoteTimes, Sending};
use types::{PageId, PoolId, RequestId, TokenId};

use super::load::{Kind, Wish};
use crate::dice::Dice;
use crate::witness::{Bytes, Row, Witness, lock};

/// A page of a sequence: pool, index, id.
type Page = (PoolId, usize, PageId);

/// How a transfer ended, as far as the link is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// Everything is where it should be.
    Well,
    /// The link said so.
    Failed(Failure),
    /// The engine said so.
    Abandoned(Failure),
}

struct Transfer {
    sends: bool,
    /// What its pages hold: without the last token of a prompt that is landed.
    tokens: Vec<TokenId>,
    texts: Vec<u64>,
    /// Turns until it does something next.
    due: u64,
    /// How many more things it does before it fails, where it fails.
    fails_in: Option<u64>,
    over: Option<Over>,
    settled: bool,
    /// Decode: pages to fill, once there are any, and how many are.
    landed: Option<(usize, Vec<Page>)>,
    started: bool,
    filled: usize,
    /// Prefill: what the receiver has; known once it was told.
    skip: Option<usize>,
    chunks: Vec<Chunk>,
    /// Chunks that were read.
    read: usize,
}

impl Transfer {
    fn new(wish: &Wish, fails_in: Option<u64>, due: u64) -> Self {
        let sends = wish.kind == Kind::Send;
        let len = wish.prompt.len() - usize::from(!sends);
        let tokens = wish.prompt[..len].to_vec();
        let texts = Witness::texts(&tokens);
        Self {
            sends,
            tokens,
            texts,
            due,
            fails_in,
            over: None,
            settled: false,
            landed: None,
            started: false,
            filled: 0,
            skip: None,
            chunks: Vec::new(),
            read: 0,
        }
    }

    /// Whether the link may still touch pages.
    fn is_open(&self) -> bool {
        !self.settled && self.over != Some(Over::Well)
    }

    /// The pages that it must have sent.
    fn wanted(&self, specs: &[PoolSpec]) -> Vec<(PoolId, usize)> {
        let (total, skip) = (self.tokens.len(), self.skip.unwrap_or(0));
        let of = |(spec, pool): (&PoolSpec, u16)| {
            let from = spec.first_kept(total).max(skip / spec.page_tokens);
            (from..spec.pages_for(total)).map(move |index| (PoolId(pool), index))
        };
        specs.iter().zip(0..).flat_map(of).collect()
    }
}

/// All links of a world.
pub(super) struct Links {
    dice: Dice,
    parts: Vec<(PoolId, PartSpec)>,
    page_tokens: usize,
    bytes: Bytes,
    transfers: BTreeMap<RequestId, Transfer>,
    /// Chance, of 1000, that a transfer fails.
    fails: u64,
    /// Most turns between two things that it does.
    pace: u64,
    /// The first thing that must never be.
    pub(super) wrong: Option<String>,
    pub(super) counts: BTreeMap<&'static str, u64>,
}

pub(super) type Shared = Arc<Mutex<Links>>;

impl Links {
    pub(super) fn new(witness: &Witness, page_tokens: usize, seed: u64) -> Shared {
        let mut dice = Dice::new(seed ^ 0x11c5);
        Arc::new(Mutex::new(Self {
            fails: dice.pick(&[0, 100, 400]),
            pace: dice.pick(&[1, 4, 30]),
            dice,
            parts: witness.parts().to_vec(),
            page_tokens,
            bytes: witness.bytes(),
            transfers: BTreeMap::new(),
            wrong: None,
            counts: BTreeMap::new(),
        }))
    }

    /// A request goes to the engine with a link.
    pub(super) fn open(&mut self, id: RequestId, wish: &Wish) {
        if wish.kind == Kind::Local {
            return;
        }
        let fails = self.dice.chance(self.fails);
        let fails_in = fails.then(|| self.dice.within(0..=6));
        let due = self.dice.within(0..=self.pace);
        self.transfers.insert(id, Transfer::new(wish, fails_in, due));
    }

    /// The request was not accepted after all.
    pub(super) fn close(&mut self, id: RequestId) {
        self.transfers.remove(&id);
    }

    pub(super) fn over(&self, id: RequestId) -> Option<Over> {
        self.transfers.get(&id)?.over
    }

    /// Whether something will be told without anything else happening.
    pub(super) fn pending(&self) -> bool {
        self.transfers.values().any(Transfer::is_open)
    }

    /// Between two turns: whoever's time has come does something. Returns what is told.
    pub(super) fn act(&mut self) -> Vec<(RequestId, News)> {
        let mut told = Vec::new();
        let mut transfers = std::mem::take(&mut self.transfers);
        for (id, transfer) in transfers.iter_mut().filter(|(_, transfer)| transfer.is_open()) {
            if transfer.due > 0 {
                transfer.due -= 1;
                continue;
            }
            transfer.due = self.dice.within(0..=self.pace);
            let news = if transfer.over.is_some() {
                self.linger(transfer)
            } else if transfer.fails_in == Some(0) {
                let reasons = [Failure::PeerAbort, Failure::PeerGone, Failure::Checksum];
                let why = self.dice.pick(&reasons);
                transfer.over = Some(Over::Failed(why));
                *self.counts.entry("transfers that failed").or_default() += 1;
                Some(News::Failed(why))
            } else {
                transfer.fails_in = transfer.fails_in.map(|left| left - 1);
                if transfer.sends { self.send(*id, transfer) } else { self.receive(transfer) }
            };
            told.extend(news.map(|news| (*id, news)));
        }
        self.transfers = transfers;
        told
    }

    /// It is over without success, and still reads or writes for a while.
    fn linger(&mut self, transfer: &mut Transfer) -> Option<News> {
        if let Some((_, pages)) = &transfer.landed {
            let pages = pages.clone();
            for page in pages {
                self.each_row(transfer, page, |row, _| *row = [u64::MAX, 0xbad]);
            }
        }
        self.read_again(transfer);
        self.dice.chance(300).then(|| {
            transfer.settled = true;
            News::Settled
        })
    }

    /// Decode: as a prefill worker does it.
    fn receive(&mut self, transfer: &mut Transfer) -> Option<News> {
        let (_, pages) = transfer.landed.clone()?;
        if !transfer.started {
            transfer.started = true;
            return Some(News::Started);
        }
        let from = transfer.filled;
        transfer.filled = self.dice.size(from..=pages.len());
        for page in &pages[from..transfer.filled] {
            self.each_row(transfer, *page, |row, expected| *row = expected);
        }
        if transfer.filled < pages.len() {
            return (from == 0).then_some(News::FirstByte);
        }
        transfer.over = Some(Over::Well);
        *self.counts.entry("transfers that arrived").or_default() += 1;
        let (queued, prefill) = (Duration::from_micros(50), Duration::from_micros(700));
        Some(News::Arrived(RemoteTimes { queued, prefill, cached: CachedTokens::default() }))
    }

    /// Prefill: as a decode worker does it.
    fn send(&mut self, id: RequestId, transfer: &mut Transfer) -> Option<News> {
        if transfer.skip.is_none() {
            let whole = transfer.tokens.len() / self.page_tokens;
            let skip = if self.dice.chance(500) { 0 } else { self.dice.size(0..=whole) };
            transfer.skip = Some(skip * self.page_tokens);
            return Some(News::Wanted { skip_tokens: skip * self.page_tokens });
        }
        self.read_again(transfer);
        let next = transfer.chunks.get(transfer.read)?;
        let state = next.progress.as_ref().map_or(ProgressState::Finished, LayerProgress::state);
        match state {
            ProgressState::Running => self.wrong(format!("{id}: a pass that did not end")),
            ProgressState::Failed => transfer.over = Some(Over::Failed(Failure::Internal)),
            ProgressState::Finished => {}
        }
        let (fence, last) = (next.fence, next.last);
        if state != ProgressState::Finished {
            return Some(News::Failed(Failure::Internal));
        }
        transfer.read += 1;
        self.read_again(transfer);
        if !last {
            return Some(News::Passed(fence));
        }
        transfer.over = Some(Over::Well);
        *self.counts.entry("transfers that were delivered").or_default() += 1;
        Some(News::Delivered)
    }

    /// Everything that was sent and computed must still be there.
    fn read_again(&mut self, transfer: &Transfer) {
        for chunk in &transfer.chunks {
            let computed = match &chunk.progress {
                None => true,
                Some(progress) => progress.state() == ProgressState::Finished,
            };
            for page in chunk.pages.iter().filter(|_| computed) {
                self.check(transfer, *page, usize::MAX);
            }
        }
    }

    /// The first layers of a page that was sent hold what they should.
    fn check(&mut self, transfer: &Transfer, page: Page, layers: usize) {
        let mut wrong = None;
        self.each_row_of(transfer, page, layers, |row, expected| {
            if *row != expected {
                wrong = Some(format!("{page:?} on the wire holds {row:x?}, not {expected:x?}"));
            }
        });
        wrong.into_iter().for_each(|wrong| self.wrong(wrong));
    }

    fn wrong(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    fn each_row(&self, transfer: &Transfer, page: Page, each: impl FnMut(&mut Row, Row)) {
        self.each_row_of(transfer, page, usize::MAX, each);
    }

    /// Shows each row of a page in the model's first `layers` layers, with what it should be.
    fn each_row_of(
        &self,
        transfer: &Transfer,
        (pool, index, page): Page,
        layers: usize,
        mut each: impl FnMut(&mut Row, Row),
    ) {
        let mut bytes = lock(&self.bytes);
        let device = bytes.as_mut().expect("pages are allocated");
        let first = index * self.page_tokens;
        let end = transfer.tokens.len().min(first + self.page_tokens);
        let parts = self.parts.iter().enumerate().filter(|(_, (of, _))| *of == pool);
        for (part, (_, spec)) in parts {
            for (at, layer) in spec.layers.iter().enumerate().filter(|(_, own)| **own < layers) {
                let rows = device.block_mut::<Row>(part, page, at);
                for (slot, position) in (first..end).enumerate() {
                    let (text, token) = (transfer.texts[position], transfer.tokens[position]);
                    each(&mut rows[slot], Witness::row(text, part, *layer, position, token));
                }
            }
        }
    }

    fn land(&mut self, id: RequestId, skip: usize, pages: Vec<LandPages>, specs: &[PoolSpec]) {
        let Some(mut transfer) = self.transfers.remove(&id) else {
            return self.wrong(format!("request {id} landed and has no link"));
        };
        transfer.skip = Some(skip);
        let pages = pages.into_iter().flat_map(|LandPages { pool, first_index, pages }| {
            (first_index..).zip(pages).map(move |(index, page)| (pool, index, page))
        });
        let pages: Vec<Page> = pages.collect();
        let named: Vec<_> = pages.iter().map(|(pool, index, _)| (*pool, *index)).collect();
        let wanted = transfer.wanted(specs);
        if named != wanted {
            self.wrong(format!("request {id} landed {named:?} instead of {wanted:?}"));
        }
        // Until the rows come there is anything in them.
        for page in &pages {
            self.each_row(&transfer, *page, |row, _| *row = [u64::MAX, 0xa11]);
        }
        transfer.landed = Some((skip, pages));
        self.transfers.insert(id, transfer);
    }

    fn chunk(&mut self, id: RequestId, chunk: Chunk, specs: &[PoolSpec]) {
        let Some(mut transfer) = self.transfers.remove(&id) else {
            return self.wrong(format!("request {id} sends and has no link"));
        };
        if transfer.over.is_some() || transfer.skip.is_none() {
            self.wrong(format!("request {id} sends at the wrong time: {:?}", transfer.over));
        }
        let before = transfer.chunks.last();
        if before.is_some_and(|before| before.last || before.fence >= chunk.fence) {
            self.wrong(format!("request {id}: {chunk:?} after {before:?}"));
        }
        if chunk.progress.is_none() {
            *self.counts.entry("pages sent before their pass").or_default() += 1;
            for page in &chunk.pages {
                self.check(&transfer, *page, usize::MAX);
            }
        }
        let last = chunk.last;
        transfer.chunks.push(chunk);
        if last {
            let pages = transfer.chunks.iter().flat_map(|chunk| &chunk.pages);
            let mut named: Vec<_> = pages.map(|(pool, index, _)| (*pool, *index)).collect();
            named.sort_unstable();
            let mut wanted = transfer.wanted(specs);
            wanted.sort_unstable();
            if named != wanted {
                self.wrong(format!("request {id} sent {named:?} instead of {wanted:?}"));
            }
        }
        self.transfers.insert(id, transfer);
    }

    fn abandon(&mut self, id: RequestId, why: Failure) {
        // What it has said of the end may still be on its way.
        if let Some(transfer) = self.transfers.get_mut(&id) {
            transfer.over.get_or_insert(Over::Abandoned(why));
        }
    }
}

/// What the engine holds of one link.
pub(super) struct End {
    pub(super) id: RequestId,
    pub(super) links: Shared,
    pub(super) specs: Vec<PoolSpec>,
}

impl Landing for End {
    fn land(&mut self, tokens: usize, skip_tokens: usize, pages: Vec<LandPages>) {
        let mut links = self.links.lock().expect("one thread");
        if links.transfers.get(&self.id).is_some_and(|transfer| transfer.tokens.len() != tokens) {
            links.wrong(format!("request {} lands {tokens} tokens", self.id));
        }
        links.land(self.id, skip_tokens, pages, &self.specs);
    }

    fn abandon(&mut self, why: Failure) {
        self.links.lock().expect("one thread").abandon(self.id, why);
    }
}

impl Sending for End {
    fn chunk(&mut self, chunk: Chunk) {
        if let Some(progress) = chunk.progress.clone() {
            let (links, id, pass) = (Arc::clone(&self.links), self.id, progress.clone());
            let pages = chunk.pages.clone();
            // Reads each layer as soon as it may.
            progress.on_change(Box::new(move || {
                let mut links = links.lock().expect("one thread");
                let Some(transfer) = links.transfers.remove(&id) else { return };
                if pass.state() != ProgressState::Failed {
                    pages.iter().for_each(|page| links.check(&transfer, *page, pass.layers()));
                    *links.counts.entry("layers read during their pass").or_default() += 1;
                }
                links.transfers.insert(id, transfer);
            }));
        }
        let mut links = self.links.lock().expect("one thread");
        links.chunk(self.id, chunk, &self.specs);
    }

    fn abandon(&mut self, why: Failure) {
        self.links.lock().expect("one thread").abandon(self.id, why);
    }
}
