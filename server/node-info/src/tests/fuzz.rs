//! Every parser against what is no file of a kernel.
//!
//! `corpus/PARSER/` holds files that parsers must accept and, named `bad-*`, files that they must
//! refuse. Whatever the bytes are, no parser panics, and what it accepts is sane: in order, within
//! its bounds, each thing once. Of a file that was cut, it says nothing that the whole does not
//! say.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::path::Path;

use fake_node::Tree;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::nodes::root;
use crate::numa::{self, memory, strict_list};
use crate::read::{self, Bad};
use crate::{CgroupNode, Limit, Stall, cgroup, mempolicy, pci, pressure, rdma, status, zones};

/// What a parser said, piece by piece.
#[derive(Debug, Clone, PartialEq)]
enum Said {
    /// One value.
    Is(String),
    /// A sum of lines, of which a file that was cut has fewer.
    Sum(u64),
}

type Facts = BTreeMap<String, Said>;
type Parser = fn(&[u8]) -> Result<Facts, String>;

fn is(name: impl ToString, value: impl Debug) -> (String, Said) {
    (name.to_string(), Said::Is(format!("{value:?}")))
}

/// A fact, where there is one.
fn maybe<T: Debug>(name: &str, value: Option<T>) -> Option<(String, Said)> {
    value.map(|value| is(name, value))
}

/// What a parser of texts makes of bytes.
fn with<T>(
    bytes: &[u8],
    parse: impl FnOnce(&str) -> Result<T, Bad>,
    facts: impl FnOnce(T) -> Facts,
) -> Result<Facts, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    read::whole(text).and_then(parse).map(facts).map_err(|bad| {
        assert!(bad.found.chars().count() <= 60, "an error repeats a word, not the file: {bad:?}");
        format!("{bad:?}")
    })
}

fn one<T: Debug>(
    bytes: &[u8],
    parse: impl FnOnce(&str) -> Result<T, Bad>,
    sane: impl FnOnce(&T) -> bool,
) -> Result<Facts, String> {
    with(bytes, parse, |value| {
        assert!(sane(&value), "{value:?}");
        Facts::from([is("value", value)])
    })
}

fn ascending<T: PartialOrd>(values: &[T]) -> bool {
    values.windows(2).all(|pair| pair[0] < pair[1])
}

fn meminfo(bytes: &[u8]) -> Result<Facts, String> {
    with(
        bytes,
        |text| memory::parse(text, 0),
        |memory| {
            assert!(memory.free <= memory.total && memory.available() <= memory.total);
            assert!(memory.unaccounted(0).is_none_or(|bytes| bytes <= memory.total));
            let fields = [
                maybe("total", Some(memory.total)),
                maybe("free", Some(memory.free)),
                maybe("file", memory.file),
                maybe("anon", memory.anon),
                maybe("shmem", memory.shmem),
                maybe("dirty", memory.dirty),
                maybe("writeback", memory.writeback),
                maybe("slab", memory.slab),
                maybe("slab_reclaimable", memory.slab_reclaimable),
                maybe("kernel_stack", memory.kernel_stack),
                maybe("page_tables", memory.page_tables),
                maybe("sec_page_tables", memory.sec_page_tables),
                maybe("mlocked", memory.mlocked),
            ];
            fields.into_iter().flatten().collect()
        },
    )
}

fn zoneinfo(bytes: &[u8]) -> Result<Facts, String> {
    with(
        bytes,
        |text| zones::parse(text, 4096),
        |marks| {
            let nodes: Vec<u32> = marks.iter().map(|marks| marks.node).collect();
            assert!(!nodes.is_empty() && ascending(&nodes), "{nodes:?}");
            let sums = marks.iter().flat_map(|marks| {
                let values = [
                    ("min", marks.min),
                    ("low", marks.low),
                    ("high", marks.high),
                    ("all", marks.managed),
                ];
                values.map(|(name, bytes)| (format!("{name} {}", marks.node), Said::Sum(bytes)))
            });
            sums.collect()
        },
    )
}

