//! The tree of an expression and its text.
//!
//! Written so that the text can be read again: the scope of a board goes into each selector, and
//! long expressions are broken over lines. It knows nothing of metrics or units.

use std::fmt::Write;

use super::select::{Matcher, Scope, Window};

/// Columns after which an expression is broken over lines.
const WIDTH: usize = 96;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    /// A series, or a range of it.
    Select {
        series: String,
        /// Labels that a scope may restrict.
        labels: Vec<&'static str>,
        matchers: Vec<Matcher>,
        window: Option<Window>,
        offset: Option<Window>,
    },
    Call {
        function: &'static str,
        arguments: Vec<Node>,
    },
    Aggregate {
        operator: &'static str,
        by: Vec<&'static str>,
        argument: Box<Node>,
    },
    Binary {
        operator: &'static str,
        matching: Matching,
        left: Box<Node>,
        right: Box<Node>,
    },
    Number(f64),
    Text(String),
    Raw(String),
}

/// How the two sides of a binary operation are paired.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Matching {
    All,
    On(Vec<&'static str>),
    /// Many on the left, one on the right, whose labels `include` are copied.
    OnGroupLeft {
        on: Vec<&'static str>,
        include: Vec<&'static str>,
    },
}

impl Matching {
    /// The operator and how it pairs.
    fn after(&self, operator: &str) -> String {
        match self {
            Self::All => operator.to_owned(),
            Self::On(labels) => format!("{operator} on ({})", labels.join(", ")),
            Self::OnGroupLeft { on, include } => {
                let (on, include) = (on.join(", "), include.join(", "));
                format!("{operator} on ({on}) group_left ({include})")
            }
        }
    }
}

impl Node {
    /// The whole expression on one line.
    pub(super) fn flat(&self, scope: &Scope) -> String {
        match self {
            Self::Select { series, labels, matchers, window, offset } => {
                let mut text = series.clone();
                let mut parts = scope.matchers_for(labels);
                parts.extend(matchers.iter().map(ToString::to_string));
                if !parts.is_empty() {
                    push(&mut text, format_args!("{{{}}}", parts.join(",")));
                }
                if let Some(window) = window {
                    push(&mut text, format_args!("[{window}]"));
                }
                if let Some(offset) = offset {
                    push(&mut text, format_args!(" offset {offset}"));
                }
                text
            }
            Self::Call { function, arguments } => {
                let arguments: Vec<_> = arguments.iter().map(|node| node.flat(scope)).collect();
                format!("{function}({})", arguments.join(", "))
            }
            Self::Aggregate { operator, by, argument } => {
                format!("{} ({})", head(operator, by), argument.flat(scope))
            }
            Self::Binary { operator, matching, left, right } => format!(
                "{} {} {}",
                self.enclose(left, false, left.flat(scope)),
                matching.after(operator),
                self.enclose(right, true, right.flat(scope)),
            ),
            Self::Number(value) => value.to_string(),
            Self::Text(text) => format!("{text:?}"),
            Self::Raw(text) => text.replace("$selector", &scope.all()),
        }
    }

    /// The expression broken over lines where it is long.
    pub(super) fn pretty(&self, scope: &Scope) -> String {
        let flat = self.flat(scope);
        if flat.len() <= WIDTH {
            return flat;
        }
        match self {
            Self::Call { function, arguments } => {
                let arguments: Vec<_> =
                    arguments.iter().map(|node| indent(&node.pretty(scope))).collect();
                format!("{function}(\n{}\n)", arguments.join(",\n"))
            }
            Self::Aggregate { operator, by, argument } => {
                format!("{} (\n{}\n)", head(operator, by), indent(&argument.pretty(scope)))
            }
            Self::Binary { operator, matching, left, right } => {
                let left = self.enclose(left, false, left.pretty(scope));
                let right = self.enclose(right, true, right.pretty(scope));
                format!("{left}\n{} {right}", matching.after(operator))
            }
            Self::Select { .. } | Self::Number(_) | Self::Text(_) | Self::Raw(_) => flat,
        }
    }

    /// Adds parentheses around an operand that binds less tightly than this operator.
    fn enclose(&self, operand: &Self, right: bool, text: String) -> String {
        let (outer, inner) = (self.precedence(), operand.precedence());
        if inner < outer || (right && inner == outer) {
            if text.contains('\n') {
                format!("(\n{}\n)", indent(&text))
            } else {
                format!("({text})")
            }
        } else {
            text
        }
    }

    fn precedence(&self) -> u8 {
        match self {
            Self::Binary { operator, .. } => match *operator {
                "or" => 1,
                "and" | "unless" => 2,
                "+" | "-" => 4,
                "*" | "/" => 5,
                _ => 3,
            },
            // Unknown inside, so it is enclosed wherever it stands.
            Self::Raw(_) => 0,
            Self::Select { .. }
            | Self::Call { .. }
            | Self::Aggregate { .. }
            | Self::Number(_)
            | Self::Text(_) => 9,
        }
    }

    /// Calls `visit` for each series that is selected.
    pub(super) fn walk(&self, visit: &mut dyn FnMut(&str)) {
        match self {
            Self::Select { series, .. } => visit(series),
            Self::Call { arguments, .. } => arguments.iter().for_each(|node| node.walk(visit)),
            Self::Aggregate { argument, .. } => argument.walk(visit),
            Self::Binary { left, right, .. } => {
                left.walk(visit);
                right.walk(visit);
            }
            Self::Number(_) | Self::Text(_) | Self::Raw(_) => {}
        }
    }
}

fn head(operator: &str, by: &[&str]) -> String {
    if by.is_empty() { operator.to_owned() } else { format!("{operator} by ({})", by.join(", ")) }
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

fn push(text: &mut String, part: std::fmt::Arguments<'_>) {
    text.write_fmt(part).expect("writing to a String cannot fail");
}
