//! Choosing: who may be asked, and who would refuse. Among those that are left, see `pick`.

use std::time::Duration;

use admission::Returns;
use types::Time;

use crate::charge::Amount;
use crate::core::Core;
use crate::door::{Need, Refused, refused};
use crate::member::{CoolCause, Cooling, Member};
use crate::pieces::Pieces;
use crate::prefix::Depths;
use crate::registry::misfit;
use crate::request::{Leg, Missing, OverloadReason, Refusal, Request, Route};
use crate::set::WorkerSet;
use crate::worker::{WorkerKey, WorkerRole, WorkerState};

/// What retries of one request need to know of each other.
#[derive(Debug, Default)]
pub struct Attempt {
    /// It was counted among the requests that the budget follows.
    counted: bool,
    pub(crate) tried: Vec<WorkerKey>,
    /// Times that it was sent.
    pub(crate) tries: u32,
    /// Of those, times that it was refused.
    pub(crate) refusals: u32,
    /// The smallest time that a worker asked for.
    pub(crate) retry_after: Option<Duration>,
    /// Its prompt, hashed once.
    pieces: Option<Box<Pieces>>,
}

impl Attempt {
    /// A request that was not sent yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Hashes the prompt of `request`, which is the one that this is about, so that nobody else
    /// does it while the core is locked. Doing it twice is doing it once.
    pub fn look(&mut self, request: &Request<'_>) {
        self.pieces.get_or_insert_with(|| Box::new(Pieces::of_request(request)));
    }

    /// Nothing of it was executed anywhere, and it has waited: it may be sent as if it was new.
    pub fn again(&mut self) {
        let pieces = self.pieces.take();
        *self = Self { counted: self.counted, pieces, ..Self::default() };
    }

    /// Times that it was sent.
    #[must_use]
    pub const fn tries(&self) -> u32 {
        self.tries
    }
}

/// A request with what is derived from it once.
pub(crate) struct Asked<'a> {
    pub(crate) request: &'a Request<'a>,
    pub(crate) pieces: Pieces,
    pub(crate) depths: Depths,
    pub(crate) tokens: u64,
    /// What `tokens` are multiplied with so that they are not too many.
    pub(crate) margin: f64,
}

/// Who can be asked.
#[derive(Debug, Default)]
struct Open {
    /// Whole and prefill workers.
    front: WorkerSet,
    decode: WorkerSet,
}

/// For each role, how the first worker to have room would refuse; `None` within where one has room
/// now.
#[derive(Debug, Default)]
struct Soonest {
    whole: Option<Option<Refused>>,
    prefill: Option<Option<Refused>>,
    decode: Option<Option<Refused>>,
}

impl Soonest {
    fn note(&mut self, role: WorkerRole, refused: Option<Refused>) {
        let first = match role {
            WorkerRole::Unified | WorkerRole::Plain => &mut self.whole,
            WorkerRole::Prefill => &mut self.prefill,
            WorkerRole::Decode => &mut self.decode,
        };
        let wait = |refused: &Option<Refused>| refused.map(|refused| refused.retry_after);
        if first.as_ref().is_none_or(|known| wait(&refused) < wait(known)) {
            *first = Some(refused);
        }
    }

    /// The refusal that is over first; a pair has room when both halves have.
    fn refused(&self) -> Option<Refused> {
        let later = |refused: &Refused| refused.retry_after;
        let pair = [self.prefill, self.decode].into_iter().flatten().flatten().max_by_key(later);
        [self.whole.flatten(), pair].into_iter().flatten().min_by_key(later)
    }

    /// How long until somebody has room, in whole seconds, at least 1; `None` where nobody knows.
    fn wait(&self) -> Option<Duration> {
        let known = [self.whole, self.prefill, self.decode].into_iter().flatten().next().is_some();
        let pair_now = self.prefill == Some(None) && self.decode == Some(None);
        let now = self.whole == Some(None) || pair_now;
        let later = self.refused().filter(|_| !now).map(|refused| refused.retry_after);
        later.or(known.then_some(Duration::from_secs(1)))
    }
}