fn stalls(bytes: &[u8]) -> Result<Facts, String> {
    with(bytes, pressure::parse, |(some, full)| {
        let sane = |stall: &Stall| stall.average.iter().all(|share| (0.0..=1.0).contains(share));
        assert!(some.is_some() || full.is_some());
        assert!(some.iter().chain(&full).all(sane), "{some:?} {full:?}");
        [maybe("some", some), maybe("full", full)].into_iter().flatten().collect()
    })
}

fn group_nodes(bytes: &[u8]) -> Result<Facts, String> {
    with(bytes, cgroup::numa_stat, |nodes| {
        let ids: Vec<u32> = nodes.iter().map(|node| node.node).collect();
        assert!(ascending(&ids), "{ids:?}");
        let sums = nodes.iter().flat_map(|node: &CgroupNode| {
            assert!(node.resident() >= node.anon.max(node.file).max(node.kernel));
            let values = [
                ("anon", node.anon),
                ("file", node.file),
                ("shmem", node.shmem),
                ("kernel", node.kernel),
            ];
            values.map(|(name, bytes)| (format!("{name} {}", node.node), Said::Sum(bytes)))
        });
        sums.collect()
    })
}

fn process(bytes: &[u8]) -> Result<Facts, String> {
    with(bytes, status::parse, |status| {
        assert!(status.mems_allowed.as_ref().is_none_or(|nodes| ascending(nodes)));
        let fields = [
            maybe("locked", status.locked),
            maybe("pinned", status.pinned),
            maybe("resident", status.resident),
            maybe("mems", status.mems_allowed),
        ];
        fields.into_iter().flatten().collect()
    })
}

/// The whole file is handed over as far as it would be read.
fn policy(bytes: &[u8]) -> Result<Facts, String> {
    let head = &bytes[..bytes.len().min(64)];
    let policy = mempolicy::parse(head).map_err(|bad| format!("{bad:?}"))?;
    assert!(policy.iter().flat_map(|p| &p.nodes).all(|nodes| ascending(nodes)), "{policy:?}");
    Ok(policy.into_iter().map(|policy| is("policy", policy)).collect())
}

fn pids(bytes: &[u8]) -> Result<Facts, String> {
    with(bytes, cgroup::processes, |pids| {
        assert!(ascending(&pids), "{pids:?}");
        pids.iter().map(|pid| is(pid, ())).collect()
    })
}

fn list(bytes: &[u8]) -> Result<Facts, String> {
    let parse = |text: &str| strict_list(text).ok_or_else(|| Bad::new("list", text));
    one(bytes, parse, |numbers| {
        let text = String::from_utf8_lossy(bytes);
        assert_eq!(&crate::list(&text), numbers, "the lenient one reads the same");
        ascending(numbers) && numbers.last().is_none_or(|last| *last <= 1 << 16)
    })
}

