//! Panel ids that stay: `panels.lock` maps each slug to its number.
//!
//! A number is given once: the next free one of its dashboard, from 1. It is never given again,
//! also not after its panel has gone, and does not follow the order of the panels. Deep links,
//! alert links and annotation filters therefore survive every re-ordering. A renamed slug keeps
//! its number only where the panel names the old slug. A dashboard that is split from another one
//! begins with the numbers that its panels had there.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Slug to id, for each dashboard. Slugs of panels that are gone stay in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PanelsLock {
    boards: BTreeMap<String, BTreeMap<String, u32>>,
}

/// Why a lock file or a use of it is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// Not in the form that [`PanelsLock::to_toml`] writes.
    #[error("panels.lock, line {line}: expected `[uid]` or `slug = number`")]
    Syntax {
        /// Line, from 1.
        line: usize,
    },
    /// A slug or a number twice in one dashboard.
    #[error("panels.lock, line {line}: {uid} has {what} twice")]
    Duplicate {
        /// Line, from 1.
        line: usize,
        /// Dashboard.
        uid: String,
        /// Slug or number.
        what: String,
    },
    /// Numbers start at 1: Grafana takes 0 for "no panel".
    #[error("panels.lock, line {line}: {uid}/{slug} has id 0")]
    Zero {
        /// Line, from 1.
        line: usize,
        /// Dashboard.
        uid: String,
        /// Slug.
        slug: String,
    },
    /// Two panels of a dashboard with one slug.
    #[error("{uid}: two panels are called {slug}")]
    SlugTwice {
        /// Dashboard.
        uid: String,
        /// Slug.
        slug: String,
    },
    /// A panel claims the number of a panel that is still there.
    #[error("{uid}/{slug}: renamed from {old}, which is still a panel")]
    AliasInUse {
        /// Dashboard.
        uid: String,
        /// New slug.
        slug: String,
        /// Old slug.
        old: String,
    },
}

/// A slug that wants a number, with its earlier names.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// Slug.
    pub slug: &'a str,
    /// Earlier slugs.
    pub renamed_from: &'a [String],
}

const HEADER: &str = "\
# Panel ids by dashboard and slug. Written by `sightline-dashboards generate`; do not edit.
# An id is never given twice: slugs of panels that are gone stay here.
";

impl PanelsLock {
    /// The numbers that this program was built with: the same as in the checkout it comes from.
    #[must_use]
    pub fn built_in() -> Self {
        Self::parse(include_str!("../panels.lock")).expect("checked by a test of this crate")
    }

    /// The slug that has a number, if one has.
    #[must_use]
    pub fn slug_of(&self, uid: &str, id: u32) -> Option<&str> {
        let found = self.boards.get(uid)?.iter().find(|(_, other)| **other == id);
        found.map(|(slug, _)| slug.as_str())
    }

