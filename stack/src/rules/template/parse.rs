//! Text to nodes: actions are cut out, lexed and parsed; every error is found here.

use super::functions::{self, Function};
use super::{Command, Node, Operand, Pipeline, Value};

/// Words of Go's language that are not in this part of it.
const KEYWORDS: [&str; 7] = ["range", "with", "define", "template", "block", "break", "continue"];

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    /// `$name` with its fields.
    Variable(String, Vec<String>),
    /// `.name.name`.
    Field(Vec<String>),
    Text(String),
    Number(String),
    Pipe,
    Open,
    Close,
}

/// A piece of a template.
enum Part {
    Text(String),
    Action(Vec<Token>),
}

/// Parses a whole template.
pub(super) fn template(text: &str) -> Result<Vec<Node>, String> {
    let mut parts = split(text)?.into_iter();
    let (nodes, end) = nodes(&mut parts)?;
    match end {
        End::Text => Ok(nodes),
        End::Else(_) => Err("unexpected {{else}}".to_owned()),
        End::Closed => Err("unexpected {{end}}".to_owned()),
    }
}

/// Cuts the text into plain text and lexed actions, with blanks trimmed where marked.
fn split(text: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    let mut trim_left = false;
    loop {
        let (before, action) = match rest.split_once("{{") {
            Some((before, action)) => (before, Some(action)),
            None => (rest, None),
        };
        let mut plain = if trim_left { before.trim_start() } else { before };
        let Some(action) = action else {
            parts.push(Part::Text(plain.to_owned()));
            return Ok(parts);
        };
        let marked = action.starts_with('-') && action[1..].starts_with(char::is_whitespace);
        if marked {
            plain = plain.trim_end();
        }
        parts.push(Part::Text(plain.to_owned()));
        let inside = if marked { &action[1..] } else { action };
        if let Some(comment) = inside.trim_start().strip_prefix("/*") {
            let (_, behind) = comment.split_once("*/").ok_or("unclosed comment")?;
            let behind = behind.trim_start();
            trim_left = behind.starts_with('-');
            let behind = behind.strip_prefix('-').unwrap_or(behind);
            rest = behind.strip_prefix("}}").ok_or("comment ends before closing delimiter")?;
            continue;
        }
        let mut lexer = Lexer { rest: inside, tokens: Vec::new() };
        trim_left = lexer.run()?;
        rest = lexer.rest;
        parts.push(Part::Action(lexer.tokens));
    }
}

struct Lexer<'a> {
    rest: &'a str,
    tokens: Vec<Token>,
}

impl<'a> Lexer<'a> {
    /// Lexes up to and over the closing braces; whether they trim what follows.
    fn run(&mut self) -> Result<bool, String> {
        loop {
            let blank = self.rest.len() - self.rest.trim_start().len();
            self.rest = self.rest.trim_start();
            if let Some(behind) = self.rest.strip_prefix("}}") {
                self.rest = behind;
                return Ok(false);
            }
            if let Some(behind) = self.rest.strip_prefix("-}}").filter(|_| blank > 0) {
                self.rest = behind;
                return Ok(true);
            }
            let token = self.token()?;
            self.tokens.push(token);
        }
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    fn name(&mut self) -> String {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let length = self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len());
        self.take(length).to_owned()
    }

    fn fields(&mut self) -> Vec<String> {
        let mut fields = Vec::new();
        while let Some(behind) = self.rest.strip_prefix('.') {
            self.rest = behind;
            fields.push(self.name());
        }
        fields
    }

    fn token(&mut self) -> Result<Token, String> {
        let Some(first) = self.rest.chars().next() else {
            return Err("unclosed action".to_owned());
        };
        Ok(match first {
            '|' | '(' | ')' => {
                self.take(1);
                match first {
                    '|' => Token::Pipe,
                    '(' => Token::Open,
                    _ => Token::Close,
                }
            }
            '"' | '`' => Token::Text(self.text(first)?),
            '$' => {
                self.take(1);
                let name = self.name();
                Token::Variable(format!("${name}"), self.fields())
            }
            '.' => Token::Field(self.fields()),
            '0'..='9' | '+' | '-' => {
                let end = |c: char| !(c.is_alphanumeric() || matches!(c, '.' | '+' | '-' | '_'));
                let length = self.rest.find(end).unwrap_or(self.rest.len());
                Token::Number(self.take(length).to_owned())
            }
            letter if letter.is_alphabetic() || letter == '_' => Token::Word(self.name()),
            ':' | '=' => return Err("own variables are not supported".to_owned()),
            other => return Err(format!("unexpected {other:?} in command")),
        })
    }

