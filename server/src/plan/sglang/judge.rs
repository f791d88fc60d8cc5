//! What SGLang does not say, says too late, or does in silence.

use kv_cache::{Largest, PlanInput, Want};

use super::rules::Rules;
use super::{Report, sized};
use crate::cli::{PlanArgs, Ratio};
use crate::config::{Class, Finding, decimal};
use crate::plan::shape::Attention;

pub(super) fn finding(
    id: &'static str,
    class: Class,
    flag: &'static str,
    value: impl ToString,
    reason: impl Into<String>,
    fix: impl Into<String>,
) -> Finding {
    let (value, reason, fix) = (value.to_string(), reason.into(), fix.into());
    Finding { id, class, flag, value, reason, fix }
}

fn spelled([major, minor, patch]: [u32; 3]) -> String {
    format!("{major}.{minor}.{patch}")
}

/// The rules are those of another version.
pub(super) fn nearest(engine: &str, rules: &Rules) -> Finding {
    let near = spelled(rules.version);
    let reason = format!("the rules of this version are not known, those of {near} were applied");
    finding("SGL001", Class::Advice, "--engine", engine, reason, format!("sglang@{near}"))
}

pub(super) fn too_old(engine: &str) -> Finding {
    let oldest = spelled(super::rules::KNOWN[0].version);
    let reason = format!("the oldest version whose rules are known is {oldest}");
    finding("SGL001", Class::Configuration, "--engine", engine, reason, format!("sglang@{oldest}"))
}

/// Flags that are not looked at.
pub(super) fn not_known(flags: &str) -> Finding {
    let reason = "not known here and not looked at: should one of them change the pools, the sums \
                  are not those of the engine";
    finding("SGL014", Class::Advice, "--args", flags, reason, "the command line without them")
}

/// A setting that changes the pools in a way that is not computed here.
pub(super) fn not_modelled(report: &Report) -> Option<Finding> {
    let flags = &report.flags;
    let above_one = |name: &str| {
        let value = flags.get(name)?;
        value.parse::<u64>().ok().filter(|count| *count > 1).map(|_| value)
    };
    let found = [
        ("--pp-size", above_one("pp-size"), "each stage has pools of its own layers", "1"),
        ("--dcp-size", above_one("dcp-size"), "ranks share a context's tokens out", "1"),
        ("--attn-cp-size", above_one("attn-cp-size"), "ranks share a context's tokens out", "1"),
        (
            "--hicache-host-memory-mode",
            flags.get("hicache-host-memory-mode").filter(|mode| *mode == "buffer_only"),
            "the tier is a buffer then, and holds no prefixes",
            "cache",
        ),
        (
            "--kv-cache-dtype",
            flags.get("kv-cache-dtype").filter(|dtype| dtype.starts_with("fp4")),
            "pages of 4 bits have scales of their own",
            "fp8_e4m3",
        ),
    ];
    let (flag, value, why, works) =
        found.into_iter().find_map(|(flag, value, why, works)| Some((flag, value?, why, works)))?;
    let reason = format!("not modelled: {why}");
    Some(finding("SGL015", Class::Configuration, flag, value, reason, format!("{flag} {works}")))
}

/// The device's pools are not known.
pub(super) fn no_tokens() -> Finding {
    finding(
        "SGL002",
        Class::Configuration,
        "--assume-device-tokens",
        "none",
        "the engine sizes its device pools when the weights are loaded, and the tier is a multiple \
         of them; the command line does not say how many tokens they hold",
        "--assume-device-tokens with max_total_num_tokens of its log or of /get_server_info",
    )
}

