//! With a script in place of `journalctl`, that a test can look over the shoulder of.
#![expect(clippy::disallowed_methods, reason = "tests measure in real time")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::*;
use crate::mocks::sglang_log::Start;

const ONE: &str = "00000000000000000000000000000001";
const TWO: &str = "00000000000000000000000000000002";

/// A folder with the script; it says what is in the file named as it is asked, and notes that it
/// was.
struct Fake(PathBuf);

impl Fake {
    fn new(script: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sightline-journal-{}-{next}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("script"), script).unwrap();
        // A program that was written just now could not be run while another test starts one.
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/journalctl");
        std::os::unix::fs::symlink(program, folder.join("journalctl")).unwrap();
        Self(folder)
    }

    /// One that shows the journal of each start.
    fn journal() -> Self {
        Self::new(
            r#"for last; do :; done
echo "$*" >> "$folder/asked"
cat "$folder/${last#_SYSTEMD_INVOCATION_ID=}" 2>/dev/null"#,
        )
    }

    fn says(&self, invocation: &str, text: &str) {
        std::fs::write(self.0.join(invocation), text).unwrap();
    }

    fn asked(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.0.join("asked")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn follow(&self) -> Journal {
        let program = self.0.join("journalctl").into_os_string();
        Journal { program, ..Journal::new("a.service".to_owned()) }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

async fn held(journal: &mut Journal, invocation: &str) -> Option<u64> {
    let log = journal.step(invocation).await.expect("it can be read");
    log.cache()?.pools.0.values().map(|sizes| sizes.allocated).sum()
}

#[test]
fn a_start_is_read_once_and_the_next_one_anew() {
    let (fake, start) = (Fake::journal(), Start::incident(8, 21));
    let again = Start { pages: 900, ..Start::incident(4, 22) };
    fake.says(ONE, &start.text());
    fake.says(TWO, &again.text());
    run(async {
        let mut journal = fake.follow();
        for _ in 0..5 {
            assert_eq!(held(&mut journal, ONE).await, Some(start.total()));
        }
        assert_eq!(fake.asked().len(), 1);
        assert_eq!(held(&mut journal, TWO).await, Some(again.total()));
        let asked = fake.asked();
        assert_eq!(asked.len(), 2);
        let expected = format!("--quiet --no-pager --output=cat _SYSTEMD_INVOCATION_ID={TWO}");
        assert_eq!(asked[1], expected);
    });
}

#[test]
fn a_start_that_is_not_done_is_read_again_less_and_less_often() {
    let (fake, start) = (Fake::journal(), Start::incident(4, 23));
    let text = start.text();
    fake.says(ONE, &text[..text.len() / 2]);
    run(async {
        let mut journal = fake.follow();
        for _ in 0..100 {
            assert_eq!(held(&mut journal, ONE).await, None);
        }
        // At once, then after 1, 2, 4, 8, and 12 calls at a time.
        assert_eq!(fake.asked().len(), 1 + 1 + 1 + 1 + 1 + (100 - 5 - 15) / 13);
        fake.says(ONE, &text);
        let mut calls = 0;
        while held(&mut journal, ONE).await.is_none() {
            calls += 1;
            assert!(calls <= PAUSE_MAX, "it is read again in the end");
        }
        assert_eq!(held(&mut journal, ONE).await, Some(start.total()));
    });
}

#[test]
fn a_long_journal_is_read_no_further_than_its_start() {
    // Endless, but for the first lines.
    let fake = Fake::new(r#"cat "$folder/start"; exec yes "a prompt was served""#);
    let start = Start::incident(2, 24);
    fake.says("start", &start.text());
    run(async {
        assert_eq!(held(&mut fake.follow(), ONE).await, Some(start.total()));
    });
}

#[test]
fn one_that_cannot_be_read_is_asked_less_and_less_often() {
    let fake = Fake::new(r#"echo "$*" >> "$folder/asked"; exit 3"#);
    run(async {
        let mut journal = fake.follow();
        for _ in 0..100 {
            let refused = journal.step(ONE).await.map(drop).expect_err("it fails").to_string();
            assert!(refused.contains("read the journal"), "also between two tries: {refused}");
        }
        assert_eq!(fake.asked().len(), 1 + 1 + 1 + 1 + 1 + (100 - 5 - 15) / 13);
        // Another start is another matter.
        drop(journal.step(TWO).await.map(drop));
        assert_eq!(fake.asked().last().map(|asked| asked.ends_with(TWO)), Some(true));
    });
}

#[test]
fn failures_have_a_name() {
    let failure = |journal: &mut Journal| {
        run(async { journal.step(ONE).await.map(drop).expect_err("it fails").to_string() })
    };
    let none = Fake::new("");
    let missing = none.0.join("nothing").into_os_string();
    let mut journal = Journal { program: missing, ..Journal::new("a".to_owned()) };
    assert!(failure(&mut journal).starts_with("missing: journalctl"));
    let refused = failure(&mut Fake::new("exit 3").follow());
    assert!(refused.starts_with("permission") && refused.contains("read the journal"), "{refused}");
    // Nothing matches: it ends with 1, and nothing is known.
    run(async { assert_eq!(held(&mut Fake::new("exit 1").follow(), ONE).await, None) });
    let hung = Fake::new("echo $$ > \"$folder/pid\"; exec tail -f /dev/null");
    let mut journal = Journal { deadline: Duration::from_secs(1), ..hung.follow() };
    let late = failure(&mut journal);
    assert!(late.starts_with("timeout") && late.contains("a.service"), "{late}");
    // It is not left behind.
    let pid = std::fs::read_to_string(hung.0.join("pid")).expect("it noted its id at its start");
    let stat = format!("/proc/{}/stat", pid.trim());
    let gone = |text: std::io::Result<String>| text.map_or(true, |text| text.contains(") Z "));
    let deadline = Instant::now() + Duration::from_secs(30);
    while !gone(std::fs::read_to_string(&stat)) {
        assert!(Instant::now() < deadline, "process {pid} is still there");
        std::thread::yield_now();
    }
}
