//! Tools that a model may call: what a request offers, and which of them it wants called.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::parse::Object;

/// The most tools of one request.
pub const MAX_TOOLS: usize = 128;
/// The longest name of a function.
pub const MAX_TOOL_NAME: usize = 64;

/// What a request says about tools.
#[derive(Debug, Clone, PartialEq)]
pub struct Tools {
    /// The functions on offer, their names distinct; none where the request has no tools.
    pub offered: Vec<Tool>,
    /// Which of them to call.
    pub choice: ToolChoice,
    /// Whether an answer may make more than one call. Default true.
    pub parallel: bool,
}

/// A function on offer.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Letters, digits, underscores and dashes; at most [`MAX_TOOL_NAME`].
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// A JSON schema of its arguments, which are an object.
    pub parameters: Value,
    /// Whether every keyword of the schema must be obeyed where a call is forced.
    pub strict: bool,
}

/// Which tools are to be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolChoice {
    /// None of them; the model is not told of any.
    None,
    /// What the model likes.
    Auto,
    /// At least one of them.
    Required,
    /// This one.
    Function(String),
}

impl Tool {
    /// The object that chat templates read.
    #[must_use]
    pub fn for_template(&self) -> Value {
        let mut function = Map::new();
        function.insert("name".to_owned(), self.name.clone().into());
        if let Some(description) = &self.description {
            function.insert("description".to_owned(), description.clone().into());
        }
        function.insert("parameters".to_owned(), self.parameters.clone());
        json!({"type": "function", "function": function})
    }
}

impl Default for Tools {
    fn default() -> Self {
        Self { offered: Vec::new(), choice: ToolChoice::None, parallel: true }
    }
}

impl Tools {
    /// Whether a call is to be made in any case.
    #[must_use]
    pub const fn is_forced(&self) -> bool {
        match self.choice {
            ToolChoice::None | ToolChoice::Auto => false,
            ToolChoice::Required | ToolChoice::Function(_) => true,
        }
    }

    /// Whether the model may call anything.
    #[must_use]
    pub fn is_active(&self) -> bool {
        !self.offered.is_empty() && self.choice != ToolChoice::None
    }
}

/// The fields as sent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RawTools {
    tools: Option<Vec<Object<RawTool>>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    functions: Option<Vec<Value>>,
    function_call: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct RawTool {
    #[serde(rename = "type")]
    kind: String,
    function: Option<Object<RawFunction>>,
}

#[derive(Debug, Deserialize)]
struct RawFunction {
    name: String,
    description: Option<String>,
    parameters: Option<Map<String, Value>>,
    strict: Option<bool>,
}

impl RawTools {
    pub(crate) fn check(self) -> Result<Tools, ApiError> {
        if self.functions.is_some_and(|functions| !functions.is_empty()) {
            return Err(ApiError::unsupported(
                "functions",
                "this old form is not supported; use tools",
            ));
        }
        if self.function_call.is_some_and(|call| call != "none" && call != "auto") {
            return Err(ApiError::unsupported(
                "function_call",
                "this old form is not supported; use tool_choice",
            ));
        }
        let raw = self.tools.unwrap_or_default();
        if raw.len() > MAX_TOOLS {
            let message = format!("tools: {} tools are more than {MAX_TOOLS}", raw.len());
            return Err(ApiError::invalid("tools", message));
        }
        let mut offered: Vec<Tool> = Vec::with_capacity(raw.len());
        for (at, Object(tool)) in raw.into_iter().enumerate() {
            let tool = tool.check(at)?;
            if offered.iter().any(|other| other.name == tool.name) {
                let path = format!("tools[{at}].function.name");
                let message = format!("{path}: {:?} is there twice", tool.name);
                return Err(ApiError::invalid(path, message));
            }
            offered.push(tool);
        }
        let choice = choice(self.tool_choice, &offered)?;
        Ok(Tools { offered, choice, parallel: self.parallel_tool_calls.unwrap_or(true) })
    }
}

