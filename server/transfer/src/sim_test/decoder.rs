//! A decode worker's engine: offers, gives pages, and gives up at any time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use types::{PageId, PoolId, Priority, RequestId, TokenId};

use super::pages::{PAGE_TOKENS, TestPages, wanted};
use super::tally::{Ends, Tally};
use crate::link::{Backend, LandPages, Landing, News, NotOffered, Offered, Prompt};
use crate::loopback::{Dice, NodeId};
use crate::port::DecodePort;
use crate::room::PeerName;
use crate::{Failure, NewsSink};

/// What comes in.
enum Mail {
    Answer(RequestId, Result<Offered, NotOffered>),
    News(RequestId, News),
}

#[derive(Default)]
pub(super) struct Mailbox {
    mail: Mutex<VecDeque<Mail>>,
}

impl NewsSink for Mailbox {
    fn news(&self, request: RequestId, news: News) {
        self.mail.lock().unwrap().push_back(Mail::News(request, news));
    }
}

enum Stage {
    /// There is no answer.
    Asked,
    /// It waits for pages.
    Prealloc(Box<dyn Landing>),
    /// Pages are given.
    Landed(Box<dyn Landing>),
    /// It is over, but the link may still write.
    Held,
}

struct Request {
    number: u64,
    /// Tokens to compute elsewhere.
    tokens: usize,
    skip: usize,
    stage: Stage,
    pages: [Vec<PageId>; 2],
    heard: Vec<News>,
}

pub(super) struct Decoder {
    pub(super) node: NodeId,
    pub(super) port: Arc<DecodePort>,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) pages: Arc<TestPages>,
    pub(super) ends: Arc<Ends>,
    requests: BTreeMap<RequestId, Request>,
    next: u64,
}

impl Decoder {
    pub(super) fn new(
        node: NodeId,
        port: Arc<DecodePort>,
        mailbox: Arc<Mailbox>,
        pages: Arc<TestPages>,
        ends: Arc<Ends>,
    ) -> Self {
        Self { node, port, mailbox, pages, ends, requests: BTreeMap::new(), next: 0 }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.requests.is_empty() && self.mailbox.mail.lock().unwrap().is_empty()
    }

    /// A client asks; `number` names the request in the whole simulation.
    pub(super) fn ask(&mut self, number: u64, peer: &PeerName, dice: &mut Dice, tally: &mut Tally) {
        self.next += 1;
        let id = RequestId(self.next);
        let tokens = 1 + dice.below(40);
        let prompt = Prompt {
            request: number.to_string(),
            traceparent: None,
            tokens: (0..tokens as u32).map(TokenId).collect(),
            namespace: Vec::new(),
            priority: Priority::NORMAL,
            tenant: None,
        };
        let pages = [Vec::new(), Vec::new()];
        let (stage, skip, heard) = (Stage::Asked, 0, Vec::new());
        let request = Request { number, tokens, skip, stage, pages, heard };
        self.requests.insert(id, request);
        tally.asked += 1;
        let mailbox = Arc::clone(&self.mailbox);
        let answered =
            move |answer| mailbox.mail.lock().unwrap().push_back(Mail::Answer(id, answer));
        self.port.offer(peer, id, prompt, Box::new(answered));
    }

    /// What has not ended.
    pub(super) fn left(&self) -> Vec<(u64, &'static str)> {
        let left = self.requests.values().map(|request| {
            let stage = match request.stage {
                Stage::Asked => "asked",
                Stage::Prealloc(_) => "prealloc",
                Stage::Landed(_) => "landed",
                Stage::Held => "held",
            };
            (request.number, stage)
        });
        left.collect()
    }

    /// Looks at one piece of mail.
    pub(super) fn read(&mut self, tally: &mut Tally) -> bool {
        let Some(mail) = self.mailbox.mail.lock().unwrap().pop_front() else { return false };
        match mail {
            Mail::Answer(id, answer) => {
                let request = self.requests.get_mut(&id).expect("an answer comes first");
                assert!(matches!(request.stage, Stage::Asked), "one answer");
                match answer {
                    Ok(offered) => request.stage = Stage::Prealloc(offered.landing),
                    Err(NotOffered::Rejected(_)) => {
                        tally.rejected += 1;
                        self.requests.remove(&id);
                    }
                    Err(NotOffered::Failed(failure)) => {
                        tally.unanswered += 1;
                        tally.told(failure);
                        self.requests.remove(&id);
                    }
                    Err(other @ NotOffered::Invalid { .. }) => panic!("{other}"),
                }
            }
            Mail::News(id, news) => self.hear(id, news, tally),
        }
        true
    }

