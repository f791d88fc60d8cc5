//! Values of a label that come and go: peers of a server, workers of a router.
//!
//! At most so many have series of their own; all others share `other`. One that has left keeps its
//! series for a while, so that the last scrapes and the alerts on them see how it ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Most values that have series of their own at a time.
pub const MEMBERS_MAX: usize = 32;
/// How long series stay after their value has left.
pub const LINGER: Duration = Duration::from_secs(600);
/// The value that stands for all without series of their own.
pub const OTHER: &str = "other";

/// Handles for each member. Times are those of any clock that does not jump, as time since its
/// start.
#[derive(Debug)]
pub struct Members<T> {
    members: BTreeMap<Arc<str>, Member<T>>,
    other: T,
}

#[derive(Debug)]
struct Member<T> {
    handles: T,
    left: Option<Duration>,
}

impl<T> Members<T> {
    /// None yet; `other` are the handles of all that are none.
    pub const fn new(other: T) -> Self {
        Self { members: BTreeMap::new(), other }
    }

    /// A value has come, or has come back. `make` makes its handles, and with them its series at
    /// 0, where it has none. Where there are too many, one that has left makes room, the longest
    /// gone first: its name is returned, for its series to be removed. Where none has left, the
    /// value shares `other`.
    pub fn join(&mut self, name: &str, make: impl FnOnce(&str) -> T) -> Option<Arc<str>> {
        if name == OTHER {
            return None;
        }
        if let Some(member) = self.members.get_mut(name) {
            member.left = None;
            return None;
        }
        let mut removed = None;
        if self.members.len() >= MEMBERS_MAX {
            let gone = self.members.iter().filter_map(|(name, member)| Some((member.left?, name)));
            let (_, longest) = gone.min()?;
            let longest = Arc::clone(longest);
            self.members.remove(&longest);
            removed = Some(longest);
        }
        self.members.insert(name.into(), Member { handles: make(name), left: None });
        removed
    }

    /// A value has left.
    pub fn leave(&mut self, name: &str, now: Duration) {
        if let Some(member) = self.members.get_mut(name) {
            member.left.get_or_insert(now);
        }
    }

    /// The handles of a value: its own, or those of `other`.
    pub fn of(&self, name: &str) -> &T {
        self.members.get(name).map_or(&self.other, |member| &member.handles)
    }

    /// All values that have series of their own, and `other`, with their handles.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        let own = self.members.iter().map(|(name, member)| (&**name, &member.handles));
        own.chain([(OTHER, &self.other)])
    }

    /// Forgets those that left long enough ago; their names, for their series to be removed.
    pub fn sweep(&mut self, now: Duration) -> Vec<Arc<str>> {
        let over =
            |member: &Member<T>| member.left.is_some_and(|left| now.saturating_sub(left) >= LINGER);
        let gone = self.members.iter().filter(|(_, member)| over(member));
        let gone: Vec<Arc<str>> = gone.map(|(name, _)| Arc::clone(name)).collect();
        for name in &gone {
            self.members.remove(name);
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn who_left_is_forgotten_after_a_while_and_not_before() {
        let mut members = Members::new(0);
        assert_eq!(members.join("a", |_| 1), None);
        members.leave("a", at(100));
        members.leave("a", at(200));
        assert!(members.sweep(at(699)).is_empty());
        assert_eq!(*members.of("a"), 1);
        let gone: Vec<_> = members.sweep(at(700)).iter().map(ToString::to_string).collect();
        assert_eq!(gone, ["a"]);
        assert_eq!(*members.of("a"), 0, "it shares other now");
        members.join("a", |_| 2);
        members.leave("a", at(800));
        members.join("a", |_| 3);
        assert!(members.sweep(at(9000)).is_empty(), "it has come back");
        assert_eq!(*members.of("a"), 2, "with its own series");
    }

    #[test]
    fn those_beyond_the_bound_share_other_until_one_has_left() {
        let mut members = Members::new(0);
        for number in 1..=MEMBERS_MAX {
            members.join(&format!("w{number}"), |_| number);
        }
        assert_eq!(members.join("late", |_| 99), None);
        assert_eq!((*members.of("late"), members.iter().count()), (0, MEMBERS_MAX + 1));
        members.leave("w7", at(20));
        members.leave("w3", at(10));
        assert_eq!(members.join("late", |_| 99).as_deref(), Some("w3"), "the longest gone");
        assert_eq!((*members.of("late"), *members.of("w3"), *members.of("w7")), (99, 0, 7));
        assert_eq!(members.join("other", |_| 98), None);
        assert_eq!(*members.of("other"), 0, "nobody is called like that");
    }
}
