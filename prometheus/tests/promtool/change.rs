//! Expressions with one thing changed: a limit, a guard, or a list of values of a label.

use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::{self, BinaryExpr, Expr, NumberLiteral, VectorSelector};

/// All of them: what was changed, and the expression.
///
/// - A number that is compared with, or a factor, is doubled and halved; one with 0 is left
///   out.
/// - Of `and` and `unless` the condition is left out, of `or` each side.
///   Of what is divided by, the comparison stays: by 0 it is no number, and above no limit.
/// - Of a list of values each is left out, and a condition on a label without a list as a whole.
pub(crate) fn variants(text: &str) -> Vec<(String, String)> {
    let expr = parser::parse(text).expect("the rules are PromQL");
    let changes = of(&expr);
    changes.into_iter().map(|(what, expr)| (what, expr.to_string())).collect()
}

type Change = (String, Expr);

fn of(expr: &Expr) -> Vec<Change> {
    match expr {
        Expr::Binary(binary) => of_binary(binary),
        Expr::Paren(paren) => {
            let inside = of(&paren.expr).into_iter();
            inside
                .map(|(what, expr)| {
                    let mut paren = paren.clone();
                    paren.expr = Box::new(expr);
                    (what, Expr::Paren(paren))
                })
                .collect()
        }
        Expr::Aggregate(aggregate) => {
            let inside = of(&aggregate.expr).into_iter();
            inside
                .map(|(what, expr)| {
                    let mut aggregate = aggregate.clone();
                    aggregate.expr = Box::new(expr);
                    (what, Expr::Aggregate(aggregate))
                })
                .collect()
        }
        Expr::Call(call) => {
            let mut found = Vec::new();
            for (place, argument) in call.args.args.iter().enumerate() {
                for (what, expr) in of(argument) {
                    let mut call = call.clone();
                    *call.args.args[place] = expr;
                    found.push((what, Expr::Call(call)));
                }
            }
            found
        }
        Expr::VectorSelector(selector) => {
            let changed = of_selector(selector).into_iter();
            changed.map(|(what, selector)| (what, Expr::VectorSelector(selector))).collect()
        }
        Expr::MatrixSelector(matrix) => {
            let changed = of_selector(&matrix.vs).into_iter();
            changed
                .map(|(what, selector)| {
                    let mut matrix = matrix.clone();
                    matrix.vs = selector;
                    (what, Expr::MatrixSelector(matrix))
                })
                .collect()
        }
        Expr::Unary(_)
        | Expr::Subquery(_)
        | Expr::NumberLiteral(_)
        | Expr::StringLiteral(_)
        | Expr::Extension(_) => Vec::new(),
    }
}

fn of_binary(binary: &BinaryExpr) -> Vec<Change> {
    let operator = binary.op.to_string();
    let (left, right) = (&binary.lhs, &binary.rhs);
    let mut found = match operator.as_str() {
        "and" | "unless" => vec![(format!("without `{operator} {right}`"), (**left).clone())],
        "or" => vec![
            (format!("without `or {right}`"), (**left).clone()),
            (format!("without `{left} or`"), (**right).clone()),
        ],
        _ => of_number(binary, &operator),
    };
    for (what, expr) in of(left) {
        let binary = BinaryExpr { lhs: Box::new(expr), ..binary.clone() };
        found.push((what, Expr::Binary(binary)));
    }
    let denominator = operator == "/" && is_guard(right);
    let of_right = if denominator { of_guarded(right) } else { of(right) };
    for (what, expr) in of_right {
        let binary = BinaryExpr { rhs: Box::new(expr), ..binary.clone() };
        found.push((what, Expr::Binary(binary)));
    }
    found
}

/// The comparison itself, without parentheses.
fn inner(expr: &Expr) -> &Expr {
    let Expr::Paren(paren) = expr else { return expr };
    inner(&paren.expr)
}

/// `something > 0`.
fn is_guard(expr: &Expr) -> bool {
    let Expr::Binary(binary) = inner(expr) else { return false };
    let zero = matches!(&*binary.rhs, Expr::NumberLiteral(NumberLiteral { val }) if *val == 0.0);
    zero && binary.op.to_string() == ">"
}

/// Changes of what is guarded, the guard excepted.
fn of_guarded(expr: &Expr) -> Vec<Change> {
    of(expr).into_iter().filter(|(what, _)| what != "without `> 0`").collect()
}

/// The number on the right of an operator.
fn of_number(binary: &BinaryExpr, operator: &str) -> Vec<Change> {
    let Expr::NumberLiteral(NumberLiteral { val }) = &*binary.rhs else { return Vec::new() };
    let compares = matches!(operator, ">" | ">=" | "<" | "<=" | "==");
    if *val == 0.0 {
        let what = format!("without `{operator} 0`");
        return if compares { vec![(what, (*binary.lhs).clone())] } else { Vec::new() };
    }
    let other = |factor: f64| {
        let rhs = Box::new(Expr::NumberLiteral(NumberLiteral { val: val * factor }));
        let what = format!("`{operator} {}` for `{operator} {val}`", val * factor);
        (what, Expr::Binary(BinaryExpr { rhs, ..binary.clone() }))
    };
    if compares || operator == "*" { vec![other(2.0), other(0.5)] } else { Vec::new() }
}

fn of_selector(selector: &VectorSelector) -> Vec<(String, VectorSelector)> {
    let mut found = Vec::new();
    let name = selector.name.clone().unwrap_or_default();
    for (place, matcher) in selector.matchers.matchers.iter().enumerate() {
        let with = |matcher: Option<Matcher>| {
            let mut selector = selector.clone();
            let matchers = &mut selector.matchers.matchers;
            match matcher {
                Some(matcher) => matchers[place] = matcher,
                None => drop(matchers.remove(place)),
            }
            selector
        };
        let values: Vec<_> = matcher.value.split('|').collect();
        let is_list = !matcher.value.contains('(') && values.len() > 1;
        if !is_list {
            found.push((format!("{name} without `{matcher}`"), with(None)));
            continue;
        }
        for value in &values {
            let others: Vec<_> = values.iter().copied().filter(|other| other != value).collect();
            let others = others.join("|");
            let regex = regex_of(&others);
            let op = match matcher.op {
                MatchOp::NotRe(_) => MatchOp::NotRe(regex),
                MatchOp::Re(_) | MatchOp::Equal | MatchOp::NotEqual => MatchOp::Re(regex),
            };
            let shorter = Matcher { op, name: matcher.name.clone(), value: others };
            found.push((format!("{name} without {value} in `{matcher}`"), with(Some(shorter))));
        }
    }
    found
}

fn regex_of(text: &str) -> regex::Regex {
    regex::Regex::new(text).expect("a part of a list is one")
}

#[test]
fn one_thing_is_changed_at_a_time() {
    let text = "sum by (a) (rate(x{l=~\"p|q\",m=\"r\"}[5m])) > 2 and on (a) (y > 0 or z * 4 >= 1)";
    let whole = variants("x > 1");
    assert_eq!(whole[0], ("`> 2` for `> 1`".to_owned(), "x > 2".to_owned()));
    let found: Vec<_> = variants(text).into_iter().map(|(what, _)| what).collect();
    for what in ["without `or z * 4 >= 1`", "`> 4` for `> 2`", "`> 1` for `> 2`", "without `> 0`"] {
        assert!(found.iter().any(|found| found == what), "{what}: {found:#?}");
    }
    assert_eq!(found.len(), 13, "{found:#?}");
}
