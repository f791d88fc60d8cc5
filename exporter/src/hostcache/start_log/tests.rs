use super::*;
use crate::hostcache::Sizes;

use crate::mocks::sglang_log::{POOLS, Start};

fn read(lines: &[String]) -> StartLog {
    let mut log = StartLog::new();
    lines.iter().for_each(|line| log.line(line));
    log
}

fn allocated(log: &StartLog) -> Option<u64> {
    let cache = log.cache()?;
    cache.pools.0.values().map(|sizes| sizes.allocated).sum()
}

fn size(log: &StartLog, pool: &str) -> Option<Sizes> {
    log.cache()?.pools.0.get(&(pool.to_owned(), None)).copied()
}

#[test]
fn eight_ranks_that_speak_at_once_add_up() {
    for seed in 0..50 {
        let start = Start::incident(8, seed);
        let log = read(&start.lines());
        assert!(log.is_complete(), "seed {seed}: {}", log.why_not());
        let cache = log.cache().expect("sizes");
        assert_eq!((cache.source, cache.ratio), (CacheSource::Log, Some(2.0)));
        assert_eq!(cache.pools.0.len(), POOLS.len() + 1);
        // By hand, of one rank: 21 layers, 1670 pages of 16384 bytes.
        let state = size(&log, "deepseek_v4_c4_indexer_state").expect("a pool");
        assert_eq!(state.allocated, Some(8 * 574_586_880));
        assert_eq!(state.planned, state.allocated);
        // 1670 pages of 998,208 bytes and as many of 8,160,000 bytes, of one rank.
        assert_eq!(allocated(&log), Some(8 * 15_294_207_360));
        assert_eq!(start.total(), 8 * 15_294_207_360);
    }
}

#[test]
fn nothing_is_said_before_the_last_rank_has_spoken() {
    let lines = Start::incident(8, 3).lines();
    let last = lines.iter().rposition(|line| line.contains(ATTACHED)).expect("an end");
    let mut log = StartLog::new();
    for (at, line) in lines.iter().enumerate() {
        assert_eq!(log.is_complete(), at > last, "before {line}");
        assert_eq!(log.cache().is_some(), at > last, "before {line}");
        log.line(line);
    }
}

#[test]
fn a_log_of_which_the_beginning_is_lost_says_nothing() {
    let lines = Start::incident(4, 9).lines();
    assert!(read(&lines).is_complete());
    for cut in 1..=lines.len() {
        let log = read(&lines[cut..]);
        assert_eq!(log.cache(), None, "without {cut} lines");
    }
    assert!(read(&lines[3..]).why_not().contains("arguments"), "{}", read(&lines[3..]).why_not());
}

#[test]
fn a_new_start_forgets_the_one_before() {
    let (first, second) = (Start::incident(8, 1), Start { ratio: "3.5", ..Start::incident(4, 2) });
    let second = Start { pages: 2_922, windows: 2_922, ..second };
    let mut log = read(&first.lines());
    let lines = second.lines();
    log.line(&lines[0]);
    assert_eq!(log.cache(), None, "{}", log.why_not());
    lines[1..].iter().for_each(|line| log.line(line));
    assert_eq!(allocated(&log), Some(second.total()));
    assert_eq!(log.cache().expect("sizes").ratio, Some(3.5));
    // One of which the arguments are lost spoils what was known: it may hold something else now.
    Start::incident(2, 5).lines()[1..].iter().for_each(|line| log.line(line));
    assert_eq!(log.cache(), None);
    assert!(log.why_not().contains("after the start"), "{}", log.why_not());
    lines.iter().for_each(|line| log.line(line));
    assert_eq!(allocated(&log), Some(second.total()));
}

#[test]
fn a_start_that_ended_half_way_leaves_nothing_to_the_next() {
    let start = Start::incident(8, 4);
    let lines = start.lines();
    for cut in 1..lines.len() {
        let mut log = read(&lines[..cut]);
        lines.iter().for_each(|line| log.line(line));
        assert_eq!(allocated(&log), Some(start.total()), "cut at {cut}");
    }
}

