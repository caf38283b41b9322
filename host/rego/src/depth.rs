//! How deep the evaluation of a rule nests, in levels of some kilobytes of stack.
//!
//! The interpreter calls itself for each part of an expression, and evaluates what follows a loop
//! within the loop.

use regorus::unstable::{Expr, Literal, Query, Rule};

use crate::syntax;

/// Levels of a call of a rule or function.
const CALL: usize = 8;
/// Levels of a query: a body, a comprehension, `every`.
const QUERY: usize = 4;
/// Levels of a loop.
const LOOP: usize = 4;

/// The levels of a rule without those of the rules that it uses.
pub(crate) fn of_rule(rule: &Rule) -> usize {
    let deepest = match rule {
        Rule::Default { value, .. } => of_expr(value),
        Rule::Spec { head, bodies, .. } => {
            let (name, arguments, value) = syntax::head_parts(head);
            let arguments = arguments.iter().map(|argument| &**argument);
            let heads = value.into_iter().chain([name]).chain(arguments);
            let heads = heads.map(in_loops);
            let bodies = bodies.iter().map(|body| {
                let value = body.assign.as_ref().map_or(0, |assign| in_loops(&assign.value));
                of_query(&body.query).saturating_add(value)
            });
            let heads = heads.max().unwrap_or(0);
            heads.saturating_add(bodies.max().unwrap_or(0))
        }
    };
    deepest.saturating_add(CALL)
}

fn of_query(query: &Query) -> usize {
    let (mut loops, mut deepest) = (0_usize, 0);
    for statement in &query.stmts {
        let (own, depth) = match &statement.literal {
            Literal::SomeVars { .. } => (0, 0),
            Literal::SomeIn { collection, .. } => (loops_in(collection).saturating_add(1), of_expr(collection)),
            Literal::Expr { expr, .. } | Literal::NotExpr { expr, .. } => (loops_in(expr), of_expr(expr)),
            Literal::Every { domain, query, .. } => (loops_in(domain), of_expr(domain).max(of_query(query))),
        };
        loops = loops.saturating_add(own);
        deepest = deepest.max(depth);
    }
    loops.saturating_mul(LOOP).saturating_add(deepest).saturating_add(QUERY)
}

fn in_loops(expr: &Expr) -> usize {
    loops_in(expr).saturating_mul(LOOP).saturating_add(of_expr(expr))
}

fn of_expr(expr: &Expr) -> usize {
    let syntax::Parts { exprs, query } = syntax::parts(expr);
    let parts = exprs.into_iter();
    let depth = match query {
        Some(query) => parts.map(in_loops).sum::<usize>().saturating_add(of_query(query)),
        None => parts.map(of_expr).max().unwrap_or(0),
    };
    depth.saturating_add(1)
}

/// The loops that the indices of an expression can be, outside of comprehensions.
fn loops_in(expr: &Expr) -> usize {
    let own = match expr {
        Expr::RefBrack { index, .. } => match **index {
            Expr::String { .. } | Expr::RawString { .. } | Expr::Number { .. } => 0,
            _ => 1,
        },
        _ => 0,
    };
    let syntax::Parts { exprs, query } = syntax::parts(expr);
    let parts = exprs.into_iter().filter(|_| query.is_none());
    parts.map(loops_in).fold(own, usize::saturating_add)
}
