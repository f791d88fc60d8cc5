//! Two engines as a pair: what the second answers from pages that the first has computed is equal
//! bit for bit to what one engine answers alone.

use std::collections::VecDeque;

use memory_pool::{Block, LayerProgress, ProgressState};
use transfer::{Chunk, Failure, LandPages, Landing, News, RemoteTimes, Sending};
use types::{PageId, PoolId};

use super::*;

/// One request on its way from one engine to the other.
#[derive(Default)]
struct Room {
    prefill: u64,
    decode: u64,
    /// Where pages go: by pool and index in the sequence.
    landed: BTreeMap<(PoolId, usize), PageId>,
    chunks: VecDeque<Chunk>,
    /// Layers of the first chunk's pages that were carried over during its pass.
    layers: usize,
    over: bool,
}

/// Carries pages over, layer by layer where it is told of a pass, else when that has ended.
struct Wire {
    from: Arc<dyn PageBytes>,
    to: Arc<dyn PageBytes>,
    rooms: Mutex<Vec<Room>>,
    news: Mutex<Vec<(bool, u64, News)>>,
    /// Layers that were carried over while their pass went on.
    early: AtomicU64,
}

impl Wire {
    /// Carries the model's layers from `from` to `to` of a chunk's pages.
    fn carry(&self, room: &Room, chunk: &Chunk, from: usize, to: usize) {
        for (pool, index, page) in &chunk.pages {
            let target = room.landed[&(*pool, *index)];
            let parts = self.from.parts().iter().zip(0..).filter(|(part, _)| part.pool == *pool);
            for (part, number) in parts {
                let own = |layers: usize| part.layers_within(layers) as u16;
                let layers = own(from)..own(to);
                if layers.is_empty() {
                    continue;
                }
                let block = |page| Block { rank: 0, part: number, page, layers: layers.clone() };
                self.to.write(&block(target), &self.from.read(&block(*page)));
            }
        }
    }

    fn tell(&self, to_prefill: bool, id: u64, news: News) {
        self.news.lock().expect("one thread").push((to_prefill, id, news));
    }

    /// A pass goes on: its layers go over as soon as they are there.
    fn passes(&self, room: usize, progress: &LayerProgress) {
        let mut rooms = self.rooms.lock().expect("one thread");
        let room = &mut rooms[room];
        let Some(chunk) = room.chunks.front() else { return };
        if chunk.progress.as_ref() == Some(progress) && progress.state() == ProgressState::Running {
            let (before, now) = (room.layers, progress.layers());
            self.carry(room, chunk, before, now);
            self.early.fetch_add((now - before) as u64, Ordering::Relaxed);
            room.layers = now;
        }
    }

    /// Carries over what is there. Whether anything was.
    fn pump(&self) -> bool {
        let mut any = false;
        for room in self.rooms.lock().expect("one thread").iter_mut() {
            while let Some(chunk) = room.chunks.pop_front() {
                let state = chunk.progress.as_ref().map(LayerProgress::state);
                assert!(state.is_none_or(|state| state == ProgressState::Finished), "{state:?}");
                let from = std::mem::take(&mut room.layers);
                self.carry(room, &chunk, from, usize::MAX);
                any = true;
                self.tell(true, room.prefill, News::Passed(chunk.fence));
                if chunk.last {
                    room.over = true;
                    self.tell(false, room.decode, News::Arrived(RemoteTimes::default()));
                    self.tell(true, room.prefill, News::Delivered);
                }
            }
        }
        any
    }
}

struct End {
    room: usize,
    wire: Arc<Wire>,
}

impl Landing for End {
    fn land(&mut self, _: usize, skip_tokens: usize, pages: Vec<LandPages>) {
        let mut rooms = self.wire.rooms.lock().expect("one thread");
        let room = &mut rooms[self.room];
        for LandPages { pool, first_index, pages } in pages {
            room.landed.extend((first_index..).map(|index| (pool, index)).zip(pages));
        }
        self.wire.tell(true, room.prefill, News::Wanted { skip_tokens });
    }

