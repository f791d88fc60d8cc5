//! The planner against figures of machines that were sized by hand.

use proptest::prelude::*;

use super::*;

/// Layers of DeepSeek-V4: with any attention, with a compressor of 4, with one of 128.
struct Layers(u64, u64, u64);
const FLASH: Layers = Layers(43, 21, 20);
const PRO: Layers = Layers(61, 30, 31);

/// The pools of a published DeepSeek-V4 in FP8, with so many pages on the device.
fn v4(layers: &Layers, full: usize, windows: usize) -> Vec<PlanPool> {
    let Layers(all, four, long) = *layers;
    let part = |name, page_bytes, host| PlanPart { name, page_bytes, host };
    let sizing = Sizing { least_above: Some(1), more: 0 };
    let pool = |name, device_pages, parts| PlanPool {
        name,
        page_tokens: 256,
        device_pages,
        sizing,
        parts,
    };
    vec![
        pool(
            "kv",
            full,
            vec![
                part("deepseek_v4_c4", four * 37_440, true),
                part("deepseek_v4_c4_indexer", four * 8_448, true),
                part("deepseek_v4_c128", long * 1_728, true),
            ],
        ),
        pool(
            "swa",
            windows,
            vec![
                part("swa", all * 149_760, true),
                part("deepseek_v4_c4_state", four * 65_536, true),
                part("deepseek_v4_c4_indexer_state", four * 16_384, true),
                part("deepseek_v4_c128_state", long * 524_288, false),
            ],
        ),
    ]
}

fn input(pools: Vec<PlanPool>, ranks: &[Option<u32>], want: Want) -> PlanInput {
    PlanInput { pools, ranks: ranks.to_vec(), want, room: Room::default() }
}

fn host_bytes(plan: &HostTierPlan, part: &str) -> u64 {
    let parts = plan.pools.iter().flat_map(|pool| &pool.parts);
    parts.filter(|share| share.name == part).map(|share| share.host_bytes).sum()
}

/// Gigabytes with the digits that reports give.
fn gb(bytes: u64, digits: usize) -> String {
    format!("{:.*}", digits, bytes as f64 / 1e9)
}

const FOUR: [Option<u32>; 4] = [Some(0); 4];

#[test]
fn a_page_of_each_pool_has_the_published_size() {
    let pools = v4(&FLASH, 835, 835);
    assert_eq!(pools[0].host_page_bytes(), 998_208);
    assert_eq!(pools[1].host_page_bytes(), 8_160_000);
    // 3,899 bytes of history per token.
    assert_eq!(998_208 / 256, 3_899);
    let all: u64 = pools[1].parts.iter().map(|part| part.page_bytes).sum();
    assert_eq!(all, 18_645_760, "with the state that stays on the device");
    let bytes: Vec<u64> =
        pools.iter().flat_map(|pool| &pool.parts).map(|part| part.page_bytes).collect();
    assert_eq!(bytes, [786_240, 177_408, 34_560, 6_439_680, 1_376_256, 344_064, 10_485_760]);
}

#[test]
fn the_lines_of_the_incident_come_out() {
    let plan = plan_host_tier(&input(v4(&FLASH, 835, 835), &FOUR, Want::Ratio(2.0)));
    let plan = plan.expect("a plan");
    assert_eq!(plan.host_pages(), [1670, 1670]);
    assert_eq!(host_bytes(&plan, "deepseek_v4_c4_indexer_state"), 574_586_880);
    assert_eq!(gb(574_586_880, 2), "0.57");
    assert_eq!(host_bytes(&plan, "deepseek_v4_c4_state"), 2_298_347_520);
    assert_eq!(gb(2_298_347_520, 2), "2.30");
    assert_eq!(host_bytes(&plan, "deepseek_v4_c128_state"), 0, "it stays on the device");
}

#[test]
fn both_readings_of_the_incident_come_out_pool_by_pool() {
    let check = |full: usize, c4: &str, indexer: &str, c128: &str, rank: &str, total: &str| {
        let plan = plan_host_tier(&input(v4(&FLASH, full, 835), &FOUR, Want::Ratio(2.0)));
        let plan = plan.expect("a plan");
        let part = |name| gb(host_bytes(&plan, name), 2);
        assert_eq!(part("swa"), "10.75");
        assert_eq!(part("deepseek_v4_c4"), c4);
        assert_eq!(part("deepseek_v4_c4_indexer"), indexer);
        assert_eq!(part("deepseek_v4_c128"), c128);
        let states = ["deepseek_v4_c4_state", "deepseek_v4_c4_indexer_state"];
        let states: u64 = states.iter().map(|name| host_bytes(&plan, name)).sum();
        assert_eq!(gb(states, 2), "2.87");
        assert_eq!(
            (gb(plan.rank_bytes, 1).as_str(), gb(plan.total_bytes, 0).as_str()),
            (rank, total)
        );
        let device: u64 = plan.pools[0].parts.iter().map(|part| part.device_bytes).sum();
        let pools = plan_host_tier(&input(v4(&FLASH, full, 835), &FOUR, Want::Ratio(20.0)));
        (device as f64 / f64::from(1 << 30), pools.expect("a plan").rank_bytes)
    };
    let (device, twenty) = check(8350, "13.13", "2.96", "0.58", "30.3", "121");
    assert_eq!(format!("{device:.2}"), "7.76");
    assert_eq!(gb(twenty, 0), "303", "what the incident's plan would have asked of each rank");
    let (device, twenty) = check(835, "1.31", "0.30", "0.06", "15.3", "61");
    assert_eq!(format!("{device:.3}"), "0.776");
    assert_eq!(gb(twenty, 0), "153");
}

