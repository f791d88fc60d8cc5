//! Answers from samples, series and rules, as the JSON of their `data`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::params::{Params, milliseconds};
use super::{Answer, Api, ApiError, BatchQuery, Reply, format};
use crate::clock::now_ms;
use crate::promql::{self, Budget, Query, RangeSeries, STEPS_MAX, parse_selector};
use crate::rules::Filter;
use crate::store::Labels;

/// Points of one answer; each is about 25 bytes of text.
pub(crate) const POINTS_MAX: usize = 2_000_000;

pub(super) fn query(api: &Api, params: &Params, budget: &Budget) -> Answer {
    let time = params.time("time")?.unwrap_or_else(now_ms);
    instant(api, params.get("query").unwrap_or(""), time, params.limit()?, budget)
}

pub(super) fn query_range(api: &Api, params: &Params, budget: &Budget) -> Answer {
    let missing =
        |name: &str| format!("invalid parameter {name:?}: cannot parse \"\" to a valid timestamp");
    let start = params.time("start")?.ok_or_else(|| missing("start"))?;
    let end = params.time("end")?.ok_or_else(|| missing("end"))?;
    let window = Window { start, end, step: params.duration("step")? };
    range(api, params.get("query").unwrap_or(""), window, params.limit()?, budget)
}

/// The times of a range query, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) step: i64,
}

impl Window {
    /// Refuses what runs backwards and what has too many steps; `step` is positive.
    pub(crate) fn check(self) -> Result<(), ApiError> {
        let Self { start, end, step } = self;
        if end < start {
            return Err(ApiError::bad(
                "invalid parameter \"end\": end timestamp must not be before start time",
            ));
        }
        if (end - start) / step >= STEPS_MAX {
            let works = ((end - start) / (STEPS_MAX - 1) + 1) as f64 / 1000.0;
            return Err(ApiError::bad(format!(
                "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the \
                 query resolution (?step=XX): {works} s would work for this range"
            )));
        }
        Ok(())
    }
}

fn instant(api: &Api, text: &str, time: i64, limit: usize, budget: &Budget) -> Answer {
    let mut answer = Query::parse(text)?.instant_within(&api.store, time, budget)?;
    let cut = match &mut answer {
        promql::Answer::Scalar(_) | promql::Answer::String(_) => false,
        promql::Answer::Vector(series) => shortened(series, limit),
        promql::Answer::Matrix(series) => {
            let cut = shortened(series, limit);
            bounded(series)?;
            cut
        }
    };
    Ok(Reply::cut(format::answer(&answer, time), cut))
}

fn range(api: &Api, text: &str, window: Window, limit: usize, budget: &Budget) -> Answer {
    window.check()?;
    let Window { start, end, step } = window;
    let mut series = Query::parse(text)?.range(&api.store, start, end, step, budget)?;
    let cut = shortened(&mut series, limit);
    bounded(&series)?;
    Ok(Reply::cut(format::matrix(&series), cut))
}

/// Keeps the first `limit`; whether something went.
fn shortened<T>(items: &mut Vec<T>, limit: usize) -> bool {
    let cut = items.len() > limit;
    items.truncate(limit);
    cut
}

fn bounded(series: &[RangeSeries]) -> Result<(), ApiError> {
    let points: usize = series.iter().map(|one| one.points.len()).sum();
    if points <= POINTS_MAX {
        return Ok(());
    }
    Err(ApiError::execution(format!(
        "the answer has {points} points in {} series, more than {POINTS_MAX}; a longer step, a \
         shorter range or an aggregation would work",
        series.len()
    )))
}

/// One query of the console's batch.
pub(super) fn batched(api: &Api, query: &BatchQuery, budget: &Budget) -> Answer {
    match query.window()? {
        Some(window) => range(api, &query.query, window, usize::MAX, budget),
        None => {
            let time = query.time_ms()?.unwrap_or_else(now_ms);
            instant(api, &query.query, time, usize::MAX, budget)
        }
    }
}

impl BatchQuery {
    /// The times of a range query; none for an instant one.
    pub(crate) fn window(&self) -> Result<Option<Window>, ApiError> {
        let (Some(start), Some(end), Some(step)) = (self.start, self.end, self.step) else {
            return Ok(None);
        };
        let step = checked(step, "step")?.max(1);
        Ok(Some(Window { start: checked(start, "start")?, end: checked(end, "end")?, step }))
    }

    /// The time of an instant query, where it names one.
    pub(crate) fn time_ms(&self) -> Result<Option<i64>, ApiError> {
        self.time.map(|time| checked(time, "time")).transpose()
    }
}