    fn text(&mut self, quote: char) -> Result<String, String> {
        let mut out = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, letter)) = chars.next() {
            if letter == quote {
                self.take(at + 1);
                return Ok(out);
            }
            if letter != '\\' || quote == '`' {
                out.push(letter);
                continue;
            }
            out.push(match chars.next() {
                Some((_, 'n')) => '\n',
                Some((_, 't')) => '\t',
                Some((_, escaped @ ('"' | '\\'))) => escaped,
                Some((_, other)) => return Err(format!("the escape \\{other} is not supported")),
                None => break,
            });
        }
        Err("unterminated quoted string".to_owned())
    }
}

/// What ended a list of nodes.
enum End {
    Text,
    /// `end`.
    Closed,
    /// `else`, with what follows it.
    Else(Vec<Token>),
}

type Parts = std::vec::IntoIter<Part>;

fn nodes(parts: &mut Parts) -> Result<(Vec<Node>, End), String> {
    let mut out = Vec::new();
    while let Some(part) = parts.next() {
        let tokens = match part {
            Part::Text(text) => {
                if !text.is_empty() {
                    out.push(Node::Text(text));
                }
                continue;
            }
            Part::Action(tokens) => tokens,
        };
        let word = match tokens.first() {
            Some(Token::Word(word)) => word.as_str(),
            _ => "",
        };
        match word {
            "end" => return Ok((out, End::Closed)),
            "else" => return Ok((out, End::Else(tokens[1..].to_vec()))),
            "if" => out.push(branches(tokens[1..].to_vec(), parts)?),
            word if KEYWORDS.contains(&word) => {
                return Err(format!("{word} is not supported; if, else and end are"));
            }
            _ => out.push(Node::Output(pipeline(&tokens)?)),
        }
    }
    Ok((out, End::Text))
}

fn branches(condition: Vec<Token>, parts: &mut Parts) -> Result<Node, String> {
    let mut branches = Vec::new();
    let mut condition = Some(condition);
    let mut otherwise = Vec::new();
    loop {
        let parsed = condition.take().map(|tokens| pipeline(&tokens)).transpose()?;
        let (body, end) = nodes(parts)?;
        let last = parsed.is_none();
        match parsed {
            Some(parsed) => branches.push((parsed, body)),
            None => otherwise = body,
        }
        match end {
            End::Closed => return Ok(Node::If { branches, otherwise }),
            End::Else(_) if last => return Err("unexpected {{else}}".to_owned()),
            End::Else(rest) => match rest.first() {
                None => {}
                Some(Token::Word(word)) if word == "if" => condition = Some(rest[1..].to_vec()),
                Some(_) => return Err("else may be followed by if only".to_owned()),
            },
            End::Text => return Err("unexpected end of template: an end is missing".to_owned()),
        }
    }
}

fn pipeline(tokens: &[Token]) -> Result<Pipeline, String> {
    let mut tokens = tokens.iter();
    let (pipeline, closed) = commands(&mut tokens)?;
    if closed { Err("unexpected right paren".to_owned()) } else { Ok(pipeline) }
}

