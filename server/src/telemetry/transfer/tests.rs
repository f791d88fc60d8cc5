//! The page of a worker of a pair.

use admission::QueueSnapshot;
use engine::{Observer, QueueSnapshot as LineSnapshot};
use transfer::PeerSnapshot;
use types::Clock;

use super::super::gauges::{Gauges, Snapshot};
use super::super::tests::{resolved, snapshot, step, sum, values};
use super::*;
use crate::telemetry::observe::{EngineObserver, Objectives};

const PREFILL: &str = "--role prefill --decode-peer d0:8000";
const DECODE: &str = "--role decode --prefill-peer p0:8000 --prefill-peer p1:8000@9000";

/// A page of its own, the gauges behind it, and who takes what happens on its link.
struct Rig {
    resolved: Resolved,
    registry: Registry,
    gauges: Gauges,
}

impl Rig {
    fn new(flags: &str) -> Self {
        let resolved = resolved(flags);
        let role = super::super::role(resolved.roles.role);
        let registry = Registry::new(role, &resolved.model_name).expect("a registry");
        let gauges = Gauges::new(&registry, Clock::start(), &resolved);
        Self { resolved, registry, gauges }
    }

    fn page(&self, change: impl FnOnce(&mut Snapshot)) -> String {
        let mut snapshot = snapshot(&self.resolved, memory_pool::CopyStats::default());
        change(&mut snapshot);
        self.gauges.set(&snapshot);
        self.registry.render()
    }

    fn part(&self) -> &'static str {
        self.resolved.kv[0].parts[0].name
    }
}

fn end(peer: &str, side: Side, stage: Stage, result: Result<(), Failure>) -> TransferEnd {
    let [bootstrap, alloc, wire] = [1, 2, 4].map(|n| Some(Duration::from_secs(n)));
    let (peer, total) = (PeerName::new(peer), Duration::from_secs(8));
    TransferEnd { side, peer, result, stage, bootstrap, alloc, wire, total }
}

fn peer(name: &str, up: bool, [waiting, wire, held_bytes]: [u64; 3]) -> PeerSnapshot {
    PeerSnapshot { peer: PeerName::new(name), up, trouble: None, waiting, wire, held_bytes }
}

fn link(side: Side, peers: Vec<PeerSnapshot>) -> Option<LinkSnapshot> {
    Some(LinkSnapshot { side, peers, strays: 0, violations: 0 })
}

#[test]
fn each_worker_shows_its_end_and_its_peers_from_the_start() {
    for (flags, side, peers) in [
        (PREFILL, "side=\"send\"", &["d0:8000", "other"][..]),
        (DECODE, "side=\"recv\"", &["other", "p0:8000", "p1:8000"]),
    ] {
        let page = Rig::new(flags).page(|_| ());
        let all = values(&page, "kv_transfers_total", &[]);
        assert_eq!(all, vec![0.0; 3 * peers.len()], "{flags}");
        assert_eq!(values(&page, "kv_transfers_total", &[side]).len(), all.len(), "{flags}");
        for peer in peers {
            let peer = format!("peer=\"{peer}\"");
            assert_eq!(values(&page, "kv_transfers_active", &[side, &peer]), [0.0; 2], "{flags}");
            assert!(!values(&page, "kv_transfer_bytes_total", &[side, &peer]).is_empty());
            assert_eq!(values(&page, "kv_transfer_held_bytes", &[&peer]), [0.0]);
        }
        let up = values(&page, "pd_peer_up", &[]);
        assert_eq!(up, vec![0.0; peers.len() - 1], "{flags}: nobody is called other");
        assert_eq!(sum(&page, "config_info", &["transfer_backend=\"tcp\""]), 1.0);
    }
    let page = Rig::new("").page(|_| ());
    assert!(!page.contains("sightline_kv_transfer") && !page.contains("pd_peer_up"));
    assert_eq!(sum(&page, "config_info", &["transfer_backend=\"none\""]), 1.0);
}

#[test]
fn what_breaks_the_protocol_of_a_link_is_counted() {
    for (flags, side) in [(PREFILL, Side::Send), (DECODE, Side::Recv)] {
        let rig = Rig::new(flags);
        for (strays, violations) in [(2, 0), (2, 1), (5, 3)] {
            let told = LinkSnapshot { strays, violations, ..link(side, Vec::new()).expect("one") };
            let page = rig.page(|snapshot| snapshot.link = Some(told));
            assert_eq!(sum(&page, "kv_link_violations_total", &[]), violations as f64, "{flags}");
            assert_eq!(sum(&page, "kv_link_stray_messages_total", &[]), strays as f64, "{flags}");
        }
    }
}

