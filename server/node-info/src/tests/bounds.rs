//! How much is read, whatever a file says.

use std::fs::File;
use std::io::{self, Read, Write};

use fake_node::Tree;

use super::nodes::root;
use crate::{FactError, FactKind, Mode, read};

#[test]
fn a_file_without_end_is_given_up() {
    let tree = Tree::small();
    for (path, most) in
        [("proc/meminfo", 1 << 20), ("proc/zoneinfo", 16 << 20), ("proc/pressure/cpu", 1 << 20)]
    {
        tree.remove(path);
        std::os::unix::fs::symlink("/dev/zero", tree.path().join(path)).expect("a link");
        let error = match path {
            "proc/meminfo" => root(&tree).memory().expect_err("no end"),
            "proc/zoneinfo" => root(&tree).watermarks().expect_err("no end"),
            _ => {
                let found = root(&tree).pressure().expect("readable").expect("the others");
                assert_eq!((found.entries.len(), found.problems.len()), (3, 1));
                assert!(found.problems[0].reason.contains("more than 1048576 bytes"));
                continue;
            }
        };
        assert_eq!(error.kind(), FactKind::Malformed);
        assert!(error.to_string().contains(&format!("more than {most} bytes")), "{error}");
    }
}

/// The pipe tells how much was taken from it: what was not is still in it.
#[test]
fn no_more_of_numa_maps_is_read_than_its_head() {
    let tree = Tree::small();
    tree.set_process(4242, 0, 0, "0", "bind:0");
    tree.fifo("proc/4242/numa_maps");
    let path = tree.path().join("proc/4242/numa_maps");
    let mut pipe = File::options().read(true).write(true).open(path).expect("the pipe");
    let mut line = b"55ade1920000 bind:0 file=/usr/bin/server mapped=2 N0=2\n".to_vec();
    line.resize(1000, b'x');
    pipe.write_all(&line).expect("there is room");
    let policy = root(&tree).mempolicy(4242).expect("readable").expect("a policy");
    assert_eq!((policy.mode, policy.nodes), (Mode::Bind, Some(vec![0])));
    let mut rest = vec![0; 2000];
    let left = pipe.read(&mut rest).expect("what is left");
    assert_eq!(left, 1000 - 64);
}

#[test]
fn a_folder_without_end_is_given_up() {
    let tree = Tree::small();
    for name in ["one", "three", "two"] {
        tree.write(format!("sys/class/infiniband/{name}"), "");
    }
    let folder = tree.sysfs().join("class/infiniband");
    let names = read::names_within(&folder, 3).expect("no more than may be");
    assert_eq!(names.expect("it is there"), ["one", "three", "two"]);
    let error = read::names_within(&folder, 2).expect_err("one more");
    assert!(error.to_string().contains("more than 2 entries"), "{error}");
    assert_eq!(error.kind(), FactKind::Malformed);
    tree.remove("sys/class/infiniband");
    assert_eq!(read::names_within(&folder, 2).expect("nothing is no error"), None);
}

#[test]
fn what_is_no_text_is_malformed() {
    let tree = Tree::small();
    tree.write("proc/zoneinfo", [0xff, 0xfe, b'\n']);
    assert_eq!(root(&tree).watermarks().expect_err("no text").kind(), FactKind::Malformed);
    tree.remove("proc/zoneinfo");
    tree.write("proc/zoneinfo/x", "");
    assert_eq!(root(&tree).watermarks().expect_err("a folder").kind(), FactKind::Failed);
}

#[test]
fn what_the_system_says_has_a_kind() {
    let kind = |code: i32| {
        let source = io::Error::from_raw_os_error(code);
        FactError::Read { path: "/proc/x".into(), source }.kind()
    };
    assert_eq!(kind(2), FactKind::Missing, "ENOENT");
    assert_eq!(kind(3), FactKind::Missing, "ESRCH: the process has gone");
    assert_eq!(kind(13), FactKind::Permission, "EACCES");
    assert_eq!(kind(95), FactKind::Unsupported, "EOPNOTSUPP: pressure is switched off");
    assert_eq!(kind(5), FactKind::Failed, "EIO");
}

#[test]
fn lists_do_not_grow_with_what_they_say() {
    let many = vec!["0-65536"; 100_000].join(",");
    assert_eq!(crate::list(&many).len(), 65_537);
    assert_eq!(crate::list("0-4294967295").len(), 65_537);
    assert_eq!(crate::list("70000-80000,3,x,2-1"), [3]);
    assert_eq!(crate::numa::strict_list("0-4294967295"), None);
    assert_eq!(crate::numa::strict_list("1,x"), None);
    assert_eq!(crate::numa::strict_list("3-1"), None);
    assert_eq!(crate::numa::strict_list(" 4,0-2,1\n"), Some(vec![0, 1, 2, 4]));
    assert_eq!(read::digits::<u32>("+5"), None);
    assert_eq!(read::digits::<u32>(""), None);
}
