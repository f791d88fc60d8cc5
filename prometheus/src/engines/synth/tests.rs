use std::collections::BTreeMap;

use super::*;

const ROLES: [&str; 3] = ["prefill", "decode", "unified"];

/// Every process of every version and role.
fn processes() -> impl Iterator<Item = Process> {
    Engine::ALL.iter().flat_map(|engine| {
        let versions = of(*engine).versions.iter();
        versions.flat_map(|version| {
            ROLES.map(|role| Process::new(*engine, &version.version, role)).into_iter()
        })
    })
}

/// Samples by their series.
fn samples(page: &str) -> BTreeMap<&str, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let parts = lines.map(|line| line.rsplit_once(' ').expect("a series and a value"));
    parts.map(|(series, value)| (series, value.parse().expect("a number"))).collect()
}

#[test]
fn counters_grow_and_histograms_are_consistent() {
    for process in processes() {
        let facts = of(process.engine);
        for job in facts.jobs.keys() {
            let pages = [0.0, 7.5, 60.0].map(|at| process.page(job, at).expect("it is served"));
            assert_eq!(process.page(job, 60.0).as_ref(), Some(&pages[2]), "it is repeatable");
            let [first, second, third] = pages.each_ref().map(|page| samples(page));
            assert_eq!(first.len(), third.len());
            for (series, value) in &third {
                let name = series.split('{').next().expect("there is a first part");
                let family = facts.family(name).expect("it is of the vocabulary");
                let earlier = [first[series], second[series]];
                assert!(value.is_finite() && *value >= 0.0, "{series} {value}");
                if family.kind == Kind::Counter || family.kind == Kind::Histogram {
                    assert!(earlier.is_sorted() && earlier[1] <= *value, "{series}");
                }
                if family.kind == Kind::Counter && !name.contains("_total") {
                    panic!("{name} is a counter");
                }
                let Some(count) = name.strip_suffix("_bucket").map(|stem| {
                    let labels = series.split_once('{').map_or("", |(_, labels)| labels);
                    let (labels, _) = labels.split_once("le=").expect("a bucket has an edge");
                    let labels = labels.trim_end_matches(',');
                    let labels =
                        if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
                    format!("{stem}_count{labels}")
                }) else {
                    continue;
                };
                if family.kind == Kind::Histogram {
                    assert!(third[count.as_str()] >= *value, "{series}");
                }
            }
        }
    }
}

#[test]
fn every_constant_is_on_a_page_of_its_versions() {
    for engine in Engine::ALL {
        let facts = of(*engine);
        for version in &facts.versions {
            let mut told = String::new();
            for role in ROLES {
                let process = Process::new(*engine, &version.version, role);
                told.extend(facts.jobs.keys().filter_map(|job| process.page(job, 1.0)));
            }
            for info in engine.families() {
                let family = facts.family(info.name).expect("another test looks");
                let there = told.contains(&format!("# TYPE {} ", info.name));
                assert_eq!(there, facts.has(family, &version.version), "{}", info.name);
            }
        }
    }
}

#[test]
fn copies_of_ranks_are_equal_and_shares_are_not() {
    let mut process = Process::new(Engine::Sglang, "0.5.23", "unified");
    process.ranks = 2;
    process.schedulers = 2;
    let page = process.page("metrics", 30.0).expect("it is served");
    let samples = samples(&page);
    let of = |name: &str| -> Vec<f64> {
        samples.iter().filter(|(series, _)| series.starts_with(name)).map(|(_, v)| *v).collect()
    };
    let running = of("sglang:num_running_reqs{");
    assert_eq!(running.len(), 4, "two schedulers of two ranks");
    assert_eq!((running[0], running[1]), (running[2], running[3]), "series are in order of ranks");
    let bytes = of("sglang:load_back_bytes_total{");
    assert_eq!(bytes.len(), 4);
    assert!(bytes.windows(2).any(|pair| pair[0].total_cmp(&pair[1]).is_ne()), "{bytes:?}");
}

#[test]
fn holes_are_missing_and_nothing_else() {
    let whole = Process::new(Engine::Sglang, "0.5.23", "unified");
    let page = whole.page("metrics", 1.0).expect("it is served");
    let flag = "--enable-hierarchical-cache";
    let holed = whole.clone().without(Hole::Flag(flag.to_owned()));
    let less = holed.page("metrics", 1.0).expect("it is served");
    assert!(page.contains("sglang:load_back_bytes_total"));
    assert!(!less.contains("sglang:load_back_bytes_total") && less.len() < page.len());
    assert!(less.lines().all(|line| page.contains(line)));
    let deaf = whole.clone().without(Hole::Job("loads".to_owned()));
    assert_eq!(deaf.page("loads", 1.0), None);
    assert_eq!(deaf.page("metrics", 1.0).as_ref(), Some(&page));
    assert_eq!(whole.page("nothing", 1.0), None);
    let family = "sglang:num_running_reqs";
    let one_less = whole.without(Hole::Family(family.to_owned()));
    assert!(!one_less.page("metrics", 1.0).expect("it is served").contains(family));
}

#[test]
fn edges_are_written_as_the_real_ones() {
    for (value, text) in [
        (0.1, "0.1"),
        (20.0, "20.0"),
        (0.0, "0.0"),
        (1e6, "1e+06"),
        (2_097_152.0, "2.097152e+06"),
        (8_589_934_592.0, "8.589934592e+09"),
    ] {
        assert_eq!(python_float(value), text);
    }
}