#[test]
fn ends_are_counted_once_by_result_and_by_reason() {
    for (flags, side) in [(PREFILL, Side::Send), (DECODE, Side::Recv)] {
        let rig = Rig::new(flags);
        let observer = rig.gauges.transfer_observer();
        let named = if side == Side::Send { "d0:8000" } else { "p1:8000" };
        observer.on_end(&end(named, side, Stage::Wire, Ok(())));
        let mut stages = vec![(Stage::Bootstrap, TransferEndStage::Bootstrap)];
        stages.push((Stage::Wire, TransferEndStage::Wire));
        if side == Side::Recv {
            stages.push((Stage::Alloc, TransferEndStage::Alloc));
        }
        let known = |stage, failure| {
            let labels = (own(side), stage, reason(failure));
            let possible = catalog::KV_TRANSFER_ERRORS.info;
            let role = if side == Side::Send { Role::Prefill } else { Role::Decode };
            let values = metric_catalog::def::LabelSet::values(&labels);
            possible.combinations(role).contains(&values)
        };
        let (mut failed, mut aborted) = (0.0, 0.0);
        for failure in Failure::ALL {
            for (stage, shown) in &stages {
                if known(*shown, failure) {
                    observer.on_end(&end("unknown:1", side, *stage, Err(failure)));
                    *if failure.is_abort() { &mut aborted } else { &mut failed } += 1.0;
                }
            }
        }
        let page = rig.page(|_| ());
        let ended = |peer: &str, result: &str| {
            let labels = [format!("peer=\"{peer}\""), format!("result=\"{result}\"")];
            sum(&page, "kv_transfers_total", &labels.each_ref().map(String::as_str))
        };
        assert_eq!(ended(named, "ok"), 1.0);
        assert_eq!([ended("other", "error"), ended("other", "aborted")], [failed, aborted]);
        assert_eq!(sum(&page, "kv_transfer_errors_total", &[]), failed + aborted);
        for failure in Failure::ALL {
            let label = format!("reason=\"{}\"", failure.label());
            assert!(sum(&page, "kv_transfer_errors_total", &[&label]) > 0.0, "{label}");
        }
        assert!(values(&page, "kv_transfer_errors_total", &[]).iter().all(|count| *count == 1.0));
        let took = |stage: &str| {
            let label = format!("stage=\"{stage}\"");
            let sums = sum(&page, "kv_transfer_duration_seconds_sum", &[&label]);
            sums / sum(&page, "kv_transfer_duration_seconds_count", &[&label])
        };
        assert_eq!([took("bootstrap"), took("wire"), took("total")], [1.0, 4.0, 8.0]);
        let alloc = values(&page, "kv_transfer_duration_seconds_sum", &["stage=\"alloc\""]);
        assert_eq!(alloc.len(), usize::from(side == Side::Recv), "prefill waits for no room");
    }
}

#[test]
fn bytes_and_busy_time_are_of_the_peer() {
    let rig = Rig::new(DECODE);
    let observer = rig.gauges.transfer_observer();
    let [p0, p1] = ["p0:8000", "p1:8000"].map(PeerName::new);
    observer.on_bytes(Side::Recv, &p0, rig.part(), 1000);
    observer.on_bytes(Side::Recv, &p1, rig.part(), 7);
    observer.on_bytes(Side::Recv, &p0, rig.part(), 500);
    observer.on_busy(Side::Recv, &p0, Duration::from_millis(250));
    observer.on_busy(Side::Recv, &PeerName::other(), Duration::from_millis(750));
    let page = rig.page(|_| ());
    let part = format!("pool=\"{}\"", rig.part());
    let bytes = |peer: &str| sum(&page, "kv_transfer_bytes_total", &[peer, &part]);
    assert_eq!([bytes("p0:8000"), bytes("p1:8000"), bytes("other")], [1500.0, 7.0, 0.0]);
    let busy = |peer: &str| values(&page, "kv_transfer_busy_seconds_total", &[peer]);
    assert_eq!([busy("p0:8000"), busy("other")], [[0.25], [0.75]]);
}