    fn abandon(&mut self, why: Failure) {
        panic!("nobody gives up: {why}");
    }
}

impl Sending for End {
    fn chunk(&mut self, chunk: Chunk) {
        let mut rooms = self.wire.rooms.lock().expect("one thread");
        let room = &mut rooms[self.room];
        if chunk.fence == 1 {
            self.wire.tell(false, room.decode, News::Started);
        }
        if let Some(progress) = &chunk.progress {
            let (wire, number, pass) = (Arc::clone(&self.wire), self.room, progress.clone());
            progress.on_change(Box::new(move || wire.passes(number, &pass)));
        }
        room.chunks.push_back(chunk);
    }

    fn abandon(&mut self, why: Failure) {
        panic!("nobody gives up: {why}");
    }
}

/// A prefill worker and a decode worker.
struct Pair {
    prefill: Rig,
    decode: Rig,
    wire: Arc<Wire>,
}

impl Pair {
    fn new(prefill: Setup, decode: Setup) -> Self {
        let (prefill, decode) = (Rig::new(prefill), Rig::new(decode));
        let wire = Wire {
            from: Arc::clone(&prefill.pages),
            to: Arc::clone(&decode.pages),
            rooms: Mutex::default(),
            news: Mutex::default(),
            early: AtomicU64::new(0),
        };
        Self { prefill, decode, wire: Arc::new(wire) }
    }

    fn submit(&mut self, prompt: &[TokenId], max_tokens: usize, salt: Option<&str>) -> u64 {
        let id = self.decode.next;
        self.decode.next += 1;
        let mut rooms = self.wire.rooms.lock().expect("one thread");
        let room = rooms.len();
        rooms.push(Room { prefill: id, decode: id, ..Room::default() });
        drop(rooms);
        let end = || Box::new(End { room, wire: Arc::clone(&self.wire) });
        let asked = self.prefill.submission(id, &prompt[..prompt.len() - 1], 0, salt);
        let asked = Submission { send: Some(end()), ..asked };
        self.prefill.handle.submit(asked).expect("accepted");
        let answered = self.decode.submission(id, prompt, max_tokens, salt);
        let answered = Submission { remote: Some(end()), ..answered };
        self.decode.handle.submit(answered).expect("accepted");
        id
    }

    fn run(&mut self) {
        let both = |pair: &Self| {
            pair.prefill.core.scheduler.is_empty() && pair.decode.core.scheduler.is_empty()
        };
        while !both(self) || self.prefill.core.mailbox.submissions() > 0 {
            let turns = [self.prefill.core.turn(), self.decode.core.turn()];
            assert!(!turns.contains(&Turn::Ended), "{:?}", self.decode.handle.snapshot().failure);
            let carried = self.wire.pump();
            let news = std::mem::take(&mut *self.wire.news.lock().expect("one thread"));
            let told = !news.is_empty();
            for (to_prefill, id, news) in news {
                let rig = if to_prefill { &self.prefill } else { &self.decode };
                rig.handle.news(RequestId(id), news);
            }
            let idle = [&self.prefill, &self.decode].iter().all(|rig| rig.core.is_idle());
            if idle && !carried && !told && !both(self) {
                let mut rigs = [&mut self.prefill, &mut self.decode].into_iter();
                let waits = rigs.find(|rig| rig.pending() > 0).expect("something goes on");
                waits.core.rest(PATIENCE);
            }
        }
        self.prefill.run();
        self.decode.run();
        for rig in [&self.prefill, &self.decode] {
            let snapshot = rig.handle.snapshot();
            let lines = [snapshot.bootstrap, snapshot.inflight_send, snapshot.prealloc];
            let empty = |line: &crate::QueueSnapshot| *line == crate::QueueSnapshot::default();
            assert!(lines.iter().chain([&snapshot.transfer, &snapshot.landed]).all(empty));
            assert_eq!(snapshot.held, crate::HeldSnapshot::default());
            assert!(snapshot.pools.iter().all(|pool| pool.device.used_active.0 == 0));
        }
    }
}

