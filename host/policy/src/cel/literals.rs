//! Collects the text literals of a parsed expression that can be its result, or the start of its
//! result. Literals that are only compared or used as keys are left out.

use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, operators};

/// A text literal that can be a result, or its start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResultLiteral {
    /// The whole of a possible result.
    Exact(String),
    /// The start of a possible result; the rest is computed.
    Prefix(String),
}

pub(super) fn collect(root: &IdedExpr) -> Vec<ResultLiteral> {
    let mut found = Vec::new();
    visit(root, &mut found);
    found
}

fn visit(expr: &IdedExpr, found: &mut Vec<ResultLiteral>) {
    match &expr.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Select(_) | Expr::Struct(_) => {}
        Expr::Literal(LiteralValue::String(text)) => found.push(ResultLiteral::Exact(text.inner().to_owned())),
        Expr::Literal(_) => {}
        Expr::Call(call) => match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::ADD, [first, rest]) => {
                if let Some(text) = leading(first) {
                    found.push(ResultLiteral::Prefix(text));
                } else {
                    // Either two lists, or a text that starts with a computed part.
                    visit(first, found);
                    visit(rest, found);
                }
            }
            (operators::CONDITIONAL, [_, yes, no]) => {
                visit(yes, found);
                visit(no, found);
            }
            _ => {}
        },
        Expr::List(list) => list.elements.iter().for_each(|one| visit(one, found)),
        Expr::Map(map) => map.entries.iter().for_each(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => visit(&entry.value, found),
            EntryExpr::StructField(entry) => visit(&entry.value, found),
        }),
        Expr::Comprehension(comprehension) => {
            // `filter` passes on the items of its list, `map` what its step makes of them.
            visit(&comprehension.iter_range, found);
            visit(&comprehension.loop_step, found);
        }
    }
}

/// The literal with which a concatenation of texts starts.
fn leading(expr: &IdedExpr) -> Option<String> {
    match &expr.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner().to_owned()),
        Expr::Call(call) if call.func_name == operators::ADD => leading(call.args.first()?),
        _ => None,
    }
}
