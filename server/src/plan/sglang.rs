//! `plan --engine sglang@VERSION`: what a command line of SGLang leads to, by the rules of that
//! version, before it is started.
//!
//! Only what the host tier follows from is judged; other flags are not checked.

mod args;
mod judge;
mod known;
mod report;
mod rules;

use std::io::Read;
use std::path::Path;

use kv_cache::{HostTierPlan, NodeRoom, PlanInput, PlanPool, Room, Want, plan_host_tier};

use self::args::Flags;
use self::rules::{NoRules, Rules};
use super::offline;
use super::shape::{Attention, Shape};
use crate::cli::{Format, KvDtype, NumaChoice, PlanArgs};
use crate::config::{Class, Finding, Findings, Host, plan_parts, reserve};
use program::exit::Exit;
use program::out;

/// All that was found out.
struct Report {
    rules: Rules,
    flags: Flags,
    shape: Shape,
    /// Ranks on this machine.
    ranks: usize,
    host: Host,
    /// `None` where the device's pools are not known, or there is no tier.
    tier: Option<(PlanInput, HostTierPlan)>,
    findings: Findings,
}

/// Prints the plan of another engine's command line.
pub(super) fn run(args: &PlanArgs, engine: &str) -> Exit {
    let report = match analyse(args, engine) {
        Ok(report) => report,
        Err(Stop::Usage(problem)) => {
            for line in problem.lines() {
                out::complain(&format!("error: {line}"));
            }
            return Exit::Usage;
        }
        Err(Stop::Finding(finding)) => {
            out::complain(&finding.to_string());
            return finding.class.exit();
        }
    };
    let text = match args.format {
        Format::Text => report::text(&report),
        Format::Json => report::json(&report).to_string(),
    };
    match out::line(&text) {
        Ok(()) => report.findings.exit(),
        Err(error) => Exit::of_io(&error),
    }
}

/// Why there is nothing to report.
enum Stop {
    /// One line each.
    Usage(String),
    Finding(Finding),
}

fn analyse(args: &PlanArgs, engine: &str) -> Result<Report, Stop> {
    let usage = |problem: String| Stop::Usage(problem);
    let (name, version) = engine.split_once('@').unwrap_or((engine, ""));
    if name != "sglang" {
        return Err(usage(format!("--engine {engine}: only sglang is known; try sglang@0.5.13")));
    }
    let mut findings = Findings::default();
    let rules = match Rules::of(version) {
        Ok((rules, true)) => rules,
        Ok((rules, false)) => {
            findings.add(judge::nearest(engine, &rules));
            rules
        }
        Err(NoRules::Malformed) => {
            let what = if version.is_empty() { "it has no version" } else { "that is no version" };
            let reason = format!("{what}, and sizes differ from one to the next");
            return Err(usage(format!("--engine {engine}: {reason}; try sglang@0.5.23")));
        }
        Err(NoRules::TooOld) => return Err(Stop::Finding(judge::too_old(engine))),
    };
    let text = command_line(args).map_err(usage)?;
    let source = match &args.engine.args_from {
        Some(source) => format!("--args-from {source}"),
        None => "--args".to_owned(),
    };
    let flags = Flags::read(&text).map_err(|problem| usage(format!("{source}: {problem}")))?;
    let problems: Vec<String> =
        known::problems(&flags).iter().map(|problem| format!("{source}: {problem}")).collect();
    if !problems.is_empty() {
        return Err(usage(problems.join("\n")));
    }
    if let Some(unknown) = known::unknown(&flags) {
        findings.add(judge::not_known(&unknown));
    }
    let model = match args.settings.model.as_str() {
        "" => flags.get("model-path").unwrap_or_default(),
        given => given,
    };
    if model.is_empty() {
        return Err(usage("no --model-path in the command line; give --model DIR|FILE".to_owned()));
    }
    let shape = Shape::read(Path::new(model)).map_err(|found| {
        let fix = "--model with the folder or config.json of that model on this machine".to_owned();
        Stop::Finding(Finding { fix, ..found })
    })?;
    let ranks = ranks(&flags).map_err(usage)?;
    let host = offline::host(args.assume.assume_numa);
    let mut report = Report { rules, flags, shape, ranks, host, tier: None, findings };
    judge::flags(&mut report);
    let beyond = judge::not_modelled(&report);
    if report.flags.is_on("enable-hierarchical-cache") && beyond.is_some() {
        beyond.into_iter().for_each(|finding| report.findings.add(finding));
    } else if report.flags.is_on("enable-hierarchical-cache") {
        let input = input(&mut report, args).map_err(usage)?;
        if let Some(input) = input {
            judge::size(&mut report, args, input);
        }
    }
    Ok(report)
}