const PARSERS: [(&str, Parser); 20] = [
    ("meminfo", meminfo),
    ("numastat", |bytes| one(bytes, numa::allocations, |_| true)),
    ("distance", |bytes| {
        one(bytes, |text| numa::distances(text, &[3, 8]), |pairs| pairs.len() == 2)
    }),
    ("list", list),
    ("zoneinfo", zoneinfo),
    ("pressure", stalls),
    ("limit", |bytes| {
        one(bytes, cgroup::limit, |limit| match limit {
            Limit::Unlimited => String::from_utf8_lossy(bytes).trim() == "max",
            Limit::Bytes(_) => true,
        })
    }),
    ("events", |bytes| one(bytes, cgroup::events, |_| true)),
    ("numa-stat", group_nodes),
    ("procs", pids),
    ("status", process),
    ("numa-maps", policy),
    ("hex", |bytes| one(bytes, |text| pci::hex(text, "class"), |_| true)),
    ("numa-node", |bytes| one(bytes, pci::node, |_| true)),
    ("lanes", |bytes| {
        one(
            bytes,
            |text| pci::lanes(text, "lanes"),
            |lanes| lanes.is_none_or(|lanes| (1..=32).contains(&lanes)),
        )
    }),
    ("speed", |bytes| {
        one(bytes, pci::speed_of, |speed| {
            speed.is_none_or(|speed| speed.is_finite() && speed > 0.0)
        })
    }),
    ("aer", |bytes| {
        with(bytes, pci::aer, |count| Facts::from([("sum".to_owned(), Said::Sum(count))]))
    }),
    ("port-state", |bytes| one(bytes, rdma::state, |_| true)),
    ("port-rate", |bytes| one(bytes, rdma::rate, |rate| rate.is_finite() && *rate >= 0.0)),
    ("port-count", |bytes| one(bytes, |text| rdma::count(text, "counter"), |_| true)),
];

/// The files of a parser, by name.
fn corpus(parser: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(parser);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{parser}: {error}"));
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("a file").path())
        .map(|path| {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, fs::read(path).expect("a file"))
        })
        .collect();
    files.sort();
    files
}

#[test]
fn the_corpus_is_told_apart() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    assert_eq!(fs::read_dir(folder).expect("a folder").count(), PARSERS.len());
    for (parser, parse) in PARSERS {
        let files = corpus(parser);
        let bad = files.iter().filter(|(name, _)| name.starts_with("bad-")).count();
        assert!(bad > 0 && bad < files.len(), "{parser} has files of both kinds");
        for (name, bytes) in files {
            let said = parse(&bytes);
            assert_eq!(said.is_err(), name.starts_with("bad-"), "{parser}/{name}: {said:?}");
        }
    }
}

/// Every cut of every good file: an error, or a part of what the whole says.
#[test]
fn a_cut_file_says_nothing_else() {
    for (parser, parse) in PARSERS {
        for (name, bytes) in corpus(parser) {
            let Ok(whole) = parse(&bytes) else { continue };
            for end in 0..bytes.len() {
                // The head of `numa_maps` is cut on purpose: only it is ever read.
                if parser == "numa-maps" {
                    drop(parse(&bytes[..end]));
                    continue;
                }
                for (key, said) in parse(&bytes[..end]).into_iter().flatten() {
                    let all = whole.get(&key);
                    let part = match (&said, all) {
                        (Said::Sum(part), Some(Said::Sum(all))) => part <= all,
                        (said, Some(all)) => said == all,
                        (_, None) => false,
                    };
                    assert!(part, "{parser}/{name} cut at {end}: {key} {said:?}, not {all:?}");
                }
            }
        }
    }
}

/// One change to a file.
#[derive(Debug, Clone)]
enum Change {
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    /// Takes a piece from one place to another.
    Copy(Index, usize, Index),
    Cut(Index),
}

