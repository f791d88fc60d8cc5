//! What is in the store, oldest use first: names, sizes and recency, without any I/O.

use crate::key;
use std::collections::{BTreeMap, HashMap};

/// The name of an object: the folder of its scope by number, and the name of its page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    folder: u32,
    page: [u8; 16],
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    bytes: u64,
    /// Its key in `order`.
    used: u64,
}

/// All objects known. About 120 bytes of memory per object.
#[derive(Debug, Default)]
pub(crate) struct Index {
    folders: Vec<String>,
    numbers: HashMap<String, u32>,
    entries: HashMap<Name, Entry>,
    /// By time of use, a count that only grows.
    order: BTreeMap<u64, Name>,
    uses: u64,
    bytes: u64,
}

impl Index {
    /// The name of a page in a scope's folder.
    pub(crate) fn name(&mut self, folder: &str, page: [u8; 16]) -> Name {
        if let Some(&folder) = self.numbers.get(folder) {
            return Name { folder, page };
        }
        let number = u32::try_from(self.folders.len()).expect("fewer scopes than 2^32");
        self.folders.push(folder.to_owned());
        self.numbers.insert(folder.to_owned(), number);
        Name { folder: number, page }
    }

    /// The path of an object.
    pub(crate) fn path(&self, name: &Name) -> String {
        key::path(&self.folders[name.folder as usize], &name.page)
    }

    /// Notes an object, used now.
    pub(crate) fn insert(&mut self, name: Name, bytes: u64) {
        self.remove(&name);
        self.uses += 1;
        self.entries.insert(name, Entry { bytes, used: self.uses });
        self.order.insert(self.uses, name);
        self.bytes += bytes;
    }

    /// Notes a use of an object and says how long it is; `None` for an unknown one.
    pub(crate) fn touch(&mut self, name: &Name) -> Option<u64> {
        let entry = self.entries.get_mut(name)?;
        self.order.remove(&entry.used);
        self.uses += 1;
        entry.used = self.uses;
        self.order.insert(self.uses, *name);
        Some(entry.bytes)
    }

    /// Forgets an object and says how long it was.
    pub(crate) fn remove(&mut self, name: &Name) -> Option<u64> {
        let entry = self.entries.remove(name)?;
        self.order.remove(&entry.used);
        self.bytes -= entry.bytes;
        Some(entry.bytes)
    }

    /// When an object was last used or written, as a number that only grows.
    pub(crate) fn stamp(&self, name: &Name) -> Option<u64> {
        self.entries.get(name).map(|entry| entry.used)
    }

    /// Forgets an object that was neither used nor written since it had this stamp.
    pub(crate) fn remove_if(&mut self, name: &Name, stamp: Option<u64>) -> Option<u64> {
        if stamp.is_none() || self.stamp(name) != stamp {
            return None;
        }
        self.remove(name)
    }

    /// Notes objects, oldest first, that were used before all that are known; those that are known
    /// stay as they are.
    pub(crate) fn insert_older(&mut self, objects: impl Iterator<Item = (Name, u64)>) {
        let known: Vec<Name> = self.order.values().copied().collect();
        for (name, bytes) in objects {
            if !self.contains(&name) {
                self.insert(name, bytes);
            }
        }
        for name in known {
            self.touch(&name);
        }
    }

    /// Takes out the object that was not used for the longest time.
    pub(crate) fn pop_oldest(&mut self) -> Option<(Name, u64)> {
        let (_, name) = self.order.first_key_value()?;
        let name = *name;
        self.remove(&name).map(|bytes| (name, bytes))
    }

    /// Whether an object is known.
    pub(crate) fn contains(&self, name: &Name) -> bool {
        self.entries.contains_key(name)
    }

    /// Objects known.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Their bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a list in order of use.
        #[test]
        fn objects_leave_in_order_of_last_use(
            steps in proptest::collection::vec((0_u8..4, 0_u8..6, 1_u64..9), 0..80)
        ) {
            let mut index = Index::default();
            let mut model: Vec<(Name, u64)> = Vec::new();
            for (step, page, bytes) in steps {
                let name = index.name(if page % 2 == 0 { "a" } else { "b" }, [page; 16]);
                let known = model.iter().position(|(other, _)| *other == name);
                match step {
                    0 => {
                        if let Some(at) = known { model.remove(at); }
                        model.push((name, bytes));
                        index.insert(name, bytes);
                    }
                    1 => {
                        let expected = known.map(|at| {
                            let entry = model.remove(at);
                            model.push(entry);
                            entry.1
                        });
                        prop_assert_eq!(index.touch(&name), expected);
                    }
                    2 => {
                        let expected = known.map(|at| model.remove(at).1);
                        prop_assert_eq!(index.remove(&name), expected);
                    }
                    _ => {
                        let oldest = (!model.is_empty()).then(|| model.remove(0));
                        prop_assert_eq!(index.pop_oldest(), oldest);
                    }
                }
                prop_assert_eq!(index.len(), model.len());
                prop_assert_eq!(index.order.len(), model.len());
                prop_assert_eq!(index.bytes(), model.iter().map(|(_, bytes)| bytes).sum::<u64>());
                prop_assert_eq!(index.contains(&name), model.iter().any(|e| e.0 == name));
            }
        }
    }

    #[test]
    fn what_is_found_late_is_older_than_what_is_known() {
        let mut index = Index::default();
        let names: Vec<Name> = (0..4).map(|page| index.name("a", [page; 16])).collect();
        index.insert(names[2], 5);
        index.insert(names[1], 5);
        index.insert_older([(names[0], 1), (names[2], 9), (names[3], 2)].into_iter());
        let left: Vec<_> = std::iter::from_fn(|| index.pop_oldest()).collect();
        assert_eq!(left, [(names[0], 1), (names[3], 2), (names[2], 5), (names[1], 5)]);
    }

    #[test]
    fn only_what_did_not_change_is_forgotten() {
        let mut index = Index::default();
        let name = index.name("a", [1; 16]);
        assert_eq!(index.remove_if(&name, None), None);
        index.insert(name, 5);
        assert_eq!(index.remove_if(&name, None), None, "it was not there when the read began");
        let stamp = index.stamp(&name);
        index.insert(name, 6);
        assert_eq!(index.remove_if(&name, stamp), None);
        let stamp = index.stamp(&name);
        assert_eq!(index.remove_if(&name, stamp), Some(6));
    }

    #[test]
    fn a_name_has_the_path_it_was_made_from() {
        let mut index = Index::default();
        let (one, two) = (index.name("v1/m/l1", [1; 16]), index.name("v1/m/l2", [1; 16]));
        assert_ne!(one, two);
        assert_eq!(index.path(&two), format!("v1/m/l2/01/{}", "01".repeat(16)));
        assert_eq!(index.name("v1/m/l1", [1; 16]), one);
    }
}
