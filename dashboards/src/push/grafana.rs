//! The part of Grafana's HTTP API that a push needs.

use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use crate::client::error::shortened;
use crate::client::{Body, ClientError, Http, address::encoded, http::Answer};

/// Characters of an answer that a message shows.
const SHOWN: usize = 200;

/// A dashboard that the server holds.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) board: Value,
    /// Counts the saves.
    pub(super) version: Option<u64>,
    /// Uid of its folder; empty at the top.
    pub(super) folder: String,
    /// Whether it comes from a file on the server.
    pub(super) provisioned: bool,
}

/// A dashboard to save.
#[derive(Debug)]
pub(super) struct Save {
    pub(super) board: Value,
    /// The version that it replaces.
    pub(super) version: Option<u64>,
    pub(super) folder: String,
    pub(super) message: String,
    pub(super) overwrite: bool,
}

#[derive(Debug)]
pub(super) struct Grafana<'a> {
    http: &'a Http,
}

impl<'a> Grafana<'a> {
    pub(super) const fn new(http: &'a Http) -> Self {
        Self { http }
    }

    /// The dashboard of that uid; none where there is none.
    pub(super) async fn dashboard(&self, uid: &str) -> Result<Option<Stored>, ClientError> {
        let path = format!("/api/dashboards/uid/{}", encoded(uid));
        let Some(answer) = self.get(&path).await? else { return Ok(None) };
        let Some(board) = answer.get("dashboard").filter(|board| board.is_object()) else {
            return Err(self.odd(&path, "no dashboard in it", &answer));
        };
        let meta = &answer["meta"];
        Ok(Some(Stored {
            version: board["version"].as_u64(),
            board: board.clone(),
            folder: meta["folderUid"].as_str().unwrap_or_default().to_owned(),
            provisioned: meta["provisioned"] == true,
        }))
    }

    /// Message of the last version of a dashboard; none where the server does not tell.
    pub(super) async fn last_message(&self, uid: &str) -> Result<Option<String>, ClientError> {
        let path = format!("/api/dashboards/uid/{}/versions?limit=1", encoded(uid));
        let Some(answer) = self.get(&path).await? else { return Ok(None) };
        // Older servers answer the list itself.
        let list = answer.get("versions").unwrap_or(&answer);
        Ok(list[0]["message"].as_str().map(str::to_owned))
    }

    /// Uid of the folder of that title, which is made where it is missing.
    pub(super) async fn folder(&self, title: &str) -> Result<String, ClientError> {
        let path = "/api/folders?limit=1000";
        let list = self.get(path).await?.unwrap_or_default();
        let folders = list.as_array().into_iter().flatten();
        let found = folders.filter(|folder| folder["title"] == title);
        if let Some(uid) = found.filter_map(|folder| folder["uid"].as_str()).next() {
            return Ok(uid.to_owned());
        }
        let path = "/api/folders";
        let answer = self.post(path, &json!({"title": title})).await?;
        match answer.status {
            200 => {
                let folder: Value = self.json(path, &answer)?;
                let uid = folder["uid"].as_str().map(str::to_owned);
                uid.ok_or_else(|| self.odd(path, "no uid in it", &folder))
            }
            409 | 412 => {
                let advice = format!(
                    "a folder {title:?} is there, and you may not see it: let this account read \
                     it, or name another with --folder"
                );
                Err(self.status(path, &answer, advice))
            }
            _ => Err(self.refused(path, &answer)),
        }
    }

    pub(super) async fn save(&self, uid: &str, save: Save) -> Result<(), ClientError> {
        let path = "/api/dashboards/db";
        let mut board = save.board;
        board["id"] = Value::Null;
        if let Some(version) = save.version {
            board["version"] = version.into();
        }
        let body = json!({
            "dashboard": board, "folderUid": save.folder, "message": save.message,
            "overwrite": save.overwrite,
        });
        let answer = self.post(path, &body).await?;
        match answer.status {
            200 => Ok(()),
            412 => {
                let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
                let advice = match said["status"].as_str() {
                    Some("version-mismatch") => {
                        format!("{uid} was saved by somebody else just now: push again")
                    }
                    Some("name-exists") => format!(
                        "another dashboard has the title of {uid} in this folder: rename it, or \
                         give another --folder"
                    ),
                    Some("plugin-dashboard") => format!("{uid} belongs to a plugin of the server"),
                    Some(_) | None => format!("the server does not take {uid} as it is now"),
                };
                Err(self.status(path, &answer, advice))
            }
            _ => Err(self.refused(path, &answer)),
        }
    }

    /// What is there; none for 404.
    async fn get(&self, path: &str) -> Result<Option<Value>, ClientError> {
        let answer = self.http.send(Method::GET, path, None).await?;
        match answer.status {
            200 => self.json(path, &answer).map(Some),
            // A proxy's 404 is no JSON: then nothing of Grafana answers here.
            404 if serde_json::from_slice::<Value>(&answer.body).is_ok() => Ok(None),
            _ => Err(self.refused(path, &answer)),
        }
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Answer, ClientError> {
        let bytes = Bytes::from(body.to_string());
        let body = Body { content_type: "application/json", bytes };
        self.http.send(Method::POST, path, Some(body)).await
    }

    fn json(&self, path: &str, answer: &Answer) -> Result<Value, ClientError> {
        serde_json::from_slice(&answer.body).map_err(|error| ClientError::NotUnderstood {
            url: self.http.url(path),
            expected: "Grafana",
            why: error.to_string(),
            start: shortened(&answer.body, SHOWN),
        })
    }

    fn odd(&self, path: &str, why: &str, answer: &Value) -> ClientError {
        ClientError::NotUnderstood {
            url: self.http.url(path),
            expected: "Grafana",
            why: why.to_owned(),
            start: shortened(answer.to_string().as_bytes(), SHOWN),
        }
    }

    fn refused(&self, path: &str, answer: &Answer) -> ClientError {
        let advice = match answer.status {
            301..=308 => format!(
                "it points to {}: give that address",
                answer.location.as_deref().unwrap_or("nowhere")
            ),
            401 => "it does not know you: give --token-file with a service account's token, or \
                    --user with --password-file"
                .to_owned(),
            403 => "this account may not: it needs the role Editor, or dashboards:read, \
                    dashboards:write, dashboards:create, folders:read and folders:create"
                .to_owned(),
            404 => format!("no Grafana answers below {}", self.http.address()),
            400 | 422 => "it does not take the dashboard; is it Grafana 12 or newer?".to_owned(),
            _ => "look at its log".to_owned(),
        };
        self.status(path, answer, advice)
    }

    fn status(&self, path: &str, answer: &Answer, advice: String) -> ClientError {
        ClientError::Status {
            url: self.http.url(path),
            status: answer.status,
            said: shortened(&answer.body, SHOWN),
            advice,
        }
    }
}