fn change() -> impl Strategy<Value = Change> {
    let place = any::<Index>;
    let byte = prop_oneof![any::<u8>(), select(b"0123456789-+=:, \n\t.%NxXkKmM".to_vec()),];
    let words: Vec<Vec<u8>> =
        ["18446744073709551616", "-1", "NaN", "1e999", "\n\n", "Node ", "max"]
            .map(|word| word.as_bytes().to_vec())
            .to_vec();
    let piece = prop_oneof![select(words), proptest::collection::vec(any::<u8>(), 0..8)];
    prop_oneof![
        (place(), byte).prop_map(|(at, byte)| Change::Set(at, byte)),
        (place(), piece).prop_map(|(at, piece)| Change::Insert(at, piece)),
        (place(), 0..32_usize).prop_map(|(at, count)| Change::Remove(at, count)),
        (place(), 0..64_usize, place()).prop_map(|(at, count, to)| Change::Copy(at, count, to)),
        place().prop_map(Change::Cut),
    ]
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    let at = |index: &Index, bytes: &[u8]| index.index(bytes.len() + 1);
    match change {
        Change::Set(index, byte) if !bytes.is_empty() => {
            let at = index.index(bytes.len());
            bytes[at] = *byte;
        }
        Change::Set(_, byte) => bytes.push(*byte),
        Change::Insert(index, piece) => {
            let at = at(index, bytes);
            drop(bytes.splice(at..at, piece.iter().copied()));
        }
        Change::Remove(index, count) => {
            let from = at(index, bytes);
            bytes.drain(from..(from + count).min(bytes.len()));
        }
        Change::Copy(index, count, to) => {
            let from = at(index, bytes);
            let piece = bytes[from..(from + count).min(bytes.len())].to_vec();
            let to = at(to, bytes);
            drop(bytes.splice(to..to, piece));
        }
        Change::Cut(index) => bytes.truncate(at(index, bytes)),
    }
}

/// A file of the corpus after a few changes, and its parser.
fn changed() -> impl Strategy<Value = (usize, Vec<u8>)> {
    let files: Vec<(usize, Vec<u8>)> = (0..PARSERS.len())
        .flat_map(|parser| corpus(PARSERS[parser].0).into_iter().map(move |(_, b)| (parser, b)))
        .collect();
    (select(files), proptest::collection::vec(change(), 1..6)).prop_map(
        |((parser, mut bytes), changes)| {
            changes.iter().for_each(|change| apply(&mut bytes, change));
            (parser, bytes)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn changed_files_are_refused_or_sane((parser, bytes) in changed()) {
        drop(PARSERS[parser].1(&bytes));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_bytes_make_a_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
        for (_, parse) in PARSERS {
            drop(parse(&bytes));
            // With an end, more of them are looked at.
            drop(parse(&[bytes.as_slice(), b"\n"].concat()));
        }
    }

    #[test]
    fn no_text_makes_a_parser_panic(
        text in "([a-zA-Z:=, \\-0-9.]{0,12}[ :=][0-9kBN+-]{0,20}\n){0,6}",
    ) {
        for (_, parse) in PARSERS {
            drop(parse(text.as_bytes()));
        }
    }
}

/// Files of a whole tree that readers of old took on trust, each overwritten in turn.
const TREE: [&str; 12] = [
    "proc/meminfo",
    "proc/stat",
    "proc/self/stat",
    "proc/self/limits",
    "proc/self/status",
    "proc/self/numa_maps",
    "proc/self/auxv",
    "proc/self/cgroup",
    "sys/fs/cgroup/memory.max",
    "sys/fs/cgroup/memory.current",
    "sys/fs/cgroup/memory.stat",
    "sys/fs/cgroup/cpu.max",
];

const OWN_STAT: &str =
    "42 (a) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 7 0 1000 8192000 300\n";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_file_of_a_tree_makes_a_reader_panic(
        texts in proptest::collection::vec(
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..200),
                "[a-zA-Z:_]{1,18}[: ]{1,3}[0-9]{1,20}( kB)?\n".prop_map(String::into_bytes),
                "[0-9]{1,20}( [0-9]{1,20}){0,24}\n".prop_map(String::into_bytes),
            ],
            TREE.len(),
        ),
    ) {
        let tree = Tree::small();
        tree.write("proc/self/stat", OWN_STAT);
        for (path, text) in TREE.iter().zip(texts) {
            tree.write(path, text);
            let root = root(&tree);
            drop(root.memory());
            drop(root.process());
            drop(root.policy());
            prop_assert!(root.cores() >= 1);
            prop_assert!(root.page_bytes().is_power_of_two());
            prop_assert!(root.lockable().is_none_or(|bytes| bytes.to_string().len() <= 20));
            prop_assert_eq!(root.nodes().len(), 1);
        }
    }
}
