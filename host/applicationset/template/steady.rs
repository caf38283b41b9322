//! Whether the projects of what a set generates stay what they are.
//!
//! In: a set's spec. Out: what makes them change from one rendering to the next. Never:
//! a no where a clock, chance, or what somebody else writes decides a project.
//!
//! A set is judged once and rendered again and again, by Argo CD's controller and with
//! nobody asked. A project that is written out stays; so does one that the elements of
//! lists give. `templatePatch` cannot change it.

use gotmpl::parse::{BranchNode, Expr, ListNode, Node, Parser, PipeNode};
use serde_json::Value;

use super::go::Go;
use crate::applicationset::{Engine, KindName, MissingKey, Spec};

/// Functions that give something else each time: by the clock, by chance, or, to Argo
/// CD, by the order of a Go map. Those of dates take the clock where they are given no
/// date.
const UNSTEADY: [&str; 29] = [
    "ago",
    "bcrypt",
    "buildCustomCert",
    "date",
    "dateInZone",
    "date_in_zone",
    "durationRound",
    "encryptAES",
    "genCA",
    "genCAWithKey",
    "genPrivateKey",
    "genSelfSignedCert",
    "genSelfSignedCertWithKey",
    "genSignedCert",
    "genSignedCertWithKey",
    "htmlDate",
    "htmlDateInZone",
    "htpasswd",
    "keys",
    "now",
    "randAlpha",
    "randAlphaNum",
    "randAscii",
    "randBytes",
    "randInt",
    "randNumeric",
    "shuffle",
    "uuidv4",
    "values",
];

/// Functions that change a map other texts of the template read.
const WRITING: [&str; 6] = [
    "merge",
    "mergeOverwrite",
    "mustMerge",
    "mustMergeOverwrite",
    "set",
    "unset",
];

/// What makes a project change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changing {
    /// A function in the text that gives the project.
    Function(&'static str),
    /// Parameters of a generator that asks others.
    Generator {
        /// It, from the root of the object.
        path: String,
        /// Its kind.
        kind: KindName,
    },
    /// Parameters that a text of a generator makes.
    Parameters {
        /// The generator, from the root of the object.
        path: String,
    },
}

/// Everything that makes projects of a set change.
pub fn changing(spec: &Spec) -> Vec<Changing> {
    let mut found = Vec::new();
    for (index, generator) in spec.generators.iter().enumerate() {
        for kind in &generator.kinds {
            let own = kind.settings.get("template");
            if !is_templated(own, &spec.template) {
                continue;
            }
            if let Some(name) = function(spec, own) {
                add(&mut found, Changing::Function(name));
            }
            let path = format!("spec.generators[{index}].{}", kind.name.as_str());
            inputs(spec.engine, (kind.name, &kind.settings), (0, path), &mut found);
        }
    }
    found
}

fn add(found: &mut Vec<Changing>, one: Changing) {
    if !found.contains(&one) {
        found.push(one);
    }
}

/// The template of a generator, then that of the set: what the former has, counts.
fn templates<'a>(own: Option<&'a Value>, base: &'a Value) -> impl Iterator<Item = &'a Value> {
    own.into_iter().chain(std::iter::once(base))
}

/// The text that gives the project.
fn project<'a>(own: Option<&'a Value>, base: &'a Value) -> &'a str {
    let texts = templates(own, base).filter_map(|template| template.pointer("/spec/project")?.as_str());
    let mut texts = texts.filter(|text| !text.is_empty());
    texts.next().unwrap_or_default()
}

/// Whether parameters decide the project; keys are templates too.
fn is_templated(own: Option<&Value>, base: &Value) -> bool {
    let has_keys = |object: Option<&Value>| {
        let mut fields = object.and_then(Value::as_object).into_iter().flatten();
        fields.any(|(key, _)| key.contains("{{"))
    };
    project(own, base).contains("{{")
        || templates(own, base).any(|template| has_keys(Some(template)) || has_keys(template.get("spec")))
}

/// The function that makes the project another one each time.
fn function(spec: &Spec, own: Option<&Value>) -> Option<&'static str> {
    if spec.engine == Engine::Fast {
        return None;
    }
    let texts = || {
        let mut texts = Vec::new();
        for template in templates(own, &spec.template) {
            collect(template, &mut texts);
        }
        texts.extend(spec.template_patch.as_deref());
        texts
    };
    let direct = called(project(own, &spec.template), &UNSTEADY);
    // What one text writes another one reads.
    let passed_on = || {
        let all = texts();
        let writes = all.iter().any(|text| called(text, &WRITING).is_some());
        let mut unsteady = all.iter().filter_map(|text| called(text, &UNSTEADY));
        unsteady.next().filter(|_| writes)
    };
    direct.or_else(passed_on)
}