/// Reads commands up to a right paren (true in the answer) or the end.
fn commands(tokens: &mut std::slice::Iter<'_, Token>) -> Result<(Pipeline, bool), String> {
    let mut found = Vec::new();
    loop {
        let mut function = None;
        let mut operands = Vec::new();
        let end = loop {
            let token = match tokens.next() {
                None => break None,
                Some(end @ (Token::Pipe | Token::Close)) => break Some(end),
                Some(token) => token,
            };
            match token {
                Token::Word(name) if !matches!(name.as_str(), "true" | "false") => {
                    let found = functions::find(name)
                        .ok_or_else(|| format!("function {name:?} not defined"))?;
                    if function.is_none() && operands.is_empty() {
                        function = Some(found);
                    } else {
                        operands.push(Operand::Inner(call(found, Vec::new(), 0)?.into()));
                    }
                }
                Token::Open => {
                    let (inner, closed) = commands(tokens)?;
                    if !closed {
                        return Err("unclosed left paren".to_owned());
                    }
                    operands.push(Operand::Inner(inner));
                }
                other @ (Token::Word(_)
                | Token::Variable(..)
                | Token::Field(_)
                | Token::Text(_)
                | Token::Number(_)
                | Token::Pipe
                | Token::Close) => operands.push(operand(other)?),
            }
        };
        found.push(command(function, operands, found.len())?);
        match end {
            Some(Token::Pipe) => {}
            Some(_) => return Ok((Pipeline(found), true)),
            None => return Ok((Pipeline(found), false)),
        }
    }
}

/// The command at a place of its pipeline; all but the first get one more argument.
fn command(
    function: Option<&'static Function>,
    mut operands: Vec<Operand>,
    place: usize,
) -> Result<Command, String> {
    match function {
        Some(function) => call(function, operands, usize::from(place > 0)),
        None if operands.len() > 1 => Err("can't give argument to non-function".to_owned()),
        None => match operands.pop() {
            None => Err("missing value for command".to_owned()),
            Some(_) if place > 0 => {
                Err(format!("non executable command in pipeline stage {}", place + 1))
            }
            Some(operand) => Ok(Command::Operand(operand)),
        },
    }
}

fn call(function: &'static Function, args: Vec<Operand>, piped: usize) -> Result<Command, String> {
    let given = args.len() + piped;
    if given < function.least || given > function.most {
        let least = function.least;
        return Err(format!(
            "wrong number of args for {}: want {least} got {given}",
            function.name
        ));
    }
    Ok(Command::Call { function, args })
}

impl From<Command> for Pipeline {
    fn from(command: Command) -> Self {
        Self(vec![command])
    }
}

fn operand(token: &Token) -> Result<Operand, String> {
    match token {
        Token::Word(word) => Ok(Operand::Literal(Value::Bool(word == "true"))),
        Token::Text(text) => Ok(Operand::Literal(Value::Text(text.clone()))),
        Token::Number(text) => number(text),
        Token::Variable(name, fields) => match name.as_str() {
            "$labels" => labels(Operand::Labels, "$labels", fields),
            "$externalLabels" => labels(Operand::NoLabels, "$externalLabels", fields),
            "$value" => sample("$value", fields),
            other => Err(format!(
                "undefined variable {other:?}: known are $labels, $value and $externalLabels"
            )),
        },
        Token::Field(path) => match path.split_first() {
            Some((first, rest)) if first == "Labels" => labels(Operand::Labels, ".Labels", rest),
            Some((first, rest)) if first == "ExternalLabels" => {
                labels(Operand::NoLabels, ".ExternalLabels", rest)
            }
            Some((first, rest)) if first == "Value" => sample(".Value", rest),
            Some(_) | None => Err(format!(
                ".{} is not known: .Labels, .Value and .ExternalLabels are",
                path.join(".")
            )),
        },
        Token::Pipe | Token::Open | Token::Close => Err("missing value for command".to_owned()),
    }
}

fn labels(whole: Operand, name: &str, fields: &[String]) -> Result<Operand, String> {
    match (fields, whole) {
        ([], whole) => Ok(whole),
        ([label], Operand::Labels) => Ok(Operand::Label(label.clone())),
        ([_], _) => Ok(Operand::Literal(Value::Text(String::new()))),
        (more, _) => Err(format!("a label of {name} has no field {:?}", more[1])),
    }
}

fn sample(name: &str, fields: &[String]) -> Result<Operand, String> {
    match fields.first() {
        None => Ok(Operand::Sample),
        Some(field) => Err(format!("{name} has no field {field:?}")),
    }
}

fn number(text: &str) -> Result<Operand, String> {
    let integer = text.parse().map(Value::Int);
    let value = integer.or_else(|_| text.parse().map(Value::Float));
    value.map(Operand::Literal).map_err(|_| format!("bad number syntax: {text:?}"))
}
