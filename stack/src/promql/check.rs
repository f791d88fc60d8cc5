//! Type rules that the parser applies while it builds nodes.

use super::ParseError;
use super::ast::{Binary, Expr, Type};

/// Refuses an expression of another type than `wanted`.
pub(super) fn expect_type(
    expr: &Expr,
    wanted: Type,
    place: &str,
    at: usize,
) -> Result<(), ParseError> {
    if expr.kind() == wanted {
        return Ok(());
    }
    let message = format!("expected type {} in {place}, got {}", wanted.name(), expr.kind().name());
    Err(ParseError::new(at, message))
}

/// A binary node whose operands suit its operator; `at` is the place of the operator.
pub(super) fn binary(node: Binary, at: usize) -> Result<Expr, ParseError> {
    let (left, right) = (node.left.kind(), node.right.kind());
    let operand = |kind| matches!(kind, Type::Scalar | Type::Vector);
    let scalars = usize::from(left == Type::Scalar) + usize::from(right == Type::Scalar);
    let message = if !operand(left) || !operand(right) {
        "binary expression must contain only scalar and instant vector types"
    } else if scalars == 2 && node.op.is_comparison() && !node.return_bool {
        "comparisons between scalars must use BOOL modifier"
    } else if scalars > 0 && node.op.is_set() {
        "set operators not allowed in binary scalar expression"
    } else if scalars > 0 && (node.matching.on || !node.matching.labels.is_empty()) {
        "vector matching only allowed between instant vectors"
    } else {
        return Ok(Expr::Binary(Box::new(node)));
    };
    Err(ParseError::new(at, message))
}