/// Combinations of flags, before anything is sized.
pub(super) fn flags(report: &mut Report) {
    use Class::{Advice, Configuration};
    let flags = &report.flags;
    let mode = flags.get("disaggregation-mode").unwrap_or("null").to_owned();
    let apart = mode == "prefill" || mode == "decode";
    let on = flags.is_on("enable-hierarchical-cache");
    let compressed = matches!(report.shape.attention, Attention::Compressed(_));
    let mut found = Vec::new();
    let mut add = |id, class, flag, value: &str, reason: &str, fix: &str| {
        found.push(finding(id, class, flag, value, reason, fix));
    };
    if let Some(most) = flags.get("max-queued-requests").filter(|_| apart) {
        let reason = "the limit is checked by servers that do both halves only: with \
                      --disaggregation-mode it bounds nothing, and what waits grows without end";
        let fix = "a limit at the router, best of tokens instead of requests";
        add("SGL003", Advice, "--max-queued-requests", most, reason, fix);
    }
    if on && flags.is_on("disable-radix-cache") {
        let reason = "the host tier holds pages of the prefix cache; the engine refuses the pair";
        let fix = "--enable-hierarchical-cache without --disable-radix-cache";
        add("SGL004", Configuration, "--disable-radix-cache", "on", reason, fix);
    }
    if on && mode == "decode" {
        if !flags.is_on("disaggregation-decode-enable-radix-cache") {
            let reason = "a decode server has no prefix cache by default, and the engine refuses \
                          the tier without one";
            let fix = "the tier on the prefill server";
            add("SGL004", Configuration, "--enable-hierarchical-cache", "on", reason, fix);
        } else if compressed {
            let reason = "on a decode server the tier calls what the cache of DeepSeek-V4 does not \
                          have: every worker ends at its first request";
            let fix = "the tier on the prefill server";
            add("SGL005", Configuration, "--disaggregation-mode", &mode, reason, fix);
        }
    }
    silent_changes(report, on, &mut found);
    for finding in found {
        report.findings.add(finding);
    }
}

/// What the engine changes without being asked.
fn silent_changes(report: &Report, on: bool, found: &mut Vec<Finding>) {
    let flags = &report.flags;
    let mut add = |flag, value: &str, reason: String, fix: String| {
        found.push(finding("SGL006", Class::Advice, flag, value, reason, fix));
    };
    if !on {
        for name in ["--hicache-ratio", "--hicache-size"] {
            if let Some(value) = flags.get(&name[2..]).filter(|value| *value != "0") {
                let reason = "there is no host tier without --enable-hierarchical-cache";
                let fix = "--enable-hierarchical-cache".to_owned();
                add(name, value, reason.to_owned(), fix);
            }
        }
        return;
    }
    let layout = flags.get("hicache-mem-layout").unwrap_or(report.rules.layout);
    let io = flags.get("hicache-io-backend").unwrap_or("kernel");
    match (layout, io) {
        ("page_first_direct", "kernel") => {
            let reason = "page_first_direct is copied without the kernel: the engine takes direct";
            add("--hicache-io-backend", io, reason.to_owned(), "direct".to_owned());
        }
        ("page_first", "direct") => {
            let reason =
                "copies without the kernel need blocks: the engine takes page_first_direct";
            add("--hicache-mem-layout", layout, reason.to_owned(), "page_first_direct".to_owned());
        }
        ("layer_first", _) if flags.get("hicache-storage-backend") == Some("mooncake") => {
            let to = if io == "direct" { "page_first_direct" } else { "page_first" };
            let reason = format!("mooncake stores whole pages: the engine takes {to}");
            add("--hicache-mem-layout", layout, reason, to.to_owned());
        }
        _ => {}
    }
    if let Some(ratio) = flags.get("hicache-ratio")
        && flags.get("hicache-size").is_some_and(|size| size != "0")
    {
        let reason = "--hicache-size wins, and the ratio is not looked at";
        add("--hicache-ratio", ratio, reason.to_owned(), "one of the two".to_owned());
    }
}

