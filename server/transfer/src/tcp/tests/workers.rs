//! The engines of both sides, as far as a link sees them.

use super::pages::{FULL, LAYERS, PAGE_TOKENS, Pages, WINDOW, parts};
use crate::tcp::{
    DecodeClient, Environment, LinkOptions, ListenOptions, PrefillPeer, PrefillServer, StartError,
    TlsError, TlsFiles, Tuning,
};
use crate::{
    Accepted, Backend, CachedTokens, Chunk, Failure, LandPages, Limits, LinkSnapshot, News,
    NotOffered, Offer, Offers, PartShape, PeerName, Prompt, Rejected, Sending, Shape, Side,
    TransferEnd, TransferObserver,
};
use memory_pool::LayerProgress;
use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use types::{Clock, PageId, PoolId, Priority, RequestId, TokenId};

/// A test that has not come to its end by then never will.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for a condition.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let looks = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(1));
        while !condition() {
            ticks.tick().await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, looks).await.is_ok(), "it never happened: {what}");
}

/// Waits for something that must come.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("it never came: {what}"),
    }
}

/// Everything that was counted on one side.
#[derive(Default)]
pub(crate) struct Ledger {
    ends: Mutex<Vec<TransferEnd>>,
    bytes: AtomicU64,
}

impl Ledger {
    pub(crate) fn ends(&self) -> Vec<Result<(), Failure>> {
        self.ends.lock().unwrap().iter().map(|end| end.result).collect()
    }

    /// Ends of transfers that both sides knew.
    pub(crate) fn answered(&self) -> usize {
        self.ends.lock().unwrap().iter().filter(|end| end.bootstrap.is_some()).count()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }
}

impl TransferObserver for Ledger {
    fn on_bytes(&self, _: Side, _: &PeerName, _: &'static str, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    fn on_end(&self, end: &TransferEnd) {
        self.ends.lock().unwrap().push(end.clone());
    }

    fn on_busy(&self, _: Side, _: &PeerName, _: Duration) {}
}

pub(crate) fn shape() -> Shape {
    let part = |part: memory_pool::LinkPart| PartShape {
        name: part.name.to_owned(),
        pool: part.pool.0,
        layers: part.layers.iter().map(|layer| *layer as u16).collect(),
        layer_bytes: part.layer_bytes as u32,
        replicated: part.replicated,
    };
    Shape {
        model: "model-a".to_owned(),
        page_tokens: PAGE_TOKENS as u32,
        kv_dtype: "f32".to_owned(),
        ranks: 2,
        parts: parts().into_iter().map(part).collect(),
    }
}

pub(crate) fn options(advertise: &str) -> LinkOptions {
    LinkOptions {
        advertise: advertise.to_owned(),
        shape: shape(),
        secret: None,
        tls: TlsFiles::default(),
        limits: Limits::default(),
        tuning: Tuning::default(),
    }
}

pub(crate) fn name(name: &str) -> PeerName {
    PeerName::new(name)
}

/// The pages of a text that are sent: pool and indices.
fn wanted(tokens: usize, skip: usize) -> [(PoolId, std::ops::Range<usize>); 2] {
    let (first, end) = (skip / PAGE_TOKENS, tokens.div_ceil(PAGE_TOKENS));
    [(FULL, first..end), (WINDOW, first.max(end.saturating_sub(2))..end)]
}

/// A prefill worker: a server and an engine that computes at once.
pub(crate) struct Prefill {
    pub(crate) server: PrefillServer,
    pub(crate) pages: Arc<Pages>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) engine: Arc<PrefillEngine>,
}

/// What the engine of a prefill worker knows.
pub(crate) struct PrefillEngine {
    pages: Arc<Pages>,
    jobs: Mutex<BTreeMap<RequestId, Job>>,
    next: AtomicU64,
    /// Offers are rejected.
    pub(crate) full: AtomicBool,
    /// Wanted pages are not computed.
    pub(crate) idle: AtomicBool,
    /// Why transfers failed.
    pub(crate) failed: Mutex<Vec<Failure>>,
    pub(crate) delivered: AtomicU64,
    work: mpsc::Sender<(RequestId, usize)>,
}

struct Job {
    text: u64,
    tokens: usize,
    sending: Option<Box<dyn Sending>>,
    pages: Vec<(PoolId, usize, PageId)>,
}