    fn hear(&mut self, id: RequestId, news: News, tally: &mut Tally) {
        // Those of a request that has ended are nobody's: a failure is told twice where it came
        // before the pages were given.
        let Some(request) = self.requests.get_mut(&id) else {
            assert!(matches!(news, News::Failed(_) | News::Settled), "{news:?} after the end");
            return;
        };
        match (news, &request.stage) {
            (News::Started | News::FirstByte, Stage::Landed(_)) => {
                assert!(!request.heard.contains(&news), "{news:?} twice");
            }
            (News::Arrived(times), Stage::Landed(_)) => {
                assert!(!request.heard.iter().any(|heard| matches!(heard, News::Failed(_))));
                assert_eq!(times.cached.device, request.number, "the last chunk's");
                request.check(&self.pages);
                tally.arrived.insert(request.number);
                self.free(id);
                return;
            }
            (News::Failed(failure), Stage::Prealloc(_) | Stage::Landed(_)) => {
                tally.told(failure);
                request.stage = Stage::Held;
            }
            (News::Settled, Stage::Held) => {
                self.free(id);
                return;
            }
            // On their way when it was given up.
            (News::Arrived(_), Stage::Held) => {
                tally.arrived.insert(request.number);
            }
            (News::Started | News::FirstByte | News::Failed(_), Stage::Held) => {}
            (other, _) => panic!("request {} hears {other:?}", request.number),
        }
        request.heard.push(news);
    }

    /// Nobody writes any more.
    fn free(&mut self, id: RequestId) {
        let request = self.requests.remove(&id).unwrap();
        self.pages.open(&request.pages, false);
        self.pages.give_back(request.pages);
    }

    /// Gives pages to those that wait, in any order.
    pub(super) fn land(&mut self, dice: &mut Dice, per_mille: u32) {
        let ids: Vec<RequestId> = self.requests.keys().copied().collect();
        for id in ids {
            let request = self.requests.get_mut(&id).unwrap();
            if !matches!(request.stage, Stage::Prealloc(_)) || !dice.chance(per_mille) {
                continue;
            }
            let skip = PAGE_TOKENS * dice.below(request.tokens / PAGE_TOKENS + 1);
            let wanted = wanted(request.tokens, skip);
            let Some(pages) = self.pages.take(wanted.map(|(_, pages)| pages)) else { continue };
            self.pages.open(&pages, true);
            (request.skip, request.pages) = (skip, pages);
            let stage = std::mem::replace(&mut request.stage, Stage::Held);
            let Stage::Prealloc(mut link) = stage else { unreachable!("checked above") };
            let pools = wanted.iter().zip(&request.pages).zip([PoolId(0), PoolId(1)]);
            let lands = pools.map(|(((first_index, _), pages), pool)| LandPages {
                pool,
                first_index: *first_index,
                pages: pages.clone(),
            });
            link.land(request.tokens, skip, lands.collect());
            request.stage = Stage::Landed(link);
        }
    }

    /// Gives one request up.
    pub(super) fn abandon(&mut self, dice: &mut Dice, tally: &mut Tally) {
        let ids: Vec<RequestId> = self.requests.keys().copied().collect();
        if ids.is_empty() {
            return;
        }
        let request = self.requests.get_mut(&ids[dice.below(ids.len())]).unwrap();
        match std::mem::replace(&mut request.stage, Stage::Held) {
            Stage::Prealloc(mut link) | Stage::Landed(mut link) => {
                tally.given_up += 1;
                let why = [Failure::LocalAbort, Failure::Alloc, Failure::RestoreFailed];
                link.abandon(why[dice.below(3)]);
            }
            // It cannot be given up before it is answered.
            other @ (Stage::Asked | Stage::Held) => request.stage = other,
        }
    }
}

impl Request {
    fn check(&self, pages: &TestPages) {
        let wanted = wanted(self.tokens, self.skip);
        for ((first, _), (held, pool)) in wanted.iter().zip(self.pages.iter().zip(0..)) {
            for (at, page) in held.iter().enumerate() {
                pages.check(self.number, PoolId(pool), first + at, *page);
            }
        }
    }
}
