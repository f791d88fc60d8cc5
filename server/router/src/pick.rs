//! Choosing among those that can be asked: whom the policy takes, and which decode worker goes
//! with it.

use types::Time;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::core::{Core, draw};
use crate::member::Member;
use crate::policy::{Branch, Candidate, Prompt};
use crate::ramp;
use crate::route::Asked;
use crate::set::WorkerSet;

/// Bytes of a prompt by which `prefix_hash` tells prompts apart, about: system prompts are longer,
/// and what tells tenants apart is at their beginning.
const HEAD_PIECES: usize = 32;

/// A decode worker may have so many times the load of the least loaded one, and so much more, and
/// still be chosen for what it holds.
const DECODE_GUARD: f64 = 1.25;
const DECODE_FLOOR: f64 = 0.05;

/// Running slots of a worker that does not tell.
const ASSUMED_SLOTS: f64 = 16.0;

impl Core {
    /// Lets the policy choose among `front`, which is not empty.
    pub(crate) fn pick(&mut self, asked: &Asked<'_>, front: WorkerSet, now: Time) -> (u16, Branch) {
        let mut slots = std::mem::take(&mut self.slots);
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        slots.clear();
        slots.extend(front.iter());
        self.take_part(&mut slots, now);
        for &slot in &slots {
            let member = self.registry.at(slot);
            let load = member.load(now, &self.config);
            candidates.push(Candidate {
                name_hash: member.name_hash,
                backlog: load.backlog(),
                prefill_rate: load.prefill_rate,
                pending: load.pending,
                active: load.own.requests,
                occupancy: if member.role.is_whole() { self.occupancy(member, now) } else { 0.0 },
                matched: self.matched(asked, slot),
                turn: member.turn,
            });
        }
        let head = asked.pieces.hashes().iter().take(HEAD_PIECES).next_back();
        let short = || xxh3_64_with_seed(asked.request.prompt, asked.pieces.seed());
        let prompt = Prompt {
            tokens: asked.tokens,
            head: head.copied().unwrap_or_else(short),
            draw: draw(&mut self.random),
        };
        let picked = match candidates.len() {
            1 => (0, Branch::Only),
            _ => self.config.policy.policy().pick(&candidates, &prompt, &self.config.guard),
        };
        let chosen = (slots[picked.0], picked.1);
        (self.slots, self.candidates) = (slots, candidates);
        chosen
    }

    /// The decode worker that goes with a prefill worker: among those that have about as few
    /// requests as any for their size, the one that holds most of the prompt; those without room
    /// for its KV last.
    pub(crate) fn pick_decode(
        &mut self,
        asked: &Asked<'_>,
        prefill: u16,
        decode: WorkerSet,
        now: Time,
    ) -> u16 {
        let mut slots = std::mem::take(&mut self.slots);
        let pair = |slot: &u16| self.registry.at(*slot).pairs.contains(prefill);
        slots.clear();
        slots.extend(decode.iter().filter(pair));
        self.take_part(&mut slots, now);
        let chosen = self.least_decode(asked, &slots, now);
        self.slots = slots;
        chosen
    }

    fn least_decode(&self, asked: &Asked<'_>, slots: &[u16], now: Time) -> u16 {
        let fits = || slots.iter().map(|slot| (*slot, self.decode_load(*slot, asked, now)));
        let least = fits().map(|(_, load)| load).fold(f64::INFINITY, f64::min);
        let limit = least * DECODE_GUARD + DECODE_FLOOR;
        let key = |slot: u16, load: f64| {
            let turn = self.registry.at(slot).turn;
            (std::cmp::Reverse(asked.depths[usize::from(slot)]), load, turn)
        };
        let within = fits().filter(|(_, load)| *load <= limit).map(|(s, load)| (key(s, load), s));
        let best = within.reduce(|a, b| if b.0 < a.0 { b } else { a });
        best.expect("a prefill worker is only open beside a decode worker it fits").1
    }

    /// The occupancy of a decode worker; more where the KV of the prompt finds no room.
    fn decode_load(&self, slot: u16, asked: &Asked<'_>, now: Time) -> f64 {
        let member = self.registry.at(slot);
        let unreported = member.ledger.amounts().1;
        let room = member.fresh(now, &self.config.health).map(|fresh| fresh.load.free_tokens);
        let room = room.map(|room| room.saturating_sub(unreported.kv));
        let full = room.is_some_and(|room| room < asked.tokens);
        self.occupancy(member, now) + if full { 1.0 } else { 0.0 }
    }

    /// Requests that run or wait at a worker, per running slot.
    fn occupancy(&self, member: &Member, now: Time) -> f64 {
        let (own, unreported) = member.ledger.amounts();
        let Some(fresh) = member.fresh(now, &self.config.health) else {
            return own.requests as f64 / ASSUMED_SLOTS;
        };
        let told = &fresh.load;
        let slots = if told.running_limit > 0 { told.running_limit as f64 } else { ASSUMED_SLOTS };
        let requests = told.running.saturating_add(told.queued.requests);
        requests.saturating_add(unreported.requests) as f64 / slots
    }

    /// Leaves of `slots` those that take part this time: workers that have just come back do so
    /// by their share.
    fn take_part(&mut self, slots: &mut Vec<u16>, now: Time) {
        if slots.len() < 2 {
            return;
        }
        let mut random = self.random;
        let share = |slot| self.registry.at(slot).share(now, &self.config);
        ramp::thin(slots, share, || draw(&mut random));
        self.random = random;
    }
}
