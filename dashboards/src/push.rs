//! Puts dashboards into a Grafana by its HTTP API, and never over somebody's own changes.
//!
//! A pushed dashboard carries the tag `push:HASH`: the hash of what was pushed, without what the
//! server writes itself. As long as what the server holds still has that hash, or its last version
//! still has the message of that push (a server may write defaults into what it stores), nobody
//! changed it, and the next push may replace it. Otherwise it was edited by hand, or came from
//! elsewhere, and only `--force` replaces it. The version that was looked at is sent along, so that
//! a change between look and push is refused by the server.

pub mod cli;
mod grafana;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::client::{ClientError, Http};
use crate::diff;
use crate::manifest::revision;
use crate::output::Board;

use grafana::{Grafana, Save, Stored};

/// Start of the tag that holds the hash of what was pushed.
const TAG: &str = "push:";

/// Fields that the server writes.
const OF_THE_SERVER: &[&str] = &["id", "version", "iteration", "gnetId"];

/// Start of the message of every version that a push makes.
const MESSAGE: &str = "sightline-dashboards ";

/// What happens with one dashboard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It is not there yet.
    Created,
    /// It is there, and as it should be.
    Unchanged,
    /// It was ours and is replaced; one line for each difference.
    Updated(Vec<String>),
    /// It is not as we left it, and replaced all the same; one line for each difference.
    Overwritten(Vec<String>),
    /// It is not as we left it, and stays; one line for each difference that a push would make.
    Edited(Vec<String>),
    /// Its file on the server decides: the server takes no other.
    Provisioned,
}

impl Fate {
    /// Whether it is not what it should be afterwards.
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        matches!(self, Self::Edited(_) | Self::Provisioned)
    }
}

/// How to push.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Title of the folder; the default folder for new dashboards, and where they are for others,
    /// without.
    pub folder: Option<String>,
    /// Change nothing.
    pub dry_run: bool,
    /// Replace also what was edited by hand.
    pub force: bool,
}

/// Title of the folder for new dashboards.
const FOLDER: &str = "Sightline";

/// Pushes one dashboard after the other; `told` hears of each, and of a folder that is made.
///
/// # Errors
/// The server does not answer or refuses. Dashboards before that one are pushed.
pub async fn push(
    http: &Http,
    boards: &[&Board],
    settings: &Settings,
    told: &mut dyn FnMut(&str, &Fate),
) -> Result<(), ClientError> {
    let grafana = Grafana::new(http);
    let title = settings.folder.as_deref().unwrap_or(FOLDER);
    let mut folder = None;
    for board in boards {
        let uid = &board.ir.uid;
        let ours = with_tag(&board.json);
        let stored = grafana.dashboard(uid).await?;
        let fate = judge(&grafana, board, stored.as_ref(), &ours, settings.force).await?;
        let write = match fate {
            Fate::Created | Fate::Updated(_) | Fate::Overwritten(_) => !settings.dry_run,
            Fate::Unchanged | Fate::Edited(_) | Fate::Provisioned => false,
        };
        if write {
            let stays = stored.as_ref().filter(|_| settings.folder.is_none());
            let folder_uid = match (stays, &folder) {
                (Some(stored), _) => stored.folder.clone(),
                (None, Some(known)) => String::clone(known),
                (None, None) => folder.insert(grafana.folder(title).await?).clone(),
            };
            let version = stored.as_ref().and_then(|stored| stored.version);
            let overwrite = matches!(fate, Fate::Overwritten(_));
            let message = message(&board.rev, &ours);
            let save = Save { board: ours, version, folder: folder_uid, message, overwrite };
            grafana.save(uid, save).await?;
        }
        told(uid, &fate);
    }
    Ok(())
}

async fn judge(
    grafana: &Grafana<'_>,
    board: &Board,
    stored: Option<&Stored>,
    ours: &Value,
    force: bool,
) -> Result<Fate, ClientError> {
    let Some(stored) = stored else { return Ok(Fate::Created) };
    if normal(&stored.board) == normal(ours) && !stored.provisioned {
        return Ok(Fate::Unchanged);
    }
    if stored.provisioned {
        return Ok(Fate::Provisioned);
    }
    let slugs = board.slugs();
    let slug_of = |id: u64| slugs.get(&u32::try_from(id).ok()?).cloned();
    let strip = |value: &Value| {
        let mut value = value.clone();
        if let Some(fields) = value.as_object_mut() {
            fields.retain(|key, _| !OF_THE_SERVER.contains(&key.as_str()));
        }
        value
    };
    let mut lines = diff::dashboards(&board.ir.uid, &strip(&stored.board), &strip(ours), &slug_of);
    if lines.is_empty() {
        lines.push(format!("{}: order of panels, or tags", board.ir.uid));
    }
    Ok(match (is_as_pushed(grafana, &board.ir.uid, &stored.board).await?, force) {
        (true, _) => Fate::Updated(lines),
        (false, true) => Fate::Overwritten(lines),
        (false, false) => Fate::Edited(lines),
    })
}

/// Whether the server still holds what a push of ours left.
async fn is_as_pushed(
    grafana: &Grafana<'_>,
    uid: &str,
    stored: &Value,
) -> Result<bool, ClientError> {
    let tags = tags(stored);
    let Some(hash) = tags.iter().find_map(|tag| tag.strip_prefix(TAG)) else {
        return Ok(false);
    };
    if hash == content_hash(stored) {
        return Ok(true);
    }
    let last = grafana.last_message(uid).await?;
    Ok(last.is_some_and(|text| text.starts_with(MESSAGE) && text.contains(&format!("{TAG}{hash}"))))
}

fn message(rev: &str, board: &Value) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!("{MESSAGE}{version} gen:{rev} {TAG}{}", content_hash(board))
}

fn tags(board: &Value) -> Vec<String> {
    let tags = board["tags"].as_array().into_iter().flatten();
    tags.filter_map(|tag| tag.as_str().map(str::to_owned)).collect()
}

/// A dashboard with the tag of its hash.
fn with_tag(json: &str) -> Value {
    let mut board: Value = serde_json::from_str(json).expect("our own JSON");
    let tag = format!("{TAG}{}", content_hash(&board));
    if let Some(tags) = board["tags"].as_array_mut() {
        tags.push(Value::from(tag));
    }
    board
}

/// Start of the SHA-256 of a dashboard, the same however its fields are ordered.
fn content_hash(board: &Value) -> String {
    revision(&normal(board).to_string())
}

/// A dashboard without what the server writes and without the tag of its hash, fields sorted.
fn normal(board: &Value) -> Value {
    let mut board = board.clone();
    if let Some(fields) = board.as_object_mut() {
        fields.retain(|key, _| !OF_THE_SERVER.contains(&key.as_str()));
    }
    if let Some(tags) = board["tags"].as_array_mut() {
        tags.retain(|tag| !tag.as_str().is_some_and(|tag| tag.starts_with(TAG)));
    }
    sorted(&board)
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<_, _> =
                fields.iter().map(|(k, v)| (k.clone(), sorted(v))).collect();
            Value::Object(fields.into_iter().collect::<Map<_, _>>())
        }
        Value::Array(list) => Value::Array(list.iter().map(sorted).collect()),
        // 1 and 1.0 are one number.
        Value::Number(number) => number.as_f64().map_or(Value::Null, |number| {
            serde_json::Number::from_f64(number).map_or(Value::Null, Value::Number)
        }),
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}
