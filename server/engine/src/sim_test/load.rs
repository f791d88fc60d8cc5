//! What a seed draws: bounds, pool, load, and the requests themselves.

use std::time::Duration;

use admission::Limits;
use kv_cache::{HostTier, Namespace, PoolSpec, WritePolicy};
use model::{FakeOptions, SamplingParams};
use types::{Bytes, Pages, Priority, TokenId};

use super::client::Quirk;
use super::copier::Pace;
use crate::dice::Dice;
use crate::{EngineConfig, Scheduling};

const VOCAB: usize = 64;
const EOS: TokenId = TokenId(63);

/// The fixed conditions of one seed.
#[derive(Debug)]
pub(super) struct Conditions {
    pub(super) config: EngineConfig,
    pub(super) limits: Limits,
    pub(super) model: FakeOptions,
    /// Chance per turn, of 1000, that somebody comes.
    pub(super) arrivals: u64,
    /// Most that come together.
    pub(super) burst: u64,
    /// Chance per request, of 1000, that it is given up while it waits or runs.
    pub(super) aborts: u64,
    /// Chance per turn, of 1000, that a row is spoilt.
    pub(super) spoils: u64,
    /// The longest request, prompt and answer.
    pub(super) longest: usize,
    /// Priorities are between minus and plus this.
    levels: u64,
    /// Most requests that come together as one.
    families: usize,
    /// What kinds of requests come.
    kinds: Vec<Kind>,
}

/// Where the KV of a prompt comes from or goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Computed and answered here.
    Local,
    /// Computed elsewhere, answered here.
    Remote,
    /// Computed here for somebody else.
    Send,
}

/// One request before it is submitted.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) prompt: Vec<TokenId>,
    pub(super) sampling: SamplingParams,
    pub(super) max_tokens: usize,
    pub(super) stop_tokens: Vec<TokenId>,
    pub(super) quirk: Option<(usize, Quirk)>,
    pub(super) priority: Priority,
    /// Whose it is: tenants do not share pages.
    pub(super) tenant: Option<&'static str>,
    /// How many such requests come together and are admitted together.
    pub(super) family: usize,
    pub(super) kind: Kind,
}

impl Wish {
    pub(super) fn namespace(&self) -> Namespace {
        Namespace::new(self.tenant, None)
    }
}

pub(super) fn conditions(dice: &mut Dice, seed: u64) -> Conditions {
    let page_tokens = dice.pick(&[1, 2, 4, 8, 16]);
    let longest = dice.size(4 * page_tokens.max(4)..=96);
    let max_running = dice.size(2..=12);
    // From just enough for the longest request to room for about three of them, but never for as
    // many as may run: pages must be able to run out.
    let room = longest * dice.size(100..=300.min(90 * max_running)) / 100;
    let prefill_chunk = dice.pick(&[1, 3, 8, 16, 48]);
    let window = dice.chance(500).then(|| dice.pick(&[1, 3, 8, 20, 40]));
    let kv_pages = longest.div_ceil(page_tokens).max(room / page_tokens);
    // A window of the longest request fits, and less than three of them.
    let swa_pages = window.map(|window| {
        let spec = PoolSpec {
            name: "swa",
            page_tokens,
            page_bytes: Bytes(1),
            capacity: Pages(1),
            window: Some(window),
        };
        spec.pages_at_most(longest, prefill_chunk) * dice.size(100..=300) / 100
    });
    let config = EngineConfig {
        max_running,
        max_batch_tokens: max_running + dice.size(0..=64),
        prefill_chunk,
        pool_pages: [kv_pages].into_iter().chain(swa_pages).collect(),
        max_submissions: dice.pick(&[4, 1000]),
        prefix_cache: dice.chance(800),
        host: None,
        retention: kv_cache::Retention::default(),
        hit_curve: None,
        scheduling: scheduling(dice),
        seed,
    };
    let limits = Limits {
        max_queued_requests: dice.pick(&[0, 4, 32, 100]),
        max_queued_tokens: dice.pick(&[None, Some(0), Some(300), Some(3000)]),
        ttft_objective: Duration::from_millis(dice.pick(&[0, 500, 3000, 30_000])),
    };
    let model = FakeOptions {
        vocab: VOCAB,
        max_context: longest + dice.size(0..=64),
        page_tokens,
        window,
        emit: 0..60,
        eos: vec![EOS],
        eos_per_mille: dice.pick(&[0, 5, 50]),
        seed,
        ..FakeOptions::default()
    };
    Conditions {
        config,
        limits,
        model,
        arrivals: dice.within(20..=400),
        burst: dice.within(1..=10),
        aborts: dice.within(10..=200),
        spoils: dice.pick(&[0, 0, 2]),
        longest,
        levels: dice.pick(&[0, 0, 1, 5, 100]),
        families: dice.pick(&[1, 1, 3]),
        kinds: kinds(dice),
    }
}

