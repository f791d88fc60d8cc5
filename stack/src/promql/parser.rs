//! Tokens to a checked syntax tree.
//!
//! A Pratt parser with a bound on nesting; types are checked as nodes are made, so that the
//! evaluator never meets an argument of the wrong type. It does not know which metrics exist.

use super::ParseError;
use super::ast::{
    Aggregate, AggregateOp, At, Binary, BinaryOp, Call, Expr, Function, Group, Matching,
    POWER_PRECEDENCE, Selector, Subquery, Type,
};
use super::check::{binary, expect_type};
use super::lexer::{Kind, Token, tokens};
use crate::store::{MatchOp, Matcher, NAME};

/// Seconds of an `@` beyond which there are no samples.
const AT_SECONDS_MAX: f64 = 1e12;

/// Deeper expressions are refused, so that no query can exhaust the stack.
const DEPTH_MAX: usize = 64;

/// Bound on binary operators in one query: a long chain is a deep tree.
const OPERATORS_MAX: usize = 200;

/// Parses and checks one expression.
pub(crate) fn parse(text: &str) -> Result<Expr, ParseError> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0, operators: 0 };
    if parser.peek() == &Kind::End {
        return Err(ParseError::new(0, "no expression found in input"));
    }
    let expr = parser.expr(0)?;
    match parser.peek() {
        Kind::End => Ok(expr),
        other => Err(parser.error(format!("unexpected {}", other.describe()))),
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    operators: usize,
}

type Parsed = Result<Expr, ParseError>;

impl Parser {
    fn peek(&self) -> &Kind {
        &self.tokens[self.at.min(self.tokens.len() - 1)].kind
    }

    fn position(&self) -> usize {
        self.tokens[self.at.min(self.tokens.len() - 1)].at
    }

    fn next(&mut self) -> Kind {
        let kind = self.peek().clone();
        self.at += 1;
        kind
    }

    fn error(&self, message: impl Into<String>) -> ParseError {
        ParseError::new(self.position(), message)
    }

