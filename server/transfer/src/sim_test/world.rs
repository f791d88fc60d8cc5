//! Two decode workers, two prefill workers, and a network between them.

use std::sync::Arc;
use std::time::Duration;

use types::Time;

use super::decoder::{Decoder, Mailbox};
use super::pages::{PAGE_TOKENS, TestPages};
use super::prefiller::{Desk, Prefiller};
use super::tally::{Counted, Ends, Tally};
use crate::ends::Limits;
use crate::link::NewsSink;
use crate::loopback::{Dice, FaultPlan, Loopback, Node};
use crate::room::PeerName;
use crate::shape::Shape;

const STEPS: usize = 220;
/// Steps without faults after which everything has ended.
const LAST_STEPS: usize = 4000;

/// What one seed is about.
struct Plan {
    faults: FaultPlan,
    /// Whether connections may be lost.
    losses: bool,
    /// Per mille and step.
    give_up: u32,
    fail_pass: u32,
    refuse: u32,
    /// Prefill workers take their time, and nobody has much patience.
    sleepy: bool,
}

fn plan(dice: &mut Dice) -> Plan {
    let mut faults = FaultPlan {
        jitter: Duration::from_millis(dice.within(0..=20)),
        bytes_per_second: [u64::MAX, 2_000, 20_000][dice.below(3)],
        notice: Duration::from_millis(dice.within(0..=200)),
        ..FaultPlan::local()
    };
    let mut some = |most: u64| if dice.chance(500) { dice.within(0..=most) as u32 } else { 0 };
    faults.duplicate = some(200);
    faults.reorder = some(200);
    faults.corrupt_payload = some(200);
    faults.refuse = some(100);
    let losses = some(1) > 0;
    if losses {
        faults.drop = some(15);
        faults.corrupt_message = some(15);
        faults.corrupt_header = some(15);
        faults.stall = some(20);
        faults.stall_for = Duration::from_millis(u64::from(some(9000)));
    }
    let (give_up, fail_pass, refuse) = (some(200), some(20), some(300));
    let sleepy = dice.chance(150);
    Plan { faults, losses, give_up, fail_pass, refuse, sleepy }
}

fn limits(dice: &mut Dice, sleepy: bool) -> Limits {
    Limits {
        rooms_max: 2 + dice.below(6),
        frames_in_flight: 1 + dice.below(4),
        answer: Duration::from_secs(4),
        bootstrap: Duration::from_millis(if sleepy { 150 } else { 6000 }),
        waiting: Duration::from_millis(if sleepy { 200 } else { 6000 }),
        heartbeat: Duration::from_secs(1),
        silent_beats: 3,
        retries: 2,
        remote_writes: dice.chance(300),
    }
}

pub(super) struct World {
    net: Loopback,
    now: Time,
    dice: Dice,
    plan: Plan,
    names: Vec<PeerName>,
    decoders: Vec<Decoder>,
    prefillers: Vec<Prefiller>,
    tally: Tally,
    cut: bool,
}

/// What a seed has seen: by the engines, by the ends, and how much was ignored.
pub(super) struct Outcome {
    pub(super) tally: Tally,
    pub(super) recv: Counted,
    pub(super) send: Counted,
    pub(super) strays: u64,
}

