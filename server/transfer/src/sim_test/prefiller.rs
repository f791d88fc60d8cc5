//! A prefill worker's engine: computes what is wanted, sends it, and gives up at any time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use memory_pool::LayerProgress;
use types::{PageId, PoolId, RequestId};

use super::pages::{LAYERS, PAGE_TOKENS, TestPages, wanted};
use super::tally::{Ends, Tally};
use crate::link::{Accepted, Chunk, News, Offers, Sending};
use crate::loopback::{Dice, NodeId};
use crate::message::{CachedTokens, Offer, Rejected};
use crate::port::PrefillPort;
use crate::room::PeerName;
use crate::{Failure, NewsSink};

/// What comes in: by the link's calls, looked at later, as an engine's mailbox is.
enum Mail {
    Submit(RequestId, Offer, Box<dyn Sending>),
    News(RequestId, News),
}

/// The server in front of the engine.
pub(super) struct Desk {
    mail: Mutex<VecDeque<Mail>>,
    dice: Mutex<Dice>,
    next: Mutex<u64>,
    refuse: u32,
}

impl Desk {
    pub(super) fn new(dice: Dice, refuse: u32) -> Arc<Self> {
        let (mail, dice, next) = (Mutex::default(), Mutex::new(dice), Mutex::new(0));
        Arc::new(Self { mail, dice, next, refuse })
    }
}

impl Offers for Desk {
    fn offer(
        &self,
        _: &PeerName,
        offer: Offer,
        sending: Box<dyn Sending>,
    ) -> Result<Accepted, Rejected> {
        if self.dice.lock().unwrap().chance(self.refuse) {
            let retry_after = Duration::from_secs(3);
            return Err(Rejected { reason: 1, retry_after, value: 9, limit: 8 });
        }
        let mut next = self.next.lock().unwrap();
        *next += 1;
        let request = RequestId(*next);
        self.mail.lock().unwrap().push_back(Mail::Submit(request, offer, sending));
        Ok(Accepted { request, drain: Duration::from_millis(7) })
    }
}

impl NewsSink for Desk {
    fn news(&self, request: RequestId, news: News) {
        self.mail.lock().unwrap().push_back(Mail::News(request, news));
    }
}

/// A forward pass that runs.
struct Pass {
    progress: LayerProgress,
    /// What it computes, and up to which layer it has.
    pages: Vec<(PoolId, usize, PageId)>,
    layers: usize,
}

enum Stage {
    /// The decode worker has no pages yet.
    Bootstrap,
    /// It may run.
    Waiting,
    /// Some of it is computed.
    Running { computed: usize, pass: Option<Pass> },
    /// All of it is.
    Sending,
    /// It is over, but the link may still read.
    Held,
}

struct Request {
    /// The number of the request, which both sides know.
    number: u64,
    tokens: usize,
    skip: usize,
    link: Option<Box<dyn Sending>>,
    stage: Stage,
    /// All pages of the sequence, from the first wanted one on.
    pages: [Vec<PageId>; 2],
    fence: u64,
    passed: u64,
    failed: bool,
    /// It was let go of without a word.
    dropped: bool,
}

pub(super) struct Prefiller {
    pub(super) node: NodeId,
    pub(super) port: Arc<PrefillPort>,
    pub(super) desk: Arc<Desk>,
    pub(super) pages: Arc<TestPages>,
    pub(super) ends: Arc<Ends>,
    requests: BTreeMap<RequestId, Request>,
}

impl Prefiller {
    pub(super) fn new(
        node: NodeId,
        port: Arc<PrefillPort>,
        desk: Arc<Desk>,
        pages: Arc<TestPages>,
        ends: Arc<Ends>,
    ) -> Self {
        Self { node, port, desk, pages, ends, requests: BTreeMap::new() }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.requests.is_empty() && self.desk.mail.lock().unwrap().is_empty()
    }

    /// What has not ended.
    pub(super) fn left(&self) -> Vec<(u64, &'static str)> {
        let left = self.requests.values().map(|request| {
            let stage = match request.stage {
                Stage::Bootstrap => "bootstrap",
                Stage::Waiting => "waiting",
                Stage::Running { .. } => "running",
                Stage::Sending => "sending",
                Stage::Held => "held",
            };
            (request.number, stage)
        });
        left.collect()
    }

    /// Looks at one piece of mail.
    pub(super) fn read(&mut self, tally: &mut Tally) -> bool {
        let Some(mail) = self.desk.mail.lock().unwrap().pop_front() else { return false };
        match mail {
            Mail::Submit(id, offer, link) => {
                tally.accepted += 1;
                let request = Request {
                    number: offer.request.parse().unwrap(),
                    tokens: offer.tokens.len(),
                    skip: 0,
                    link: Some(link),
                    stage: Stage::Bootstrap,
                    pages: [Vec::new(), Vec::new()],
                    fence: 0,
                    passed: 0,
                    failed: false,
                    dropped: false,
                };
                assert!(self.requests.insert(id, request).is_none());
            }
            Mail::News(id, news) => self.hear(id, news, tally),
        }
        true
    }

