//! The generated boards that the program carries, and which of them a console shows.

use std::collections::HashMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::assets::{self, BOARDS, Packed};

/// The target of the boards that lie in no folder of their own: this product.
pub(super) const OWN: &str = "sightline";

/// The others, by the folders of their boards and the names of their rule files.
pub(super) const FOREIGN: [&str; 2] = ["sglang", "vllm"];

/// A board as the console lists it.
#[derive(Debug, Serialize)]
pub(super) struct Board {
    pub(super) uid: String,
    title: String,
    description: String,
    tags: Value,
    /// Panel ids by slug, for alerts that name their panel.
    panels: Value,
    /// What it shows, as `sightline`.
    pub(super) target: &'static str,
    #[serde(skip)]
    pub(super) file: &'static Packed,
}

/// The part of a dashboard that is listed.
#[derive(Deserialize)]
struct Head {
    uid: String,
    title: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    tags: Value,
    /// What has none is no dashboard.
    #[serde(rename = "panels")]
    _panels: IgnoredAny,
}

/// All boards; files of the folders that are no dashboards are skipped.
pub(super) fn all() -> Vec<Board> {
    let mut panels = slugs();
    let board = |file: &'static Packed| {
        let head: Head = serde_json::from_slice(&file.inflated()).ok()?;
        Some(Board {
            panels: panels.remove(&head.uid).unwrap_or_default(),
            uid: head.uid,
            title: head.title,
            description: head.description,
            tags: head.tags,
            target: file.name.split_once('/').map_or(OWN, |(folder, _)| folder),
            file,
        })
    };
    BOARDS.iter().filter_map(board).collect()
}

/// Panel ids by slug of each board, by uid: what the generator tells of its boards beside them.
fn slugs() -> HashMap<String, Value> {
    #[derive(Deserialize)]
    struct Manifest {
        dashboards: Vec<Listed>,
    }
    #[derive(Deserialize)]
    struct Listed {
        uid: String,
        panels: Value,
    }
    let file = assets::find("own/manifest.json").expect("the build script carries it");
    let manifest: Manifest = serde_json::from_slice(&file.inflated()).expect("it is generated");
    manifest.dashboards.into_iter().map(|board| (board.uid, board.panels)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_board_is_listed_once() {
        let boards = all();
        assert!(!boards.is_empty(), "no boards are embedded");
        let mut uids: Vec<&str> = boards.iter().map(|b| b.uid.as_str()).collect();
        uids.sort_unstable();
        uids.dedup();
        assert_eq!(uids.len(), boards.len());
        assert_eq!(BOARDS.len(), boards.len(), "a file is no dashboard");
    }

    #[test]
    fn our_boards_tell_the_ids_of_their_panels() {
        for board in all().iter().filter(|board| board.target == OWN) {
            let panels = board.panels.as_object().map_or(0, serde_json::Map::len);
            assert!(panels > 0, "{}: no panels in the manifest", board.uid);
        }
    }
}
