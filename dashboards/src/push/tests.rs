//! Against a mock that answers as Grafana's documentation says: dashboards by uid with `meta`,
//! versions with messages, 404 and 412 with their bodies.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};

use serde_json::json;

use super::*;
use crate::client::mock::{Asked, Mock, Reply};
use crate::client::{Access, Bounds, block_on};
use crate::ids::PanelsLock;
use crate::output::{self, Output};

#[derive(Debug, Clone)]
struct Kept {
    board: Value,
    folder: String,
    message: String,
    provisioned: bool,
}

/// What the mock holds.
#[derive(Debug, Default)]
struct State {
    boards: BTreeMap<String, Kept>,
    folders: Vec<Value>,
    /// Answered to the next save, whatever it is.
    next: Option<(u16, Value)>,
    /// Whether saving writes defaults into the dashboard.
    normalises: bool,
}

type Shared = Arc<Mutex<State>>;

fn grafana() -> (Shared, Mock) {
    let state = Shared::default();
    let held = Arc::clone(&state);
    (state, Mock::start(move |asked| answer(&mut held.lock().expect("sound"), asked)))
}

fn answer(state: &mut State, asked: &Asked) -> Reply {
    let not_found = || Reply::json(404, json!({"message": "Dashboard not found"}));
    if asked.header("authorization").is_some_and(|value| value != "Bearer good") {
        return Reply::json(401, json!({"message": "Invalid API key"}));
    }
    let path = asked.path.split('?').next().unwrap_or_default();
    if let Some(uid) = path.strip_prefix("/api/dashboards/uid/") {
        let (uid, versions) = uid.strip_suffix("/versions").map_or((uid, false), |u| (u, true));
        let Some(kept) = state.boards.get(uid) else { return not_found() };
        if versions {
            let list = json!([{"version": kept.board["version"], "message": kept.message}]);
            return Reply::json(200, json!({"continueToken": "", "versions": list}));
        }
        let meta = json!({"folderUid": kept.folder, "provisioned": kept.provisioned});
        return Reply::json(200, json!({"dashboard": kept.board, "meta": meta}));
    }
    match (&*asked.method, path) {
        ("GET", "/api/folders") => Reply::json(200, Value::from(state.folders.clone())),
        ("POST", "/api/folders") => {
            let asked: Value = serde_json::from_str(&asked.body).expect("JSON");
            let folder = json!({"id": 1, "uid": "f1", "title": asked["title"]});
            state.folders.push(folder.clone());
            Reply::json(200, folder)
        }
        ("POST", "/api/dashboards/db") => save(state, &asked.body),
        _ => Reply::Of(404, Vec::new(), "404 page not found".to_owned()),
    }
}

fn save(state: &mut State, body: &str) -> Reply {
    if let Some((status, body)) = state.next.take() {
        return Reply::json(status, body);
    }
    let asked: Value = serde_json::from_str(body).expect("JSON");
    // The server keeps fields in an order of its own.
    let fields = asked["dashboard"].as_object().expect("an object").iter().rev();
    let mut board = Value::Object(fields.map(|(k, v)| (k.clone(), v.clone())).collect());
    let uid = board["uid"].as_str().expect("a uid").to_owned();
    let before = state.boards.get(&uid).map(|kept| kept.board["version"].clone());
    if before.as_ref().is_some_and(|version| *version != asked["dashboard"]["version"])
        && asked["overwrite"] != true
    {
        let said = json!({"message": "changed by someone else", "status": "version-mismatch"});
        return Reply::json(412, said);
    }
    let version = before.and_then(|version| version.as_u64()).unwrap_or(0) + 1;
    board["id"] = 7.into();
    board["version"] = version.into();
    if state.normalises {
        board["weekStart"] = "".into();
    }
    let text = |key: &str| asked[key].as_str().unwrap_or_default().to_owned();
    let (folder, message) = (text("folderUid"), text("message"));
    state.boards.insert(uid, Kept { board, folder, message, provisioned: false });
    Reply::json(200, json!({"id": 7, "version": version, "status": "success"}))
}

fn made() -> &'static Output {
    static MADE: LazyLock<Output> =
        LazyLock::new(|| output::all(&PanelsLock::built_in()).expect("the boards can be made"));
    &MADE
}

/// Pushes the first two dashboards; what happened with each.
fn pushed(mock: &Mock, settings: &Settings) -> Result<Vec<Fate>, String> {
    let output = made();
    let boards: Vec<&Board> = output.boards.iter().take(2).collect();
    let http = Http::new(&mock.url(), &Access::default(), Bounds::default()).expect("valid");
    let mut fates = Vec::new();
    let mut told = |_: &str, fate: &Fate| fates.push(fate.clone());
    let result = block_on(push(&http, &boards, settings, &mut told)).expect("a runtime");
    result.map(|()| fates).map_err(|error| error.to_string())
}

fn first() -> String {
    made().boards[0].ir.uid.clone()
}

/// Somebody changes the first dashboard, and saves it.
fn edit(state: &Shared) {
    let mut state = state.lock().expect("sound");
    let kept = state.boards.get_mut(&first()).expect("it was pushed");
    kept.board["title"] = "Mine".into();
    kept.board["version"] = 9.into();
    kept.message = "my change".to_owned();
}