/// Sizes the tier and judges the sum, and what the engine's own check says.
pub(super) fn size(report: &mut Report, args: &PlanArgs, mut input: PlanInput) {
    let flags = report.flags.clone();
    let compressed = matches!(report.shape.attention, Attention::Compressed(_));
    let size = flags.get("hicache-size").and_then(|size| size.parse::<f64>().ok());
    let given = flags.get("hicache-ratio").and_then(|ratio| ratio.parse::<f64>().ok());
    let available = report.host.usable.map_or(u64::MAX, |bytes| bytes.0);
    let (flag, value) = match size.filter(|size| *size > 0.0) {
        Some(size) if compressed => {
            report.findings.add(refused_size(&input, size));
            return;
        }
        Some(size) => {
            let bytes = (size * 1e9) as u64;
            input.want = by_bytes(report, &input, bytes);
            ("--hicache-size", size.to_string())
        }
        None => {
            let device = device_bytes(&input);
            let share = flags.get("hicache-host-memory-fraction").and_then(|s| s.parse().ok());
            let usual = report.rules.default_ratio(
                device,
                input.ranks.len(),
                available,
                share.unwrap_or(0.8),
            );
            if compressed && given.is_none() && report.rules.shrinks {
                report.findings.add(no_ratio(&input));
                return;
            }
            let ratio = given.unwrap_or(usual);
            // Below 1 the floor of a page more than the device decides, as it does at 1.
            input.want = Want::Ratio(ratio.max(1.0));
            ("--hicache-ratio", Ratio(ratio).to_string())
        }
    };
    if compressed && given.is_some_and(|ratio| ratio <= 1.0) {
        let reason = "the engine takes a page more than the device has and says nothing";
        let fix = "--hicache-ratio 2";
        report.findings.add(finding("SGL006", Class::Advice, flag, &value, reason, fix));
    }
    let ratio = input.want;
    sized(report, input, flag, &value);
    if let (Want::Ratio(ratio), Some((input, _))) = (ratio, &report.tier) {
        for (pool, wanted, free) in Rules::refused(&input.pools, ratio, available) {
            let reason = format!(
                "the engine asks for {} for pool {pool} on a rank and finds {} free after \
                 its reserve",
                decimal(wanted),
                decimal(free)
            );
            let fix = largest(report);
            report.findings.add(finding("SGL007", Class::Host, flag, &value, reason, fix));
        }
    }
    fits(report, flag, &value);
    target(report, args);
}

/// Bytes that the mirrored pools have on the device, on one rank.
fn device_bytes(input: &PlanInput) -> u64 {
    input.unit_bytes() / input.ranks.len().max(1) as u64
}

/// A size per rank as a ratio, by the version's rule.
fn by_bytes(report: &mut Report, input: &PlanInput, bytes: u64) -> Want {
    let whole = device_bytes(input);
    // The first pool's bytes per page are the ones that the engine divides by, unless it knows how
    // to split.
    let divisor = match report.rules.books_twice {
        true => input
            .pools
            .first()
            .map_or(1, |pool| pool.host_page_bytes().saturating_mul(pool.device_pages as u64)),
        false => whole,
    };
    if input.pools.len() > 1 && report.rules.books_twice {
        report.findings.add(finding(
            "SGL006",
            Class::Advice,
            "--hicache-size",
            bytes as f64 / 1e9,
            "the engine gives the whole size to the pool of everything, and again to the window's",
            "half of it",
        ));
    }
    let mut ratio = bytes as f64 / divisor.max(1) as f64;
    // The engine counts whole pages; half of one more is lost again when the product is rounded.
    if let [pool] = &input.pools[..] {
        let pages = bytes / pool.host_page_bytes().max(1);
        ratio = (pages as f64 + 0.5) / pool.device_pages.max(1) as f64;
    }
    if ratio <= 1.0 {
        let class = if report.rules.asserts_larger { Class::Configuration } else { Class::Advice };
        let fix = format!("--hicache-size {:.1}", whole as f64 * 2.0 / 1e9);
        let reason = "the tier holds no more than the device, which the engine does not accept or \
                      only warns of";
        let value = bytes as f64 / 1e9;
        report.findings.add(finding("SGL009", class, "--hicache-size", value, reason, fix));
    }
    Want::Ratio(ratio.max(1.0))
}