/// Adds what of a generator's parameters changes.
///
/// - `renderings`: how often other generators' parameters are put into its texts.
fn inputs(
    engine: Engine,
    (kind, settings): (KindName, &Value),
    (renderings, path): (usize, String),
    found: &mut Vec<Changing>,
) {
    match kind {
        KindName::List => {
            if is_made(engine, settings, renderings) {
                add(found, Changing::Parameters { path });
            }
        }
        KindName::Matrix | KindName::Merge => {
            let children = settings.get("generators").and_then(Value::as_array);
            for (index, child) in children.into_iter().flatten().enumerate() {
                // Parameters of the first child are put into the second.
                let more = usize::from(kind == KindName::Matrix && index > 0);
                let known = KindName::ALL.into_iter();
                let known = known.filter_map(|kind| Some((kind, child.get(kind.as_str())?)));
                for (kind, settings) in known.filter(|(_, settings)| !settings.is_null()) {
                    let path = format!("{path}.generators[{index}].{}", kind.as_str());
                    let renderings = renderings.saturating_add(more);
                    inputs(engine, (kind, settings), (renderings, path), found);
                }
            }
        }
        KindName::Clusters
        | KindName::Git
        | KindName::ScmProvider
        | KindName::PullRequest
        | KindName::ClusterDecisionResource
        | KindName::Plugin => add(found, Changing::Generator { path, kind }),
    }
}

/// Whether a function could give other elements each time.
fn is_made(engine: Engine, settings: &Value, renderings: usize) -> bool {
    if engine == Engine::Fast || renderings == 0 {
        return false;
    }
    let mut texts = Vec::new();
    collect(settings, &mut texts);
    match renderings {
        1 => texts.iter().any(|text| called(text, &UNSTEADY).is_some()),
        // SECURITY: the second rendering runs what the first one wrote, which may be any
        // text at all.
        _ => texts.iter().any(|text| text.contains("{{")),
    }
}

fn collect<'a>(value: &'a Value, texts: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect(item, texts)),
        Value::Object(fields) => {
            for (key, value) in fields {
                texts.push(key);
                collect(value, texts);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The first of these functions that a text calls. What cannot be parsed is not
/// rendered either.
fn called(text: &str, names: &[&'static str]) -> Option<&'static str> {
    // Most texts are not parsed for this.
    if !text.contains("{{") || !names.iter().any(|name| text.contains(name)) {
        return None;
    }
    // Which has the bounds the parser lacks.
    Go::new(text, MissingKey::Default).ok()?;
    let (body, defines) = Parser::new(text, "{{", "}}").and_then(Parser::parse).ok()?;
    let mut lists = std::iter::once(&body).chain(defines.iter().map(|define| &define.body));
    lists.find_map(|list| in_list(list, names))
}

fn in_list(list: &ListNode, names: &[&'static str]) -> Option<&'static str> {
    list.nodes.iter().find_map(|node| in_node(node, names))
}

fn in_node(node: &Node, names: &[&'static str]) -> Option<&'static str> {
    match node {
        Node::List(nodes) => in_list(nodes, names),
        Node::Action(action) => in_pipe(&action.pipe, names),
        Node::If(branch) | Node::Range(branch) | Node::With(branch) => in_branch(branch, names),
        Node::Template(call) => call.pipe.as_ref().and_then(|pipe| in_pipe(pipe, names)),
        Node::Define(define) => in_list(&define.body, names),
        Node::Text(_) | Node::Break(_) | Node::Continue(_) => None,
    }
}

fn in_branch(branch: &BranchNode, names: &[&'static str]) -> Option<&'static str> {
    let body = || in_list(&branch.body, names);
    let otherwise = || branch.else_body.as_ref().and_then(|list| in_list(list, names));
    in_pipe(&branch.pipe, names).or_else(body).or_else(otherwise)
}

fn in_pipe(pipe: &PipeNode, names: &[&'static str]) -> Option<&'static str> {
    let mut arguments = pipe.commands.iter().flat_map(|command| &command.args);
    arguments.find_map(|argument| in_expression(argument, names))
}

fn in_expression(expression: &Expr, names: &[&'static str]) -> Option<&'static str> {
    match expression {
        Expr::Identifier(_, found) => names.iter().copied().find(|name| *name == found.as_str()),
        Expr::Pipe(_, inner) => in_pipe(inner, names),
        Expr::Chain(_, inner, _) => in_expression(inner, names),
        Expr::Dot(_)
        | Expr::Field(_, _)
        | Expr::Variable(_, _, _)
        | Expr::String(_, _)
        | Expr::Number(_, _)
        | Expr::Bool(_, _)
        | Expr::Nil(_) => None,
    }
}

#[cfg(test)]
mod tests;