/// The text that `--args` or `--args-from` names.
fn command_line(args: &PlanArgs) -> Result<String, String> {
    let source = match (&args.engine.args, &args.engine.args_from) {
        (Some(text), _) => return Ok(text.clone()),
        (None, None) => return Err("--engine needs --args TEXT or --args-from FILE|PID".to_owned()),
        (None, Some(source)) => source,
    };
    let process = source.parse::<u32>().is_ok() && !Path::new(source).exists();
    let path = if process { format!("/proc/{source}/cmdline") } else { source.clone() };
    let mut text = Vec::new();
    std::fs::File::open(&path)
        .and_then(|file| file.take(args::TEXT_MAX).read_to_end(&mut text))
        .map_err(|error| format!("--args-from {source}: cannot read {path}: {error}"))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Ranks of this machine.
fn ranks(flags: &Flags) -> Result<usize, String> {
    /// More are a typing error.
    const MOST: usize = 4096;
    let number = |name| flags.number::<usize>(name).map(|number| number.unwrap_or(1).max(1));
    let (tp, dp, hosts) = (number("tp-size")?, number("dp-size")?, number("nnodes")?);
    // With attention in parallel over data, those ranks are among the others.
    let dp = if flags.is_on("enable-dp-attention") { 1 } else { dp };
    let ranks = (tp.min(MOST) * dp.min(MOST)).div_ceil(hosts);
    if ranks > MOST { Err(format!("{ranks} ranks on one machine")) } else { Ok(ranks) }
}

/// Bytes and pages of the device's pools; `None`, and a finding, where they are not known.
fn input(report: &mut Report, args: &PlanArgs) -> Result<Option<PlanInput>, String> {
    let flags = &report.flags;
    let measured = flags.number::<usize>("max-total-num-tokens")?;
    let capped = flags.number::<usize>("max-total-tokens")?;
    let Some(tokens) = args.assume.assume_device_tokens.or(measured).or(capped) else {
        report.findings.add(judge::no_tokens());
        return Ok(None);
    };
    let compressed = matches!(report.shape.attention, Attention::Compressed(_));
    let share = flags.number::<f64>("swa-full-tokens-ratio")?;
    let share = share.unwrap_or(if compressed { 0.1 } else { 0.8 });
    let page = match compressed {
        true => 256,
        false => flags.number::<usize>("page-size")?.unwrap_or(1).max(1),
    };
    let windows = (tokens as f64 * share) as usize / page * page;
    let windows = args.assume.assume_swa_tokens.unwrap_or(windows);
    let dtype = match flags.get("kv-cache-dtype") {
        Some(name) if name.starts_with("fp8") => KvDtype::Fp8,
        Some(name) if name.starts_with("bf16") || name == "bfloat16" => KvDtype::Bf16,
        Some(_) | None => report.shape.published_dtype(),
    };
    let drafts = flags.get("speculative-algorithm").is_some();
    let tp = flags.number::<usize>("tp-size")?.unwrap_or(1);
    let spec = report.shape.spec(dtype, page, tp, drafts);
    let pools = spec.pools.iter().map(|pool| PlanPool {
        name: pool.name,
        page_tokens: page,
        device_pages: if pool.window.is_some() { windows } else { tokens }.div_ceil(page),
        sizing: report.rules.sizing(compressed, pool.window.is_some()),
        parts: plan_parts(pool),
    });
    Ok(Some(PlanInput {
        pools: pools.collect(),
        ranks: nodes(report, args),
        want: Want::Ratio(2.0),
        room: room(&report.host),
    }))
}

/// The node of each rank: what this program's flag says, else what the command line does.
fn nodes(report: &Report, args: &PlanArgs) -> Vec<Option<u32>> {
    let of = |nodes: &[u32]| -> Vec<Option<u32>> {
        let at = |rank: usize| nodes.get(rank * nodes.len() / report.ranks).copied();
        (0..report.ranks).map(at).collect()
    };
    match args.settings.cache.hicache_numa {
        Some(NumaChoice::Node(node)) => of(&[node]),
        Some(NumaChoice::Off) => of(&[]),
        Some(NumaChoice::Auto) => {
            let all: Vec<u32> = report.host.nodes.iter().map(|room| room.node).collect();
            of(&all)
        }
        None => {
            let listed = report.flags.get("numa-node").unwrap_or_default();
            let listed: Vec<u32> =
                listed.split_whitespace().filter_map(|node| node.parse().ok()).collect();
            of(if listed.is_empty() { &report.flags.membind } else { &listed })
        }
    }
}

/// What the machine has, less what is kept free. The device's pools are elsewhere.
fn room(host: &Host) -> Room {
    let less = |bytes: u64| bytes.saturating_sub(reserve(types::Bytes(bytes)));
    let nodes = host.nodes.iter();
    Room {
        nodes: nodes.map(|node| NodeRoom { node: node.node, bytes: less(node.bytes) }).collect(),
        host: host.available.map(|bytes| less(bytes.0)),
        group: host.group.map(|bytes| less(bytes.0)),
        locked: None,
    }
}

/// Sizes the tier; an error of the planner becomes a finding.
fn sized(report: &mut Report, input: PlanInput, flag: &'static str, value: &str) {
    match plan_host_tier(&input) {
        Ok(plan) => report.tier = Some((input, plan)),
        Err(error) => report.findings.add(Finding {
            id: "SGL008",
            class: Class::Configuration,
            flag,
            value: value.to_owned(),
            reason: error.to_string(),
            fix: "--hicache-ratio 2".to_owned(),
        }),
    }
}
