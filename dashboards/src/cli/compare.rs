//! `diff`: two dashboards, or two folders of them.

use crate::diff;
use crate::ids::PanelsLock;
use crate::tree::{TreeError, first_difference};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Deepest folder that is looked into, so that a link to itself ends.
const DEPTH_MAX: usize = 8;

/// What changed between two files, or between the files of one name in two folders. One line for
/// each difference; those of folders begin with the name of the file.
pub(super) fn paths(old: &Path, new: &Path) -> Result<Vec<String>, TreeError> {
    match (old.is_dir(), new.is_dir()) {
        (false, false) => files(old, new),
        (true, true) => folders(old, new),
        (true, false) | (false, true) => {
            let (a, b) = (old.display().to_string(), new.display().to_string());
            Err(TreeError::FileAndFolder(a, b))
        }
    }
}

fn folders(old: &Path, new: &Path) -> Result<Vec<String>, TreeError> {
    let (mut before, mut after) = (BTreeSet::new(), BTreeSet::new());
    collect(old, "", 0, &mut before)?;
    collect(new, "", 0, &mut after)?;
    let mut lines = Vec::new();
    for name in before.union(&after) {
        match (before.contains(name), after.contains(name)) {
            (true, false) => lines.push(format!("{name}: removed")),
            (false, _) => lines.push(format!("{name}: added")),
            (true, true) => {
                let found = files(&old.join(name), &new.join(name))?;
                lines.extend(found.into_iter().map(|line| format!("{name}: {line}")));
            }
        }
    }
    Ok(lines)
}

/// Names of the files below a folder.
fn collect(
    folder: &Path,
    prefix: &str,
    depth: usize,
    found: &mut BTreeSet<String>,
) -> Result<(), TreeError> {
    if depth > DEPTH_MAX {
        return Err(TreeError::TooDeep(folder.display().to_string(), DEPTH_MAX));
    }
    for entry in fs::read_dir(folder).map_err(TreeError::io(folder))? {
        let entry = entry.map_err(TreeError::io(folder))?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            collect(&entry.path(), &format!("{name}/"), depth + 1, found)?;
        } else {
            found.insert(name);
        }
    }
    Ok(())
}

/// In the words of a dashboard where both are JSON, else the first line that differs.
fn files(old: &Path, new: &Path) -> Result<Vec<String>, TreeError> {
    let read = |path: &Path| fs::read_to_string(path).map_err(TreeError::io(path));
    let (before, after) = (read(old)?, read(new)?);
    if before == after {
        return Ok(Vec::new());
    }
    let values = (serde_json::from_str(&before), serde_json::from_str(&after));
    if let (Ok::<Value, _>(before), Ok::<Value, _>(after)) = values {
        let lock = PanelsLock::built_in();
        let uid = diff::uid(&after).or_else(|| diff::uid(&before)).unwrap_or("(no uid)");
        let slug_of = |id: u64| {
            let id = u32::try_from(id).ok()?;
            lock.slug_of(uid, id).map(str::to_owned)
        };
        let lines = diff::dashboards(uid, &before, &after, &slug_of);
        // Two spellings of one content: pretty and on one line.
        return Ok(lines);
    }
    Ok(vec![first_difference(&new.display().to_string(), &before, &after)])
}