#[test]
fn gauges_follow_the_link_and_forget_who_left() {
    let rig = Rig::new(DECODE);
    let first = || {
        let known = vec![peer("p0:8000", true, [3, 2, 4096]), peer("p1:8000", false, [0; 3])];
        let strangers = [peer("x:1", true, [1, 1, 10]), peer("other", true, [4, 0, 6])];
        known.into_iter().chain(strangers).collect::<Vec<_>>()
    };
    let at = |seconds: u64, peers: Vec<PeerSnapshot>| {
        rig.page(|snapshot| {
            snapshot.now = Time(seconds * 1_000_000_000);
            snapshot.link = link(Side::Recv, peers);
        })
    };
    let page = at(0, first());
    let open = |page: &str, peer: &str| values(page, "kv_transfers_active", &[peer]);
    assert_eq!(open(&page, "p0:8000"), [3.0, 2.0]);
    assert_eq!(open(&page, "x:1"), [1.0, 1.0], "who joined has series of its own");
    assert_eq!(open(&page, "other"), [4.0, 0.0]);
    assert_eq!(sum(&page, "kv_transfer_held_bytes", &["p0:8000"]), 4096.0);
    let up = |peer: &str| values(&page, "pd_peer_up", &[peer, "peer_role=\"prefill\""]);
    assert_eq!([up("p0:8000"), up("p1:8000"), up("other")], [vec![1.0], vec![0.0], vec![]]);
    let without = || first().into_iter().filter(|peer| peer.peer.as_str() != "x:1").collect();
    assert_eq!(open(&at(10, without()), "x:1"), [0.0, 0.0], "it left, its series stay");
    assert_eq!(open(&at(609, without()), "x:1").len(), 2);
    let page = at(610, without());
    assert!(!page.contains("x:1") && page.contains("p0:8000"));
    // More than have series of their own are added up.
    let many = (0..40).map(|n| peer(&format!("m{n}:1"), true, [1, 0, 1]));
    let page = at(620, first().into_iter().chain(many).collect());
    assert_eq!(sum(&page, "kv_transfers_active", &["state=\"waiting\""]), 48.0);
    let names = values(&page, "kv_transfer_held_bytes", &[]).len();
    assert_eq!(names, metric_catalog::install::MEMBERS_MAX + 1);
}

#[test]
fn those_that_wait_for_the_other_worker_are_not_counted_twice() {
    let line = |requests, tokens, uncached, seconds: u64| LineSnapshot {
        requests,
        pending_tokens: tokens,
        uncached_tokens: uncached,
        oldest: Some(Time((100 - seconds) * 1_000_000_000)),
    };
    let permits = |requests, oldest: u64| QueueSnapshot {
        requests,
        pending_tokens: 900,
        pending_uncached_tokens: 700,
        oldest_age: Duration::from_secs(oldest),
        limit_requests: 32,
        limit_tokens: 100_000,
        drain: Duration::ZERO,
        prefill_rate: 1.0,
        next_place: Duration::ZERO,
    };
    let page = |flags: &str, queue, change: fn(&mut engine::EngineSnapshot, LineSnapshot), at| {
        Rig::new(flags).page(|snapshot| {
            snapshot.now = Time(100_000_000_000);
            snapshot.queue = Some(queue);
            change(snapshot.engine.as_mut().expect("it runs"), at);
        })
    };
    let of = |page: &str, queue: &str| {
        let queue = format!("queue=\"{queue}\"");
        let metrics = ["requests", "pending_tokens", "pending_uncached_tokens"];
        let shown = metrics.map(|metric| sum(page, &format!("queue_{metric}"), &[&queue]));
        (shown, sum(page, "queue_oldest_request_age_seconds", &[&queue]))
    };
    let both = line(2, 600, 500, 40);
    let prefill = page(PREFILL, permits(5, 40), |engine, line| engine.bootstrap = line, both);
    assert_eq!(of(&prefill, "bootstrap"), ([2.0, 600.0, 500.0], 40.0));
    assert_eq!(of(&prefill, "waiting"), ([3.0, 300.0, 200.0], 0.0), "the oldest is there");
    let prefill = page(PREFILL, permits(5, 90), |engine, line| engine.bootstrap = line, both);
    assert_eq!(of(&prefill, "waiting").1, 90.0, "the oldest is here");
    let sent = page(PREFILL, permits(0, 0), |engine, line| engine.inflight_send = line, both);
    assert_eq!(of(&sent, "inflight_send"), ([2.0, 600.0, 500.0], 40.0));
    assert_eq!(of(&sent, "waiting").0[0], 0.0);
    let line = line(2, 600, 0, 40);
    let decode = page(DECODE, permits(2, 40), |engine, line| engine.prealloc = line, line);
    assert_eq!(of(&decode, "prealloc"), ([2.0, 600.0, 0.0], 40.0));
    assert_eq!(of(&decode, "waiting").0, [0.0, 300.0, 700.0]);
    let decode = page(DECODE, permits(0, 0), |engine, line| engine.landed = line, line);
    let (shown, age) = of(&decode, "waiting");
    assert_eq!((shown[0], age), (2.0, 40.0), "landed requests wait for a slot");
    let decode = page(DECODE, permits(0, 0), |engine, line| engine.transfer = line, line);
    assert_eq!(of(&decode, "transfer"), ([2.0, 600.0, 0.0], 40.0));
}

