use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

use crate::mocks::sglang_log::Start;

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sightline-follow-{}-{next}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self) -> PathBuf {
        self.0.join("log")
    }

    fn append(&self, text: &str) {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(self.path());
        file.unwrap().write_all(text.as_bytes()).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn held(follower: &mut Follower) -> Option<u64> {
    let cache = follower.step(STEP).unwrap().expect("read to the end").cache()?;
    cache.pools.0.values().map(|sizes| sizes.allocated).sum()
}

#[test]
fn lines_are_read_as_they_come_whatever_their_pieces() {
    let (folder, start) = (Folder::new(), Start::incident(8, 11));
    let mut follower = Follower::new(folder.path());
    let missing = follower.step(STEP).expect_err("there is no file");
    assert!(missing.to_string().contains("missing"), "{missing}");
    let text = start.text();
    let (first, second) = text.split_at(text.len() / 2);
    for piece in first.as_bytes().chunks(97) {
        folder.append(std::str::from_utf8(piece).unwrap());
        assert_eq!(held(&mut follower), None);
    }
    folder.append(second);
    assert_eq!(held(&mut follower), Some(start.total()));
    folder.append("a prompt was served\r\n");
    assert_eq!(held(&mut follower), Some(start.total()));
}

#[test]
fn a_rotated_log_keeps_what_it_said() {
    let (folder, start) = (Folder::new(), Start::incident(4, 12));
    let mut follower = Follower::new(folder.path());
    let text = start.text();
    let (first, second) = text.split_at(text.len() / 3);
    folder.append(first);
    assert_eq!(held(&mut follower), None);
    // The last lines go to the old file before the new one is there.
    folder.append(second);
    std::fs::rename(folder.path(), folder.0.join("log.1")).unwrap();
    assert_eq!(held(&mut follower), Some(start.total()), "the file is still open");
    folder.append("first line of the new file\n");
    assert_eq!(held(&mut follower), Some(start.total()));
    // The service starts anew, into the new file.
    let again = Start { pages: 900, ..Start::incident(4, 13) };
    folder.append(&again.text());
    assert_eq!(held(&mut follower), Some(again.total()));
    // Cut in place, as `copytruncate` does.
    File::create(folder.path()).unwrap();
    assert_eq!(held(&mut follower), Some(again.total()));
    folder.append(&start.text());
    assert_eq!(held(&mut follower), Some(start.total()));
}

#[test]
fn nothing_is_said_of_a_log_that_is_not_read_to_its_end() {
    let folder = Folder::new();
    let (old, new) = (Start::incident(4, 1), Start { pages: 900, ..Start::incident(4, 2) });
    folder.append(&old.text());
    folder.append(&new.text());
    let mut follower = Follower::new(folder.path());
    let mut steps = 0;
    while follower.step(1_000).unwrap().is_none() {
        steps += 1;
    }
    assert_eq!(steps, (old.text().len() + new.text().len()) / 1_000);
    assert_eq!(held(&mut follower), Some(new.total()));
}

#[test]
fn lines_without_end_are_passed_over() {
    let mut lines = Lines::default();
    for _ in 0..40 {
        lines.add(&vec![b'x'; LINE_MAX / 4]);
        assert!(lines.partial.len() <= LINE_MAX);
    }
    lines.add(b"\n");
    let start = Start::incident(2, 3);
    lines.add(start.text().as_bytes());
    assert!(lines.log.is_complete());
    lines.add(b"\xff\xfe not text\n");
    assert!(lines.log.is_complete());
}

#[test]
fn what_is_no_file_is_refused_and_never_waited_for() {
    let folder = Folder::new();
    let fifo = folder.0.join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
    for path in [fifo, folder.0.clone()] {
        let error = Follower::new(path.clone()).step(STEP).expect_err("no file");
        assert!(error.to_string().contains("no regular file"), "{error}");
        assert!(read_whole(&path, 10).is_err());
    }
    folder.append("0123456789");
    assert_eq!(read_whole(&folder.path(), 10).unwrap(), b"0123456789");
    let long = read_whole(&folder.path(), 9).expect_err("too long");
    assert!(long.to_string().contains("longer than 9"), "{long}");
}