    fn hear(&mut self, id: RequestId, news: News, tally: &mut Tally) {
        let request = self.requests.get_mut(&id).expect("news come before the end");
        match (news, &request.stage) {
            (News::Wanted { skip_tokens }, Stage::Bootstrap) => {
                request.skip = skip_tokens;
                request.stage = Stage::Waiting;
            }
            (News::Passed(fence), _) => {
                assert!(fence > request.passed && fence <= request.fence, "{fence}");
                request.passed = fence;
            }
            (News::Delivered, Stage::Sending) => {
                assert_eq!(request.passed, request.fence, "everything was read");
                tally.delivered.insert(request.number);
                self.free(id);
            }
            (News::Failed(failure), stage) => {
                assert!(!request.failed, "it fails once");
                request.failed = true;
                if !matches!(stage, Stage::Held) || request.link.is_some() {
                    tally.told(failure);
                }
                request.stop();
            }
            (News::Settled, Stage::Held) => self.free(id),
            // Without a word nothing else comes.
            (News::Delivered, Stage::Held) if request.dropped => self.free(id),
            // On its way when the request was given up; `Settled` follows.
            (News::Wanted { .. } | News::Delivered, Stage::Held) => {}
            (other, _) => panic!("request {} hears {other:?}", request.number),
        }
    }

    fn free(&mut self, id: RequestId) {
        let request = self.requests.remove(&id).unwrap();
        self.pages.give_back(request.pages);
    }

    fn pick(&self, dice: &mut Dice) -> Option<RequestId> {
        let ids: Vec<RequestId> = self.requests.keys().copied().collect();
        (!ids.is_empty()).then(|| ids[dice.below(ids.len())])
    }

    /// Gives one request up.
    pub(super) fn abandon(&mut self, dice: &mut Dice, tally: &mut Tally) {
        let Some(id) = self.pick(dice) else { return };
        let request = self.requests.get_mut(&id).unwrap();
        let Some(mut link) = request.link.take() else { return };
        tally.given_up += 1;
        request.dropped = dice.chance(500);
        if !request.dropped {
            link.abandon(Failure::LocalAbort);
        }
        drop(link);
        request.stop();
    }

    /// Goes on with every request by a step. `fail`: in so many of 1000, the pass fails.
    pub(super) fn work(&mut self, dice: &mut Dice, fail: u32) {
        let ids: Vec<RequestId> = self.requests.keys().copied().collect();
        for id in ids {
            self.step(id, dice, fail);
        }
    }

    fn step(&mut self, id: RequestId, dice: &mut Dice, fail: u32) {
        let request = self.requests.get_mut(&id).unwrap();
        match &mut request.stage {
            Stage::Bootstrap | Stage::Sending | Stage::Held => {}
            Stage::Waiting => {
                let wanted = wanted(request.tokens, request.skip).map(|(_, pages)| pages);
                if let Some(pages) = self.pages.take(wanted) {
                    request.pages = pages;
                    request.stage = Stage::Running { computed: request.skip, pass: None };
                }
            }
            Stage::Running { computed, pass: None } => {
                let rest = request.tokens - *computed;
                let len = (1 + dice.below(12)).min(rest);
                let from = *computed;
                *computed += len;
                request.send(from, from + len, dice);
            }
            Stage::Running { computed, pass: Some(pass) } => {
                if dice.chance(fail) {
                    // The link notices by itself.
                    pass.progress.fail();
                    request.stage = Stage::Held;
                    return;
                }
                if pass.layers < LAYERS {
                    for (pool, index, page) in &pass.pages {
                        let number = request.number;
                        self.pages.compute(number, *pool, *index, *page, pass.layers);
                    }
                    pass.layers += 1;
                    pass.progress.advance(0, pass.layers);
                    return;
                }
                pass.progress.finish();
                if *computed == request.tokens {
                    request.stage = Stage::Sending;
                } else {
                    request.stage = Stage::Running { computed: *computed, pass: None };
                }
            }
        }
    }
}

impl Request {
    /// It is over for the engine; the link lets go of it later.
    fn stop(&mut self) {
        self.stage = Stage::Held;
        self.link = None;
    }

    /// Gives the pages that tokens `from..to` complete to the link, and begins to compute them.
    fn send(&mut self, from: usize, to: usize, dice: &mut Dice) {
        let last = to == self.tokens;
        let [(first, _), (kept, _)] = wanted(self.tokens, self.skip);
        let done = if last { to.div_ceil(PAGE_TOKENS) } else { to / PAGE_TOKENS };
        let mut pages = Vec::new();
        for index in (from / PAGE_TOKENS).max(first)..done {
            pages.push((PoolId(0), index, self.pages[0][index - first]));
        }
        if last {
            let window = self.pages[1].iter().enumerate();
            pages.extend(window.map(|(at, page)| (PoolId(1), kept + at, *page)));
        }
        // The order inside of a chunk is anybody's.
        if dice.chance(200) {
            pages.reverse();
        }
        self.fence += 1 + u64::from(dice.chance(100));
        let progress = LayerProgress::new(1, LAYERS);
        let cached = CachedTokens { device: self.number, ..CachedTokens::default() };
        let chunk = Chunk {
            fence: self.fence,
            pages: pages.clone(),
            progress: Some(progress.clone()),
            last,
            cached,
        };
        self.link.as_mut().expect("it runs").chunk(chunk);
        let pass = Some(Pass { progress, pages, layers: 0 });
        self.stage = Stage::Running { computed: to, pass };
    }
}
