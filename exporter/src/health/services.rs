//! Checks of services: whether they run, stay up, and have their memory where it was meant to be.

use metric_catalog::labels::ServiceState;
use node_info::{Mempolicy, Mode};

use super::{Findings, History, Input, Outcome, missing};
use crate::service::{State, probe, restarts};

/// Share of a cache that may lie elsewhere.
const REMOTE_MAX: f64 = 0.01;

/// Restarts within ten minutes that make a loop.
const RESTARTS_MAX: usize = 2;

/// Each service for which `judge` has something to say.
fn each(input: &Input<'_>, judge: impl Fn(&State<'_>) -> Option<Outcome>) -> Findings {
    let one = |state: &State<'_>| Some((state.service.name.clone(), judge(state)?));
    Findings::Of(input.states.iter().filter_map(one).collect())
}

/// The unit is active and the health URL answers. One that is starting passes for as long as a
/// start may take.
pub(super) fn up(input: &Input<'_>, _: &mut History) -> Findings {
    each(input, |state| {
        let service = state.service;
        if service.unit.is_none() && service.health_url.is_none() {
            return None;
        }
        Some(match unit(input, state) {
            Outcome::Pass => url(input, state),
            other @ (Outcome::Fail(_) | Outcome::Unknown(_)) => other,
        })
    })
}

/// What the unit says; passes where there is none.
fn unit(input: &Input<'_>, state: &State<'_>) -> Outcome {
    let Some(name) = &state.service.unit else { return Outcome::Pass };
    let Some(unit) = state.unit else {
        let own = input.facts.systemd.facts.as_deref();
        let own = own.and_then(|units| units.units.get(&state.service.name)?.as_ref().err());
        let why = own.map_or_else(|| missing(&input.facts.systemd.status), ToString::to_string);
        return Outcome::Unknown(why);
    };
    let fail = |what: &str| {
        let ended = unit.result.as_deref().filter(|result| *result != "success");
        let ended = ended.map(|result| format!(", ended by {result}")).unwrap_or_default();
        let code = unit.exit_status.filter(|code| *code != 0);
        let code = code.map(|code| format!(" ({code})")).unwrap_or_default();
        Outcome::Fail(format!("{name} is {what}{ended}{code}"))
    };
    match unit.state {
        ServiceState::Active => Outcome::Pass,
        ServiceState::Activating if unit.sub_state == "auto-restart" => fail("between two starts"),
        ServiceState::Activating if state.starting => Outcome::Pass,
        ServiceState::Activating => fail("still starting"),
        ServiceState::Deactivating => fail("stopping"),
        ServiceState::Inactive => fail("inactive"),
        ServiceState::Failed => fail("failed"),
        ServiceState::Unknown => Outcome::Fail(format!("{name} is not known to systemd")),
    }
}

/// What the health URL says; passes where there is none.
fn url(input: &Input<'_>, state: &State<'_>) -> Outcome {
    let Some(url) = &state.service.health_url else { return Outcome::Pass };
    let late = || missing(&input.facts.probe.status);
    let Some(found) = state.probe else {
        let fresh = input.facts.probe.facts.is_some();
        let why = if fresh { format!("{url} has not answered yet") } else { late() };
        return Outcome::Unknown(why);
    };
    match &found.failure {
        Some(_) if state.starting || found.failures < probe::TRIES => Outcome::Pass,
        Some(why) => Outcome::Fail(format!("{url}: {why}; {} times in a row", found.failures)),
        None => Outcome::Pass,
    }
}

/// The unit does not start again and again.
pub(super) fn restarts(input: &Input<'_>, _: &mut History) -> Findings {
    each(input, |state| match (state.restarts, &state.service.unit) {
        (Some(_), _) if state.recent_restarts >= RESTARTS_MAX => Some(Outcome::Fail(format!(
            "{} restarts within {:.0?}",
            state.recent_restarts,
            restarts::WINDOW
        ))),
        (Some(_), _) => Some(Outcome::Pass),
        // Only services are restarted; a socket or a scope has nothing to count.
        (None, Some(_)) if state.unit.is_some() => None,
        (None, Some(_)) => Some(Outcome::Unknown(missing(&input.facts.systemd.status))),
        (None, None) => None,
    })
}

/// The host cache lies on the node that it was planned for.
pub(super) fn cache_is_local(input: &Input<'_>, _: &mut History) -> Findings {
    each(input, |state| {
        let own = input.joined.services.get(&state.service.name)?;
        // Without a cache there is nothing to lie anywhere.
        if own.source.is_none() || own.planned() == Some(0) || own.pools.0.is_empty() {
            return None;
        }
        Some(match own.local_ratio {
            Some(local) if 1.0 - local > REMOTE_MAX => {
                Outcome::Fail(format!("{:.1} % lies on another NUMA node", (1.0 - local) * 100.0))
            }
            Some(_) => Outcome::Pass,
            None => Outcome::Unknown("neither the server nor the kernel says where".to_owned()),
        })
    })
}

/// A service with a planned node is bound to it.
pub(super) fn policy(input: &Input<'_>, _: &mut History) -> Findings {
    each(input, |state| {
        let node = state.service.numa_node?;
        if state.is_running() == Some(false) {
            return Some(Outcome::Unknown("it does not run".to_owned()));
        }
        let policy = state.usage.and_then(|usage| usage.policy.as_ref());
        let Some(policy) = policy else {
            let hidden = state.usage.and_then(|usage| usage.hidden_policy.clone());
            let problem = state.usage.and_then(|usage| usage.problems.first());
            let why = hidden.or_else(|| problem.map(ToString::to_string));
            let why = why.unwrap_or_else(|| "no process of it is known".to_owned());
            return Some(Outcome::Unknown(why));
        };
        Some(judge_policy(policy, node))
    })
}

fn judge_policy(policy: &Mempolicy, node: u32) -> Outcome {
    let listed = policy.nodes.as_deref().is_none_or(|nodes| nodes.contains(&node));
    match policy.mode {
        Mode::Bind | Mode::Prefer | Mode::PreferMany if listed => Outcome::Pass,
        Mode::Bind
        | Mode::Prefer
        | Mode::PreferMany
        | Mode::Default
        | Mode::Local
        | Mode::Interleave
        | Mode::WeightedInterleave => {
            let nodes = policy.nodes.as_deref().filter(|nodes| !nodes.is_empty());
            let nodes = nodes.map(|nodes| format!(" {nodes:?}")).unwrap_or_default();
            let mode = policy.mode.name();
            Outcome::Fail(format!("its memory policy is {mode}{nodes}, it is planned for {node}"))
        }
    }
}