    /// Reads the form that [`Self::to_toml`] writes, a small part of TOML.
    pub fn parse(text: &str) -> Result<Self, LockError> {
        let mut lock = Self::default();
        let mut uid: Option<String> = None;
        for (index, raw) in text.lines().enumerate() {
            let line = index + 1;
            let content = raw.trim();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            if let Some(name) = content.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                if !is_slug(name) {
                    return Err(LockError::Syntax { line });
                }
                if lock.boards.insert(name.to_owned(), BTreeMap::new()).is_some() {
                    let what = "its table".to_owned();
                    return Err(LockError::Duplicate { line, uid: name.to_owned(), what });
                }
                uid = Some(name.to_owned());
                continue;
            }
            let uid = uid.as_deref().ok_or(LockError::Syntax { line })?;
            lock.parse_entry(uid, content, line)?;
        }
        Ok(lock)
    }

    fn parse_entry(&mut self, uid: &str, content: &str, line: usize) -> Result<(), LockError> {
        let (slug, id) = content.split_once('=').ok_or(LockError::Syntax { line })?;
        let slug = slug.trim();
        let id: u32 = id.trim().parse().map_err(|_| LockError::Syntax { line })?;
        if !is_slug(slug) {
            return Err(LockError::Syntax { line });
        }
        if id == 0 {
            return Err(LockError::Zero { line, uid: uid.to_owned(), slug: slug.to_owned() });
        }
        let board = self.boards.entry(uid.to_owned()).or_default();
        let duplicate = |what| LockError::Duplicate { line, uid: uid.to_owned(), what };
        if board.values().any(|&other| other == id) {
            return Err(duplicate(format!("id {id}")));
        }
        if board.insert(slug.to_owned(), id).is_some() {
            return Err(duplicate(format!("slug {slug}")));
        }
        Ok(())
    }

    /// The canonical file: dashboards by name, slugs by id.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut text = String::from(HEADER);
        for (uid, board) in &self.boards {
            let mut entries: Vec<_> = board.iter().collect();
            entries.sort_by_key(|&(_, id)| *id);
            let _infallible = write!(text, "\n[{uid}]\n");
            for (slug, id) in entries {
                let _infallible = writeln!(text, "{slug} = {id}");
            }
        }
        text
    }

    /// The number of a slug, if it has one.
    #[must_use]
    pub fn get(&self, uid: &str, slug: &str) -> Option<u32> {
        self.boards.get(uid)?.get(slug).copied()
    }

    /// Takes over the numbers that panels had on the dashboards `from`, which this one was split
    /// from.
    ///
    /// Does nothing where the dashboard has numbers already. Where two panels had the same number,
    /// the first one keeps it.
    pub fn inherit(&mut self, uid: &str, from: &[String], claims: &[Claim<'_>]) {
        if self.boards.contains_key(uid) {
            return;
        }
        let mut taken: BTreeMap<String, u32> = BTreeMap::new();
        for claim in claims {
            let slugs = || {
                let earlier = claim.renamed_from.iter().map(String::as_str);
                std::iter::once(claim.slug).chain(earlier)
            };
            let id = from.iter().find_map(|old| slugs().find_map(|slug| self.get(old, slug)));
            if let Some(id) = id.filter(|id| taken.values().all(|other| other != id)) {
                taken.insert(claim.slug.to_owned(), id);
            }
        }
        if !taken.is_empty() {
            self.boards.insert(uid.to_owned(), taken);
        }
    }

    /// Gives each claim its number, new ones in the order of the claims.
    pub fn assign(&mut self, uid: &str, claims: &[Claim<'_>]) -> Result<Vec<u32>, LockError> {
        for (index, claim) in claims.iter().enumerate() {
            if claims[..index].iter().any(|earlier| earlier.slug == claim.slug) {
                let (uid, slug) = (uid.to_owned(), claim.slug.to_owned());
                return Err(LockError::SlugTwice { uid, slug });
            }
            for old in claim.renamed_from {
                if claims.iter().any(|other| other.slug == old) {
                    let (uid, slug) = (uid.to_owned(), claim.slug.to_owned());
                    return Err(LockError::AliasInUse { uid, slug, old: old.clone() });
                }
            }
        }
        let board = self.boards.entry(uid.to_owned()).or_default();
        let mut next = board.values().max().map_or(1, |largest| largest + 1);
        let mut ids = Vec::with_capacity(claims.len());
        for claim in claims {
            let known = board.get(claim.slug).copied();
            let inherited =
                || claim.renamed_from.iter().find_map(|old| board.get(old.as_str()).copied());
            let id = known.or_else(inherited).unwrap_or(next);
            next = next.max(id + 1);
            // The old name goes with the rename; a plain removal would leave it.
            if known.is_none() {
                board.retain(|_, other| *other != id);
                board.insert(claim.slug.to_owned(), id);
            }
            ids.push(id);
        }
        Ok(ids)
    }
}

/// Whether a name is made of `[a-z0-9-]` and neither starts nor ends with a dash.
#[must_use]
pub fn is_slug(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty() && name.bytes().all(inner) && !name.starts_with('-') && !name.ends_with('-')
}

#[cfg(test)]
mod tests;