impl Core {
    /// Chooses a worker, or a pair, and counts the request there until the route is dropped.
    ///
    /// # Errors
    /// Nobody serves the model, nobody can be asked, or everybody would refuse.
    pub fn route(
        &mut self,
        request: &Request<'_>,
        attempt: &mut Attempt,
        now: Time,
    ) -> Result<Route, Refusal> {
        if !std::mem::replace(&mut attempt.counted, true) {
            self.budget.deposit(&self.config.retry);
        }
        let asked = self.ask(request, attempt);
        self.choose(&asked, attempt, false, now).map_err(|refusal| match refusal {
            Refusal::Overloaded { reason, mut retry_after, value, limit } => {
                let for_tokens = match reason {
                    OverloadReason::QueueTokensFull
                    | OverloadReason::DrainTime
                    | OverloadReason::Cooling => true,
                    OverloadReason::QueueRequestsFull | OverloadReason::Closed => false,
                };
                if for_tokens {
                    retry_after = self.come_behind(&asked, retry_after, now);
                }
                Refusal::Overloaded { reason, retry_after, value, limit }
            }
            Refusal::UnknownModel { .. } | Refusal::NoWorker { .. } => refusal,
        })
    }

    /// When somebody shall come back for whom there would be room after `wait`, behind others that
    /// were sent away.
    pub(crate) fn come_behind(&mut self, asked: &Asked<'_>, wait: Duration, now: Time) -> Duration {
        let computes = |member: &&Member| {
            member.serves(asked.request.model)
                && member.role != WorkerRole::Decode
                && member.state(now, &self.config.health) == WorkerState::Ready
        };
        let members = self.registry.iter().filter(computes);
        let rate: f64 = members.map(|member| member.load(now, &self.config).prefill_rate).sum();
        let work = Duration::try_from_secs_f64(asked.tokens as f64 / rate.max(1.0));
        self.returns.tell(wait, work.unwrap_or(Returns::LONGEST), now)
    }

    pub(crate) fn ask<'a>(&self, request: &'a Request<'a>, attempt: &Attempt) -> Asked<'a> {
        let hashed = attempt.pieces.as_deref().cloned();
        let pieces = hashed.unwrap_or_else(|| Pieces::of_request(request));
        let depths = self.prefixes.depths(&pieces);
        let tokens = self.tokens(request.model, request.prompt.len());
        Asked { request, pieces, depths, tokens, margin: self.margin(request.model) }
    }

    /// As `route`; with `head_room` only those are asked whose reports say that they would take it.
    pub(crate) fn choose(
        &mut self,
        asked: &Asked<'_>,
        attempt: &mut Attempt,
        head_room: bool,
        now: Time,
    ) -> Result<Route, Refusal> {
        let open = self.open(asked, attempt, head_room, now)?;
        let (front, branch) = self.pick(asked, open.front, now);
        let decode = (self.registry.at(front).role == WorkerRole::Prefill)
            .then(|| self.pick_decode(asked, front, open.decode, now));
        attempt.tries += 1;
        self.turns += 1;
        let matched = self.matched(asked, front);
        let uncached = (asked.tokens as f64 * (1.0 - matched)) as u64;
        let compute = Amount { requests: 1, pending: uncached, kv: asked.tokens };
        let hold = Amount { pending: 0, ..compute };
        let front_leg = self.leg(front, compute, asked, now);
        let decode_leg = decode.map(|slot| self.leg(slot, hold, asked, now));
        for slot in [Some(front), decode].into_iter().flatten() {
            self.prefixes.remember(slot, &asked.pieces);
        }
        let (serve, prefill) = match decode_leg {
            Some(decode) => (decode, Some(front_leg)),
            None => (front_leg, None),
        };
        Ok(Route {
            serve,
            prefill,
            policy: self.config.policy,
            branch,
            prefix_match: matched,
            prompt_tokens: asked.tokens,
        })
    }