#[test]
fn other_models_say_one_pool_before_they_have_it() {
    let arguments = "server_args=ServerArgs(tp_size=4, enable_hierarchical_cache=True, \
                     hicache_ratio=2.0, hicache_size=40)";
    let mut log = read(&[arguments.to_owned()]);
    let all = log.cache().expect("what was asked for");
    let planned = Sizes { planned: Some(160_000_000_000), allocated: Some(0) };
    assert_eq!(all.pools.0, BTreeMap::from([((ALL_POOLS.to_owned(), None), planned)]));
    assert_eq!(all.ratio, None, "a size rules, not the ratio");
    for rank in 0..4 {
        log.line(&format!(
            "[2025-12-02 07:04:51 DisaggregationMode.PREFILL TP{rank}] Allocating 40.00 GB host \
             memory for hierarchical KV cache."
        ));
    }
    assert_eq!(size(&log, ALL_POOLS).expect("what was asked for").allocated, None);
    log.line("The server is fired up and ready to roll!");
    let sizes = size(&log, ONE_POOL).expect("a pool");
    assert_eq!(sizes, Sizes { planned: planned.planned, allocated: Some(160_000_000_000) });
}

#[test]
fn one_rank_has_no_name() {
    let lines = [
        "server_args=ServerArgs(tp_size=1, enable_hierarchical_cache=True, hicache_ratio=3.0)",
        "[2025-12-02 07:04:51] Allocating 1.50 GB host memory for hierarchical KV cache.",
        "The server is fired up and ready to roll!",
    ];
    let log = read(&lines.map(str::to_owned));
    assert_eq!(allocated(&log), Some(1_500_000_000));
    // Four ranks without names are four lines of each pool, if one knows that there are four.
    let four: Vec<String> = Start::incident(4, 6)
        .lines()
        .iter()
        .map(|line| {
            (0..4).fold(line.clone(), |line, rank| line.replace(&format!(" TP{rank}]"), "]"))
        })
        .collect();
    assert_eq!(allocated(&read(&four)), Some(Start::incident(4, 6).total()));
    assert_eq!(read(&four[1..]).cache(), None);
}

#[test]
fn a_server_without_a_tier_says_so() {
    let off = "server_args=ServerArgs(tp_size=4, enable_hierarchical_cache=False, hicache_size=0)";
    let cache = read(&[off.to_owned()]).cache().expect("nothing is something");
    assert_eq!(cache.pools, Pools::default());
    assert_eq!(StartLog::new().cache(), None);
    assert!(StartLog::new().why_not().contains("no line"));
}

#[test]
fn the_incident_asks_for_more_than_a_node_before_it_fails() {
    let lines = [
        "server_args=ServerArgs(tp_size=4, enable_hierarchical_cache=True, hicache_size=150)",
        "ValueError: DeepSeek V4 HiCache currently does not support --hicache-size; use \
         --hicache-ratio instead.",
    ];
    let asked = size(&read(&lines.map(str::to_owned)), ALL_POOLS).expect("sizes");
    assert_eq!(asked, Sizes { planned: Some(600_000_000_000), allocated: Some(0) });
}

#[test]
fn what_a_line_prints_and_computes_must_agree() {
    let line = |gigabytes: &str, pages: u64| {
        format!(
            "{gigabytes} GB host memory for V4 state pool 'x' (layers=21, pages={pages}, \
             state_page_bytes=16384, layout=page_first)."
        )
    };
    let bytes = |text: &str| PoolLine::read(text).map(|pool| pool.bytes);
    assert_eq!(bytes(&line("0.57", 1_670)), Some(574_586_880));
    // Pages of something else: what is printed counts.
    assert_eq!(bytes(&line("0.57", 835)), Some(570_000_000));
    assert_eq!(bytes(&line("0.57", u64::MAX)), Some(570_000_000));
    // Versions that print no details.
    assert_eq!(bytes("0.57 GB host memory for V4 paged pool 'x'."), Some(570_000_000));
    for other in [
        "0.57 GB host memory for V4 paged pool 'x",
        "0.57 GB host memory for V4 wide pool 'x' (layers=1)",
        "0.57 GB host memory for V4 paged pool '' (layers=1)",
        "0.57 GB host memory for V4 paged pool 'a b' (layers=1)",
        "-1 GB host memory for hierarchical KV cache.",
        "NaN GB host memory for hierarchical KV cache.",
        "1e9 GB host memory for hierarchical KV cache.",
        "3 GB for something",
    ] {
        assert_eq!(PoolLine::read(other), None, "{other}");
    }
}

