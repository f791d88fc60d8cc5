//! The answer of each endpoint, as the JSON of its `data`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::format;
use super::params::{Params, milliseconds};
use super::{Answer, Api, ApiError, BatchQuery};
use crate::clock::now_ms;
use crate::promql::{Query, STEPS_MAX, parse_selector};
use crate::rules::Filter;
use crate::scrape::Target;
use crate::store::Labels;

impl From<String> for ApiError {
    fn from(message: String) -> Self {
        Self::bad(message)
    }
}

pub(super) fn query(api: &Api, params: &Params) -> Answer {
    let time = params.time("time")?.unwrap_or_else(now_ms);
    instant(api, params.get("query").unwrap_or(""), time)
}

pub(super) fn query_range(api: &Api, params: &Params) -> Answer {
    let missing =
        |name: &str| format!("invalid parameter {name:?}: cannot parse \"\" to a valid timestamp");
    let start = params.time("start")?.ok_or_else(|| missing("start"))?;
    let end = params.time("end")?.ok_or_else(|| missing("end"))?;
    let step = params.duration("step")?;
    range(api, params.get("query").unwrap_or(""), start, end, step)
}

fn instant(api: &Api, text: &str, time: i64) -> Answer {
    let query = Query::parse(text)?;
    Ok(format::answer(&query.instant(&api.store, time)?, time))
}

fn range(api: &Api, text: &str, start: i64, end: i64, step: i64) -> Answer {
    if end < start {
        return Err(ApiError::bad(
            "invalid parameter \"end\": end timestamp must not be before start time",
        ));
    }
    if (end - start) / step >= STEPS_MAX {
        return Err(ApiError::bad(
            "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the \
             query resolution (?step=XX)",
        ));
    }
    let query = Query::parse(text)?;
    Ok(format::matrix(&query.range(&api.store, start, end, step)?))
}

/// One query of the console's batch.
pub(super) fn batched(api: &Api, query: &BatchQuery) -> Answer {
    let ms = |value: f64, name: &str| {
        milliseconds(value).ok_or_else(|| ApiError::bad(format!("invalid parameter {name:?}")))
    };
    match (query.start, query.end, query.step) {
        (Some(start), Some(end), Some(step)) => {
            let step = ms(step, "step")?.max(1);
            range(api, &query.query, ms(start, "start")?, ms(end, "end")?, step)
        }
        _ => {
            let time = query.time.map(|time| ms(time, "time")).transpose()?;
            instant(api, &query.query, time.unwrap_or_else(now_ms))
        }
    }
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

pub(super) fn labels(api: &Api, params: &Params) -> Answer {
    let sets = selected(api, params)?;
    let names: BTreeSet<&str> = sets.iter().flat_map(|set| set.iter().map(|(n, _)| n)).collect();
    Ok(format::strings(names.into_iter().take(params.limit()?)))
}

pub(super) fn label_values(api: &Api, name: &str, params: &Params) -> Answer {
    let sets = selected(api, params)?;
    let values: BTreeSet<&str> = sets.iter().filter_map(|set| set.get(name)).collect();
    Ok(format::strings(values.into_iter().take(params.limit()?)))
}

pub(super) fn series(api: &Api, params: &Params) -> Answer {
    if params.all("match[]").next().is_none() {
        return Err(ApiError::bad("no match[] parameter provided"));
    }
    let sets = selected(api, params)?;
    let all: Vec<String> = sets.iter().take(params.limit()?).map(format::labels).collect();
    Ok(format!("[{}]", all.join(",")))
}

pub(super) fn rules(api: &Api, params: &Params) -> Answer {
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
    Ok(api.rules.groups_json(&filter).to_string())
}

pub(super) fn alerts(api: &Api, _params: &Params) -> Answer {
    Ok(json!({ "alerts": api.rules.alerts_json() }).to_string())
}

/// Not part of Prometheus' API, which does not show them.
pub(super) fn resolved(api: &Api, _params: &Params) -> Answer {
    Ok(json!({ "alerts": api.rules.resolved_json() }).to_string())
}

pub(super) fn metadata(api: &Api, params: &Params) -> Answer {
    let wanted = params.get("metric");
    let entry = |(name, family): (String, crate::exposition::Family)| {
        let known = json!([{ "type": family.kind, "help": family.help, "unit": "" }]);
        (name, known)
    };
    let families = api.knowledge.families().into_iter();
    let chosen = families.filter(|(name, _)| wanted.is_none_or(|wanted| wanted == name));
    let data: serde_json::Map<String, Value> = chosen.take(params.limit()?).map(entry).collect();
    Ok(Value::Object(data).to_string())
}

pub(super) fn targets(api: &Api, _params: &Params) -> Answer {
    let one = |target: &Target, health: &crate::scrape::Health| {
        let (state, error) = match &health.last {
            None => ("unknown", String::new()),
            Some(Ok(())) => ("up", String::new()),
            Some(Err(reason)) => ("down", reason.clone()),
        };
        json!({
            "discoveredLabels": {},
            "labels": {
                "cluster": target.cluster,
                "instance": target.address,
                "job": target.job,
                "node": target.node,
            },
            "scrapePool": target.job,
            "scrapeUrl": format!("http://{}/metrics", target.address),
            "globalUrl": format!("http://{}/metrics", target.address),
            "lastError": error,
            "lastScrape": format::rfc3339(health.last_ms),
            "lastScrapeDuration": health.duration.as_secs_f64(),
            "health": state,
            "scrapeInterval": "1s",
            "scrapeTimeout": "5s",
        })
    };
    let active: Vec<Value> =
        api.knowledge.targets().iter().map(|(target, health)| one(target, health)).collect();
    let data = json!({ "activeTargets": active, "droppedTargets": [] });
    Ok(data.to_string())
}

pub(super) fn build_info(_api: &Api, _params: &Params) -> Answer {
    // Clients choose features by this version: it names the language level, not this program.
    Ok(json!({
        "version": "3.0.0",
        "revision": concat!("sightline-", env!("CARGO_PKG_VERSION")),
        "branch": "", "buildUser": "", "buildDate": "", "goVersion": "",
    })
    .to_string())
}

pub(super) fn runtime_info(api: &Api, _params: &Params) -> Answer {
    let totals = api.store.totals();
    Ok(json!({
        "startTime": format::rfc3339(api.started_ms),
        "reloadConfigSuccess": true,
        "storageRetention": "2h",
        "timeSeriesCount": totals.series,
        "chunkBytes": totals.bytes,
        "refusedSamples": totals.refused,
    })
    .to_string())
}