#[test]
fn a_prefill_worker_judges_nothing_and_a_decode_worker_knows_where_time_went() {
    let second = Duration::from_secs(1);
    let objectives = Objectives { ttft: second, itl: second, e2e: second };
    let first = engine::FirstToken {
        id: types::RequestId(1),
        streaming: true,
        ttft: second * 28,
        phases: engine::TtftPhases {
            tokenize: second,
            queue: second * 2,
            bootstrap: second * 3,
            prefill: second * 4,
            kv_transfer: second * 5,
            decode_queue: second * 6,
            first_decode: second * 7,
        },
    };
    let rig = Rig::new(DECODE);
    let mut observer = EngineObserver::new(&rig.registry, objectives, &rig.resolved);
    let first_tokens = &[first];
    observer.on_step(&engine::StepStats { first_tokens, cached_remote_tokens: 9, ..step() });
    let page = rig.page(|_| ());
    assert_eq!(sum(&page, "prompt_tokens_total", &["source=\"remote\""]), 9.0);
    let parts = values(&page, "ttft_phase_seconds_sum", &[]);
    assert_eq!((parts.len(), parts.iter().sum::<f64>()), (7, 28.0));
    assert_eq!(sum(&page, "time_to_first_token_seconds_sum", &[]), 28.0);
    let unified = Rig::new("");
    let mut observer = EngineObserver::new(&unified.registry, objectives, &unified.resolved);
    observer.on_step(&engine::StepStats { first_tokens, ..step() });
    assert_eq!(values(&unified.page(|_| ()), "ttft_phase_seconds_sum", &[]), [4.0, 2.0, 1.0]);
    let prefill = Rig::new(PREFILL);
    let mut observer = EngineObserver::new(&prefill.registry, objectives, &prefill.resolved);
    observer.on_step(&step());
    let page = prefill.page(|_| ());
    assert!(!page.contains("sightline_slo_requests_total") && !page.contains("sightline_ttft"));
}

/// The end of a request that was given up.
fn given_up(stage: engine::Stage, reason: engine::AbortReason) -> engine::RequestEnd {
    let timings = engine::Timings {
        arrived: Time::ZERO,
        tokenized: Time::ZERO,
        scheduled: None,
        first_token: None,
        last_token: None,
        ended: Time::ZERO,
        queued: Duration::ZERO,
        bootstrap: Duration::ZERO,
        remote: None,
    };
    engine::RequestEnd {
        id: types::RequestId(1),
        outcome: engine::Outcome::Aborted(engine::Abort { stage, reason }),
        tool_calls: false,
        priority: types::Priority::NORMAL,
        streaming: false,
        prompt_tokens: 10,
        cached_tokens: 0,
        remote_tokens: 0,
        generated_tokens: 0,
        recomputed_tokens: 0,
        preemptions: 0,
        timings,
    }
}

#[test]
fn what_is_given_up_is_counted_at_its_stage_and_by_whom() {
    use engine::{AbortReason, Stage as At};
    let second = Duration::from_secs(1);
    let objectives = Objectives { ttft: second, itl: second, e2e: second };
    let stages = [At::Queued, At::Bootstrap, At::Prefill, At::Transfer];
    for (flags, reason, by) in [
        (PREFILL, AbortReason::PeerAbort, ["initiator=\"peer\"", "reason=\"peer_abort\""]),
        (DECODE, AbortReason::ClientGone, ["initiator=\"client\"", "reason=\"client_gone\""]),
    ] {
        let rig = Rig::new(flags);
        let mut observer = EngineObserver::new(&rig.registry, objectives, &rig.resolved);
        stages.iter().for_each(|stage| observer.on_request_end(&given_up(*stage, reason)));
        let page = rig.page(|_| ());
        for stage in ["queued", "bootstrap", "prefill", "transfer"] {
            let stage = format!("stage=\"{stage}\"");
            let counted = values(&page, "requests_aborted_total", &[&stage, by[0], by[1]]);
            assert_eq!(counted, [1.0], "{flags}: {stage}");
        }
        assert_eq!(sum(&page, "requests_finished_total", &["outcome=\"aborted\""]), 4.0);
    }
}