    fn accept(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek(), Kind::Symbol(s) if *s == symbol);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: &str, place: &str) -> Result<(), ParseError> {
        if self.accept(symbol) {
            return Ok(());
        }
        let found = self.peek().describe();
        Err(self.error(format!("unexpected {found} in {place}, expected {symbol:?}")))
    }

    /// Takes the next identifier when it is `word`, whatever its case.
    fn keyword(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Kind::Ident(name) if name.eq_ignore_ascii_case(word));
        self.at += usize::from(found);
        found
    }

    fn expr(&mut self, floor: u8) -> Parsed {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error(format!("expression is nested deeper than {DEPTH_MAX} levels")));
        }
        let mut left = self.unary()?;
        while let Some(op) = self.binary_op() {
            if op.precedence() < floor {
                break;
            }
            let at = self.position();
            self.at += 1;
            self.operators += 1;
            if self.operators > OPERATORS_MAX {
                return Err(self.error(format!("more than {OPERATORS_MAX} operators")));
            }
            let (return_bool, matching) = self.modifiers(op)?;
            let next = if op == BinaryOp::Pow { op.precedence() } else { op.precedence() + 1 };
            let right = self.expr(next)?;
            left = binary(Binary { op, left, right, return_bool, matching }, at)?;
        }
        self.depth -= 1;
        Ok(left)
    }

    fn binary_op(&self) -> Option<BinaryOp> {
        Some(match self.peek() {
            Kind::Symbol(symbol) => match *symbol {
                "+" => BinaryOp::Add,
                "-" => BinaryOp::Sub,
                "*" => BinaryOp::Mul,
                "/" => BinaryOp::Div,
                "%" => BinaryOp::Mod,
                "^" => BinaryOp::Pow,
                "==" => BinaryOp::Eq,
                "!=" => BinaryOp::Ne,
                ">" => BinaryOp::Gt,
                "<" => BinaryOp::Lt,
                ">=" => BinaryOp::Ge,
                "<=" => BinaryOp::Le,
                _ => return None,
            },
            Kind::Ident(name) => match name.to_ascii_lowercase().as_str() {
                "and" => BinaryOp::And,
                "or" => BinaryOp::Or,
                "unless" => BinaryOp::Unless,
                "atan2" => BinaryOp::Atan2,
                _ => return None,
            },
            Kind::Number(_) | Kind::Text(_) | Kind::Duration(_) | Kind::End => return None,
        })
    }

    fn modifiers(&mut self, op: BinaryOp) -> Result<(bool, Matching), ParseError> {
        let mut matching = Matching::default();
        let return_bool = self.keyword("bool");
        if return_bool && !op.is_comparison() {
            return Err(self.error("bool modifier can only be used on comparison operators"));
        }
        if self.keyword("on") {
            matching.on = true;
            matching.labels = self.label_names()?;
        } else if self.keyword("ignoring") {
            matching.labels = self.label_names()?;
        }
        let group = if self.keyword("group_left") {
            Group::Left
        } else if self.keyword("group_right") {
            Group::Right
        } else {
            return Ok((return_bool, matching));
        };
        if op.is_set() {
            return Err(self.error("no grouping allowed for set operations"));
        }
        matching.group = group;
        if matches!(self.peek(), Kind::Symbol("(")) {
            matching.include = self.label_names()?;
        }
        if let Some(label) = matching.include.iter().find(|l| matching.labels.contains(l))
            && matching.on
        {
            return Err(self
                .error(format!("label {label:?} must not occur in ON and GROUP clause at once")));
        }
        Ok((return_bool, matching))
    }

    fn label_names(&mut self) -> Result<Vec<String>, ParseError> {
        self.expect("(", "label list")?;
        let mut names = Vec::new();
        while !self.accept(")") {
            let at = self.position();
            match self.next() {
                Kind::Ident(name) if !name.contains(':') => names.push(name),
                other => {
                    let message = format!("unexpected {} in grouping", other.describe());
                    return Err(ParseError::new(at, message));
                }
            }
            if !self.accept(",") {
                self.expect(")", "grouping")?;
                break;
            }
        }
        Ok(names)
    }

    fn unary(&mut self) -> Parsed {
        let at = self.position();
        let negative = self.accept("-");
        if !negative && !self.accept("+") {
            return self.postfix();
        }
        let inner = self.expr(POWER_PRECEDENCE)?;
        match inner.kind() {
            Type::Scalar | Type::Vector => {}
            kind @ (Type::String | Type::Matrix) => {
                let message = format!(
                    "unary expression only allowed on expressions of type scalar or instant \
                     vector, got {:?}",
                    kind.name()
                );
                return Err(ParseError::new(at, message));
            }
        }
        Ok(match (negative, inner) {
            (false, inner) => inner,
            (true, Expr::Number(value)) => Expr::Number(-value),
            (true, inner) => Expr::Negate(Box::new(inner)),
        })
    }

    fn postfix(&mut self) -> Parsed {
        let mut expr = self.primary()?;
        loop {
            if matches!(self.peek(), Kind::Symbol("[")) {
                expr = self.brackets(expr)?;
            } else if self.keyword("offset") {
                let sign = if self.accept("-") { -1 } else { 1 };
                let offset = self.duration("offset")?.saturating_mul(sign);
                *self.modifiable(&mut expr, "offset")?.0 = offset;
            } else if self.accept("@") {
                let at = self.at_time()?;
                *self.modifiable(&mut expr, "@")?.1 = Some(at);
            } else {
                return Ok(expr);
            }
        }
    }

    fn brackets(&mut self, expr: Expr) -> Parsed {
        self.expect("[", "range")?;
        let range_ms = self.duration("range")?;
        if range_ms <= 0 {
            return Err(self.error("duration must be greater than 0"));
        }
        if !self.accept(":") {
            self.expect("]", "range selector")?;
            return match expr {
                Expr::Selector(selector) if selector.offset_ms == 0 && selector.at.is_none() => {
                    Ok(Expr::Range { selector, range_ms })
                }
                _ => Err(self.error("ranges only allowed for vector selectors")),
            };
        }
        let step_ms = match self.peek() {
            Kind::Symbol("]") => None,
            _ => Some(self.duration("subquery")?),
        };
        self.expect("]", "subquery selector")?;
        if step_ms == Some(0) {
            return Err(self.error("duration must be greater than 0"));
        }
        if expr.kind() != Type::Vector && expr.kind() != Type::Scalar {
            return Err(self.error("subquery is only allowed on instant vector"));
        }
        let subquery = Subquery { expr, range_ms, step_ms, offset_ms: 0, at: None };
        Ok(Expr::Subquery(Box::new(subquery)))
    }

    fn duration(&mut self, place: &str) -> Result<i64, ParseError> {
        match self.next() {
            Kind::Duration(ms) => Ok(ms),
            other => {
                self.at -= 1;
                let found = other.describe();
                Err(self.error(format!("unexpected {found} in {place}, expected duration")))
            }
        }
    }

    fn modifiable<'e>(
        &self,
        expr: &'e mut Expr,
        name: &str,
    ) -> Result<(&'e mut i64, &'e mut Option<At>), ParseError> {
        match expr {
            Expr::Selector(s) | Expr::Range { selector: s, .. } => {
                Ok((&mut s.offset_ms, &mut s.at))
            }
            Expr::Subquery(s) => Ok((&mut s.offset_ms, &mut s.at)),
            _ => Err(self.error(format!(
                "{name} modifier must be preceded by an instant vector selector or range vector \
                 selector or a subquery"
            ))),
        }
    }

    fn at_time(&mut self) -> Result<At, ParseError> {
        for (word, at) in [("start", At::Start), ("end", At::End)] {
            if self.keyword(word) {
                self.expect("(", "@ modifier")?;
                self.expect(")", "@ modifier")?;
                return Ok(at);
            }
        }
        let sign = if self.accept("-") { -1.0 } else { 1.0 };
        match self.next() {
            Kind::Number(seconds) if seconds.abs() < AT_SECONDS_MAX => {
                Ok(At::Time((sign * seconds * 1000.0).round() as i64))
            }
            Kind::Number(seconds) => {
                Err(self.error(format!("timestamp out of bounds for @ modifier: {seconds}")))
            }
            other => Err(self.error(format!("unexpected {} in @", other.describe()))),
        }
    }

    fn primary(&mut self) -> Parsed {
        let at = self.position();
        match self.next() {
            Kind::Number(value) => Ok(Expr::Number(value)),
            Kind::Text(text) => Ok(Expr::String(text)),
            Kind::Symbol("(") => {
                let inner = self.expr(0)?;
                self.expect(")", "paren expression")?;
                Ok(inner)
            }
            Kind::Symbol("{") => {
                self.at -= 1;
                self.selector(None)
            }
            Kind::Ident(name) => self.named(name, at),
            other @ (Kind::Symbol(_) | Kind::Duration(_) | Kind::End) => {
                Err(ParseError::new(at, format!("unexpected {}", other.describe())))
            }
        }
    }

    fn named(&mut self, name: String, at: usize) -> Parsed {
        let lower = name.to_ascii_lowercase();
        let opens = matches!(self.peek(), Kind::Symbol("("));
        let groups = matches!(self.peek(), Kind::Ident(w)
            if w.eq_ignore_ascii_case("by") || w.eq_ignore_ascii_case("without"));
        if let Some(op) = AggregateOp::from_name(&lower)
            && (opens || groups)
        {
            return self.aggregate(op);
        }
        if opens {
            let Some(function) = Function::from_name(&name) else {
                return Err(ParseError::new(at, format!("unknown function with name {name:?}")));
            };
            return self.call(function, at);
        }
        match lower.as_str() {
            "inf" => Ok(Expr::Number(f64::INFINITY)),
            "nan" => Ok(Expr::Number(f64::NAN)),
            _ => self.selector(Some(name)),
        }
    }

    fn aggregate(&mut self, op: AggregateOp) -> Parsed {
        let mut grouping = self.grouping()?;
        let at = self.position();
        let mut args = self.arguments("aggregation")?;
        if grouping.is_none() {
            grouping = self.grouping()?;
        }
        let wanted = 1 + usize::from(op.takes_param());
        if args.len() != wanted {
            let message = format!(
                "wrong number of arguments for aggregate expression provided, expected {wanted}, \
                 got {}",
                args.len()
            );
            return Err(ParseError::new(at, message));
        }
        let expr = args.pop().expect("the number of arguments was checked");
        expect_type(&expr, Type::Vector, "aggregation expression", at)?;
        let param = args.pop();
        if let Some(param) = &param {
            let kind = if op == AggregateOp::CountValues { Type::String } else { Type::Scalar };
            expect_type(param, kind, "aggregation parameter", at)?;
        }
        let (without, labels) = grouping.unwrap_or_default();
        Ok(Expr::Aggregate(Box::new(Aggregate { op, expr, param, without, labels })))
    }

    fn grouping(&mut self) -> Result<Option<(bool, Vec<String>)>, ParseError> {
        let without = self.keyword("without");
        if !without && !self.keyword("by") {
            return Ok(None);
        }
        Ok(Some((without, self.label_names()?)))
    }

    fn arguments(&mut self, place: &str) -> Result<Vec<Expr>, ParseError> {
        self.expect("(", place)?;
        let mut args = Vec::new();
        if self.accept(")") {
            return Ok(args);
        }
        loop {
            args.push(self.expr(0)?);
            if !self.accept(",") {
                self.expect(")", place)?;
                return Ok(args);
            }
        }
    }

    fn call(&mut self, function: Function, at: usize) -> Parsed {
        let args = self.arguments("function call")?;
        let types = function.args();
        let name = function.name();
        let too_many = args.len() > types.len() && !function.repeats();
        if args.len() < function.required() || too_many {
            let message = format!(
                "expected {}{} argument(s) in call to {name:?}, got {}",
                if function.required() == types.len() && !function.repeats() {
                    ""
                } else {
                    "at least "
                },
                function.required(),
                args.len()
            );
            return Err(ParseError::new(at, message));
        }
        for (index, arg) in args.iter().enumerate() {
            let wanted = types[index.min(types.len() - 1)];
            expect_type(arg, wanted, &format!("call to function {name:?}"), at)?;
        }
        Ok(Expr::Call(Call { function, args }))
    }

    fn selector(&mut self, name: Option<String>) -> Parsed {
        let mut matchers = Vec::new();
        if let Some(name) = name {
            matchers.push(Matcher::equal(NAME, name));
        }
        if matches!(self.peek(), Kind::Symbol("{")) {
            self.matchers(&mut matchers)?;
        }
        if matchers.iter().all(|matcher| matcher.matches("")) {
            return Err(self.error("vector selector must contain at least one non-empty matcher"));
        }
        Ok(Expr::Selector(Selector { matchers, offset_ms: 0, at: None }))
    }

    fn matchers(&mut self, out: &mut Vec<Matcher>) -> Result<(), ParseError> {
        self.expect("{", "label matching")?;
        while !self.accept("}") {
            let at = self.position();
            let label = match self.next() {
                Kind::Ident(label) if !label.contains(':') => label,
                other => {
                    let message = format!("unexpected {} in label matching", other.describe());
                    return Err(ParseError::new(at, message));
                }
            };
            let at = self.position();
            let op = match self.next() {
                Kind::Symbol("=") => MatchOp::Equal,
                Kind::Symbol("!=") => MatchOp::NotEqual,
                Kind::Symbol("=~") => MatchOp::Regex,
                Kind::Symbol("!~") => MatchOp::NotRegex,
                other => {
                    let message = format!(
                        "unexpected {} in label matching, expected label matching operator",
                        other.describe()
                    );
                    return Err(ParseError::new(at, message));
                }
            };
            let at = self.position();
            let Kind::Text(value) = self.next() else {
                return Err(ParseError::new(at, "label matching expects a string"));
            };
            let matcher = Matcher::new(label, op, value).map_err(|e| ParseError::new(at, e))?;
            out.push(matcher);
            if !self.accept(",") {
                self.expect("}", "label matching")?;
                break;
            }
        }
        Ok(())
    }
}