fn checked(seconds: f64, name: &str) -> Result<i64, ApiError> {
    let wrong = || ApiError::bad(format!("invalid parameter {name:?}: {seconds} is no time"));
    milliseconds(seconds).ok_or_else(wrong)
}

/// An expression is read and checked, but no exemplars are kept.
pub(super) fn exemplars(_api: &Api, params: &Params, _budget: &Budget) -> Answer {
    Query::parse(params.get("query").unwrap_or(""))?;
    Ok("[]".to_owned().into())
}

/// The label sets that `match[]` selects in the time range; without `match[]`, all of them.
fn selected(api: &Api, params: &Params) -> Result<Vec<Labels>, ApiError> {
    let start = params.time("start")?.unwrap_or(i64::MIN);
    let end = params.time("end")?.unwrap_or(i64::MAX);
    let mut found = BTreeSet::new();
    let mut any = false;
    for selector in params.all("match[]") {
        any = true;
        let matchers = parse_selector(selector)
            .map_err(|e| ApiError::bad(format!("invalid parameter \"match[]\": {e}")))?;
        found.extend(api.store.label_sets(&matchers, start, end));
    }
    if !any {
        found.extend(api.store.label_sets(&[], start, end));
    }
    Ok(found.into_iter().collect())
}

/// The first names or values, as many as `limit` allows.
fn listed(items: BTreeSet<&str>, limit: usize) -> Reply {
    let cut = items.len() > limit;
    Reply::cut(format::strings(items.into_iter().take(limit)), cut)
}

pub(super) fn labels(api: &Api, params: &Params, _budget: &Budget) -> Answer {
    let sets = selected(api, params)?;
    let names = sets.iter().flat_map(|set| set.iter().map(|(n, _)| n)).collect();
    Ok(listed(names, params.limit()?))
}

pub(super) fn label_values(api: &Api, name: &str, params: &Params) -> Answer {
    if !promql::is_label_name(name) {
        return Err(ApiError::bad(format!("invalid label name: {name:?}")));
    }
    let sets = selected(api, params)?;
    Ok(listed(sets.iter().filter_map(|set| set.get(name)).collect(), params.limit()?))
}

pub(super) fn series(api: &Api, params: &Params, _budget: &Budget) -> Answer {
    if params.all("match[]").next().is_none() {
        return Err(ApiError::bad("no match[] parameter provided"));
    }
    let mut sets = selected(api, params)?;
    let cut = shortened(&mut sets, params.limit()?);
    let all: Vec<String> = sets.iter().map(format::labels).collect();
    Ok(Reply::cut(format!("[{}]", all.join(",")), cut))
}

pub(super) fn rules(api: &Api, params: &Params, _budget: &Budget) -> Answer {
    let kind = params.get("type").unwrap_or("").to_lowercase();
    if !["", "alert", "record"].contains(&kind.as_str()) {
        return Err(ApiError::bad(format!(
            "invalid parameter \"type\": not supported value {kind:?}"
        )));
    }
    let list = |name: &str| params.all(name).map(str::to_owned).collect::<Vec<_>>();
    let matcher = |text: &str| {
        parse_selector(text)
            .map_err(|e| ApiError::bad(format!("invalid parameter \"match[]\": {e}")))
    };
    let filter = Filter {
        no_alerting: kind == "record",
        no_recording: kind == "alert",
        rules: list("rule_name[]"),
        groups: list("rule_group[]"),
        files: list("file[]"),
        matchers: params.all("match[]").map(matcher).collect::<Result<_, _>>()?,
        no_alerts: params.flag("exclude_alerts")?,
    };
    Ok(api.rules.groups_json(&filter).to_string().into())
}

pub(super) fn alerts(api: &Api, _params: &Params, _budget: &Budget) -> Answer {
    Ok(json!({ "alerts": api.rules.alerts_json() }).to_string().into())
}

/// Not part of Prometheus' API, which does not show them.
pub(super) fn resolved(api: &Api, _params: &Params, _budget: &Budget) -> Answer {
    Ok(json!({ "alerts": api.rules.resolved_json() }).to_string().into())
}

pub(super) fn metadata(api: &Api, params: &Params, _budget: &Budget) -> Answer {
    let wanted = params.get("metric");
    let entry = |(name, family): (String, crate::exposition::Family)| {
        let known = json!([{ "type": family.kind, "help": family.help, "unit": "" }]);
        (name, known)
    };
    let families = api.knowledge.families().into_iter();
    let chosen = families.filter(|(name, _)| wanted.is_none_or(|wanted| wanted == name));
    let data: serde_json::Map<String, Value> = chosen.take(params.limit()?).map(entry).collect();
    Ok(Value::Object(data).to_string().into())
}
