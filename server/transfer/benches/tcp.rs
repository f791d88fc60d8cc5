//! KV over the TCP driver against plain TCP between two threads, in the same run on loopback:
//! `cargo bench -p transfer --features tcp`. Both have the same bytes, the same buffers in the
//! system and pieces of the same size. Prints GB/s (median of several rounds) and the ratio.
//! `-- --tls` has the links inside TLS.
#![expect(clippy::print_stdout, reason = "a benchmark reports on standard output")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use memory_pool::{DeviceMemory, LinkPart, PageBytes, PartLayout, RankPages};
use tokio::net::TcpSocket;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use transfer::tcp::{
    DecodeClient, Environment, LinkOptions, ListenOptions, PrefillPeer, PrefillServer, TlsFiles,
    Tuning,
};
use transfer::{
    Accepted, CachedTokens, Chunk, LandPages, Limits, News, Offer, Offers, PAYLOAD_BYTES, PeerName,
    Prompt, Rejected, Sending, Shape,
};
use types::{Clock, PageId, PoolId, Priority, RequestId, TokenId};

/// Bytes of a transfer, about.
const BYTES: usize = 128 << 20;
/// Transfers of a round, one after the other.
const TRANSFERS: usize = 8;
/// Rounds of each kind, taken in turn.
const ROUNDS: usize = 9;
const PAGE_TOKENS: usize = 16;

/// Layers and bytes of one layer of one page, as models have them.
const CASES: [(&str, usize, usize); 3] = [
    // 16 tokens of 3 heads of 64.
    ("dense, 135M", 30, 24_576),
    // 16 tokens of 8 heads of 128.
    ("dense, 8B", 32, 131_072),
    // 256 tokens of compressed rows.
    ("latent, kv", 21, 37_440),
];

fn main() {
    let tls = std::env::args().any(|arg| arg == "--tls");
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().expect("threads");
    let clock = Clock::start();
    println!(
        "{} rounds of {} MiB, one transfer at a time{}",
        ROUNDS,
        (BYTES * TRANSFERS) >> 20,
        if tls { ", inside TLS" } else { "" }
    );
    println!(
        "{:<14}{:>12}{:>12}{:>12}{:>8}",
        "", "connections", "plain GB/s", "link GB/s", "ratio"
    );
    for (name, layers, layer_bytes) in CASES {
        for connections in [1, 2] {
            let tuning = Tuning { data_connections: connections, ..Tuning::default() };
            let buffer = tuning.buffer_bytes;
            let link = Link::new(&runtime, clock, layers, layer_bytes, tuning, tls);
            let (mut plain, mut linked) = (Vec::new(), Vec::new());
            link.round();
            for _ in 0..ROUNDS {
                plain.push(speed(clock, link.bytes, || plain_round(&runtime, link.bytes, buffer)));
                linked.push(speed(clock, link.bytes, || link.round()));
            }
            let (plain, linked) = (median(plain), median(linked));
            let ratio = linked / plain;
            println!("{name:<14}{connections:>12}{plain:>12.2}{linked:>12.2}{ratio:>8.2}");
            runtime.block_on(link.shut_down());
        }
    }
}

fn speed(clock: Clock, bytes: usize, round: impl FnOnce()) -> f64 {
    let begin = clock.now();
    round();
    (bytes * TRANSFERS) as f64 / clock.now().since(begin).as_secs_f64() / 1e9
}

fn median(mut speeds: Vec<f64>) -> f64 {
    speeds.sort_by(f64::total_cmp);
    speeds[speeds.len() / 2]
}

/// One thread writes, one reads, in pieces of a frame's size, from and to memory that is in no
/// cache.
fn plain_round(runtime: &Runtime, bytes: usize, buffer: u32) {
    let _guard = runtime.enter();
    let socket = || {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_send_buffer_size(buffer).expect("an option");
        socket.set_recv_buffer_size(buffer).expect("an option");
        socket
    };
    let blocking = |stream: tokio::net::TcpStream| -> TcpStream {
        let stream = stream.into_std().expect("a socket");
        stream.set_nonblocking(false).expect("an option");
        stream.set_nodelay(true).expect("an option");
        stream
    };
    let (mut from, mut to) = runtime.block_on(async {
        let listener = socket();
        listener.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        let listener = listener.listen(1).expect("a listener");
        let connect = socket().connect(listener.local_addr().expect("it is bound"));
        let (near, far) = tokio::join!(connect, listener.accept());
        (blocking(near.expect("a connection")), blocking(far.expect("a connection").0))
    });
    let source = vec![7_u8; bytes];
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..TRANSFERS {
                for piece in source.chunks(PAYLOAD_BYTES) {
                    from.write_all(piece).expect("the reader reads");
                }
            }
        });
        let mut piece = vec![0_u8; PAYLOAD_BYTES];
        let mut left = bytes * TRANSFERS;
        while left > 0 {
            left -= to.read(&mut piece).expect("the writer writes");
        }
    });
}

/// A prefill worker and a decode worker.
struct Link<'a> {
    runtime: &'a Runtime,
    prefill: PrefillServer,
    decode: DecodeClient,
    peer: PeerName,
    pages: usize,
    bytes: usize,
    news: Mutex<mpsc::Receiver<News>>,
}

