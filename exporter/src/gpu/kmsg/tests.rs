//! Lines of the log, as the kernel writes them and as nobody should.

use super::*;
use proptest::prelude::*;
use std::io::Write;

/// Lines, each with the event it tells of: `card code microseconds`, `-` for none.
const LINES: &str = include_str!("lines.txt");

#[test]
fn lines_tell_of_events() {
    for pair in LINES.lines().collect::<Vec<_>>().chunks(2) {
        let [expected, line] = pair else { panic!("lines come in pairs: {pair:?}") };
        let told = parse(line).map_or("-".to_owned(), |event| {
            let micros = event.since_start.map_or("-".to_owned(), |at| at.as_micros().to_string());
            format!("{} {} {micros}", event.card, event.code)
        });
        assert_eq!(told, *expected, "{line}");
    }
}

fn log(name: &str) -> (Log, PathBuf) {
    let folder = std::env::temp_dir().join(format!("kmsg-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
    let (path, uptime) = (folder.join("kmsg"), folder.join("uptime"));
    std::fs::write(&uptime, "1000.00 2000.00\n").expect("the folder is writable");
    let facts = KmsgFacts::default();
    (Log { path, uptime, file: None, rest: Vec::new(), facts }, folder)
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn append(path: &Path, text: &str) {
    let file = File::options().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).expect("the folder is writable");
}

#[test]
fn history_and_news_are_counted_once_each() {
    let (mut log, folder) = log("news");
    let (path, lost) = (log.path.clone(), "NVRM: Xid (PCI:0000:17:00): 79, pid=1, GPU has fallen");
    append(&path, &format!("6,1,250000000,-;{lost}\n SUBSYSTEM=pci\n6,2,251000000,-;nothing\n"));
    let facts = log.collect(at(10_000)).expect("it reads");
    let xids = facts.of("0000:17:00.0").expect("the card has errors");
    // The machine was started 1000 s before, and 250 s later it happened.
    assert_eq!(xids.get(79), Some(super::super::facts::Seen { count: 1, last: at(9_250) }));
    assert_eq!(facts.of("0000:27:00.0"), None);
    // Half a line waits for its other half.
    append(&path, "6,3,900000000,-;NVRM: Xid (PCI:0000:17:00): 7");
    assert_eq!(log.collect(at(10_000)).expect("it reads"), facts);
    append(&path, "9, again\n");
    let facts = log.collect(at(10_000)).expect("it reads");
    let seen = facts.of("0000:17:00.0").and_then(|xids| xids.get(79));
    assert_eq!(seen.map(|seen| (seen.count, seen.last)), Some((2, at(9_900))));
    assert_eq!(log.collect(at(10_001)).expect("it reads"), facts);
    std::fs::remove_dir_all(folder).expect("it is ours");
}

#[test]
fn a_log_that_is_opened_anew_is_counted_anew() {
    let (mut log, folder) = log("again");
    append(&log.path, "6,1,250000000,-;NVRM: Xid (PCI:0000:17:00): 79, pid=1\n6,2,3,-;NVRM: Xid");
    let facts = log.collect(at(10_000)).expect("it reads");
    assert_eq!(facts.cards.len(), 1);
    // A file that can only be written to: reading it fails.
    let unreadable = File::options().append(true).open(&log.path);
    log.file = Some(unreadable.expect("the folder is writable"));
    let failed = log.collect(at(10_000));
    assert!(matches!(failed, Err(CollectError::Failed { .. })), "{failed:?}");
    assert_eq!(log.collect(at(10_000)).expect("it reads again"), facts, "nothing counts twice");
    append(&log.path, " (PCI:0000:18:00): 31, pid=1\n");
    let facts = log.collect(at(10_000)).expect("it reads");
    let count = |card: &str, code| facts.of(card)?.get(code).map(|seen| seen.count);
    assert_eq!((count("0000:17:00.0", 79), count("0000:18:00.0", 31)), (Some(1), Some(1)));
    std::fs::remove_dir_all(folder).expect("it is ours");
}

#[test]
fn a_log_that_may_not_be_read_is_no_failure() {
    let (mut log, folder) = log("absent");
    let absent = log.collect(at(10_000));
    assert!(matches!(&absent, Err(CollectError::Unsupported(why)) if why.contains("kmsg")));
    let refused = refused(Path::new("/dev/kmsg"), &io::Error::from_raw_os_error(1));
    assert!(matches!(refused, CollectError::Unsupported(_)));
    let broken = super::refused(Path::new("/dev/kmsg"), &io::Error::from_raw_os_error(5));
    assert!(matches!(broken, CollectError::Failed { .. }));
    std::fs::remove_dir_all(folder).expect("it is ours");
}

#[test]
fn neither_cards_nor_codes_nor_lines_grow_without_bound() {
    let (mut log, folder) = log("bounds");
    for card in 0..200 {
        append(&log.path, &format!("NVRM: Xid (PCI:0000:{card:02x}:00): {card}\n"));
        append(&log.path, &format!("NVRM: Xid (PCI:0000:00:00): {card}\n"));
    }
    append(&log.path, &"x".repeat(100_000));
    let facts = log.collect(at(10_000)).expect("it reads");
    assert_eq!(facts.cards.len(), CARDS_MAX);
    let xids = facts.of("0000:00:00.0").expect("counted");
    let seen: u64 = xids.codes().map(|(_, seen)| seen.count).sum();
    let other = xids.other().expect("beyond the bound").count;
    assert_eq!(seen + other, 201);
    assert!(log.rest.len() <= LINE_MAX);
    std::fs::remove_dir_all(folder).expect("it is ours");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_line_is_survived(line in ".{0,120}") {
        parse(&line);
    }

    #[test]
    fn any_change_of_a_line_is_survived(
        which in any::<proptest::sample::Index>(), at in any::<usize>(), byte in any::<u8>()
    ) {
        let lines: Vec<&str> = LINES.lines().collect();
        let mut line = which.get(&lines).as_bytes().to_vec();
        let at = at % line.len().max(1);
        if let Some(slot) = line.get_mut(at) {
            *slot = byte;
        }
        if let Some(event) = parse(&String::from_utf8_lossy(&line)) {
            prop_assert!(event.card.len() <= 16 && !event.card.is_empty());
        }
    }
}
