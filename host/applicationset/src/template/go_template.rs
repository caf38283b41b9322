//! Parses and renders one Go template. An unknown function is an error at parse time.

use std::collections::BTreeMap;

use gotmpl::parse::{DefineNode, ListNode, Node, Parser};

use super::{
    AuthorizationImpact, Error, ExecError, RenderContext, calls, divergent, excerpt, exec, functions, portable,
    truncated,
};
use crate::MissingKey;

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
    /// Parses `source`.
    ///
    /// # Errors
    /// [`Error::Syntax`]; [`Error::Divergent`].
    pub(super) fn new(source: &str, missing_key: MissingKey, impact: AuthorizationImpact) -> Result<Self, Error> {
        let differs = |what: String| divergent(&what, excerpt(source));
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
        let parsed = Self::parsed(source, missing_key)?;
        if let Some(may_change) = may_change {
            portable::check_tree(&parsed.body, may_change).map_err(differs)?;
        }
        Ok(Self {
            is_strict: may_change.is_some(),
            ..parsed
        })
    }

    fn parsed(source: &str, missing_key: MissingKey) -> Result<Self, Error> {
        let syntax = |message: String| Error::Syntax {
            template: excerpt(source),
            message: truncated(&message),
        };
        // SECURITY: the parser recurses once for each `{{else if}}` of a chain, without a limit of
        // its own.
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
        let body = unmarked(body).ok_or_else(|| syntax("unexpected `{{end}}` or `{{else}}`".to_owned()))?;
        let defines = defined(defines).map_err(syntax)?;
        let parsed = Self {
            source: source.to_owned(),
            body,
            defines,
            missing_key,
            is_strict: false,
        };
        // Go finds functions that do not exist before it executes anything.
        match parsed.functions().into_iter().find(|name| !functions::is_known(name)) {
            Some(name) => Err(syntax(format!("function `{name}` is not defined"))),
            None => Ok(parsed),
        }
    }

    /// The names of the functions that it calls, here and in the templates it defines.
    pub(super) fn functions(&self) -> Vec<&str> {
        let mut found = Vec::new();
        for list in std::iter::once(&self.body).chain(self.defines.values()) {
            calls::functions(list, &mut found);
        }
        found
    }

    /// Executes the template.
    ///
    /// # Errors
    /// [`Error::Execute`], [`Error::MissingKey`], [`Error::TemplateLimit`], [`Error::Divergent`],
    /// [`Error::Exceeded`].
    pub(super) fn render(&self, context: &mut RenderContext<'_>) -> Result<String, Error> {
        self.execute(context).map_err(|error| error.at(&self.source))
    }

    fn execute(&self, context: &mut RenderContext<'_>) -> Result<String, ExecError> {
        let (heap, root) = context.values()?;
        heap.strict = self.is_strict;
        exec::run(heap, (&self.body, &root), &self.defines, self.missing_key)
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
        let before = defines.get(&name);
        if before.is_some_and(|before| !before.is_empty_tree()) {
            if node.body.is_empty_tree() {
                continue;
            }
            return Err(format!("multiple definition of template `{name}`"));
        }
        defines.insert(name, node.body);
    }
    Ok(defines)
}