#[test]
fn bytes_become_ratios() {
    let of = |full| input(v4(&FLASH, full, 835), &FOUR, Want::Ratio(2.0));
    let (a, b) = (of(8350), of(835));
    let ratio = |input: &PlanInput, bytes| input.ratio_within(bytes).map(|r| format!("{r:.2}"));
    assert_eq!(ratio(&a, 300_000_000_000).as_deref(), Some("4.95"));
    assert_eq!(ratio(&b, 300_000_000_000).as_deref(), Some("9.80"));
    assert_eq!(ratio(&a, 200_000_000_000).as_deref(), Some("3.30"));
    assert_eq!(ratio(&b, 200_000_000_000).as_deref(), Some("6.53"));
    assert_eq!(gb(b.unit_bytes(), 1), "30.6");
    assert_eq!(ratio(&b, 150_000_000_000).as_deref(), Some("4.90"));
    assert_eq!(ratio(&b, 30_000_000_000), None);
    let budget = PlanInput { want: Want::TotalBytes(150_000_000_000), ..b.clone() };
    let plan = plan_host_tier(&budget).expect("a plan");
    assert!(plan.total_bytes <= 150_000_000_000 && plan.total_bytes > 149_900_000_000);
    let rank = PlanInput { want: Want::RankBytes(37_500_000_000), ..b };
    assert_eq!(plan_host_tier(&rank).expect("a plan").host_pages(), plan.host_pages());
}

#[test]
fn the_larger_model_of_the_family_follows_the_same_rule() {
    // As a log of it says: 61 layers and 60 pages of the window, 30 of the state.
    let plan = plan_host_tier(&input(v4(&PRO, 60, 30), &[None], Want::Ratio(2.0))).expect("a plan");
    assert_eq!(plan.pools[1].host_pages, 60);
    assert_eq!(gb(host_bytes(&plan, "swa"), 2), "0.55");
    assert_eq!(gb(host_bytes(&plan, "deepseek_v4_c4_state"), 2), "0.12");
    assert_eq!(plan.pools[0].parts[2].page_bytes, 31 * 1_728);
}

#[test]
fn floors_of_other_engines_hold_and_ours_is_the_device() {
    assert_eq!(Sizing { least_above: Some(1), more: 0 }.pages(835, 1.0), 836);
    assert_eq!(Sizing { least_above: None, more: 0 }.pages(835, 1.0), 835);
    assert_eq!(Sizing { least_above: None, more: 1 }.pages(100, 2.5), 251);
    assert_eq!(Sizing::OWN.pages(3, 1.5), 4);
    assert_eq!(Sizing::OWN.pages(usize::MAX, 8.0), usize::MAX, "no overflow");
}

#[test]
fn the_sum_is_checked_against_every_limit_once() {
    let room = Room {
        nodes: vec![NodeRoom { node: 0, bytes: 200_000_000_000 }, NodeRoom { node: 1, bytes: 50 }],
        host: Some(400_000_000_000),
        group: Some(100_000_000_000),
        locked: Some(8 << 20),
    };
    let mut input = input(v4(&FLASH, 835, 835), &FOUR, Want::Ratio(6.5));
    input.room = room;
    let plan = plan_host_tier(&input).expect("a plan");
    let limits: Vec<Limit> = plan.shortages.iter().map(|short| short.limit).collect();
    assert_eq!(limits, [Limit::Group, Limit::Locked]);
    assert_eq!((plan.nodes.len(), plan.largest), (1, Largest::Nothing));
    input.room.locked = None;
    let ratio = |input: &PlanInput| plan_host_tier(input).expect("a plan").largest;
    assert_eq!(ratio(&input), Largest::Ratio(3.26));
    input.room.group = None;
    assert_eq!(ratio(&input), Largest::Ratio(6.53));
    assert!(plan_host_tier(&input).expect("a plan").fits());
    // Half of the ranks on each node: the small one decides.
    input.ranks = vec![Some(0), Some(0), Some(1), Some(1)];
    let plan = plan_host_tier(&input).expect("a plan");
    assert_eq!(plan.nodes[1].ranks, [2, 3]);
    assert_eq!(plan.shortages[0].limit, Limit::Node(1));
    // Bound to none, they share the sum.
    input.ranks = vec![None; 4];
    assert_eq!(ratio(&input), Largest::Ratio(6.53));
    input.room = Room::default();
    assert_eq!(ratio(&input), Largest::Unknown);
}