#[test]
fn what_is_missing_is_made_and_what_is_there_stays() {
    let (state, mock) = grafana();
    let plain = Settings::default();
    let dry = Settings { dry_run: true, ..Settings::default() };
    assert_eq!(pushed(&mock, &dry), Ok(vec![Fate::Created, Fate::Created]));
    assert!(state.lock().expect("sound").boards.is_empty(), "a dry run writes");
    assert_eq!(pushed(&mock, &plain), Ok(vec![Fate::Created, Fate::Created]));
    assert_eq!(pushed(&mock, &plain), Ok(vec![Fate::Unchanged, Fate::Unchanged]));
    let state = state.lock().expect("sound");
    let kept = &state.boards[&first()];
    assert_eq!((kept.folder.as_str(), state.folders.len()), ("f1", 1));
    assert_eq!(state.folders[0]["title"], "Sightline");
    assert!(kept.message.contains(" gen:") && kept.message.contains(" push:"), "{}", kept.message);
}

#[test]
fn an_older_push_is_replaced_and_an_edit_is_not() {
    for normalises in [false, true] {
        let (state, mock) = grafana();
        state.lock().expect("sound").normalises = normalises;
        let plain = Settings::default();
        pushed(&mock, &plain).expect("pushed");
        if normalises {
            // Nothing but what the server wrote by itself differs, and it was saved by us.
            let fates = pushed(&mock, &plain).expect("pushed");
            assert!(matches!(&fates[0], Fate::Updated(lines) if lines[0].contains("weekStart")));
        }
        // What an older program pushed: other content, and the hash of that.
        {
            let mut state = state.lock().expect("sound");
            let kept = state.boards.get_mut(&first()).expect("there");
            kept.board["description"] = "older".into();
            let hash = format!("push:{}", content_hash(&kept.board));
            let tags = kept.board["tags"].as_array_mut().expect("tags");
            tags.retain(|tag| !tag.as_str().expect("text").starts_with("push:"));
            tags.push(hash.into());
            kept.folder = "elsewhere".to_owned();
        }
        let fates = pushed(&mock, &plain).expect("pushed");
        let Fate::Updated(lines) = &fates[0] else { panic!("{fates:?}") };
        assert!(lines.iter().any(|line| line.contains("description \"older\" ->")), "{lines:?}");
        assert_eq!(state.lock().expect("sound").boards[&first()].folder, "elsewhere");
        edit(&state);
        let fates = pushed(&mock, &plain).expect("answered");
        let Fate::Edited(lines) = &fates[0] else { panic!("{fates:?}") };
        assert!(lines.iter().any(|line| line.contains("title \"Mine\" ->")), "{lines:?}");
        assert_eq!(state.lock().expect("sound").boards[&first()].board["title"], "Mine");
        let force = Settings { force: true, ..Settings::default() };
        let fates = pushed(&mock, &force).expect("pushed");
        assert!(matches!(fates[0], Fate::Overwritten(_)), "{fates:?}");
        assert_ne!(state.lock().expect("sound").boards[&first()].board["title"], "Mine");
    }
}

#[test]
fn a_named_folder_moves_them_and_files_of_the_server_stay() {
    let (state, mock) = grafana();
    state.lock().expect("sound").folders.push(json!({"uid": "ops", "title": "Ops"}));
    let named = Settings { folder: Some("Ops".to_owned()), ..Settings::default() };
    pushed(&mock, &named).expect("pushed");
    assert_eq!(state.lock().expect("sound").boards[&first()].folder, "ops");
    edit(&state);
    state.lock().expect("sound").boards.get_mut(&first()).expect("there").provisioned = true;
    let force = Settings { force: true, ..Settings::default() };
    let fates = pushed(&mock, &force).expect("answered");
    assert_eq!(fates, [Fate::Provisioned, Fate::Unchanged]);
}

#[test]
fn refusals_say_what_would_work() {
    for (status, said, words) in [
        (412, json!({"message": "m", "status": "version-mismatch"}), "push again"),
        (412, json!({"message": "m", "status": "name-exists"}), "--folder"),
        (412, json!({"message": "m", "status": "plugin-dashboard"}), "plugin"),
        (412, json!({"message": "m"}), "does not take"),
        (403, json!({"message": "Access denied"}), "dashboards:write"),
        (400, json!({"message": "Bad"}), "Grafana 12"),
        (500, json!({"message": "Bad"}), "log"),
    ] {
        let (state, mock) = grafana();
        state.lock().expect("sound").next = Some((status, said));
        let error = pushed(&mock, &Settings::default()).expect_err("refused");
        assert!(error.contains(&format!("HTTP {status}")) && error.contains(words), "{error}");
    }
    let nobody = Mock::start(|_| Reply::Of(404, Vec::new(), "<html>".to_owned()));
    let error = pushed(&nobody, &Settings::default()).expect_err("no Grafana");
    assert!(error.contains("no Grafana answers below"), "{error}");
    let login = Mock::start(|_| Reply::json(401, json!({"message": "Unauthorized"})));
    let error = pushed(&login, &Settings::default()).expect_err("who are you");
    assert!(error.contains("--token-file"), "{error}");
}

#[test]
fn a_hash_holds_whatever_the_order_and_changes_with_the_content() {
    let tags = ["x", "push:1"];
    let a = json!({"title": "T", "tags": tags, "id": 1, "version": 3, "n": {"b": 1, "a": 2.5}});
    let b = json!({"n": {"a": 2.5, "b": 1.0}, "tags": ["x"], "title": "T"});
    assert_eq!(content_hash(&a), content_hash(&b));
    let c = json!({"n": {"a": 2.5, "b": 1.5}, "tags": ["x"], "title": "T"});
    assert_ne!(content_hash(&a), content_hash(&c));
}