/// As [`super::conversations`], by a pair.
fn conversations(prefill: Setup, decode: Setup) -> (Vec<Heard>, [Totals; 2], u64) {
    let mut pair = Pair::new(prefill, decode);
    let scale = (decode.page_tokens / PAGE_TOKENS).div_ceil(2);
    let prompt = |seed: u32, tokens: usize| prompt(seed, tokens * scale);
    let system = prompt(1, 37);
    let mut histories: Vec<Vec<TokenId>> = Vec::new();
    for user in 0..3 {
        histories.push([&system[..], &prompt(10 + user, 5 + user as usize)].concat());
    }
    for turn in 0..3 {
        let ids: Vec<u64> = histories.iter().map(|text| pair.submit(text, 30, None)).collect();
        pair.submit(&histories[0], 9, None);
        pair.submit(&histories[0], 9, Some("private"));
        pair.run();
        for (history, id) in histories.iter_mut().zip(ids) {
            history.extend(pair.decode.heard(id).answer.iter().map(|(token, _)| *token));
            history.extend(prompt(100 + turn, 6));
        }
    }
    let heard = (0..pair.decode.next).map(|id| pair.decode.heard(id)).collect();
    let early = pair.wire.early.load(Ordering::Relaxed);
    (heard, [pair.prefill.sums(), pair.decode.sums()], early)
}

/// Pages and host pages of the two, and tokens of a chunk.
type Sizes = ((usize, usize), (usize, usize), usize);

fn equal_to_unified(model: &'static str, page_tokens: usize, sizes: &[Sizes]) {
    let roomy = Setup { model, page_tokens, cache: false, chunk: 64, pages: 400, ..LLAMA };
    let (expected, plain) = super::conversations(roomy);
    let (mut loaded, mut cached, mut early) = (0, 0, 0);
    for (prefill, decode, chunk) in sizes.iter().copied() {
        let side = |(pages, host): (usize, usize)| Setup {
            pages,
            host,
            chunk,
            cache: pages < 400 || host > 0,
            ..roomy
        };
        let what = format!("{model}, {prefill:?}, {decode:?}, {chunk}");
        let (found, [sent, got], carried) = conversations(side(prefill), side(decode));
        for (id, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(found.answer, expected.answer, "{what}: {id}");
            let end = found.end.as_ref().expect("it has ended");
            assert_eq!(end.outcome, Outcome::Length, "{what}: {id}");
            let whole = end.cached_tokens + end.remote_tokens;
            assert_eq!(whole + 1, end.prompt_tokens, "{what}: {id}");
        }
        // Each prompt token once on either side, by its source.
        assert_eq!(got.computed, expected.len() as u64, "{what}: {got:?}");
        assert_eq!(got.computed + got.cached + got.remote, plain.computed, "{what}: {got:?}");
        let asked = plain.computed - expected.len() as u64;
        assert_eq!((sent.computed + sent.cached, sent.remote), (asked, 0), "{what}: {sent:?}");
        loaded += sent.loaded + got.loaded;
        cached += got.cached;
        early += carried;
    }
    assert!(loaded > 0 && cached > 0 && early > 0, "{model}: {loaded}, {cached}, {early}");
}

const SIZES: [Sizes; 4] = [
    ((400, 0), (400, 0), 64),
    ((399, 0), (60, 0), 7),
    ((60, 400), (60, 400), 16),
    ((44, 100), (44, 100), 64),
];

#[test]
fn a_pair_answers_as_one_engine_does() {
    for model in ["tiny-llama", "tiny-qwen3"] {
        equal_to_unified(model, PAGE_TOKENS, &SIZES);
    }
}

#[test]
fn a_pair_with_windows_answers_as_one_engine_does() {
    equal_to_unified("tiny-gemma3", PAGE_TOKENS, &SIZES);
}

#[test]
fn a_pair_with_deepseek_v4_answers_as_one_engine_does() {
    equal_to_unified(
        "tiny-deepseek-v4",
        128,
        &[((14, 200), (14, 200), 100), ((399, 0), (10, 200), 256)],
    );
}