impl RawTool {
    fn check(self, at: usize) -> Result<Tool, ApiError> {
        if self.kind != "function" {
            let path = format!("tools[{at}].type");
            let kind: String = self.kind.chars().take(40).collect();
            let why = format!("tools of type {kind:?} are not supported; use function");
            return Err(ApiError::unsupported(&path, &why));
        }
        let Some(Object(function)) = self.function else {
            let path = format!("tools[{at}].function");
            let message = format!("{path}: this field is required");
            return Err(ApiError::invalid(path, message));
        };
        let RawFunction { name, description, parameters, strict } = function;
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || name.len() > MAX_TOOL_NAME || !name.chars().all(allowed) {
            let path = format!("tools[{at}].function.name");
            let shown: String = name.chars().take(80).collect();
            let message = format!(
                "{path}: {shown:?} is not 1 to {MAX_TOOL_NAME} letters, digits, underscores and \
                 dashes"
            );
            return Err(ApiError::invalid(path, message));
        }
        // OpenAI: without parameters, a function takes none.
        let parameters = match parameters {
            None => json!({"type": "object", "properties": {}}),
            Some(schema) => of_objects(at, schema)?,
        };
        Ok(Tool { name, description, parameters, strict: strict.unwrap_or(false) })
    }
}

/// The schema of arguments, which are an object whatever it leaves open.
fn of_objects(at: usize, mut schema: Map<String, Value>) -> Result<Value, ApiError> {
    let object = Value::from("object");
    let allowed = match schema.get("type") {
        None => true,
        Some(Value::Array(kinds)) => kinds.contains(&object),
        Some(kind) => *kind == object,
    };
    if !allowed {
        let path = format!("tools[{at}].function.parameters.type");
        let message = format!("{path}: arguments are always an object; use \"object\"");
        return Err(ApiError::invalid(path, message));
    }
    schema.insert("type".to_owned(), object);
    Ok(Value::Object(schema))
}

fn choice(sent: Option<Value>, offered: &[Tool]) -> Result<ToolChoice, ApiError> {
    let invalid = |message: String| Err(ApiError::invalid("tool_choice", message));
    let choice = match &sent {
        None | Some(Value::Null) if offered.is_empty() => return Ok(ToolChoice::None),
        None | Some(Value::Null) => return Ok(ToolChoice::Auto),
        Some(Value::String(word)) => match word.as_str() {
            "none" => return Ok(ToolChoice::None),
            "auto" => ToolChoice::Auto,
            "required" => ToolChoice::Required,
            other => {
                let shown: String = other.chars().take(40).collect();
                return invalid(format!(
                    "tool_choice: {shown:?} is not one of none, auto, required, or an object that \
                     names a function"
                ));
            }
        },
        Some(Value::Object(object)) => {
            let named = object.get("function").and_then(|function| function.get("name"));
            match (object.get("type").and_then(Value::as_str), named.and_then(Value::as_str)) {
                (Some("function"), Some(name)) => ToolChoice::Function(name.to_owned()),
                _ => {
                    return invalid(
                        "tool_choice: expected {\"type\": \"function\", \"function\": \
                         {\"name\": ..}}"
                            .to_owned(),
                    );
                }
            }
        }
        Some(_) => return invalid("tool_choice: expected a string or an object".to_owned()),
    };
    match &choice {
        // Harmless, and sent by clients whose list of tools happens to be empty.
        ToolChoice::None | ToolChoice::Auto if offered.is_empty() => Ok(ToolChoice::None),
        ToolChoice::Required | ToolChoice::Function(_) if offered.is_empty() => {
            invalid("tool_choice: only allowed when tools are given".to_owned())
        }
        ToolChoice::Function(name) if offered.iter().all(|tool| tool.name != *name) => {
            let shown: String = name.chars().take(80).collect();
            invalid(format!("tool_choice: no tool is named {shown:?}"))
        }
        ToolChoice::None | ToolChoice::Auto | ToolChoice::Required | ToolChoice::Function(_) => {
            Ok(choice)
        }
    }
}
