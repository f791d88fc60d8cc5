use super::*;
use proptest::prelude::*;

fn claims<'a>(slugs: &[&'a str]) -> Vec<Claim<'a>> {
    slugs.iter().map(|slug| Claim { slug, renamed_from: &[] }).collect()
}

#[test]
fn order_does_not_matter_once_locked() {
    let mut lock = PanelsLock::default();
    assert_eq!(lock.assign("b", &claims(&["x", "y", "z"])).expect("new"), [1, 2, 3]);
    let before = lock.clone();
    assert_eq!(lock.assign("b", &claims(&["z", "x", "y"])).expect("known"), [3, 1, 2]);
    assert_eq!(lock, before);
}

#[test]
fn an_id_is_never_reused() {
    let mut lock = PanelsLock::default();
    lock.assign("b", &claims(&["x", "y"])).expect("new");
    assert_eq!(lock.assign("b", &claims(&["x", "w"])).expect("y is gone"), [1, 3]);
    assert_eq!(lock.assign("b", &claims(&["y"])).expect("y is back"), [2]);
    assert_eq!(lock.assign("other", &claims(&["w"])).expect("own numbers"), [1]);
}

#[test]
fn a_rename_keeps_the_id_only_with_an_alias() {
    let mut lock = PanelsLock::default();
    lock.assign("b", &claims(&["old", "else"])).expect("new");
    let alias = ["old".to_owned()];
    let renamed = [Claim { slug: "new", renamed_from: &alias }];
    assert_eq!(lock.assign("b", &renamed).expect("renamed"), [1]);
    assert_eq!(lock.assign("b", &renamed).expect("again"), [1]);
    assert_eq!(lock.get("b", "old"), None);
    assert_eq!(lock.assign("b", &claims(&["unrelated"])).expect("new"), [3]);
    let both = [renamed[0], Claim { slug: "old", renamed_from: &[] }];
    assert!(matches!(lock.assign("b", &both), Err(LockError::AliasInUse { .. })));
}

#[test]
fn a_slug_twice_is_refused() {
    let error = PanelsLock::default().assign("b", &claims(&["x", "x"]));
    assert!(matches!(error, Err(LockError::SlugTwice { .. })));
}

#[test]
fn a_board_that_is_split_keeps_the_numbers_of_its_panels() {
    let mut lock = PanelsLock::parse("[old]\na = 1\nb = 7\nc = 3\n").expect("a lock");
    let from = ["old".to_owned()];
    let renamed = ["b".to_owned()];
    let split = [
        Claim { slug: "c", renamed_from: &[] },
        Claim { slug: "d", renamed_from: &renamed },
        Claim { slug: "new", renamed_from: &[] },
    ];
    lock.inherit("half", &from, &split);
    assert_eq!(lock.assign("half", &split).expect("unique"), [3, 7, 8]);
    assert_eq!(lock.get("old", "b"), Some(7), "its numbers are never given again");
    // From now on the board has numbers of its own.
    lock.inherit("half", &from, &claims(&["a"]));
    assert_eq!(lock.assign("half", &claims(&["a"])).expect("unique"), [9]);
}

#[test]
fn bad_files_are_named_by_line() {
    let error = |text: &str| PanelsLock::parse(text).expect_err("bad").to_string();
    assert_eq!(error("[b]\nx = 0\n"), "panels.lock, line 2: b/x has id 0");
    assert_eq!(error("[b]\nx = 1\ny = 1\n"), "panels.lock, line 3: b has id 1 twice");
    assert_eq!(error("[b]\nx = 1\nx = 2\n"), "panels.lock, line 3: b has slug x twice");
    assert_eq!(error("[b]\n\n[b]\n"), "panels.lock, line 3: b has its table twice");
    for text in ["x = 1\n", "[b]\nx\n", "[b]\nx = -1\n", "[b]\nX = 1\n", "[B]\n", "[b]\nx = y\n"] {
        assert!(error(text).contains("expected"), "{text}");
    }
}

proptest! {
    #[test]
    fn a_lock_survives_its_file(
        slugs in proptest::collection::btree_set("[a-z][a-z0-9]{0,6}", 0..20),
    ) {
        let mut lock = PanelsLock::default();
        let slugs: Vec<&str> = slugs.iter().map(String::as_str).collect();
        let ids = lock.assign("board", &claims(&slugs)).expect("unique");
        prop_assert!(ids.iter().all(|&id| id != 0));
        let text = lock.to_toml();
        let read = PanelsLock::parse(&text).expect("own output");
        prop_assert_eq!(&read, &lock);
        prop_assert_eq!(read.to_toml(), text);
    }
}