impl Prefill {
    pub(crate) async fn start(options: LinkOptions, port: u16) -> Result<Self, StartError> {
        let pages = Pages::new(2);
        let ledger = Arc::new(Ledger::default());
        let (work, working) = mpsc::channel(1024);
        let engine = Arc::new(PrefillEngine {
            pages: Arc::clone(&pages),
            jobs: Mutex::default(),
            next: AtomicU64::new(0),
            full: AtomicBool::new(false),
            idle: AtomicBool::new(false),
            failed: Mutex::default(),
            delivered: AtomicU64::new(0),
            work,
        });
        let sink = Arc::clone(&engine);
        let environment = Environment {
            pages: Arc::clone(&pages.bytes) as _,
            news: Arc::new(move |request, news| sink.news(request, news)),
            observer: Arc::clone(&ledger) as _,
            clock: Clock::start(),
        };
        let peers = vec![name("decode:1"), name("decode:2")];
        let listen = ListenOptions { host: "127.0.0.1".to_owned(), port, peers };
        let offers = Arc::clone(&engine) as Arc<dyn Offers>;
        let server = PrefillServer::start(options, listen, offers, environment).await?;
        TaskTracker::new().spawn(Arc::clone(&engine).compute(working));
        Ok(Self { server, pages, ledger, engine })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Nothing is left of any transfer.
    pub(crate) fn at_rest(&self) -> bool {
        at_rest(&self.server.snapshot())
            && self.pages.all_free()
            && self.engine.jobs.lock().unwrap().is_empty()
    }
}

fn at_rest(snapshot: &LinkSnapshot) -> bool {
    snapshot.peers.iter().all(|peer| (peer.waiting, peer.wire, peer.held_bytes) == (0, 0, 0))
}

impl Offers for PrefillEngine {
    fn offer(
        &self,
        _: &PeerName,
        offer: Offer,
        sending: Box<dyn Sending>,
    ) -> Result<Accepted, Rejected> {
        if self.full.load(Ordering::SeqCst) {
            let retry_after = Duration::from_secs(3);
            return Err(Rejected { reason: 1, retry_after, value: 9, limit: 8 });
        }
        let request = RequestId(self.next.fetch_add(1, Ordering::SeqCst));
        let (text, tokens) = (u64::from(offer.tokens[0].0), offer.tokens.len());
        let job = Job { text, tokens, sending: Some(sending), pages: Vec::new() };
        self.jobs.lock().unwrap().insert(request, job);
        Ok(Accepted { request, drain: Duration::from_millis(5) })
    }
}

impl PrefillEngine {
    fn news(&self, request: RequestId, news: News) {
        match news {
            News::Wanted { skip_tokens } => {
                if !self.idle.load(Ordering::SeqCst) {
                    self.work.try_send((request, skip_tokens)).unwrap();
                }
            }
            News::Passed(_) => {}
            News::Failed(failure) => self.failed.lock().unwrap().push(failure),
            News::Delivered => {
                self.delivered.fetch_add(1, Ordering::SeqCst);
                self.forget(request);
            }
            News::Settled => self.forget(request),
            News::Started | News::FirstByte | News::Arrived(_) => {
                panic!("{news:?} is not for a prefill worker")
            }
        }
    }

    fn forget(&self, request: RequestId) {
        let job = self.jobs.lock().unwrap().remove(&request).expect("it ends once");
        for (pool, _, page) in job.pages {
            self.pages.give(pool, vec![page]);
        }
    }

    /// Computes one text after the other, in three chunks, layer by layer.
    async fn compute(self: Arc<Self>, mut work: mpsc::Receiver<(RequestId, usize)>) {
        while let Some((request, skip)) = work.recv().await {
            let (text, mut sending, all) = {
                let mut jobs = self.jobs.lock().unwrap();
                // It may have failed meanwhile.
                let Some(job) = jobs.get_mut(&request) else { continue };
                let taken = wanted(job.tokens, skip).map(|(pool, indices)| {
                    let pages = self.pages.take(pool, indices.len()).expect("there are enough");
                    let placed = indices.zip(pages);
                    placed.map(move |(index, page)| (pool, index, page)).collect::<Vec<_>>()
                });
                job.pages = taken.concat();
                (job.text, job.sending.take().expect("it comes once"), job.pages.clone())
            };
            let (window, full): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|page| page.0 == WINDOW);
            let third = full.len().div_ceil(3).max(1);
            let mut chunks: Vec<Vec<_>> = full.chunks(third).map(<[_]>::to_vec).collect();
            chunks.resize(3, Vec::new());
            chunks[2].extend(window);
            for (number, pages) in chunks.into_iter().enumerate() {
                let progress = LayerProgress::new(2, LAYERS);
                sending.chunk(Chunk {
                    fence: number as u64,
                    pages: pages.clone(),
                    progress: Some(progress.clone()),
                    last: number == 2,
                    cached: CachedTokens { device: 7, host: 0, storage: 0 },
                });
                for layer in 0..LAYERS {
                    for (pool, index, page) in &pages {
                        self.pages.compute(text, *pool, *index, *page, layer);
                    }
                    for rank in 0..2 {
                        progress.advance(rank, layer + 1);
                    }
                    tokio::task::yield_now().await;
                }
                progress.finish();
            }
            // Kept to the end: dropping it would give it up.
            if let Some(job) = self.jobs.lock().unwrap().get_mut(&request) {
                job.sending = Some(sending);
            }
        }
    }
}