/// The host tier of a seed, of all that the pools can have.
pub(super) fn tier(dice: &mut Dice, config: &EngineConfig) -> Option<HostTier> {
    let wanted = dice.chance(700);
    let more = dice.size(100..=500);
    let load_back_threshold = dice.pick(&[0, 1, 10, 30]);
    let policies =
        [WritePolicy::WriteThrough, WritePolicy::WriteThroughSelective, WritePolicy::WriteBack];
    if !wanted || !config.prefix_cache {
        return None;
    }
    let pages = config.pool_pages.iter().map(|pages| pages * more / 100).collect();
    let policy = dice.pick(&policies);
    Some(HostTier { pages, policy, load_back_threshold, storage: false })
}

/// From copies that nobody notices to ones that are slower than the model.
pub(super) fn pace(dice: &mut Dice) -> Pace {
    Pace {
        queue: dice.pick(&[1, 2, 5, 100]),
        start: Duration::from_micros(dice.pick(&[0, 10, 300])),
        page: Duration::from_micros(dice.pick(&[1, 50, 500, 5000])),
        slow: dice.pick(&[0, 0, 20]),
        late: dice.pick(&[0, 0, 3]),
    }
}

/// A unified worker, one of each role, one of both.
fn kinds(dice: &mut Dice) -> Vec<Kind> {
    use Kind::{Local, Remote, Send};
    let roles = [vec![Local], vec![Send], vec![Remote, Remote, Local], vec![Local, Remote, Send]];
    dice.pick(&roles)
}

fn scheduling(dice: &mut Dice) -> Scheduling {
    let (times, long) = ([None, None, Some(50), Some(500)], [None, None, Some(300), Some(2000)]);
    Scheduling {
        preemption_threshold: dice.pick(&[0, 1, 2, 10, 50]),
        fair_share: dice.chance(400),
        queue_timeout: dice.pick(&times).map(Duration::from_millis),
        request_timeout: dice.pick(&long).map(Duration::from_millis),
    }
}

pub(super) fn wish(dice: &mut Dice, conditions: &Conditions) -> Wish {
    let longest = conditions.longest;
    let most = if dice.chance(300) { longest - 1 } else { (longest / 4).max(1) };
    let kind = dice.pick(&conditions.kinds);
    let least = if kind == Kind::Remote { 2 } else { 1 };
    let prompt_tokens = dice.size(least..=most.max(least));
    let rest = longest - prompt_tokens;
    let max_tokens = if dice.chance(500) { rest } else { dice.size(1..=rest) };
    let max_tokens = if kind == Kind::Send { 0 } else { max_tokens };
    let prompt = prompt(dice, conditions, prompt_tokens);
    let stop_tokens = match dice.within(0..=9) {
        0..=2 => Vec::new(),
        3 => vec![EOS, token(dice)],
        _ => vec![EOS],
    };
    let quirks = [Quirk::StopString, Quirk::Leaves, Quirk::IsSlow, Quirk::Panics];
    let quirk = dice.chance(150).then(|| (dice.size(0..=max_tokens), dice.pick(&quirks)));
    Wish {
        prompt,
        sampling: sampling(dice),
        max_tokens,
        stop_tokens,
        quirk,
        priority: priority(dice, conditions.levels),
        tenant: dice.pick(&[None, Some("a"), Some("a"), Some("a"), Some("b"), Some("c")]),
        family: dice.size(1..=conditions.families),
        kind,
    }
}

/// Most prompts begin as others do: with one of four system prompts, or with all of an earlier
/// one's text.
fn prompt(dice: &mut Dice, conditions: &Conditions, tokens: usize) -> Vec<TokenId> {
    let mut shared = Dice::new(conditions.config.seed ^ dice.within(0..=3));
    let common = if dice.chance(700) { dice.size(0..=tokens) } else { 0 };
    let own = (common..tokens).map(|_| token(dice)).collect::<Vec<_>>();
    (0..common).map(|_| token(&mut shared)).chain(own).collect()
}

/// A request that starts small and grows as large as any: many of them run out of pages.
pub(super) fn growing(dice: &mut Dice, conditions: &Conditions) -> Wish {
    Wish {
        prompt: vec![token(dice)],
        sampling: SamplingParams::default(),
        max_tokens: conditions.longest - 1,
        stop_tokens: Vec::new(),
        quirk: None,
        priority: Priority::NORMAL,
        tenant: None,
        family: 1,
        kind: Kind::Local,
    }
}

fn priority(dice: &mut Dice, levels: u64) -> Priority {
    let level = dice.within(0..=2 * levels).cast_signed() - levels.cast_signed();
    Priority::new(level).expect("levels are at most 100")
}

fn sampling(dice: &mut Dice) -> SamplingParams {
    if dice.chance(850) {
        return SamplingParams::default();
    }
    SamplingParams {
        temperature: dice.pick(&[0.5, 1.0, 3.0]),
        top_k: dice.pick(&[0, 5]),
        top_p: dice.pick(&[1.0, 0.9]),
        seed: Some(dice.next()),
        logprobs: dice.pick(&[None, Some(3)]),
        ..SamplingParams::default()
    }
}

fn token(dice: &mut Dice) -> TokenId {
    TokenId(u32::try_from(dice.within(0..=VOCAB as u64 - 1)).expect("a small vocabulary"))
}
