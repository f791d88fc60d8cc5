//! What a seed draws: workers, bounds, links, clients, and what befalls them.

use std::time::Duration;

use admission::Limits as Bounds;
use engine::{EngineConfig, HostTier, Retention, Scheduling, WritePolicy};
use model::{FakeOptions, FakeTiming};
use transfer::Limits;
use types::{Priority, Time, TokenId};

use super::client::Client;
use super::event::{Event, Which};
use super::rig::Dice;
use super::wire::Weather;
use super::worker::{Plan, Plant};
use super::world::{Setting, World};

/// Prefill and decode workers.
const WORKERS: usize = 2;
/// Clients of a seed.
const CLIENTS: (usize, usize) = (20, 60);
/// Everything befalls the cluster within this time, and the clients come in it.
const STORY: Duration = Duration::from_secs(40);

fn model(dice: &mut Dice) -> FakeOptions {
    FakeOptions {
        max_context: 2048,
        page_tokens: dice.pick(&[8, 16]),
        window: dice.chance(300).then(|| dice.size(8, 40)),
        eos_per_mille: 0,
        timing: FakeTiming {
            step: dice.micros(200, 3000),
            prefill_token: dice.micros(50, 600),
            decode_row: dice.micros(100, 1500),
        },
        ..FakeOptions::default()
    }
}

fn plan(dice: &mut Dice, model: &FakeOptions, plant: Plant) -> Plan {
    let max_running = dice.size(1, 6);
    let longest = 600 / model.page_tokens + 2;
    let pages = dice.size(longest, longest * 4);
    let pools = 1 + usize::from(model.window.is_some());
    let prefix_cache = dice.chance(800);
    let chunk = dice.size(8, 128);
    let host = (prefix_cache && dice.chance(300)).then(|| HostTier {
        pages: vec![pages * dice.size(1, 3); pools],
        policy: dice.pick(&[
            WritePolicy::WriteThrough,
            WritePolicy::WriteThroughSelective,
            WritePolicy::WriteBack,
        ]),
        load_back_threshold: dice.size(1, 40),
        storage: false,
    });
    let engine = EngineConfig {
        max_running,
        max_batch_tokens: chunk.max(max_running) + dice.size(0, 128),
        prefill_chunk: chunk,
        pool_pages: vec![pages; pools],
        max_submissions: 64,
        prefix_cache,
        host,
        retention: dice.pick(&[Retention::TailBranch, Retention::All, Retention::Tail]),
        hit_curve: None,
        scheduling: Scheduling {
            preemption_threshold: dice.pick(&[0, 10, 50]),
            fair_share: false,
            queue_timeout: dice.chance(200).then(|| Duration::from_secs(dice.within(1, 20))),
            request_timeout: dice.chance(100).then(|| Duration::from_secs(dice.within(5, 60))),
        },
        seed: dice.next(),
    };
    let bounds = Bounds {
        max_queued_requests: dice.pick(&[0, 4, 32]),
        max_queued_tokens: dice.pick(&[None, Some(0), Some(1000)]),
        ttft_objective: Duration::from_secs(dice.pick(&[0, 1, 30])),
    };
    let limits = Limits {
        bootstrap: Duration::from_secs(dice.within(2, 20)),
        waiting: Duration::from_secs(dice.within(2, 10)),
        answer: Duration::from_secs(2),
        heartbeat: Duration::from_millis(500),
        rooms_max: dice.pick(&[2, 1024]),
        ..Limits::default()
    };
    let rate = 1.0 / model.timing.prefill_token.as_secs_f64();
    Plan { engine, model: model.clone(), bounds, rate, limits, plant }
}

fn weather(dice: &mut Dice) -> Weather {
    let foul = dice.chance(400);
    let often = |dice: &mut Dice, most| if foul { dice.within(0, most) } else { 0 };
    Weather {
        delay: (50, dice.within(100, 20_000)),
        bandwidth: dice.within(1 << 20, 1 << 30),
        twice: often(dice, 30),
        late: often(dice, 30),
        broken: often(dice, 50),
    }
}

fn client(dice: &mut Dice, prefixes: &[Vec<TokenId>], model: &FakeOptions) -> Client {
    let mut prompt = dice.pick(prefixes);
    let own = dice.size(1, 500 - prompt.len().min(300));
    prompt.extend((0..own).map(|_| TokenId(dice.within(0, 90) as u32)));
    let mut client = Client::new(prompt, dice.size(1, 60));
    client.priority = Priority::new(dice.pick(&[0, 0, 0, 20, -20])).expect("in range");
    client.patience =
        if dice.chance(200) { dice.micros(1000, 5_000_000) } else { Duration::from_secs(300) };
    client.returns = dice.pick(&[0, 2, 1000]);
    assert!(client.prompt.len() + client.max_tokens <= model.max_context);
    client
}

impl World {
    /// The world of a seed.
    pub(crate) fn of_seed(seed: u64, plant: Plant) -> Result<Self, String> {
        let mut dice = Dice::new(seed);
        let model = model(&mut dice);
        let mut plans = || (0..WORKERS).map(|_| plan(&mut dice, &model, plant)).collect::<Vec<_>>();
        let (prefills, decodes) = (plans(), plans());
        let router = router::Config {
            policy: dice.pick(&router::PolicyKind::ALL),
            ..router::Config::default()
        };
        let local_tokens = dice.pick(&[0, model.page_tokens, 64]);
        let weather = weather(&mut dice);
        let setting = Setting { prefills, decodes, router, weather, local_tokens };
        let mut world = Self::new(setting, dice.next())?;
        world.people(&mut dice, &model);
        world.misfortunes(&mut dice);
        Ok(world)
    }

    fn people(&mut self, dice: &mut Dice, model: &FakeOptions) {
        let mut prefixes = vec![Vec::new()];
        for _ in 0..3 {
            let len = dice.size(1, 300);
            prefixes.push((0..len).map(|_| TokenId(dice.within(0, 90) as u32)).collect());
        }
        // Together, or one after the other.
        let spread = dice.within(10_000, STORY.as_micros() as u64);
        for _ in 0..dice.size(CLIENTS.0, CLIENTS.1) {
            let client = client(dice, &prefixes, model);
            // The router has to know its workers first.
            let at = Time::ZERO + dice.micros(50_000, 50_000 + spread);
            self.add(client, at);
        }
    }

    fn misfortunes(&mut self, dice: &mut Dice) {
        let when = |dice: &mut Dice| Time::ZERO + dice.micros(100_000, STORY.as_micros() as u64);
        if dice.chance(400) {
            for _ in 0..dice.size(1, 3) {
                let index = dice.size(0, WORKERS - 1);
                let which = dice.pick(&[Which::Prefill(index), Which::Decode(index)]);
                let at = when(dice);
                self.agenda.plan(at, Event::Kill(which));
            }
        }
        if dice.chance(400) {
            for _ in 0..dice.size(1, 5) {
                let wire = dice.size(0, self.wires.len() - 1);
                let (at, silent) = (when(dice), dice.chance(300));
                self.agenda.plan(at, Event::Cut { wire, silent });
            }
        }
    }
}