#[test]
fn ranks_are_what_the_bracket_says() {
    let of = |text: &str| rank(text).unwrap_or_default();
    assert_eq!(of("[2026-05-01 10:01:07 TP3] "), "TP3");
    assert_eq!(of("[2026-05-01 10:01:07 DP1 TP3 EP3] "), "DP1 TP3 EP3");
    assert_eq!(of("unit[12]: [10:01:07 PP0 TP0] "), "PP0 TP0");
    for none in ["[2026-05-01 10:01:07] ", "", "TP3 ", "[TP] ", "[TPX] "] {
        assert_eq!(rank(none), None, "{none}");
    }
}

#[test]
fn a_rank_that_is_missing_is_noticed() {
    // Of ranks that nobody counted, but that have a gap.
    let lines: Vec<String> = Start::incident(4, 8)
        .lines()
        .into_iter()
        .filter(|line| !line.contains(" TP2]"))
        .map(|line| line.replace("tp_size=4", "tp=4"))
        .collect();
    assert_eq!(read(&lines).cache(), None);
    // Of ranks that were counted.
    let counted: Vec<String> =
        Start::incident(4, 8).lines().into_iter().filter(|line| !line.contains(" TP3]")).collect();
    let log = read(&counted);
    assert_eq!(log.cache(), None);
    assert!(log.why_not().contains("not every rank"), "{}", log.why_not());
}

#[test]
fn ranks_of_this_machine_are_counted_from_the_arguments() {
    let ranks = |text: &str| Arguments::read(text).ranks;
    assert_eq!(ranks("tp_size=8, dp_size=2, nnodes=2)"), Some(8));
    assert_eq!(ranks("tp_size=8, dp_size=8, enable_dp_attention=True)"), Some(8));
    assert_eq!(ranks("tp_size=4, pp_size=2)"), Some(8));
    assert_eq!(ranks("dp_size=2)"), None);
    assert_eq!(ranks("tp_size=0)"), None);
    assert_eq!(ranks("tp_size=99999999999999999999)"), None);
    let tiers = |text: &str| Arguments::read(text).tier;
    assert!(tiers("enable_hicache=True)") && !tiers("enable_hicache=False)"));
}

#[test]
fn what_is_beyond_any_model_spoils_the_start_until_the_next() {
    let line = |pool: usize, rank: usize| {
        format!("[x TP{rank}] Allocating 0.10 GB host memory for V4 paged pool 'p{pool}' (x)")
    };
    let arguments = "server_args=ServerArgs(enable_hierarchical_cache=True)";
    let mut log = read(&[arguments.to_owned()]);
    (0..=POOLS_MAX).for_each(|pool| log.line(&line(pool, 0)));
    log.line("The server is fired up and ready to roll!");
    assert_eq!(log.cache(), None);
    assert!(log.why_not().contains("more pools"));
    let start = Start::incident(2, 1);
    start.lines().iter().for_each(|line| log.line(line));
    assert_eq!(allocated(&log), Some(start.total()));
    let mut log = read(&[arguments.to_owned()]);
    (0..=RANKS_MAX).for_each(|rank| log.line(&line(0, rank)));
    assert!(log.cache().is_none() && log.why_not().contains("more lines"));
    // A line that is too long is passed over.
    let mut long = Start::incident(1, 1).arguments();
    long.push_str(&"x".repeat(LINE_MAX));
    let mut log = StartLog::new();
    log.line(&long);
    assert_eq!(log.arguments, None);
}