fn refused_size(input: &PlanInput, size: f64) -> Finding {
    let ranks = input.ranks.len();
    let total = ((size * 1e9) as u64).saturating_mul(ranks as u64);
    let unit = decimal(input.unit_bytes());
    let most = match input.largest() {
        Largest::Ratio(most) => Some(most),
        Largest::Nothing | Largest::Unknown => None,
    };
    let fix = match input.ratio_within(total) {
        Some(ratio) if most.is_some_and(|most| most < ratio) => format!(
            "--hicache-ratio {}, the largest that fits; {ranks} ranks x {size} GB = {} would be \
             ratio {}",
            Ratio(most.unwrap_or(ratio)),
            decimal(total),
            Ratio(ratio),
        ),
        Some(ratio) => format!(
            "--hicache-ratio {} ({ranks} ranks x {size} GB = {} at {unit} per unit of ratio)",
            Ratio(ratio),
            decimal(total)
        ),
        None => format!("--hicache-ratio 2, which takes {}", decimal(input.total_bytes(2.0))),
    };
    let reason = "the engine refuses a size for DeepSeek-V4, whose pools have pages of six sizes, \
                  and does so once the weights are loaded: a supervisor restarts it for ever";
    finding("SGL010", Class::Configuration, "--hicache-size", size, reason, fix)
}

fn no_ratio(input: &PlanInput) -> Finding {
    let reason = "this version sizes the tier of DeepSeek-V4 by an explicit ratio only, and ends \
                  without one";
    let fix = format!("--hicache-ratio 2, which takes {}", decimal(input.total_bytes(2.0)));
    finding("SGL011", Class::Configuration, "--hicache-ratio", "none", reason, fix)
}

fn largest(report: &Report) -> String {
    let Some((input, plan)) = &report.tier else { return "a smaller ratio".to_owned() };
    match plan.largest {
        Largest::Ratio(ratio) => format!(
            "--hicache-ratio {}, the largest that fits ({})",
            Ratio(ratio),
            decimal(input.total_bytes(ratio))
        ),
        Largest::Nothing => "a smaller device pool (--mem-fraction-static)".to_owned(),
        Largest::Unknown => "a smaller ratio".to_owned(),
    }
}

/// The sum against every limit: what the engine does not check.
fn fits(report: &mut Report, flag: &'static str, value: &str) {
    let Some((_, plan)) = &report.tier else { return };
    if plan.fits() {
        return;
    }
    let short: Vec<String> = plan
        .shortages
        .iter()
        .map(|short| {
            let (wanted, room) = (decimal(short.wanted), decimal(short.room));
            format!("{} has room for {room} of {wanted}", short.limit)
        })
        .collect();
    let reason = format!(
        "all ranks together take {}, which the engine never adds up: {}",
        decimal(plan.total_bytes),
        short.join("; ")
    );
    let fix = largest(report);
    report.findings.add(finding("SGL012", Class::Host, flag, value, reason, fix));
}

/// What is wanted in the end, as a ratio.
fn target(report: &mut Report, args: &PlanArgs) {
    let Some(target) = args.settings.cache.hicache_target else { return };
    let Some((input, plan)) = &report.tier else { return };
    let reason = format!("the command line gives {}", decimal(plan.total_bytes));
    let fix = match input.ratio_within(target.0) {
        Some(ratio) => format!("--hicache-ratio {}", Ratio(ratio)),
        None => format!("{}, which ratio 1 takes", decimal(input.total_bytes(1.0))),
    };
    let found = finding("SGL013", Class::Advice, "--hicache-target", target, reason, fix);
    report.findings.add(found);
}