#[test]
fn what_is_no_tier_is_said() {
    let plan = |pools, ranks: &[Option<u32>], want| plan_host_tier(&input(pools, ranks, want));
    let pools = || v4(&FLASH, 835, 835);
    assert_eq!(plan(pools(), &[], Want::Ratio(2.0)), Err(PlanError::NoRanks));
    let none = plan(v4(&FLASH, 0, 835), &FOUR, Want::Ratio(2.0));
    assert_eq!(none, Err(PlanError::NoDevicePages { pool: "kv" }));
    let empty = PlanPool { parts: Vec::new(), ..pools().remove(0) };
    assert_eq!(plan(vec![empty], &FOUR, Want::Ratio(2.0)), Err(PlanError::NothingMirrored));
    for want in [Want::Ratio(0.5), Want::Ratio(f64::NAN), Want::TotalBytes(1 << 30)] {
        let error = plan(pools(), &FOUR, want).expect_err("less than the device");
        assert!(matches!(error, PlanError::BelowOne { .. }), "{error}");
    }
    let error = plan(pools(), &FOUR, Want::Ratio(1e9)).expect_err("more than ids");
    let PlanError::TooManyPages { most, .. } = error else { panic!("{error}") };
    assert!(plan(pools(), &FOUR, Want::Ratio(most as f64)).is_ok());
    assert!(plan(pools(), &FOUR, Want::Ratio((most + 1) as f64)).is_err());
}

prop_compose! {
    fn any_input()(
        pools in prop::collection::vec((1_usize..5000, 1_u64..5_000_000, any::<bool>()), 1..4),
        ranks in prop::collection::vec(prop::option::of(0_u32..3), 1..9),
        nodes in prop::collection::vec(0_u64..1 << 40, 0..4),
        limits in [
            prop::option::of(0_u64..1 << 42),
            prop::option::of(0_u64..1 << 42),
            prop::option::of(0_u64..1 << 42),
        ],
        above in prop::option::of(0_usize..2),
        more in 0_usize..2,
        ratio in 1.0..40.0_f64,
    ) -> PlanInput {
        let pools = pools.into_iter().map(|(device_pages, page_bytes, host)| PlanPool {
            name: "kv",
            page_tokens: 16,
            device_pages,
            sizing: Sizing { least_above: above, more },
            parts: vec![
                PlanPart { name: "a", page_bytes, host: true },
                PlanPart { name: "b", page_bytes: 1000, host },
            ],
        });
        let nodes = (0..).zip(nodes).map(|(node, bytes)| NodeRoom { node, bytes });
        let room = Room {
            nodes: nodes.collect(),
            host: limits[0],
            group: limits[1],
            locked: limits[2],
        };
        PlanInput { pools: pools.collect(), ranks, want: Want::Ratio(ratio), room }
    }
}

proptest! {
    /// What is called fitting never exceeds a node or a limit, and a hundredth more does.
    #[test]
    fn no_plan_that_fits_exceeds_what_there_is(input in any_input()) {
        let within = |ratio: f64| {
            let nodes = input.nodes(ratio);
            let total: u64 = nodes.iter().map(|node| node.bytes).sum();
            assert_eq!(total, input.total_bytes(ratio));
            let limits = [input.room.host, input.room.group, input.room.locked];
            let whole = limits.into_iter().flatten().all(|room| total <= room);
            let every = input.room.nodes.iter().all(|room| {
                let here = nodes.iter().filter(|node| node.node == Some(room.node));
                here.map(|node| node.bytes).sum::<u64>() <= room.bytes
            });
            let known = !input.room.nodes.is_empty();
            let loose = known && nodes.iter().any(|node| node.node.is_none());
            let sum: u64 = input.room.nodes.iter().map(|room| room.bytes).sum();
            whole && every && (!loose || total <= sum)
        };
        let plan = plan_host_tier(&input).expect("a plan");
        prop_assert_eq!(plan.fits(), within(plan.ratio));
        match plan.largest {
            Largest::Ratio(ratio) => {
                prop_assert!(within(ratio));
                // Two hundredths, because a ratio of two decimals is seldom a float.
                prop_assert!(!within(ratio + 0.02) || ratio > 1000.0);
            }
            Largest::Nothing => prop_assert!(!within(1.0)),
            Largest::Unknown => prop_assert!(plan.fits()),
        }
    }

    /// Bytes are a promise: a tier sized by them takes no more.
    #[test]
    fn a_budget_is_not_exceeded(input in any_input(), times in 1.0..30.0_f64) {
        let mut input = input;
        for pool in &mut input.pools {
            pool.sizing = Sizing::OWN;
        }
        let budget = (input.unit_bytes() as f64 * times) as u64 + 1;
        let total = PlanInput { want: Want::TotalBytes(budget), ..input.clone() };
        let total = plan_host_tier(&total).expect("more than the device");
        prop_assert!(total.total_bytes <= budget);
        let ratio = input.ratio_within(budget).expect("more than the device");
        prop_assert!(input.total_bytes(ratio) <= budget && ratio <= total.ratio + 1.0);
        prop_assert_eq!(total.pools.iter().zip(&input.pools).all(|(share, pool)| {
            share.host_pages >= pool.device_pages
        }), true);
    }
}