    fn leg(&mut self, slot: u16, amount: Amount, asked: &Asked<'_>, now: Time) -> Leg {
        let turn = self.turns;
        let member = self.registry.at_mut(slot);
        member.turn = turn;
        Leg {
            name: member.name().clone(),
            base: member.spec.base.clone(),
            role: member.role,
            key: member.key,
            charge: member.ledger.charge(amount),
            held: asked.depths[usize::from(slot)],
            probe: member.breaker.ask(now),
        }
    }

    /// The share of the prompt that the worker at `slot` is believed to hold.
    pub(crate) fn matched(&self, asked: &Asked<'_>, slot: u16) -> f64 {
        asked.pieces.share(usize::from(asked.depths[usize::from(slot)]))
    }

    /// How much longer a worker is left alone: it asked for time, and no later report says that it
    /// has room for so many tokens.
    pub(crate) fn cooling(&self, member: &Member, tokens: u64, now: Time) -> Option<Cooling> {
        let need = Need { tokens, margin: 1.0 };
        let room = |member: &Member| refused(member, need, now, &self.config).is_none();
        member.cooling(now, &self.config.health, room)
    }

    /// How a worker would refuse: by its report, or because it asked for time.
    fn refuses(&self, member: &Member, asked: &Asked<'_>, now: Time) -> Option<Refused> {
        let matched = self.matched(asked, member.key.slot);
        let tokens = (asked.tokens as f64 * (1.0 - matched)) as u64;
        if self.config.refuse_at_door {
            let need = Need { tokens, margin: asked.margin };
            if let Some(refused) = refused(member, need, now, &self.config) {
                return Some(refused);
            }
        }
        self.cooling(member, tokens, now).map(|cooling| Refused {
            reason: match cooling.cause {
                CoolCause::Full => OverloadReason::Cooling,
                CoolCause::Closed => OverloadReason::Closed,
            },
            retry_after: crate::door::whole_seconds(cooling.left.as_secs_f64()),
            value: 0,
            limit: 0,
        })
    }

    /// Does a fresh report of the worker say that it would take the prompt?
    fn has_head_room(&self, member: &Member, asked: &Asked<'_>, now: Time) -> bool {
        let need = Need { tokens: asked.tokens, margin: 1.0 };
        member.fresh(now, &self.config.health).is_some()
            && refused(member, need, now, &self.config).is_none()
            && self.cooling(member, asked.tokens, now).is_none()
    }

    /// Who can be asked, and of those who would not refuse.
    fn open(
        &self,
        asked: &Asked<'_>,
        attempt: &Attempt,
        head_room: bool,
        now: Time,
    ) -> Result<Open, Refusal> {
        let model = asked.request.model;
        let (mut here, mut willing) = (WorkerSet::default(), WorkerSet::default());
        let mut soonest = Soonest::default();
        for member in self.registry.iter().filter(|member| member.serves(model)) {
            if !self.can_ask(member, attempt, now) {
                continue;
            }
            here.insert(member.key.slot);
            let refused = self.refuses(member, asked, now);
            soonest.note(member.role, refused);
            if refused.is_none() && (!head_room || self.has_head_room(member, asked, now)) {
                willing.insert(member.key.slot);
            }
        }
        let open = self.paired(willing);
        if !open.front.is_empty() {
            return Ok(open);
        }
        // Where somebody could be asked, the whole workers and one half of each pair refuse.
        let refused = soonest.refused().filter(|_| !self.paired(here).front.is_empty());
        Err(refused.map_or_else(|| self.nobody(model, now), Refused::overloaded))
    }

    /// When to come back after a refusal, as far as reports and earlier refusals tell.
    pub(crate) fn soonest(&self, asked: &Asked<'_>, now: Time) -> Option<Duration> {
        let mut soonest = Soonest::default();
        for member in self.registry.iter().filter(|member| member.serves(asked.request.model)) {
            let ready = member.state(now, &self.config.health) == WorkerState::Ready;
            let refused = self.refuses(member, asked, now);
            let knows = refused.is_some() || member.fresh(now, &self.config.health).is_some();
            if ready && member.breaker.may_ask(now) && knows {
                soonest.note(member.role, refused);
            }
        }
        soonest.wait()
    }

