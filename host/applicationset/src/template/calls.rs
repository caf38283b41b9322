//! Finds the functions that a parsed template calls.

use gotmpl::parse::{Expr, ListNode, Node, PipeNode};

/// Adds the names of all functions, as often as they are called, in the order of the text.
pub(super) fn functions<'t>(list: &'t ListNode, found: &mut Vec<&'t str>) {
    for node in &list.nodes {
        match node {
            Node::List(nodes) => functions(nodes, found),
            Node::Action(action) => in_pipe(&action.pipe, found),
            Node::If(branch) | Node::Range(branch) | Node::With(branch) => {
                in_pipe(&branch.pipe, found);
                functions(&branch.body, found);
                branch.else_body.iter().for_each(|list| functions(list, found));
            }
            Node::Template(call) => call.pipe.iter().for_each(|pipe| in_pipe(pipe, found)),
            Node::Define(define) => functions(&define.body, found),
            Node::Text(_) | Node::Break(_) | Node::Continue(_) => {}
        }
    }
}

fn in_pipe<'t>(pipe: &'t PipeNode, found: &mut Vec<&'t str>) {
    for argument in pipe.commands.iter().flat_map(|command| &command.args) {
        in_expression(argument, found);
    }
}

fn in_expression<'t>(expression: &'t Expr, found: &mut Vec<&'t str>) {
    match expression {
        Expr::Identifier(_, name) => found.push(name),
        Expr::Pipe(_, inner) => in_pipe(inner, found),
        Expr::Chain(_, inner, _) => in_expression(inner, found),
        _ => {}
    }
}