/// A decode worker: a client, and requests that say how they went.
pub(crate) struct Decode {
    pub(crate) client: Arc<DecodeClient>,
    pub(crate) pages: Arc<Pages>,
    pub(crate) ledger: Arc<Ledger>,
    news: Arc<Mutex<BTreeMap<RequestId, mpsc::Sender<News>>>>,
    next: AtomicU64,
}

impl Decode {
    pub(crate) fn start(options: LinkOptions, peers: &[PrefillPeer]) -> Result<Self, TlsError> {
        let pages = Pages::new(2);
        let ledger = Arc::new(Ledger::default());
        let news: Arc<Mutex<BTreeMap<RequestId, mpsc::Sender<News>>>> = Arc::default();
        let sinks = Arc::clone(&news);
        let environment = Environment {
            pages: Arc::clone(&pages.bytes) as _,
            news: Arc::new(move |request, news| {
                let sink = sinks.lock().unwrap().get(&request).cloned();
                if let Some(sink) = sink {
                    sink.try_send(news).expect("few news per request");
                }
            }),
            observer: Arc::clone(&ledger) as _,
            clock: Clock::start(),
        };
        let client = Arc::new(DecodeClient::start(options, peers, environment)?);
        Ok(Self { client, pages, ledger, news, next: AtomicU64::new(0) })
    }

    /// A request's id, and the news about it.
    pub(crate) fn request(&self) -> (RequestId, mpsc::Receiver<News>) {
        let request = RequestId(self.next.fetch_add(1, Ordering::SeqCst));
        let (sink, news) = mpsc::channel(16);
        self.news.lock().unwrap().insert(request, sink);
        (request, news)
    }

    /// One transfer, from the offer to pages that are checked and given back.
    pub(crate) async fn transfer(
        &self,
        peer: &PeerName,
        text: u64,
        tokens: usize,
        skip: usize,
    ) -> Result<(), NotOffered> {
        let (request, mut news) = self.request();
        let mut offered =
            soon("an answer", self.client.offer(peer, request, prompt(text, tokens))).await?;
        let ranges = wanted(tokens, skip);
        let pages: Vec<LandPages> = ranges
            .into_iter()
            .map(|(pool, indices)| LandPages {
                pool,
                first_index: indices.start,
                pages: self.pages.take(pool, indices.len()).expect("there are enough"),
            })
            .filter(|pages| !pages.pages.is_empty())
            .collect();
        offered.landing.land(tokens, skip, pages.clone());
        let result = self.outcome(&mut news).await;
        for LandPages { pool, first_index, pages } in pages {
            for (at, page) in pages.iter().enumerate() {
                let right = self.pages.holds(text, pool, first_index + at, *page);
                assert!(result.is_err() || right, "{text}: pool {pool:?}, page {at} is wrong");
            }
            self.pages.give(pool, pages);
        }
        drop(offered);
        self.news.lock().unwrap().remove(&request);
        result.map_err(NotOffered::Failed)
    }

    /// Waits until a transfer is over and nobody touches its pages.
    pub(crate) async fn outcome(&self, news: &mut mpsc::Receiver<News>) -> Result<(), Failure> {
        let mut failed = None;
        loop {
            match soon("news", news.recv()).await.expect("the sink is kept") {
                News::Started | News::FirstByte => assert_eq!(failed, None),
                News::Arrived(times) => {
                    assert_eq!((failed, times.cached.device), (None, 7));
                    return Ok(());
                }
                News::Failed(failure) => assert_eq!(failed.replace(failure), None),
                News::Settled => return Err(failed.expect("it failed before")),
                other @ (News::Wanted { .. } | News::Passed(_) | News::Delivered) => {
                    panic!("{other:?} is not for a decode worker")
                }
            }
        }
    }

    /// Nothing is left of any transfer.
    pub(crate) fn at_rest(&self) -> bool {
        at_rest(&self.client.snapshot()) && self.pages.all_free()
    }

    /// Whether a peer is connected, and what is wrong with it.
    pub(crate) fn peer(&self, name: &PeerName) -> (bool, String) {
        let snapshot = self.client.snapshot();
        let peer = snapshot.peers.into_iter().find(|peer| peer.peer == *name);
        peer.map(|peer| (peer.up, peer.trouble.unwrap_or_default())).unwrap_or_default()
    }
}

pub(crate) fn prompt(text: u64, tokens: usize) -> Prompt {
    Prompt {
        request: format!("request-{text}"),
        traceparent: None,
        tokens: vec![TokenId(text as u32); tokens],
        namespace: b"ns".to_vec(),
        priority: Priority::default(),
        tenant: None,
    }
}

pub(crate) fn at(peer: &str, address: SocketAddr) -> PrefillPeer {
    PrefillPeer { name: name(peer), host: address.ip().to_string(), port: address.port() }
}