fn device(layers: usize, layer_bytes: usize, pages: usize) -> Arc<RankPages> {
    let layers: Vec<usize> = (0..layers).collect();
    let layout = PartLayout { name: "kv", layers: layers.clone(), layer_bytes, pages, host: false };
    let memory = DeviceMemory::new(vec![layout]).expect("the benchmark has memory");
    let pool = PoolId(0);
    let part = LinkPart { name: "kv", pool, layers, layer_bytes, replicated: false };
    let all = RankPages::new(vec![memory], vec![part.clone()]);
    // Memory that was never written is one page of zeros.
    let row = vec![7; part.page_bytes()];
    for page in 0..pages {
        let layers = 0..part.layers.len() as u16;
        let page = PageId(page as u32);
        all.write(&memory_pool::Block { rank: 0, part: 0, page, layers }, &row);
    }
    Arc::new(all)
}

impl<'a> Link<'a> {
    fn new(
        runtime: &'a Runtime,
        clock: Clock,
        layers: usize,
        layer_bytes: usize,
        tuning: Tuning,
        tls: bool,
    ) -> Self {
        let pages = BYTES / (layers * layer_bytes);
        let (from, to) = (device(layers, layer_bytes, pages), device(layers, layer_bytes, pages));
        let shape = Shape::of("benchmark", PAGE_TOKENS as u32, "f32", &*from);
        let options = |tls| LinkOptions {
            advertise: "decode:1".to_owned(),
            shape: shape.clone(),
            secret: None,
            tls,
            limits: Limits::default(),
            tuning: tuning.clone(),
        };
        let file = |name| tls.then(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(name));
        let own = TlsFiles {
            cert: file("tests/certificates/worker.pem"),
            key: file("tests/certificates/worker.key"),
            ca: None,
        };
        let authority =
            TlsFiles { ca: file("tests/certificates/authority.pem"), ..TlsFiles::default() };
        let engine = Arc::new(Engine { pages, sending: Mutex::default() });
        let sink = Arc::clone(&engine);
        let environment = |pages, news| Environment { pages, news, observer: Arc::new(()), clock };
        let prefill_news = Arc::new(move |_, news| sink.news(news));
        let listen = ListenOptions { host: "127.0.0.1".to_owned(), port: 0, peers: Vec::new() };
        let started =
            PrefillServer::start(options(own), listen, engine, environment(from, prefill_news));
        let prefill = runtime.block_on(started).expect("it starts");
        let (sender, news) = mpsc::channel(64);
        let decode_news = Arc::new(move |_, news| sender.try_send(news).expect("few news"));
        let peer = PeerName::new("prefill:1");
        let peers = [PrefillPeer {
            name: peer.clone(),
            host: "127.0.0.1".to_owned(),
            port: prefill.address().port(),
        }];
        let _guard = runtime.enter();
        let decode = DecodeClient::start(options(authority), &peers, environment(to, decode_news));
        let decode = decode.expect("it starts");
        let bytes = pages * layers * layer_bytes;
        Self { runtime, prefill, decode, peer, pages, bytes, news: Mutex::new(news) }
    }

    fn round(&self) {
        let mut news = self.news.lock().expect("one round at a time");
        for number in 0..TRANSFERS {
            self.runtime.block_on(self.transfer(number as u64, &mut news));
        }
    }

    async fn transfer(&self, number: u64, news: &mut mpsc::Receiver<News>) {
        let tokens = self.pages * PAGE_TOKENS;
        let prompt = Prompt {
            request: String::new(),
            traceparent: None,
            tokens: vec![TokenId(1); tokens],
            namespace: Vec::new(),
            priority: Priority::default(),
            tenant: None,
        };
        let offered = self.decode.offer(&self.peer, RequestId(number), prompt).await;
        let mut offered = offered.expect("it is taken");
        let pages = (0..self.pages as u32).map(PageId).collect();
        let land = LandPages { pool: PoolId(0), first_index: 0, pages };
        offered.landing.land(tokens, 0, vec![land]);
        loop {
            match news.recv().await.expect("the sink is kept") {
                News::Started | News::FirstByte => {}
                News::Arrived(_) => return,
                other @ (News::Wanted { .. }
                | News::Passed(_)
                | News::Delivered
                | News::Failed(_)
                | News::Settled) => panic!("{other:?}"),
            }
        }
    }

    async fn shut_down(self) {
        self.decode.shut_down().await;
        self.prefill.shut_down().await;
    }
}

/// Has everything computed already.
struct Engine {
    pages: usize,
    sending: Mutex<Option<Box<dyn Sending>>>,
}

impl Offers for Engine {
    fn offer(
        &self,
        _: &PeerName,
        _: Offer,
        sending: Box<dyn Sending>,
    ) -> Result<Accepted, Rejected> {
        // The one before was delivered.
        *self.sending.lock().expect("nobody panicked") = Some(sending);
        Ok(Accepted { request: RequestId(0), drain: Duration::ZERO })
    }
}

impl Engine {
    fn news(&self, news: News) {
        if let News::Wanted { .. } = news {
            let mut sending = self.sending.lock().expect("nobody panicked");
            let pages = (0..self.pages).map(|at| (PoolId(0), at, PageId(at as u32))).collect();
            let cached = CachedTokens::default();
            let chunk = Chunk { fence: 0, pages, progress: None, last: true, cached };
            sending.as_mut().expect("it was offered").chunk(chunk);
        }
    }
}
