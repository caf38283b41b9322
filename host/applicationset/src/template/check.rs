//! Finds functions that do not exist in a parsed template, as Go does before it executes one.

use gotmpl::parse::{BranchNode, Expr, ListNode, Node, PipeNode};

use super::functions;

/// Looks for unknown functions.
///
/// # Errors
/// The first unknown function.
pub(super) fn list(list: &ListNode) -> Result<(), String> {
    list.nodes.iter().try_for_each(node)
}

fn node(node: &Node) -> Result<(), String> {
    match node {
        Node::List(nodes) => list(nodes),
        Node::Action(action) => pipe(&action.pipe),
        Node::If(branch_node) | Node::Range(branch_node) | Node::With(branch_node) => branch(branch_node),
        Node::Template(call) => call.pipe.as_ref().map_or(Ok(()), pipe),
        Node::Define(define) => list(&define.body),
        Node::Text(_) | Node::Break(_) | Node::Continue(_) => Ok(()),
    }
}

fn branch(branch: &BranchNode) -> Result<(), String> {
    pipe(&branch.pipe)?;
    list(&branch.body)?;
    branch.else_body.as_ref().map_or(Ok(()), list)
}

fn pipe(pipe: &PipeNode) -> Result<(), String> {
    pipe.commands
        .iter()
        .flat_map(|command| &command.args)
        .try_for_each(expression)
}

fn expression(expression: &Expr) -> Result<(), String> {
    match expression {
        Expr::Identifier(_, name) => functions::is_known(name.as_str())
            .then_some(())
            .ok_or_else(|| format!("function `{name}` is not defined")),
        Expr::Pipe(_, inner) => pipe(inner),
        Expr::Chain(_, inner, _) => self::expression(inner),
        Expr::Dot(_)
        | Expr::Field(_, _)
        | Expr::Variable(_, _, _)
        | Expr::String(_, _)
        | Expr::Number(_, _)
        | Expr::Bool(_, _)
        | Expr::Nil(_) => Ok(()),
    }
}
