//! Parses and renders one Go template. An unknown function is an error at parse time.

use std::collections::BTreeMap;

use gotmpl::parse::{DefineNode, Expr, ListNode, Node, Parser, PipeNode};

use super::{AuthorizationImpact, Error, ExecError, RenderContext};
use super::{divergent, excerpt, exec, functions, portable};
use crate::MissingKey;
use crate::message::truncated;

/// Appended to every source. The parser silently stops at an `{{end}}` that closes nothing; then
/// this is not the last character it saw.
const END_MARK: char = '\u{2}';

/// Maximum number of `else` in one template.
const MAX_ELSE: usize = 1_000;

/// A template and the templates it defines.
#[derive(Debug)]
pub(super) struct GoTemplate {
    source: String,
    body: ListNode,
    defines: BTreeMap<String, ListNode>,
    missing_key: MissingKey,
    /// Whether functions refuse input that Argo CD's could treat differently.
    is_strict: bool,
}

impl GoTemplate {
    pub(super) fn new(source: &str, missing_key: MissingKey, impact: AuthorizationImpact) -> Result<Self, Error> {
        let differs = |what: String| divergent(&what, excerpt(source));
        let syntax = |message: String| Error::Syntax {
            template: excerpt(source),
            message: truncated(&message),
        };
        let may_change = match impact {
            AuthorizationImpact::None => None,
            // SECURITY: changes that one template makes to the parameters are visible to the
            // others.
            AuthorizationImpact::Indirect => portable::may_mutate_params(source).then_some(true),
            AuthorizationImpact::Direct => Some(false),
        };
        if may_change.is_some() {
            portable::check_source(source).map_err(differs)?;
        }
        // SECURITY: the parser recurses once for each `{{else if}}` of a chain, without a limit.
        let chain = source.matches("else").count();
        if chain > MAX_ELSE {
            return Err(syntax(format!(
                "it has `else` {chain} times, at most {MAX_ELSE} are allowed"
            )));
        }
        let marked = format!("{source}{END_MARK}");
        let (body, defines) = Parser::new(&marked, "{{", "}}")
            .and_then(Parser::parse)
            .map_err(|error| syntax(error.to_string().replace(END_MARK, "")))?;
        let parsed = Self {
            source: source.to_owned(),
            body: unmarked(body).ok_or_else(|| syntax("unexpected `{{end}}` or `{{else}}`".to_owned()))?,
            defines: defined(defines).map_err(syntax)?,
            missing_key,
            is_strict: may_change.is_some(),
        };
        // Go finds functions that do not exist before it executes anything.
        if let Some(name) = parsed.functions().into_iter().find(|name| !functions::is_known(name)) {
            return Err(syntax(format!("function `{name}` is not defined")));
        }
        if let Some(may_change) = may_change {
            portable::check_tree(&parsed.body, may_change).map_err(differs)?;
        }
        Ok(parsed)
    }

    /// The names of the functions that it calls, here and in the templates it defines.
    pub(super) fn functions(&self) -> Vec<&str> {
        let mut found = Vec::new();
        for list in std::iter::once(&self.body).chain(self.defines.values()) {
            add_functions(list, &mut found);
        }
        found
    }

    pub(super) fn render(&self, context: &RenderContext<'_>) -> Result<String, Error> {
        self.execute(context).map_err(|error| error.at(&self.source))
    }

    fn execute(&self, context: &RenderContext<'_>) -> Result<String, ExecError> {
        let (heap, root) = context.values()?;
        // All strings of a render share the heap, and each has its own setting.
        heap.strict.set(self.is_strict);
        exec::run(heap, &self.body, root, &self.defines, self.missing_key)
    }
}

/// The body without its end mark, if it ends with the mark.
fn unmarked(mut body: ListNode) -> Option<ListNode> {
    let Some(Node::Text(last)) = body.nodes.last_mut() else {
        return None;
    };
    let text = last.text.strip_suffix(END_MARK)?;
    if text.is_empty() {
        body.nodes.pop();
    } else {
        last.text = text.into();
    }
    Some(body)
}

/// The defined templates by name. An empty one never replaces another; two of one name that are
/// not empty are an error.
fn defined(nodes: Vec<DefineNode>) -> Result<BTreeMap<String, ListNode>, String> {
    let mut defines: BTreeMap<String, ListNode> = BTreeMap::new();
    for node in nodes {
        let name = node.name.to_string();
        if defines.get(&name).is_none_or(ListNode::is_empty_tree) {
            defines.insert(name, node.body);
        } else if !node.body.is_empty_tree() {
            return Err(format!("multiple definition of template `{name}`"));
        }
    }
    Ok(defines)
}

/// Adds the names of all functions, as often as they are called, in the order of the text.
fn add_functions<'t>(list: &'t ListNode, found: &mut Vec<&'t str>) {
    for node in &list.nodes {
        match node {
            Node::List(nodes) => add_functions(nodes, found),
            Node::Action(action) => in_pipe(&action.pipe, found),
            Node::If(branch) | Node::Range(branch) | Node::With(branch) => {
                in_pipe(&branch.pipe, found);
                add_functions(&branch.body, found);
                branch.else_body.iter().for_each(|list| add_functions(list, found));
            }
            Node::Template(call) => call.pipe.iter().for_each(|pipe| in_pipe(pipe, found)),
            Node::Define(define) => add_functions(&define.body, found),
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