pub(super) fn run(seed: u64) -> Outcome {
    let mut world = World::new(seed);
    for step in 0..STEPS {
        world.step(step);
    }
    world.finish()
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let plan = plan(&mut dice);
        let limits = limits(&mut dice, plan.sleepy);
        let net = Loopback::new(dice.next(), plan.faults.clone());
        let names: Vec<PeerName> = (0..2).map(|at| PeerName::new(&format!("p{at}:1"))).collect();
        let replicated = dice.chance(500);
        let ranks = |dice: &mut Dice| if replicated { 1 + dice.below(3) as u16 } else { 2 };
        let node =
            |name: &str, ranks, news: Arc<dyn NewsSink>, ends: &Arc<Ends>, peers: &[PeerName]| {
                let pages = Arc::new(TestPages::new(ranks, replicated));
                let node = Node {
                    name: PeerName::new(name),
                    shape: Shape::of("sim", PAGE_TOKENS as u32, "f32", &*pages),
                    secret: Some(Arc::from(*b"between us two")),
                    pages: Arc::<TestPages>::clone(&pages),
                    limits,
                    peers: peers.to_vec(),
                    news,
                    observer: Arc::<Ends>::clone(ends),
                };
                (node, pages)
            };
        let mut decoders = Vec::new();
        for at in 0..2 {
            let (mailbox, ends) = (Arc::new(Mailbox::default()), Arc::new(Ends::default()));
            let (ranks, news) = (ranks(&mut dice), Arc::<Mailbox>::clone(&mailbox));
            let (node, pages) = node(&format!("d{at}:1"), ranks, news, &ends, &names);
            let (id, port) = net.decode(node);
            decoders.push(Decoder::new(id, port, mailbox, pages, ends));
        }
        let mut prefillers = Vec::new();
        for at in 0..2 {
            let (desk, ends) = (Desk::new(dice.fork(), plan.refuse), Arc::new(Ends::default()));
            let (ranks, news) = (ranks(&mut dice), Arc::<Desk>::clone(&desk));
            // One of the decode workers is in nobody's configuration.
            let known = [PeerName::new("d0:1")];
            let (node, pages) = node(&format!("p{at}:1"), ranks, news, &ends, &known);
            let (id, port) = net.prefill(node, Arc::<Desk>::clone(&desk));
            prefillers.push(Prefiller::new(id, port, desk, pages, ends));
        }
        for decoder in &decoders {
            for prefiller in &prefillers {
                net.connect(decoder.node, prefiller.node).expect("they fit");
            }
        }
        let (now, tally, cut) = (Time::ZERO, Tally::default(), false);
        Self { net, now, dice, plan, names, decoders, prefillers, tally, cut }
    }

    fn pass(&mut self, most: Duration) {
        self.now = self.now + self.dice.up_to(most);
        self.net.drive(self.now);
    }

    fn step(&mut self, step: usize) {
        let most = if self.dice.chance(20) { 1500 } else { 15 };
        self.pass(Duration::from_millis(most));
        let (dice, tally) = (&mut self.dice, &mut self.tally);
        for decoder in &mut self.decoders {
            if dice.chance(250) {
                let peer = &self.names[dice.below(2)];
                decoder.ask(1000 + tally.asked, peer, dice, tally);
            }
            while dice.chance(700) && decoder.read(tally) {}
            decoder.land(dice, 200);
            if dice.chance(self.plan.give_up) {
                decoder.abandon(dice, tally);
            }
        }
        for prefiller in &mut self.prefillers {
            while dice.chance(700) && prefiller.read(tally) {}
            if dice.chance(if self.plan.sleepy { 60 } else { 700 }) {
                prefiller.work(dice, self.plan.fail_pass);
            }
            if dice.chance(self.plan.give_up) {
                prefiller.abandon(dice, tally);
            }
        }
        if self.plan.losses && dice.chance(4) {
            self.cut = true;
            let (decoder, prefiller) = (dice.below(2), dice.below(2));
            self.net.cut(self.decoders[decoder].node, self.prefillers[prefiller].node);
        }
        if step.is_multiple_of(16) {
            self.check();
        }
    }

    /// What holds at any time.
    fn check(&self) {
        for decoder in &self.decoders {
            let snapshot = crate::Backend::snapshot(&*decoder.port);
            assert_eq!(snapshot.violations, 0, "both sides are correct");
            assert!(snapshot.peers.len() <= 2, "both are in the configuration");
        }
        for prefiller in &self.prefillers {
            let snapshot = prefiller.port.snapshot();
            assert!(snapshot.peers.iter().all(|peer| peer.held_bytes == 0));
            assert!(snapshot.peers.len() <= 2, "d0 and others");
        }
    }

    /// Lets everything end, and counts.
    fn finish(mut self) -> Outcome {
        self.net.set_faults(FaultPlan::local());
        let mut left = LAST_STEPS;
        while !self.is_idle() {
            let decode: Vec<_> = self.decoders.iter().map(Decoder::left).collect();
            let prefill: Vec<_> = self.prefillers.iter().map(Prefiller::left).collect();
            assert!(left > 0, "everything ends: {decode:?} {prefill:?}");
            left -= 1;
            self.pass(Duration::from_millis(40));
            let (dice, tally) = (&mut self.dice, &mut self.tally);
            for decoder in &mut self.decoders {
                while decoder.read(tally) {}
                decoder.land(dice, 1000);
            }
            for prefiller in &mut self.prefillers {
                while prefiller.read(tally) {}
                prefiller.work(dice, 0);
            }
        }
        // What is on its way finds nobody.
        self.pass(Duration::from_secs(1));
        self.check();
        let none = Counted::default;
        let recv = self.decoders.iter().fold(none(), |all, one| all.plus(&one.ends.counted()));
        let send = self.prefillers.iter().fold(none(), |all, one| all.plus(&one.ends.counted()));
        let strays = self.empty();
        let tally = self.tally;
        assert_eq!(recv.ends, tally.asked - tally.rejected, "one end per offer: {tally:?}");
        assert_eq!(send.ends, tally.accepted, "one end per accepted offer: {tally:?}");
        assert!(tally.delivered.is_subset(&tally.arrived), "{tally:?}");
        assert!(send.ok <= recv.ok, "what is delivered has arrived");
        if !self.plan.losses {
            assert_eq!(send.ok, recv.ok, "both sides agree");
            let answered = tally.asked - tally.rejected - tally.unanswered;
            assert!(send.ends >= answered, "an answer comes from the prefill worker");
        }
        Outcome { tally, recv, send, strays }
    }

    fn is_idle(&self) -> bool {
        self.decoders.iter().all(Decoder::is_idle) && self.prefillers.iter().all(Prefiller::is_idle)
    }

    /// Nothing is left anywhere. Says how much was ignored.
    fn empty(&self) -> u64 {
        let mut strays = 0;
        for decoder in &self.decoders {
            assert_eq!(decoder.port.with(|end, _| end.rooms()), 0, "a room is left");
            assert_eq!(decoder.pages.free(), TestPages::all(), "a page is left");
            strays += self.quiet(&crate::Backend::snapshot(&*decoder.port));
        }
        for prefiller in &self.prefillers {
            assert_eq!(prefiller.port.with(|end, _| end.rooms()), 0, "a room is left");
            assert_eq!(prefiller.pages.free(), TestPages::all(), "a page is left");
            strays += self.quiet(&prefiller.port.snapshot());
        }
        strays
    }

    fn quiet(&self, snapshot: &crate::LinkSnapshot) -> u64 {
        for peer in &snapshot.peers {
            let open = [peer.waiting, peer.wire, peer.held_bytes];
            assert_eq!(open, [0; 3], "{snapshot:?}");
        }
        if !self.plan.losses {
            assert!(snapshot.peers.iter().all(|peer| peer.up), "nobody is lost: {snapshot:?}");
        }
        snapshot.strays
    }
}