    /// May the worker be asked at all?
    fn can_ask(&self, member: &Member, attempt: &Attempt, now: Time) -> bool {
        member.state(now, &self.config.health) == WorkerState::Ready
            && member.breaker.may_ask(now)
            && !attempt.tried.contains(&member.key)
    }

    /// Of `workers`, those that can answer alone or together.
    fn paired(&self, workers: WorkerSet) -> Open {
        let mut open = Open::default();
        let (mut prefill, mut paired) = (WorkerSet::default(), WorkerSet::default());
        for slot in workers.iter() {
            let member = self.registry.at(slot);
            match member.role {
                WorkerRole::Unified | WorkerRole::Plain => open.front.insert(slot),
                WorkerRole::Prefill => prefill.insert(slot),
                WorkerRole::Decode => {
                    if !member.pairs.common(workers).is_empty() {
                        open.decode.insert(slot);
                        paired = paired.union(member.pairs);
                    }
                }
            }
        }
        open.front = open.front.union(prefill.common(paired));
        open
    }

    /// Why nobody can be asked for the model.
    fn nobody(&self, model: &str, now: Time) -> Refusal {
        let known = self.registry.models();
        let silent = self.registry.iter().any(|member| member.models.is_empty());
        if !silent && !known.iter().any(|own| **own == *model) && !known.is_empty() {
            return Refusal::UnknownModel { model: model.to_owned(), known };
        }
        let opens = |member: &Member| member.breaker.opens_at(now);
        let soon = self.registry.iter().filter_map(opens).min();
        let wait = soon.map_or(UNREADY_RETRY, |at| at.since(now));
        Refusal::NoWorker {
            missing: self.missing(Some(model), now),
            retry_after: crate::door::whole_seconds(wait.as_secs_f64()),
        }
    }

    /// The roles without a worker that can be asked, for a model or for any.
    pub(crate) fn missing(&self, model: Option<&str>, now: Time) -> Missing {
        let wanted = |member: &&Member| {
            member.models.is_empty() || model.is_none_or(|model| member.serves(model))
        };
        let apart = self.registry.iter().filter(wanted).any(|member| !member.role.is_whole());
        let whole = self.registry.iter().filter(wanted).any(|member| member.role.is_whole());
        let mut roles = Vec::new();
        if whole || !apart {
            roles.push(WorkerRole::Unified);
        }
        if apart {
            roles.extend([WorkerRole::Prefill, WorkerRole::Decode]);
        }
        let mut missing = Missing::default();
        let mut ready = Vec::new();
        for role in roles {
            let of_role = || {
                let members = self.registry.iter().filter(wanted);
                members.filter(move |member| member.role.declared() == role)
            };
            let asked = |member: &Member| self.can_ask(member, &Attempt::default(), now);
            if of_role().any(asked) {
                ready.push(role);
                continue;
            }
            let states: Vec<String> = of_role().map(|member| self.describe(member, now)).collect();
            missing.roles.push((role, states.join(", ")));
        }
        if missing.roles.is_empty() && !ready.is_empty() {
            missing.roles.push((WorkerRole::Decode, self.no_pair(model, now)));
        }
        missing
    }

    /// Why no ready decode worker has a ready prefill worker: by the first of each.
    fn no_pair(&self, model: Option<&str>, now: Time) -> String {
        let first = |role: WorkerRole| {
            self.registry.iter().find(|member| {
                member.role == role
                    && model.is_none_or(|model| member.serves(model))
                    && self.can_ask(member, &Attempt::default(), now)
            })
        };
        let ends = first(WorkerRole::Decode).zip(first(WorkerRole::Prefill));
        ends.map(|(decode, prefill)| misfit(decode, prefill)).unwrap_or_default()
    }

    fn describe(&self, member: &Member, now: Time) -> String {
        let state = member.state(now, &self.config.health);
        let name = member.name();
        if state == WorkerState::Ready {
            return format!("{name} has failed and is left alone for a while");
        }
        let reason = member.reason(state, now);
        let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
        format!("{name} is {}{reason}", state.as_str())
    }
}

/// When to come back where no worker is ready: about how long it takes to see one that is.
const UNREADY_RETRY: Duration = Duration::from_secs(2);
